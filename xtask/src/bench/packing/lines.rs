//! A synthetic load as commands for `packhorse run`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::load::{STEPS, SyntheticLoad, SyntheticTask};

/// The peak of an earlier trial run on less data, in per cent of the least that a task of
/// the kind needs.
const GUESS: u64 = 60;

/// How long such a trial holds its memory.
const TRIAL: Duration = Duration::from_millis(300);

/// All tasks. What is learned about one counts for its kind.
pub fn all(load: &SyntheticLoad, program: &Path) -> String {
    let mut text = String::new();
    for task in &load.tasks {
        // The program waits after each step; the last ends at the peak.
        let step = task.grown() / (STEPS - 1);
        let hold = task.lasts.saturating_sub(step * STEPS);
        let options = format!(
            "--steps {STEPS} --step-time {}ms --hold {}ms",
            step.as_millis(),
            hold.as_millis()
        );
        line(&mut text, program, task, task.peak.0, &options);
    }
    text
}

/// One short task of each kind, from which too small a peak is learned.
pub fn wrong_guesses(load: &SyntheticLoad, program: &Path) -> String {
    let mut least: Vec<&SyntheticTask> = Vec::new();
    for task in &load.tasks {
        match least.iter_mut().find(|other| other.kind == task.kind) {
            Some(other) if other.peak <= task.peak => {}
            Some(other) => *other = task,
            None => least.push(task),
        }
    }
    let mut text = String::new();
    for task in least {
        let options = format!("--hold {}ms", TRIAL.as_millis());
        let peak = task.peak.0 * GUESS / 100;
        line(&mut text, program, task, peak, &options);
    }
    text
}

fn line(text: &mut String, program: &Path, task: &SyntheticTask, peak: u64, options: &str) {
    let (kind, program) = (task.kind, program.display());
    let mebibytes = peak >> 20;
    let _ =
        writeln!(text, "#packhorse signature=kind-{kind}\n{program} --peak {mebibytes}M {options}");
}

#[cfg(test)]
mod tests {
    use packhorse_model::Bytes;

    use super::*;

    fn load() -> SyntheticLoad {
        let task = |kind, gibibytes: u64| SyntheticTask {
            kind,
            peak: Bytes(gibibytes << 30),
            lasts: Duration::from_millis(1200),
        };
        SyntheticLoad {
            gpus: 1,
            capacity: Bytes(24 << 30),
            tasks: vec![task(0, 2), task(1, 5), task(0, 1)],
        }
    }

    #[test]
    fn command_lasts_as_long_as_its_member() {
        let text = all(&load(), Path::new("cuda"));
        let second: Vec<&str> = text.lines().skip(2).take(2).collect();
        let wanted = "cuda --peak 5120M --steps 4 --step-time 100ms --hold 800ms";
        assert_eq!(second, ["#packhorse signature=kind-1", wanted]);
    }

    #[test]
    fn guess_is_below_the_least_of_its_kind() {
        let text = wrong_guesses(&load(), Path::new("cuda"));
        let peaks: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(peaks.len(), 2);
        assert!(peaks[0].starts_with("cuda --peak 614M --hold"), "{text}");
    }
}
