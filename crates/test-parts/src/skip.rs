//! Which parts this run of the tests leaves out.

use std::env;
use std::io::Write as _;
use std::sync::LazyLock;

use crate::part::Part;

/// The variable that names the parts to leave out.
pub const SKIP: &str = "PACKHORSE_SKIP";

/// The variable that names the file in which tests record that they were left out.
pub const SKIPPED: &str = "PACKHORSE_SKIPPED";

/// Returns whether a test that needs this part runs. Panics where the part is missing.
pub fn must_run(part: Part) -> bool {
    static PARTS: LazyLock<Vec<Part>> = LazyLock::new(|| {
        let names = env::var(SKIP).unwrap_or_default();
        let parts = parse_parts(&names).unwrap_or_else(|problem| panic!("{problem}"));
        let in_ci = env::var_os("CI").is_some_and(|value| value == "true");
        assert!(parts.is_empty() || !in_ci, "with CI=true no test is left out: unset {SKIP}");
        parts
    });
    if PARTS.contains(&part) {
        record(part);
        return false;
    }
    must_be_there(part);
    true
}

/// Panics where a part is missing.
pub fn must_be_there(part: Part) {
    if let Some(missing) = part.missing() {
        panic!("{}", failure(part, &missing));
    }
}

fn failure(part: Part, missing: &str) -> String {
    let name = part.name();
    format!(
        "this test needs {name}: {missing}\n  \
         hint: `cargo xtask test` installs it; {SKIP}={name} leaves such tests out"
    )
}

/// The parts that a value of `PACKHORSE_SKIP` names.
pub fn parse_parts(names: &str) -> Result<Vec<Part>, String> {
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    let mut parts = Vec::new();
    for name in names {
        match Part::ALL.into_iter().find(|part| part.name() == name) {
            Some(part) => parts.push(part),
            None if name == "all" => parts.extend(Part::ALL),
            None => {
                let known = Part::ALL.map(Part::name).join(", ");
                return Err(format!("{SKIP}: there is no part `{name}`; there are {known}, all"));
            }
        }
    }
    Ok(parts)
}

/// Appends a line with the part, the program and the test: one write, so that tests do not mix theirs.
fn record(part: Part) {
    let Some(file) = env::var_os(SKIPPED) else { return };
    let program = env::current_exe().unwrap_or_default();
    let program = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let line = format!("{} {program} {test}\n", part.name());
    let mut options = fs_err::OpenOptions::new();
    let file = options.append(true).create(true).open(std::path::PathBuf::from(file));
    let mut file = file.unwrap_or_else(|error| panic!("{SKIPPED}: {error}"));
    file.write_all(line.as_bytes()).unwrap_or_else(|error| panic!("{SKIPPED}: {error}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts_are_separated_by_commas() {
        assert_eq!(parse_parts(""), Ok(Vec::new()));
        assert_eq!(parse_parts("slurm, torch"), Ok(vec![Part::Slurm, Part::Torch]));
        assert_eq!(parse_parts("all"), Ok(Part::ALL.to_vec()));
        let problem = parse_parts("slurm,tourch").unwrap_err();
        assert!(problem.contains("no part `tourch`; there are slurm, slurm-24"), "{problem}");
    }

    #[test]
    fn a_missing_part_is_named_with_the_way_out() {
        let text = failure(Part::Podman, "no crun");
        assert!(text.contains("needs podman: no crun"), "{text}");
        assert!(text.contains("PACKHORSE_SKIP=podman"), "{text}");
    }
}
