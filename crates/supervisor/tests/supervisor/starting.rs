//! How attempts start, and why some do not.

use packhorse_model::{Command, CoreId, Outcome, OutputMode, ProcessEvent, StopMode};
use packhorse_supervisor::StartResult;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{World, alone, alone_after, line, receive, release, task};

#[test]
fn it_runs_and_tells_how_it_ended() {
    let mut world = World::new();
    for (number, command, outcome) in [
        (1, "true", Outcome::Succeeded),
        (2, "sh -c 'exit 3'", Outcome::Failed { code: 3 }),
        (3, "kill -9 $$", Outcome::Killed { signal: 9 }),
        (4, "false", Outcome::Failed { code: 1 }),
    ] {
        assert_eq!(world.start(number, &line(command)), StartResult::Running);
        assert!(world.supervisor.is_led(task(number)));
        assert_eq!(world.supervisor.running(), 1);
        let end = world.end_of(number);
        assert_eq!((end.outcome, end.message), (outcome, None), "{command}");
        assert!(world.supervisor.is_idle());
    }
}

#[test]
fn a_missing_program_is_named() {
    let mut world = World::new();
    for (number, command, message) in [
        (1, "no-such-program", "command not found: no-such-program"),
        (2, "./missing x", "no such file: ./missing"),
        (3, "", "command not found: "),
    ] {
        let mut wanted = line(command);
        if command.is_empty() {
            wanted.command = Command::Words(vec![b"two words".to_vec()]);
        }
        assert_eq!(world.start(number, &wanted), StartResult::Failed);
        assert!(!world.supervisor.is_idle(), "its end is not told yet");
        let end = world.end_of(number);
        assert_eq!(end.outcome, Outcome::NotStarted);
        let told = end.message.unwrap();
        assert!(told.starts_with(message), "{told}");
        assert_eq!(told.contains("this is one word"), command.is_empty());
    }
}

#[test]
fn what_no_program_can_be_given_is_refused() {
    let mut world = World::new();
    let refused = |world: &mut World, wanted| {
        assert_eq!(world.start(1, &wanted), StartResult::Failed);
        let end = world.end_of(1);
        assert_eq!(end.outcome, Outcome::NotStarted);
        end.message.unwrap()
    };
    let nul = "the command has a NUL byte in it";
    assert_eq!(refused(&mut world, line("a\0b")), nul);
    let mut wanted = line("true");
    wanted.command = Command::Words(Vec::new());
    assert_eq!(refused(&mut world, wanted), "the command is empty");
    let mut wanted = line("true");
    wanted.environment = vec![("A".into(), "1\x002".into())];
    let told = "the value of A has a NUL byte in it";
    assert_eq!(refused(&mut world, wanted), told);
    let mut wanted = line("true");
    wanted.environment = vec![("A=B".into(), "1".into())];
    assert_eq!(refused(&mut world, wanted), "no variable can be called `A=B`");
    let mut wanted = line("true");
    wanted.folder = Some("/nonexistent".into());
    assert_eq!(refused(&mut world, wanted), "no such folder: /nonexistent");
}

#[test]
fn a_task_runs_only_once_at_a_time() {
    let mut world = World::new();
    let gate = world.fifo("gate");
    world.start(1, &line("cat gate"));
    let mut again = line("true");
    again.attempt = 2;
    assert_eq!(world.start(1, &again), StartResult::Failed);
    let end = world.end_of(1);
    assert_eq!((end.attempt, end.outcome), (2, Outcome::NotStarted));
    release(&gate);
    let end = world.end_of(1);
    assert_eq!((end.attempt, end.outcome), (1, Outcome::Succeeded));
}

#[test]
fn a_script_without_a_first_line_runs_in_a_shell() {
    let mut world = World::new();
    world.program("script", "echo \"$0 $1\" > out\n");
    for number in 1..=2 {
        let end = world.run(number, &line("./script word"));
        assert_eq!(end.outcome, Outcome::Succeeded, "{end:?}");
        assert_eq!(world.read("out"), "./script word\n");
    }
}

#[test]
fn a_missing_interpreter_is_told() {
    let mut world = World::new();
    world.program("script", "#!/nonexistent/python\n");
    let end = world.run(1, &line("./script"));
    let told = "cannot start ./script: its interpreter is missing";
    assert_eq!(end.message.as_deref(), Some(told));
}

#[test]
fn a_program_that_is_taken_away_is_missed_by_name() {
    let mut world = World::new();
    world.program("prog", "#!/bin/sh\nexit 0\n");
    for number in 1..=2 {
        let end = world.run(number, &line("./prog"));
        assert_eq!(end.outcome, Outcome::Succeeded);
    }
    fs_err::remove_file(world.path("prog")).unwrap();
    let end = world.run(3, &line("./prog"));
    assert_eq!(end.outcome, Outcome::NotStarted);
    assert_eq!(end.message.as_deref(), Some("no such file: ./prog"));
}

#[test]
fn a_program_that_becomes_a_script_without_a_first_line_goes_on_in_a_shell() {
    let mut world = World::new();
    world.program("prog", "#!/bin/sh\necho one >> out\n");
    assert!(world.run(1, &line("./prog a")).outcome.is_success());
    fs_err::remove_file(world.path("prog")).unwrap();
    world.program("prog", "echo two $1 $PACKHORSE_TASK >> out\n");
    assert!(world.run(2, &line("./prog b")).outcome.is_success());
    assert_eq!(world.read("out"), "one\ntwo b 1.2\n");
}

#[test]
fn programs_are_found_on_the_tasks_own_path_and_again_when_they_move() {
    let mut world = World::new();
    for folder in ["a", "b"] {
        fs_err::create_dir(world.path(folder)).unwrap();
        world.program(&format!("{folder}/prog"), &format!("#!/bin/sh\necho {folder} >> out\n"));
    }
    let path = [world.path("a"), world.path("b")];
    let path = std::env::join_paths(path).unwrap();
    let mut wanted = line("prog");
    assert_eq!(world.run(1, &wanted).outcome, Outcome::NotStarted);
    wanted.environment = vec![("PATH".into(), path)];
    assert!(world.run(2, &wanted).outcome.is_success());
    fs_err::remove_file(world.path("a/prog")).unwrap();
    assert!(world.run(3, &wanted).outcome.is_success());
    fs_err::remove_file(world.path("b/prog")).unwrap();
    let end = world.run(4, &wanted);
    assert_eq!(end.message.as_deref(), Some("command not found: prog"));
    assert_eq!(world.read("out"), "a\nb\n");
}

#[test]
fn any_number_of_variables_reaches_it_and_none_is_there_twice() {
    let mut world = World::new();
    let home = world.home_mark().to_owned();
    let mut wanted = line("env > out");
    wanted.environment =
        (0..300).map(|number| (format!("V{number}").into(), format!("{number}").into())).collect();
    for (name, value) in [
        ("V7", "again"),
        ("HOME", "/elsewhere"),
        ("V7", "last"),
        ("PACKHORSE_TASK", "9.9"),
        ("PACKHORSE_HOME_ID", "stolen"),
    ] {
        wanted.environment.push((name.into(), value.into()));
    }
    wanted.attempt = 4;
    assert!(world.run(1, &wanted).outcome.is_success());
    let out = world.read("out");
    let mut names: Vec<&str> = out.lines().filter_map(|it| it.split('=').next()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "{out}");
    for expected in [
        "V0=0",
        "V24=24",
        "V299=299",
        "V7=last",
        "HOME=/elsewhere",
        "PACKHORSE_TASK=1.1",
        "PACKHORSE_ATTEMPT=4",
        &format!("PACKHORSE_HOME_ID={home}"),
    ] {
        assert!(out.lines().any(|line| line == expected), "{expected}: {out}");
    }
    // What one attempt gets, the next does not.
    assert!(world.run(2, &line("env > out")).outcome.is_success());
    let out = world.read("out");
    assert!(!out.contains("V7="), "{out}");
    assert!(!out.contains("/elsewhere"), "{out}");
}

#[test]
fn shared_variables_are_there_and_hidden_ones_are_not() {
    let name = "starting::shared_variables_are_there_and_hidden_ones_are_not";
    if !alone_after(name, |command| {
        command.env("SECRET", "1").env("SHARED", "ours");
        // As inside an attempt of another run.
        command.env("PACKHORSE_TASK", "7.7");
    }) {
        return;
    }
    let mut world = World::new();
    let mut settings = crate::support::settings(packhorse_supervisor::Children::Marked, "here");
    settings.hidden = vec!["SECRET".into()];
    settings.environment = vec![("SHARED".into(), "first".into())];
    settings.environment.push(("SHARED".into(), "second".into()));
    world.supervisor = packhorse_supervisor::Supervisor::new(settings).unwrap();
    assert!(world.run(1, &line("env > out")).outcome.is_success());
    let out = world.read("out");
    assert!(!out.contains("SECRET"), "{out}");
    assert_eq!(out.matches("SHARED=").count(), 1, "{out}");
    assert!(out.contains("SHARED=second"), "{out}");
    assert_eq!(out.matches("PACKHORSE_TASK=").count(), 1, "{out}");
    assert!(out.contains("PACKHORSE_TASK=1.1"), "{out}");
}

#[test]
fn it_runs_on_its_cores_and_we_stay_where_we_are() {
    let mut world = World::new();
    let before = rustix::thread::sched_getaffinity(None).unwrap();
    let core = (0..1024).find(|&core| before.is_set(core)).unwrap();
    let mut wanted = line("grep Cpus_allowed_list /proc/self/status > out");
    wanted.cores = vec![CoreId(u32::try_from(core).unwrap())];
    assert!(world.run(1, &wanted).outcome.is_success());
    assert_eq!(world.read("out"), format!("Cpus_allowed_list:\t{core}\n"));
    assert_eq!(rustix::thread::sched_getaffinity(None).unwrap(), before);
    let mut wanted = line("true");
    wanted.cores = vec![CoreId(u32::MAX)];
    assert!(world.run(2, &wanted).outcome.is_success());
}

#[test]
fn a_very_long_line_is_run_from_a_script_beside_its_log() {
    let mut world = World::new();
    let long = format!("echo {} | wc -c > out", "x".repeat(200_000));
    assert!(world.run(1, &line(long)).outcome.is_success());
    assert_eq!(world.read("out").trim(), "200001");
    assert!(world.path("logs/1.1.sh").exists());
}

#[test]
fn what_the_machine_has_no_room_for_starts_later() {
    if !alone("starting::what_the_machine_has_no_room_for_starts_later") {
        return;
    }
    let mut world = World::new();
    let gates = [1, 2].map(|number| world.fifo(&format!("gate{number}")));
    let said = world.fifo("said");
    world.start(1, &line("cat gate1"));
    let limit = getrlimit(Resource::Nofile);
    let used = fs_err::read_dir("/proc/self/fd").unwrap().count() as u64;
    let tight = Rlimit { current: Some(used), maximum: Some(used) };
    setrlimit(Resource::Nofile, tight).unwrap();
    assert_eq!(world.start(2, &line("cat gate2")), StartResult::Later);
    assert_eq!(world.start(3, &line("echo > said")), StartResult::Later);
    assert_eq!(world.start(4, &line("true")), StartResult::Later);
    world.supervisor.drain(&mut world.events).unwrap();
    let told = world.troubles(2);
    assert!(told[0].starts_with("no more than one task runs at a time: cannot make pipes"));
    // What waits can be taken back.
    world.supervisor.stop(task(4), StopMode::Terminate);
    assert_eq!(world.outcome_of(4), Outcome::Interrupted);
    release(&gates[0]);
    assert_eq!(world.outcome_of(1), Outcome::Succeeded);
    world.wait_for(
        |event| matches!(event, ProcessEvent::Started { task: of, attempt: 1 } if *of == task(2)),
    );
    assert!(world.supervisor.is_led(task(2)));
    assert!(!world.supervisor.is_led(task(3)));
    release(&gates[1]);
    assert_eq!(world.outcome_of(2), Outcome::Succeeded);
    receive(&said);
    assert_eq!(world.outcome_of(3), Outcome::Succeeded);
    assert!(world.supervisor.is_idle());
    assert_ne!(limit.current, Some(used));
}

#[test]
fn what_waits_starts_when_the_last_attempt_is_given_up() {
    if !alone("starting::what_waits_starts_when_the_last_attempt_is_given_up") {
        return;
    }
    let mut world = World::new();
    let [said, gate] = ["said", "gate"].map(|name| world.fifo(name));
    world.start(1, &line("echo > said; read x < gate"));
    receive(&said);
    let used = fs_err::read_dir("/proc/self/fd").unwrap().count() as u64;
    let tight = Rlimit { current: Some(used), maximum: Some(used) };
    setrlimit(Resource::Nofile, tight).unwrap();
    assert_eq!(world.start(2, &line("true")), StartResult::Later);
    world.supervisor.abandon(task(1));
    assert_eq!(world.outcome_of(1), Outcome::Interrupted);
    assert_eq!(world.outcome_of(2), Outcome::Succeeded);
    release(&gate);
}

#[test]
fn with_nothing_running_what_there_is_no_room_for_fails() {
    if !alone("starting::with_nothing_running_what_there_is_no_room_for_fails") {
        return;
    }
    let mut world = World::new();
    let used = fs_err::read_dir("/proc/self/fd").unwrap().count() as u64;
    let tight = Rlimit { current: Some(used), maximum: Some(used) };
    setrlimit(Resource::Nofile, tight).unwrap();
    assert_eq!(world.start(1, &line("true")), StartResult::Failed);
    let end = world.end_of(1);
    assert_eq!(end.outcome, Outcome::NotStarted);
    let told = end.message.unwrap();
    assert!(told.contains("cannot make pipes"), "{told}");
}

#[test]
fn the_limit_of_descriptors_is_raised_for_us_and_not_for_attempts() {
    if !alone("starting::the_limit_of_descriptors_is_raised_for_us_and_not_for_attempts") {
        return;
    }
    let limit = getrlimit(Resource::Nofile);
    let low = Rlimit { current: Some(40), maximum: limit.maximum };
    setrlimit(Resource::Nofile, low).unwrap();
    let mut world = World::new();
    let raised = getrlimit(Resource::Nofile).current;
    assert!(raised > Some(40), "at the start: {raised:?}");
    let gate = world.fifo("gate");
    for number in 1..=20 {
        assert_eq!(world.start(number, &line("cat gate")), StartResult::Running);
    }
    let mut wanted = line("ulimit -n > out");
    wanted.output = OutputMode::Inherit;
    assert!(world.run(21, &wanted).outcome.is_success());
    assert_eq!(world.read("out"), "40\n");
    // Whoever opened it reads its end.
    for number in 1..=20 {
        world.supervisor.stop(task(number), StopMode::Kill);
        assert_eq!(world.outcome_of(number), Outcome::Interrupted);
    }
    drop(gate);
}
