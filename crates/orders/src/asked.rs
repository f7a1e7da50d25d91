//! What Slurm says that a job asked for.

/// The words of `scontrol -d show job` that list what a job has, or waits for: after it was sent
/// back to the queue, the first is missing.
const LISTS: [&str; 5] =
    ["JOB_GRES=", "TresPerNode=", "TresPerJob=", "TresPerTask=", "TresPerSocket="];

/// Whether `mps` is in what `scontrol -d show job` says of a job.
pub fn asks_for_mps(answer: &str) -> bool {
    let words = answer.split_whitespace();
    let lists = words.filter_map(|word| LISTS.iter().find_map(|list| word.strip_prefix(list)));
    let mut parts = lists.flat_map(|list| list.split(','));
    parts.any(|part| {
        let part =
            ["gres:", "gres/"].iter().find_map(|prefix| part.strip_prefix(prefix)).unwrap_or(part);
        part.split([':', '=', '(']).next() == Some("mps")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mps_is_found_as_every_release_writes_it() {
        for answer in [
            "   JOB_GRES=mps:64\n     Nodes=n1 GRES=mps:64(IDX:0)\n",
            "JOB_GRES=gpu:1,mps:titanrtx:64",
            "TresPerNode=gres:mps:64",
            "TresPerNode=gres/gpu:1,gres/mps:64",
            "TresPerTask=cpu=1,gres/mps=64",
        ] {
            assert!(asks_for_mps(answer), "{answer}");
        }
        for answer in [
            "",
            "JobId=1 JobName=mps JOB_GRES=gpu:titanrtx:1 TresPerNode=gres:gpu:1",
            "TresPerNode=gres",
            "JOB_GRES=(null) Comment=gres:mps:64",
            "JOB_GRES=mpsx:1",
        ] {
            assert!(!asks_for_mps(answer), "{answer}");
        }
    }
}
