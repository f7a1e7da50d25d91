//! A state folder that a packhorse of version 2 has left: `data/version-2`, made with
//! its binary. It holds
//!
//! 1. plain lines, one of which failed
//! 2. tasks with every directive, and a run with many options
//! 3. one command given as words
//! 4. a command that is not UTF-8
//! 5. a CSV file that is consumed, with a folder that is not UTF-8
//! 6. a sweep that was interrupted
//! 7. two files separated by NUL bytes, interrupted
//! 8. commands that were probed and measured
//! 9. a command that ran out of GPU memory at every size
//! 10. a GPU that fell off the bus
//! 11. a run that was killed with three ends not committed
//!
//! All ran in `/tmp/packhorse-fixture`. Its crash journal has no boot id: tests put
//! that of this boot in.

mod support;

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use packhorse_model::{
    Ageing, Bytes, Command, GpuRequest, Grace, Milli, Outcome, PeakOrigin, Placing, PoolSpec,
    Priority, ProbeSpec, RunId, RunSpec, SourceSpec, SweepSpec, TaskId, TaskSpec, TimeLimit,
    VramRequest,
};
use packhorse_store::{Reader, RunState, StoredTask, TaskFilter};
use support::*;

const WORK: &str = "/tmp/packhorse-fixture/work";

/// A copy of the folder, with a folder for each run as it was.
#[expect(clippy::unwrap_used, reason = "this is part of tests")]
fn version_2() -> TestHome {
    let test = test_home();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/version-2");
    fs_err::copy(data.join("packhorse.db"), test.home.db()).unwrap();
    let slates = test.home.path().join("slates");
    fs_err::create_dir(&slates).unwrap();
    for file in fs_err::read_dir(data.join("slates")).unwrap() {
        let file = file.unwrap();
        let mut bytes = fs_err::read(file.path()).unwrap();
        let boot = fs_err::read("/proc/sys/kernel/random/boot_id").unwrap();
        bytes[32..][..boot.len()].copy_from_slice(&boot);
        fs_err::write(slates.join(file.file_name()), bytes).unwrap();
    }
    for run in 1..=11 {
        fs_err::create_dir_all(test.home.run_dir(RunId(run))).unwrap();
    }
    test
}

#[expect(clippy::unwrap_used, reason = "this is part of tests")]
fn tasks(reader: &Reader, run: u32) -> Vec<StoredTask> {
    let listed = reader.tasks(RunId(run), TaskFilter::All, 0, 99).unwrap();
    listed.into_iter().map(|listed| listed.task).collect()
}

#[expect(clippy::unwrap_used, reason = "this is part of tests")]
fn run_spec(reader: &Reader, run: u32) -> RunSpec {
    reader.run_spec(RunId(run)).unwrap().unwrap()
}

fn line(text: &str) -> TaskSpec {
    TaskSpec::new(Command::Line(text.into()))
}

#[test]
fn every_run_is_there_with_what_became_of_it() {
    let test = version_2();
    let reader = Reader::open(&test.home).unwrap();
    let runs = reader.runs(99).unwrap();
    assert_eq!(reader.how_many_runs().unwrap(), 11);
    let brief: Vec<_> =
        runs.iter().rev().map(|run| (run.state, run.counts.succeeded, run.counts.failed)).collect();
    assert_eq!(
        brief,
        [
            (RunState::Finished, 2, 1),
            (RunState::Finished, 6, 1),
            (RunState::Finished, 0, 1),
            (RunState::Finished, 2, 0),
            (RunState::Finished, 2, 1),
            (RunState::Interrupted, 0, 0),
            (RunState::Interrupted, 1, 0),
            (RunState::Finished, 2, 0),
            (RunState::Finished, 0, 1),
            (RunState::Interrupted, 0, 0),
            (RunState::Finished, 1, 2),
        ]
    );
    for run in &runs {
        assert_eq!(run.cwd, Path::new(WORK));
        assert_eq!(run.argv[0], "packhorse");
        assert_eq!(run.host, "host");
        assert_eq!(run.uuid.get_version_num(), 7);
        assert!(reader.run_spec(run.id).unwrap().is_some(), "{}", run.id);
    }
}

#[test]
fn plain_tasks_stay_plain_whatever_their_bytes() {
    let test = version_2();
    let reader = Reader::open(&test.home).unwrap();
    let specs = |run| tasks(&reader, run).into_iter().map(|task| task.spec);
    let plain: Vec<TaskSpec> = specs(1).collect();
    assert_eq!(plain, ["true", "false", "echo three"].map(line));
    let words = ["sh", "-c", "exit 3", "a b", ""].map(|word| word.as_bytes().to_vec());
    let words = TaskSpec::new(Command::Words(words.into()));
    assert_eq!(specs(3).collect::<Vec<_>>(), [words]);
    let odd = TaskSpec::new(Command::Line(b"echo caf\xe9 \\xff".to_vec()));
    assert_eq!(specs(4).next(), Some(odd));
    let left = reader.stored(RunId(7), TaskFilter::PlainUnfinished, 0, 99).unwrap();
    let left: Vec<_> = left.into_iter().map(|task| task.spec).collect();
    assert_eq!(left, ["cat held", "echo later", "true"].map(line));
}

#[test]
fn directives_become_members_of_the_specification() {
    let test = version_2();
    let reader = Reader::open(&test.home).unwrap();
    let found = tasks(&reader, 2);
    let wanted = [
        TaskSpec { name: Some("first".to_owned()), ..line("true") },
        TaskSpec {
            name: Some("b".to_owned()),
            after: vec!["first".to_owned()],
            gpus: Some(GpuRequest::Share(Milli(500))),
            vram: Some(VramRequest::Bytes(Bytes(9 << 30))),
            priority: Some(Priority(-1)),
            retries: Some(2),
            timeout: Some(TimeLimit::After(Duration::from_hours(2))),
            cores: Some(1),
            cpu: Some(Milli(1500)),
            ram: Some(Bytes(1 << 30)),
            gpu_model: Some("Fake".to_owned()),
            signature: Some("käse".to_owned()),
            ..line("true")
        },
        TaskSpec { vram: Some(VramRequest::Auto), ..line("train --peak 3G --hold-looks 4") },
        TaskSpec { gpus: Some(GpuRequest::Whole(2)), ..line("false") },
        TaskSpec { vram: Some(VramRequest::Bytes(Bytes(7 << 30))), ..line("true") },
        TaskSpec { gpus: Some(GpuRequest::None), ..line("true") },
        TaskSpec {
            gpus: Some(GpuRequest::Share(Milli(333))),
            timeout: Some(TimeLimit::After(Duration::from_secs(90))),
            ..line("true")
        },
    ];
    for (task, wanted) in found.iter().zip(&wanted) {
        assert_eq!(task.spec, *wanted, "{}", task.id);
    }
    assert_eq!((found.len(), &*found[1].after), (7, &[1][..]));
    let (failed, attempts) = reader.task(TaskId::new(RunId(2), 4)).unwrap().unwrap();
    assert_eq!(failed.outcome, Some(Outcome::Failed { code: 1 }));
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[1].device.as_deref(), Some("0,1"));

    let spec = run_spec(&reader, 2);
    let defaults = TaskSpec {
        retries: Some(1),
        grace: Some(Grace(Duration::from_secs(3))),
        timeout: Some(TimeLimit::After(Duration::from_hours(1))),
        cpu: Some(Milli(500)),
        ram: Some(Bytes(64 << 20)),
        gpu_model: Some("Fake".to_owned()),
        ..TaskSpec::default()
    };
    let pool = PoolSpec {
        gpus: vec!["0,1".to_owned()],
        max_per_gpu: Some(4),
        place: Some(Placing::Spread),
        ignore_process: vec!["uid:1000".to_owned()],
        leases: Some(false),
        ageing: Some(Ageing::Off),
        ..PoolSpec::default()
    };
    assert_eq!((spec.defaults, spec.pool), (defaults, pool));
    let SourceSpec::Lines { files, null: false } = spec.source else {
        panic!("{:?}", spec.source);
    };
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].path, Path::new(WORK).join("directives.txt"));
    assert_eq!((files[0].length, files[0].start), (322, 0));
}

#[test]
fn a_csv_file_keeps_its_rows_and_its_batches() {
    let test = version_2();
    let reader = Reader::open(&test.home).unwrap();
    let found = tasks(&reader, 5);
    assert_eq!(found[0].spec.name.as_deref(), Some("one"));
    assert_eq!(found[0].spec.gpus, Some(GpuRequest::Whole(1)));
    let folder = found[2].spec.folder.as_ref().unwrap();
    assert_eq!(folder.as_os_str().as_bytes(), b"/tmp/packhorse-fixture/work/f\xff");
    let spec = run_spec(&reader, 5);
    assert_eq!(spec.batch.map(u32::from), Some(2));
    assert_eq!(spec.defaults.vram, Some(VramRequest::Auto));
    assert_eq!(spec.defaults.probe, Some(ProbeSpec::Epochs(2)));
    assert_eq!(spec.pool.mps, Some(false));
    let SourceSpec::Csv { consume: Some(csv) } = spec.source else {
        panic!("{:?}", spec.source);
    };
    assert_eq!((csv.path.to_str(), &*csv.header), (Some("tasks.csv"), "0"));
    assert_eq!(csv.rows.len(), 3);
    assert_eq!(csv.rows[2].0, b"/tmp/packhorse-fixture/work/f\xff,python3,t.py,6,2,,,,,");
    assert_eq!(test.home.next_ids("csv", 1).unwrap(), 4);
}

#[test]
fn sweeps_files_and_probes_can_be_resumed() {
    let test = version_2();
    let reader = Reader::open(&test.home).unwrap();
    let sweep = run_spec(&reader, 6);
    let list = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
    let parameter = |name: &str, values: &[&str]| (name.to_owned(), list(values));
    let wanted = SweepSpec {
        template: "cat held; echo {lr} {bs} {o}".to_owned(),
        parameters: vec![
            parameter("lr", &["0.1", "0.2", "0.3"]),
            parameter("bs", &["8", "16", "32"]),
            parameter("o", &["a", "b"]),
        ],
        zips: vec![list(&["lr", "bs"])],
        seed: Some(7),
        limit: Some(5),
    };
    assert_eq!(sweep.source, SourceSpec::Sweep(wanted));
    assert_eq!(sweep.pool.slots, Some(2));
    let SourceSpec::Lines { files, null: true } = run_spec(&reader, 7).source else {
        panic!("not of lines");
    };
    assert_eq!(files.len(), 2);
    let probed = run_spec(&reader, 8).defaults;
    let template = ProbeSpec::Template("{} --exit 0".to_owned());
    assert_eq!(probed.probe, Some(template));
    let sized = run_spec(&reader, 9).defaults;
    assert_eq!(sized.vram, Some(VramRequest::Bytes(Bytes(1 << 30))));
}

#[test]
fn what_was_learned_is_still_known() {
    let test = version_2();
    let reader = Reader::open(&test.home).unwrap();
    assert_eq!(reader.signatures().unwrap().len(), 3);
    let peaks = reader.peaks("work: train --peak 5G --hold-looks").unwrap();
    let peaks = &peaks["NVIDIA Fake 24GB"];
    let origins: Vec<_> = peaks.iter().map(|peak| peak.origin).collect();
    assert_eq!(origins, [PeakOrigin::Run, PeakOrigin::Probe]);
    assert_eq!(peaks[0].peak, Bytes(5 << 30));
    let (_, attempts) = reader.task(TaskId::new(RunId(8), 1)).unwrap().unwrap();
    assert_eq!(attempts[0].attempt, 0);
    assert_eq!(attempts[0].peak, Some(Bytes(5 << 30)));
    let drained = reader.drained().unwrap();
    assert_eq!(drained.len(), 1);
    assert_eq!(drained[0].run, RunId(10));
    assert!(drained[0].reason.starts_with("Xid 79"));
}

#[test]
fn what_a_killed_process_had_not_committed_is_recovered() {
    let test = version_2();
    let reader = Reader::open(&test.home).unwrap();
    let outcome = |number| reader.outcome(TaskId::new(RunId(11), number)).unwrap();
    assert_eq!(outcome(1), Some(Outcome::Succeeded));
    assert_eq!(outcome(2), Some(Outcome::Failed { code: 3 }));
    assert_eq!(outcome(3), Some(Outcome::Skipped));
    let left = fs_err::read_dir(test.home.path().join("slates")).unwrap();
    assert_eq!(left.count(), 0);
    test.home.lock_run(RunId(11)).unwrap();
}

/// A process of version 2 has its statements prepared, and adds a task to its run
/// after another process has brought the database up to date.
#[test]
fn an_old_process_goes_on_and_its_tasks_are_converted_when_its_run_is_resumed() {
    let test = version_2();
    let old = rusqlite::Connection::open(test.home.db()).unwrap();
    let insert = "INSERT OR REPLACE INTO task (id, outcome, words, name, gpus, cores, priority, \
        retries, time_limit, after, command, vram, cpu, ram, model, signature, folder) \
        VALUES (?1, 2, 0, NULL, 500, NULL, NULL, NULL, NULL, x'02000000', x'61', NULL, NULL, \
        NULL, NULL, NULL, NULL)";
    let mut insert = old.prepare(insert).unwrap();
    let reader = Reader::open(&test.home).unwrap();
    insert.execute([11_i64 << 32 | 4]).unwrap();
    let late = || tasks(&reader, 11).pop().unwrap();
    assert_eq!(late().spec, line("a"));
    drop(test.home.lock_run(RunId(11)).unwrap());
    let wanted = TaskSpec {
        gpus: Some(GpuRequest::Share(Milli(500))),
        after: vec!["x".to_owned()],
        ..line("a")
    };
    assert_eq!((late().spec, late().after), (wanted, vec![2]));
    // Once is enough: no process of version 2 can have taken the run since.
    insert.execute([11_i64 << 32 | 5]).unwrap();
    drop(test.home.lock_run(RunId(11)).unwrap());
    assert_eq!(late().spec, line("a"));
}
