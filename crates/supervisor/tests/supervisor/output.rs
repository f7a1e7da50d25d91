//! What attempts write.

use std::process::Stdio;

use packhorse_model::Stream;
use packhorse_model::{Outcome, OutputMode, ProcessEvent};
use packhorse_supervisor::LogReader;
use packhorse_test_parts::needs;

use crate::support::{World, alone, line, release, task};

#[test]
fn both_streams_are_in_the_log_and_can_be_told_apart() {
    let mut world = World::new();
    let mut wanted = line("echo out; echo err >&2");
    let own = world.path("made/for/it/own.txt");
    wanted.own_log = Some(own.clone());
    assert!(world.run(1, &wanted).outcome.is_success());
    // Nothing else is put into a folder that is not ours.
    let made = fs_err::read_dir(world.path("made/for/it")).unwrap();
    assert_eq!(made.count(), 1);
    let log = world.path("logs").join("1.1.log");
    let mut reader = LogReader::open(&log, Some(&own)).unwrap();
    let mut buffer = [0; 100];
    let mut pieces = Vec::new();
    loop {
        let (stream, bytes) = reader.read(&mut buffer).unwrap();
        if bytes.is_empty() {
            break;
        }
        pieces.push((stream, String::from_utf8_lossy(bytes).into_owned()));
    }
    pieces.sort_by_key(|(stream, _)| *stream == Stream::Stderr);
    let expected = [(Stream::Stdout, "out\n"), (Stream::Stderr, "err\n")];
    let expected = expected.map(|(stream, text)| (stream, text.to_owned()));
    assert_eq!(pieces, expected);
}

#[test]
fn output_is_handed_on_if_that_is_wanted() {
    let mut world = World::new();
    let mut wanted = line("echo text");
    wanted.output = OutputMode::Lines;
    wanted.attempt = 3;
    assert!(world.run(1, &wanted).outcome.is_success());
    let shown =
        ProcessEvent::Output { task: task(1), stream: Stream::Stdout, bytes: b"text\n".to_vec() };
    assert_eq!(world.events, [shown]);
    assert_eq!(world.log(1, 3), "text\n");
}

#[test]
fn a_flood_does_not_keep_others_waiting() {
    let mut world = World::new();
    let gate = world.fifo("gate");
    world.start(1, &line("yes | head -c 50000000; cat gate"));
    world.run(2, &line("echo small"));
    assert_eq!(world.log(2, 1), "small\n");
    assert!(world.supervisor.is_led(task(1)));
    let log = world.path("logs/1.1.log");
    while fs_err::metadata(&log).map_or(0, |log| log.len()) < 50_000_000 {
        world.wait();
    }
    release(&gate);
    assert!(world.outcome_of(1).is_success());
    assert_eq!(fs_err::metadata(&log).unwrap().len(), 50_000_000);
}

#[test]
fn all_that_is_in_the_pipes_at_the_end_is_logged() {
    needs!(Python);
    let mut world = World::new();
    // More than one turn takes.
    let program = "import fcntl, os; fcntl.fcntl(1, 1031, 1 << 20); os.write(1, b'x' * (1 << 20))";
    world.write("program.py", program);
    let end = world.run(1, &line("python3 program.py"));
    assert_eq!(end.outcome, Outcome::Succeeded);
    assert_eq!(world.log(1, 1).len(), 1 << 20);
}

#[test]
fn a_log_that_cannot_be_written_is_told_once_and_the_attempt_goes_on() {
    let mut world = World::new();
    world.write("file", "");
    let mut wanted = line("echo one; cat gate; echo two; echo done > out");
    wanted.own_log = Some(world.path("file/1.1.log"));
    let gate = world.fifo("gate");
    world.start(1, &wanted);
    while world.troubles(1).is_empty() {
        world.wait();
    }
    release(&gate);
    assert!(world.outcome_of(1).is_success());
    let troubles = world.troubles(1);
    assert_eq!(troubles.len(), 1, "{troubles:?}");
    let told = "the rest of its output is lost: ";
    assert!(troubles[0].starts_with(told), "{troubles:?}");
    assert!(troubles[0].contains("1.1.log"), "{troubles:?}");
    assert_eq!(world.read("out"), "done\n");
}

#[test]
fn inherited_output_goes_where_ours_goes_and_slots_can_change() {
    const NAME: &str = "output::inherited_output_goes_where_ours_goes_and_slots_can_change";
    const INSIDE: &str = "SUPERVISOR_TEST_INHERIT";
    if std::env::var_os(INSIDE).is_none() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args([NAME, "--exact", "--nocapture"]).env(INSIDE, "1");
        let done = command.stderr(Stdio::piped()).output().unwrap();
        assert!(done.status.success());
        let text = String::from_utf8_lossy(&done.stdout);
        assert!(text.contains("straight 1\n"), "{text}");
        assert!(text.contains("straight 3\n"), "{text}");
        assert!(!text.contains("logged"), "{text}");
        return;
    }
    let mut world = World::new();
    for (number, output, text) in [
        (1, OutputMode::Inherit, "straight 1"),
        (2, OutputMode::Log, "logged"),
        (3, OutputMode::Inherit, "straight 3"),
        (4, OutputMode::Log, "logged"),
    ] {
        let mut wanted = line(format!("cat; echo {text}"));
        wanted.output = output;
        assert!(world.run(number, &wanted).outcome.is_success());
        let logged = output == OutputMode::Log;
        assert_eq!(world.log(number, 1), if logged { "logged\n" } else { "" });
    }
}

#[test]
fn waiting_for_edges_misses_no_output() {
    use rustix::event::epoll;
    needs!(Python);
    if !alone("output::waiting_for_edges_misses_no_output") {
        return;
    }
    let mut world = World::new();
    let outer = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let data = epoll::EventData::new_u64(0);
    let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&outer, &world.supervisor, data, edges).unwrap();
    // More than one turn takes is in the pipe at once, and then nothing comes.
    let program = "import fcntl, os; fcntl.fcntl(1, 1031, 1 << 20)\n\
                   os.write(1, b'x' * (1 << 20)); open('gate').read()";
    world.write("program.py", program);
    let gate = world.fifo("gate");
    world.start(1, &line("python3 program.py"));
    let mut events = Vec::with_capacity(1);
    while world.log(1, 1).len() < 1 << 20 {
        events.clear();
        epoll::wait(&outer, rustix::buffer::spare_capacity(&mut events), None).unwrap();
        let supervisor = &mut world.supervisor;
        supervisor.drain(&mut world.events).unwrap();
    }
    release(&gate);
    assert!(world.outcome_of(1).is_success());
}
