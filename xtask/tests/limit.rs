//! The limit program, and the job that tells when it ran.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;
use std::process::{Command, ExitStatus};

use tempfile::TempDir;

fn limit(slots: &str, count: &str, command: &[&str]) -> ExitStatus {
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask.args(["limit", "--slots", slots, "--count", count, "--"]);
    xtask.args(command).status().unwrap()
}

/// The start and end of every job, in nanoseconds.
fn stamps(path: &Path) -> Vec<(u64, u64)> {
    let text = fs_err::read_to_string(path).unwrap();
    let pair = |line: &str| {
        let (start, end) = line.split_once(' ').unwrap();
        (start.parse().unwrap(), end.parse().unwrap())
    };
    text.lines().map(pair).collect()
}

#[test]
fn limit_runs_all_with_so_many_in_flight_and_no_more() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("stamps");
    let job = [env!("CARGO_BIN_EXE_bench-job"), path.to_str().unwrap(), "5"];
    assert!(limit("3", "10", &job).success());

    let stamps = stamps(&path);
    assert_eq!(stamps.len(), 10);
    for &(start, end) in &stamps {
        assert!(end - start >= 5_000_000, "it slept {} ns", end - start);
        let in_flight = stamps.iter().filter(|job| job.0 <= start && start < job.1);
        assert!(in_flight.count() <= 3);
    }
}

#[test]
fn limit_fails_when_a_job_did() {
    assert_eq!(limit("2", "4", &["/bin/false"]).code(), Some(1));
    assert_eq!(limit("2", "4", &["/bin/true"]).code(), Some(0));
    assert!(!limit("2", "4", &["/nowhere/at/all"]).success());
}

#[test]
fn job_without_a_file_to_write_to_fails() {
    let mut job = Command::new(env!("CARGO_BIN_EXE_bench-job"));
    assert_eq!(job.status().unwrap().code(), Some(2));
    let unwritable = job.arg("/nowhere/at/all").status().unwrap();
    assert_eq!(unwritable.code(), Some(1));
}
