use std::time::Duration;

use anyhow::Context as _;
use packhorse_model::parse_duration;

/// The length of time that a variable of the environment sets, if it is set.
pub fn patience(variable: &str) -> anyhow::Result<Option<Duration>> {
    let set = std::env::var(variable).ok();
    let set = set.filter(|text| !text.is_empty());
    set.map(|text| parse_duration(&text).with_context(|| format!("{variable} is wrong")))
        .transpose()
}
