//! What can go wrong with attempts that are forked from a Python with their modules.

use std::time::Duration;

use packhorse_model::{Outcome, ProcessEvent, StopMode};
use packhorse_supervisor::StartResult;
use packhorse_test_parts::needs;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, Signal, kill_process, pidfd_open};

use crate::preloading::{HEAVY, code, pid, preloaded, world};
use crate::support::{World, alone, is_alive, line, receive, release, task};

#[test]
fn a_module_that_is_missing_or_broken_is_named() {
    needs!(Python);
    let mut world = world();
    world.write("broken.py", "import heavy\n1 / 0\n");
    world.write("leaves.py", "import sys; print('told', flush=True); sys.exit(3)\n");
    world.write("crashes.py", "import os; print('told', flush=True); os._exit(3)\n");
    for (number, module, message, log) in [
        (
            1,
            "missing_module",
            "cannot preload missing_module: ModuleNotFoundError: No module named 'missing_module'",
            "ModuleNotFoundError: No module named 'missing_module'\n",
        ),
        (
            2,
            "broken",
            "cannot preload broken: ZeroDivisionError: division by zero",
            "in <module>\n    1 / 0\n",
        ),
        (3, "leaves", "cannot preload leaves: SystemExit: 3", "SystemExit"),
        (4, "crashes", "cannot preload heavy, crashes: Python ended with status 3: told", "told\n"),
    ] {
        let mut wanted = code("print('ran')");
        wanted.preload.push(module.to_owned());
        let end = world.run(number, &wanted);
        assert_eq!(end.outcome, Outcome::NotStarted);
        assert_eq!(end.message.as_deref(), Some(message));
        let text = world.log(number, 1);
        assert!(text.contains(log) && !text.contains("ran"), "{text}");
        assert!(!text.contains("in prepare"), "{text}");
        assert!(world.supervisor.is_idle());
    }
}

#[test]
fn a_python_that_cannot_start_is_quoted() {
    needs!(Python);
    let mut world = world();
    let mut wanted = code("pass");
    wanted.environment = vec![("PYTHONHOME".into(), "/nonexistent".into())];
    let end = world.run(1, &wanted);
    assert_eq!(end.outcome, Outcome::NotStarted);
    let message = end.message.unwrap();
    assert!(message.starts_with("cannot preload heavy: Python ended with status 1"), "{message}");
    let log = world.log(1, 1);
    assert!(log.contains("encodings"), "{log}");
}

#[test]
fn what_is_no_python_starts_as_ever_and_that_is_told_once() {
    needs!(Python);
    let mut world = world();
    let lines = ["echo a; echo b", "true", "python3 -V", "echo a; echo b"];
    for (number, command) in (1..).zip(lines) {
        let mut wanted = line(command);
        wanted.preload = vec!["heavy".to_owned()];
        assert_eq!(world.start(number, &wanted), StartResult::Running);
        assert_eq!(world.outcome_of(number), Outcome::Succeeded);
    }
    let why = "nothing is preloaded for it: its command line is the shell's";
    assert_eq!(world.troubles(1), [why]);
    assert_eq!(world.troubles(2), ["nothing is preloaded for it: it does not run a Python"]);
    assert_eq!(world.troubles(3).len(), 1);
    assert_eq!(world.troubles(4), Vec::<&str>::new());
    assert!(world.importers().is_empty());
}

/// A module that says who imports it, and does not come back before it is told to.
fn slow_world() -> World {
    let world = World::new();
    world.fifo("who");
    world.fifo("go");
    world.write(
        "heavy.py",
        "\
import os
here = os.path.dirname(__file__)
with open(here + '/who', 'w') as who:
    print(os.getpid(), file=who)
open(here + '/go').read()
",
    );
    world
}

#[test]
fn what_waits_for_an_import_can_be_stopped() {
    needs!(Python);
    let mut world = slow_world();
    assert_eq!(world.start(1, &code("pass")), StartResult::Waiting);
    assert_eq!(world.start(2, &code("pass")), StartResult::Waiting);
    assert_eq!(world.supervisor.running(), 2);
    let python = receive(&world.path("who"));
    // The loop goes on meanwhile.
    assert_eq!(world.run(3, &line("true")).outcome, Outcome::Succeeded);
    world.supervisor.stop(task(1), StopMode::Terminate);
    assert_eq!(world.outcome_of(1), Outcome::Interrupted);
    assert!(is_alive(&python), "somebody else waits for it");
    release(&world.path("go"));
    assert_eq!(world.outcome_of(2), Outcome::Succeeded);
    assert!(world.supervisor.is_idle());
}

#[test]
fn an_import_that_takes_too_long_is_ended_with_the_task() {
    needs!(Python);
    let mut world = slow_world();
    let mut wanted = code("pass");
    wanted.time_limit = Some(Duration::from_millis(300));
    world.start(1, &wanted);
    let python = receive(&world.path("who"));
    let handle = pidfd_open(pid(&python), PidfdFlags::empty()).unwrap();
    let end = world.end_of(1);
    assert_eq!(end.outcome, Outcome::TimedOut);
    assert_eq!(end.message.as_deref(), Some("heavy could not be preloaded in time"));
    assert!(end.took >= Duration::from_millis(300));
    while !packhorse_proc::has_ended(&handle) {
        world.wait();
    }
    // The next one is not kept waiting by it.
    world.start(2, &code("pass"));
    assert_ne!(receive(&world.path("who")), python);
    release(&world.path("go"));
    assert_eq!(world.outcome_of(2), Outcome::Succeeded);
}

#[test]
fn a_time_limit_ends_what_was_forked() {
    needs!(Python);
    let mut world = world();
    let mut wanted = code("import signal; signal.pause()");
    wanted.time_limit = Some(Duration::from_millis(700));
    world.start(1, &wanted);
    assert_eq!(world.outcome_of(1), Outcome::TimedOut);
    assert!(world.supervisor.is_idle());
}

#[test]
fn a_python_that_is_killed_takes_no_task_with_it() {
    needs!(Python);
    let mut world = world();
    let go = world.fifo("go");
    let wait = format!("open({:?}).read(); raise SystemExit(5)", go.to_str().unwrap());
    world.start(1, &code(&wait));
    world.wait_for(|event| matches!(event, ProcessEvent::Started { .. }));
    kill_process(pid(&world.importers()[0]), Signal::KILL).unwrap();
    world.run_well(2, &code("pass"));
    assert_eq!(world.importers().len(), 2);
    release(&go);
    assert_eq!(world.outcome_of(1), Outcome::Failed { code: 5 });
}

#[test]
fn who_waits_for_a_python_that_is_killed_gets_another_once() {
    needs!(Python);
    let mut world = slow_world();
    let who = world.path("who");
    world.start(1, &code("pass"));
    kill_process(pid(&receive(&who)), Signal::KILL).unwrap();
    let second = world.work_until_told(&who);
    kill_process(pid(&second), Signal::KILL).unwrap();
    let end = world.end_of(1);
    assert_eq!(end.outcome, Outcome::NotStarted);
    let message = "cannot preload heavy: Python was killed by SIGKILL";
    assert_eq!(end.message.as_deref(), Some(message));
}

#[test]
fn a_python_ends_with_its_supervisor_even_while_it_imports() {
    needs!(Python);
    let mut world = World::new();
    let who = world.fifo("who");
    world.write(
        "heavy.py",
        "import os, signal\nprint(os.getpid(), file=open('who', 'w'))\nsignal.pause()\n",
    );
    world.start(1, &code("pass"));
    let python = pid(&receive(&who));
    let handle = pidfd_open(python, PidfdFlags::empty()).unwrap();
    drop(world);
    poll(&mut [PollFd::new(&handle, PollFlags::IN)], None).unwrap();
}

#[test]
fn forks_of_a_forked_task_are_found_and_ended() {
    needs!(Python);
    let mut world = world();
    let who = world.fifo("who");
    // Neither its group, nor its session, nor an execution tells whose it is.
    let fork = format!(
        "\
import os, signal
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        with open({:?}, 'w') as who:
            print(os.getpid(), file=who)
        os.close(writer)
        signal.pause()
    os._exit(0)
os.close(writer)
os.read(reader, 1)
",
        who.to_str().unwrap()
    );
    // Another one runs, so that it cannot be placed by being the only one.
    let go = world.fifo("go");
    world.start(2, &line(format!("cat {}", go.display())));
    world.start(1, &code(&fork));
    let waiting = std::thread::spawn(move || receive(&who));
    assert_eq!(world.outcome_of(1), Outcome::Succeeded);
    let forked = waiting.join().unwrap();
    assert!(!is_alive(&forked));
    assert_eq!(world.troubles(1), ["a process it left behind was ended"]);
    release(&go);
    assert_eq!(world.outcome_of(2), Outcome::Succeeded);
}

#[test]
fn long_commands_and_environments_are_no_problem() {
    needs!(Python);
    let mut world = world();
    let long = "x".repeat(100_000);
    let mut wanted = preloaded(&[
        "python3",
        "-c",
        "import os, sys; print(len(sys.argv[1]), len(os.environ['LONG']))",
        &long,
    ]);
    wanted.environment = vec![("LONG".into(), long.clone().into())];
    for number in 1..=20 {
        world.start(number, &wanted);
    }
    for number in 1..=20 {
        assert_eq!(world.outcome_of(number), Outcome::Succeeded);
        assert_eq!(world.log(number, 1), "100000 100000\n");
    }
}

#[test]
fn threads_of_a_module_are_told_of() {
    needs!(Python);
    let mut world = World::new();
    world.write(
        "heavy.py",
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True, name='beat').start()\n",
    );
    world.run_well(1, &code("import threading; print(threading.active_count())"));
    assert_eq!(world.log(1, 1), "1\n");
    assert_eq!(
        world.troubles(1),
        ["importing heavy started threads (beat), which tasks do not have"]
    );
}

#[test]
fn generators_that_cannot_be_renewed_are_told_of() {
    needs!(Python);
    let mut world = World::new();
    world.write("heavy.py", "import torch, tensorflow.python.eager.context\n");
    // One that has changed inside.
    world.write("torch.py", "class Generator:\n    pass\n");
    fs_err::create_dir_all(world.path("tensorflow/python/eager")).unwrap();
    let context = "class context_safe:\n    _initialized = True\n";
    world.write("tensorflow/python/eager/context.py", context);
    world.run_well(1, &code("pass"));
    assert_eq!(
        world.troubles(1),
        [
            "the generators of torch cannot be renewed: tasks may draw the same numbers",
            "TensorFlow computes while modules are imported: tasks may hang, or draw the same \
             random numbers: preload only modules that do not compute with it",
        ]
    );
}

#[test]
fn few_descriptors_make_tasks_wait_for_each_other() {
    needs!(Python);
    if !alone("preload_trouble::few_descriptors_make_tasks_wait_for_each_other") {
        return;
    }
    let few = rustix::process::Rlimit { current: Some(90), maximum: Some(90) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    let mut world = world();
    let wanted = code("import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))");
    for number in 1..=40 {
        world.start(number, &wanted);
    }
    for number in 1..=40 {
        let end = world.end_of(number);
        assert_eq!((end.outcome, end.message), (Outcome::Succeeded, None));
        assert_eq!(world.log(number, 1), "(90, 90)\n");
    }
}

#[test]
fn the_gpu_driver_that_a_module_opens_is_told_of_once() {
    needs!(Python);
    let mut world = World::new();
    // No machine has to have one.
    world.write("heavy.py", "import os\nos.readlink = lambda path: '/dev/nvidiactl'\n");
    world.run_well(1, &code("pass"));
    let told = "importing heavy opens the GPU driver (/dev/nvidiactl), which may not work in \
                tasks then: preload only modules that leave the GPU alone";
    assert_eq!(world.troubles(1), [told]);
    world.run_well(2, &code("pass"));
    assert_eq!(world.troubles(2), Vec::<&str>::new());
}

/// Kills the process that forks tasks, so many times in all: a task is forked by a process
/// which ends at once, so that its children are the supervisor's.
const DIES_BETWEEN: &str = "\
import os, signal
fork, me = os.fork, os.getpid()
def fork_or_die():
    deaths = os.path.dirname(__file__) + '/deaths'
    if os.getppid() == me and os.path.getsize(deaths) < TIMES:
        with open(deaths, 'a') as file:
            file.write('.')
        if TIMES > 1 or fork() > 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0
    return fork()
os.fork = fork_or_die
";

#[test]
fn a_process_that_is_killed_between_two_forks_is_made_up_for_once() {
    needs!(Python);
    let mut world = World::new();
    world.write("heavy.py", &(HEAVY.to_owned() + &DIES_BETWEEN.replace("TIMES", "1")));
    world.write("deaths", "");
    // What it had forked is shut out: it runs once.
    let ran = world.path("ran");
    let run = format!("print('ran', file=open({:?}, 'a'))", ran.to_str().unwrap());
    world.run_well(1, &code(&run));
    assert_eq!(world.read("ran"), "ran\n");
    assert_eq!(world.read("deaths"), ".");
    assert_eq!(world.importers().len(), 1);
    assert!(world.supervisor.is_idle());

    // Not for ever.
    world.write("heavy.py", &(HEAVY.to_owned() + &DIES_BETWEEN.replace("TIMES", "9")));
    world.write("deaths", "");
    let mut wanted = code(&run);
    wanted.environment = vec![("OMP_NUM_THREADS".into(), "2".into())];
    world.start(2, &wanted);
    let end = world.end_of(2);
    assert_eq!(end.outcome, Outcome::NotStarted);
    let message = end.message.unwrap();
    assert!(message.starts_with("it cannot be forked: No such process"), "{message}");
    assert_eq!(world.read("deaths"), "..");
    assert_eq!(world.read("ran"), "ran\n");
    // Others are forked by it all the same, once nothing kills them.
    world.write("deaths", ".........");
    world.run_well(3, &wanted);
    assert!(world.supervisor.is_idle());
}

#[test]
fn pythons_that_were_needed_all_at_once_are_not_kept() {
    needs!(Python);
    let mut world = World::new();
    let who = world.fifo("who");
    let go = world.fifo("go");
    // Each waits for what it has opened before it says that it is there.
    let waits = "\
import select
here = os.path.dirname(__file__)
go = os.open(here + '/go', os.O_RDONLY | os.O_NONBLOCK)
open(here + '/who', 'w').write('here')
select.select([go], [], [])
";
    world.write("heavy.py", &(HEAVY.to_owned() + waits));
    let mut wanted = code("pass");
    for number in 1..=12 {
        wanted.environment = vec![("OMP_NUM_THREADS".into(), number.to_string().into())];
        assert_eq!(world.start(number, &wanted), StartResult::Waiting);
        world.work_until_told(&who);
    }
    let importers = world.importers();
    let alive = || importers.iter().filter(|pid| is_alive(pid)).count();
    assert_eq!(alive(), 12, "all are at work");
    release(&go);
    for number in 1..=12 {
        assert_eq!(world.outcome_of(number), Outcome::Succeeded);
    }
    while alive() > 8 {
        world.wait();
    }
    assert_eq!(alive(), 8);
}
