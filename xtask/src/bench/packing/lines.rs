//! A crowd as commands for `packhorse run`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use packhorse_sim::{Crowd, Member};

/// A member's memory grows in so many steps.
const STEPS: u32 = 4;

/// What an earlier trial run saw: so many per cent of the least that a task of
/// the kind needs. It ran on less data.
const GUESS: u64 = 60;

/// How long such a trial holds its memory.
const TRIAL: Duration = Duration::from_millis(300);

/// Every member, remembered by its kind.
pub fn all(crowd: &Crowd, program: &Path) -> String {
    let mut text = String::new();
    for member in &crowd.members {
        // The last step is taken when the memory has grown; it waits after each.
        let step = member.grown() / (STEPS - 1);
        let hold = member.lasts.saturating_sub(step * STEPS);
        let options = format!(
            "--steps {STEPS} --step-time {}ms --hold {}ms",
            step.as_millis(),
            hold.as_millis()
        );
        line(&mut text, program, member, member.peak.0, &options);
    }
    text
}

/// One short run of each kind, from which too little is learned.
pub fn wrong_guesses(crowd: &Crowd, program: &Path) -> String {
    let mut least: Vec<&Member> = Vec::new();
    for member in &crowd.members {
        match least.iter_mut().find(|other| other.kind == member.kind) {
            Some(other) if other.peak <= member.peak => {}
            Some(other) => *other = member,
            None => least.push(member),
        }
    }
    let mut text = String::new();
    for member in least {
        let options = format!("--hold {}ms", TRIAL.as_millis());
        let peak = member.peak.0 * GUESS / 100;
        line(&mut text, program, member, peak, &options);
    }
    text
}

fn line(text: &mut String, program: &Path, member: &Member, peak: u64, options: &str) {
    let (kind, program) = (member.kind, program.display());
    let mebibytes = peak >> 20;
    let _ = writeln!(
        text,
        "#packhorse signature=kind-{kind}\n{program} --peak {mebibytes}M {options}"
    );
}

#[cfg(test)]
mod tests {
    use packhorse_model::Bytes;

    use super::*;

    fn crowd() -> Crowd {
        let member = |kind, gibibytes: u64| Member {
            kind,
            peak: Bytes(gibibytes << 30),
            lasts: Duration::from_millis(1200),
        };
        Crowd {
            gpus: 1,
            capacity: Bytes(24 << 30),
            members: vec![member(0, 2), member(1, 5), member(0, 1)],
        }
    }

    #[test]
    fn command_lasts_as_long_as_its_member() {
        let text = all(&crowd(), Path::new("cuda"));
        let second: Vec<&str> = text.lines().skip(2).take(2).collect();
        let wanted = "cuda --peak 5120M --steps 4 --step-time 100ms --hold 800ms";
        assert_eq!(second, ["#packhorse signature=kind-1", wanted]);
    }

    #[test]
    fn guess_is_below_the_least_of_its_kind() {
        let text = wrong_guesses(&crowd(), Path::new("cuda"));
        let peaks: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(peaks.len(), 2);
        assert!(peaks[0].starts_with("cuda --peak 614M --hold"), "{text}");
    }
}
