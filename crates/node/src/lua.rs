//! The filters of `sbatch` and of `slurmctld`: the rules of the configuration, in Lua.
//!
//! They read the configuration itself, each time it is needed, so that a rule is written in
//! one place. Lua has no reader for TOML; the few lines they need of it are in `rules.lua`.

/// What both filters have in common.
const RULES: &str = include_str!("rules.lua");

/// What a site's own `cli_filter.lua` needs to use ours in this file. If that cannot be read, only
/// jobs with `mps` are refused.
pub fn calls_cli_filter(file: &str) -> String {
    include_str!("calls_cli_filter.lua").replace("@FILE@", file)
}

/// The same for `job_submit.lua`.
pub fn calls_job_submit(file: &str) -> String {
    include_str!("calls_job_submit.lua").replace("@FILE@", file)
}

/// `cli_filter.lua`, which reads the rules from this file.
pub fn cli_filter(config: &str) -> String {
    format!("{}\n{}", RULES.replace("@CONFIG@", config), include_str!("cli_filter.lua"))
}

/// `job_submit.lua`, which reads the rules from this file.
pub fn job_submit(config: &str) -> String {
    format!("{}\n{}", RULES.replace("@CONFIG@", config), include_str!("job_submit.lua"))
}
