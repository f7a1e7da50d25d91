//! `--json`: exactly the events of the model, for programs in any language.

use packhorse_model::{Event, EventKind, Timestamp};
use rustix::process::Signal;

use crate::machine::{Machine, holding, taking};
use crate::support::{Done, World};

/// Every line as an event. It must print back as it was read.
fn events(done: &Done) -> Vec<Event> {
    let lines = done.stdout.lines().map(|line| {
        let event: Event = serde_json::from_str(line).unwrap_or_else(|error| {
            panic!("{error}: {line}");
        });
        assert_eq!(serde_json::to_string(&event).unwrap(), line);
        event
    });
    lines.collect()
}

/// The names of the kinds of events that there are.
fn kinds(events: &[Event]) -> Vec<&'static str> {
    let mut kinds: Vec<_> = events
        .iter()
        .map(|event| match event.kind {
            EventKind::RunStarted { .. } => "run-started",
            EventKind::Known { .. } => "known",
            EventKind::Started { .. } => "started",
            EventKind::Output { .. } => "output",
            EventKind::Metrics { .. } => "metrics",
            EventKind::Retrying { .. } => "retrying",
            EventKind::Measured(_) => "measured",
            EventKind::Finished(_) => "finished",
            EventKind::Warning { .. } => "warning",
            EventKind::Stopping { .. } => "stopping",
            EventKind::RunEnded(_) => "run-ended",
        })
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn assert_wall_clock(events: &[Event], before: Timestamp) {
    let now = Timestamp::now();
    let times: Vec<Timestamp> = events.iter().map(|event| event.time).collect();
    assert!(times.is_sorted(), "time runs backwards: {events:#?}");
    let (first, last) = (times[0], times[times.len() - 1]);
    assert!(before <= first && last <= now, "{before:?} {events:#?} {now:?}");
}

#[test]
fn every_kind_of_event_is_the_models_and_tells_the_time() {
    let machine = Machine::new(1);
    let before = Timestamp::now();
    let commands = format!(
        "{}\necho out; echo 'packhorse: {{\"loss\": 0.5}}' >&2; exit 3\n#packhorse retires=1\ntrue\n\
         printf 'caf\\351\\n'\n{}\necho never\n",
        taking("--peak 2G --hold-looks 4 --utilisation 30"),
        holding("1G", "go"),
    );
    let words = "run --gpus 0 --retries 1 --output lines --vram 20G --json";
    let mut running = machine.start(&words.split(' ').collect::<Vec<_>>());
    running.send(commands);
    running.end_input();
    running.wait_for("\"task\":\"1.4\"");
    machine.await_memory(0, 1 << 30);
    running.signal(Signal::INT);
    running.wait_for("\"stopping\"");
    machine.world.write("go", "");
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    let events = events(&done);
    assert_eq!(
        kinds(&events),
        [
            "finished",
            "known",
            "measured",
            "metrics",
            "output",
            "retrying",
            "run-ended",
            "run-started",
            "started",
            "stopping",
            "warning",
        ]
    );
    assert_wall_clock(&events, before);
}

#[test]
fn time_does_not_run_backwards_however_many_tasks_end() {
    let world = World::new();
    let before = Timestamp::now();
    let commands = "true\nfalse\n".repeat(200);
    let done = world.packhorse_with(["run", "--slots", "8", "--retries", "1", "--json"], commands);
    assert_eq!(done.code, 1, "{}", done.stderr);
    let first = events(&done);
    assert_wall_clock(&first, before);
    let done = world.packhorse(["retry", "--json"]);
    let second = events(&done);
    assert_wall_clock(&second, first[first.len() - 1].time);
    let EventKind::RunStarted { resumed: true, .. } = second[0].kind else {
        panic!("{:?}", second[0]);
    };
}

#[test]
fn commands_that_are_no_text_have_a_written_form() {
    let world = World::new();
    let done = world
        .packhorse_with(["run", "--slots", "1", "--json"], b"echo caf\xe9\n\"\x01\n".as_slice());
    let events = events(&done);
    let commands = events.iter().filter_map(|event| match &event.kind {
        EventKind::Finished(result) => Some(result.command.as_ref().clone()),
        _ => None,
    });
    let lines: Vec<_> = commands.collect();
    let line = |text: &[u8]| packhorse_model::Command::Line(text.to_vec());
    assert_eq!(lines, [line(b"echo caf\xe9"), line(b"\"\x01")]);
}
