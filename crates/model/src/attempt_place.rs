use std::fmt;

/// Where an attempt was placed, as it is recorded: `0,1` here, `0@n1,1@n1` on a node of a
/// cluster, `@n1` on one without a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptPlace {
    /// The node of a cluster; `None` if it is this machine.
    pub node: Option<String>,
    /// Its GPUs, as people call them.
    pub gpus: Vec<String>,
}

impl AttemptPlace {
    /// Reads what was recorded.
    pub fn parse(text: &str) -> Self {
        let mut node = None;
        let gpus = text.split(',').filter_map(|part| {
            let Some((gpu, on)) = part.rsplit_once('@') else {
                return Some(part.to_owned());
            };
            node = Some(on.to_owned());
            (!gpu.is_empty()).then(|| gpu.to_owned())
        });
        let gpus = gpus.filter(|gpu| !gpu.is_empty()).collect();
        Self { node, gpus }
    }
}

impl fmt::Display for AttemptPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = self.node.as_ref().map(|node| format!("@{node}"));
        let on = on.unwrap_or_default();
        if self.gpus.is_empty() {
            return f.write_str(&on);
        }
        let gpus: Vec<String> = self.gpus.iter().map(|gpu| format!("{gpu}{on}")).collect();
        f.write_str(&gpus.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        for text in ["0", "0,1", "0@n1,1@n1", "@n1", "", "MIG-1/2@a.b"] {
            assert_eq!(AttemptPlace::parse(text).to_string(), text);
        }
        let place = AttemptPlace::parse("0@n1,1@n1");
        assert_eq!(place.node.as_deref(), Some("n1"));
        assert_eq!(place.gpus, ["0", "1"]);
    }
}
