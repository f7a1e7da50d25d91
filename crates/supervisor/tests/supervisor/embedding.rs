//! The supervisor inside a program that has children, loops and signals of its own.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use packhorse_model::{Outcome, ProcessEvent, StopMode};
use packhorse_supervisor::{Children, EndNotice, Supervisor};

use crate::support::{World, alone, is_alive, line, receive, release, task};

/// Starts a child of the program's own. By a thread that ends: then it is given to
/// the first one, as orphans are.
fn foreign(world: &World, script: &str) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(world.path(""));
    start_in_thread(command)
}

fn start_in_thread(mut command: Command) -> Child {
    command.stdin(Stdio::null());
    let thread = std::thread::spawn(move || command.spawn().unwrap());
    thread.join().unwrap()
}

/// A child that has become the first thread's by now.
#[expect(clippy::disallowed_methods, reason = "the child asks the kernel for a signal")]
fn sleeper() -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", "trap 'echo given; exec sleep 1000' USR1; echo ready; read x"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let given = || {
        // SAFETY: a system call with constants.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGUSR1) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: `given` does nothing but a system call.
    unsafe { command.pre_exec(given) };
    // The kernel signals it when the thread that has started it is really gone.
    let thread = std::thread::spawn(move || {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        (child, lines)
    });
    let (child, mut lines) = thread.join().unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "given");
    child
}

#[test]
fn it_can_be_given_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Supervisor>();
    let mut world = World::new();
    world.run(1, &line("true"));
    let thread = std::thread::spawn(move || {
        world.fifo("never");
        world.run(2, &line("cat never & exit 3"))
    });
    assert_eq!(thread.join().unwrap().outcome, Outcome::Failed { code: 3 });
}

#[test]
fn foreign_children_live_on_and_keep_their_status() {
    if !alone("embedding::foreign_children_live_on_and_keep_their_status") {
        return;
    }
    let mut world = World::new();
    let [gate, over] = ["gate", "over"].map(|name| world.fifo(name));
    world.fifo("never");
    let said = world.fifo("said");
    // Some before, some while attempts run, in our process group and in others.
    let mut early = foreign(&world, "exit 11");
    let mut long = foreign(&world, "read x < gate; exit 12");
    let mut session = foreign(&world, "exec setsid sh -c 'read x < gate; exit 13'");
    world.start(1, &line("(setsid cat never &); cat never & echo > said; cat over"));
    receive(&said);
    let mut during = foreign(&world, "exit 14");
    let mut living = foreign(&world, "read x < gate; exit 15");
    for number in 2..20 {
        let end = world.run(number, &line("true"));
        assert_eq!(end.outcome, Outcome::Succeeded);
    }
    release(&over);
    assert_eq!(world.outcome_of(1), Outcome::Succeeded);
    assert_eq!(world.troubles(1), ["2 processes it left behind were ended"]);
    world.supervisor.reap_orphans();
    world.supervisor.finish();
    for child in [&long, &session, &living] {
        assert!(is_alive(&child.id().to_string()));
    }
    drop(world.supervisor);
    assert_eq!(early.wait().unwrap().code(), Some(11));
    assert_eq!(during.wait().unwrap().code(), Some(14));
    let mut open = fs_err::OpenOptions::new();
    let gate = open.read(true).write(true).open(&gate).unwrap();
    std::io::Write::write_all(&mut { &gate }, b"\n\n\n").unwrap();
    assert_eq!(long.wait().unwrap().code(), Some(12));
    assert_eq!(session.wait().unwrap().code(), Some(13));
    assert_eq!(living.wait().unwrap().code(), Some(15));
}

#[test]
fn children_that_were_there_before_or_are_spared_are_left_alone() {
    if !alone("embedding::children_that_were_there_before_or_are_spared_are_left_alone") {
        return;
    }
    let before = sleeper();
    let mut world = World::with(Children::All(EndNotice::Sigchld));
    let spared = sleeper();
    world.supervisor.spare(spared.id());
    assert!(world.run(1, &line("true")).outcome.is_success());
    assert_eq!(world.troubles(1), [""; 0]);
    world.supervisor.finish();
    for mut child in [before, spared] {
        assert!(is_alive(&child.id().to_string()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_service_that_became_our_child_is_left_alone() {
    if !alone("embedding::a_service_that_became_our_child_is_left_alone") {
        return;
    }
    let mut world = World::with(Children::All(EndNotice::Sigchld));
    // As daemons do: the one that starts it ends, and we inherit it.
    let text = "setsid sleep 1000 < /dev/null > /dev/null 2>&1 & echo $!";
    let daemon =
        Command::new("sh").args(["-c", text]).env("PACKHORSE_SERVICE", "mps").output().unwrap();
    let daemon = String::from_utf8(daemon.stdout).unwrap();
    let daemon = daemon.trim();
    assert!(world.run(1, &line("true")).outcome.is_success());
    assert_eq!(world.troubles(1), [""; 0]);
    world.supervisor.reap_orphans();
    world.supervisor.finish();
    assert!(is_alive(daemon));
    let pid = rustix::process::Pid::from_raw(daemon.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn no_attempt_is_a_service() {
    if !alone("embedding::no_attempt_is_a_service") {
        return;
    }
    // SAFETY: nothing else runs in this process.
    unsafe { std::env::set_var("PACKHORSE_SERVICE", "mps") };
    let mut world = World::with(Children::All(EndNotice::Sigchld));
    let end = world.run(1, &line("test -z \"$PACKHORSE_SERVICE\""));
    assert_eq!(end.outcome, Outcome::Succeeded);
}

#[test]
fn it_nests_in_another_epoll() {
    use rustix::event::epoll;
    let mut world = World::new();
    let outer = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    for flags in [epoll::EventFlags::IN, epoll::EventFlags::IN | epoll::EventFlags::ET] {
        let data = epoll::EventData::new_u64(7);
        epoll::add(&outer, &world.supervisor, data, flags).unwrap();
        for number in 1..=100 {
            let command = if number % 10 == 0 { "no-such-program" } else { "true" };
            world.start(number, &line(command));
        }
        let mut ready = Vec::with_capacity(4);
        let mut ended = 0;
        while ended < 100 {
            ready.clear();
            epoll::wait(&outer, rustix::buffer::spare_capacity(&mut ready), None).unwrap();
            world.supervisor.drain(&mut world.events).unwrap();
            let ends = world.events.drain(..);
            ended += ends.filter(|event| matches!(event, ProcessEvent::Ended(_))).count();
        }
        assert!(world.supervisor.is_idle());
        epoll::delete(&outer, &world.supervisor).unwrap();
    }
}

#[test]
fn its_descriptor_is_quiet_when_there_is_nothing_to_tell() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let is_readable = |supervisor: &Supervisor| {
        let mut descriptors = [PollFd::new(supervisor, PollFlags::IN)];
        poll(&mut descriptors, Some(&Timespec::default())) == Ok(1)
    };
    let mut world = World::new();
    assert!(!is_readable(&world.supervisor));
    world.start(1, &line("no-such-program"));
    let mut descriptors = [PollFd::new(&world.supervisor, PollFlags::IN)];
    poll(&mut descriptors, None).unwrap();
    world.end_of(1);
    assert!(!is_readable(&world.supervisor));
    let gate = world.fifo("gate");
    let mut wanted = line("cat gate");
    wanted.time_limit = Some(std::time::Duration::from_hours(1));
    world.start(2, &wanted);
    assert!(!is_readable(&world.supervisor));
    release(&gate);
    world.end_of(2);
    assert!(!is_readable(&world.supervisor));
}

#[test]
fn with_ends_of_children_ignored_statuses_are_seen_all_the_same() {
    if !alone("embedding::with_ends_of_children_ignored_statuses_are_seen_all_the_same") {
        return;
    }
    let mut world = World::new();
    // SAFETY: this process has no other thread that waits for children.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    assert_statuses(&mut world);
}

#[test]
fn whoever_reaps_all_children_does_not_take_statuses_away() {
    extern "C" fn reap(_: libc::c_int) {
        // SAFETY: `waitpid` may be called in a signal handler.
        unsafe { while libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) > 0 {} }
    }
    if !alone("embedding::whoever_reaps_all_children_does_not_take_statuses_away") {
        return;
    }
    let mut world = World::new();
    let handler: extern "C" fn(libc::c_int) = reap;
    // SAFETY: the handler does nothing that a handler must not do.
    unsafe { libc::signal(libc::SIGCHLD, handler as libc::sighandler_t) };
    assert_statuses(&mut world);
}

#[test]
fn a_program_may_tell_of_the_ends_of_its_children_itself() {
    if !alone("embedding::a_program_may_tell_of_the_ends_of_its_children_itself") {
        return;
    }
    let mut world = World::with(Children::All(EndNotice::Sigchld));
    assert_statuses(&mut world);
    // Without a handle it is signalled by its number.
    world.fifo("gate");
    world.start(1000, &line("cat gate"));
    world.supervisor.stop(task(1000), StopMode::Terminate);
    assert_eq!(world.outcome_of(1000), Outcome::Interrupted);
    // Several ends may come with one signal.
    let gate = world.fifo("all");
    for number in 1001..1030 {
        world.start(number, &line("read x < all"));
    }
    let mut open = fs_err::OpenOptions::new();
    let mut gate = open.read(true).write(true).open(&gate).unwrap();
    std::io::Write::write_all(&mut gate, &[b'\n'; 29]).unwrap();
    for number in 1001..1030 {
        assert_eq!(world.outcome_of(number), Outcome::Succeeded);
    }
    // A handle costs a descriptor, and there is none.
    world.start(1031, &line("cat gate"));
    let handles = fs_err::read_dir("/proc/self/fd").unwrap();
    let handles = handles.filter_map(|entry| fs_err::read_link(entry.ok()?.path()).ok());
    let is_handle = |link: &std::path::PathBuf| link.to_string_lossy().contains("pidfd");
    assert_eq!(handles.filter(is_handle).count(), 0);
    world.supervisor.stop(task(1031), StopMode::Kill);
    assert_eq!(world.outcome_of(1031), Outcome::Interrupted);
}

fn assert_statuses(world: &mut World) {
    world.fifo("never");
    for number in 0..50 {
        let commands = [
            ("true", Outcome::Succeeded),
            ("exit 3", Outcome::Failed { code: 3 }),
            ("kill -9 $$", Outcome::Killed { signal: 9 }),
            ("cat never & exit 4", Outcome::Failed { code: 4 }),
            ("no-such-program", Outcome::NotStarted),
        ];
        for (at, (command, outcome)) in (1..).zip(commands) {
            let end = world.run(5 * number + at, &line(command));
            match end.message.as_deref() {
                // The kernel is older than 6.15.
                Some("nobody could see how it ended") => {}
                _ => assert_eq!(end.outcome, outcome, "{command}"),
            }
        }
    }
}

#[test]
fn the_programs_own_mask_and_actions_stay_as_they_are() {
    if !alone("embedding::the_programs_own_mask_and_actions_stay_as_they_are") {
        return;
    }
    let status = || {
        let thread = rustix::thread::gettid().as_raw_nonzero();
        let status = fs_err::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
        let sets = ["SigBlk", "SigIgn", "SigCgt"];
        let signals = status.lines().filter(|line| sets.iter().any(|it| line.starts_with(it)));
        signals.map(str::to_owned).collect::<Vec<_>>()
    };
    let before = status();
    let mut world = World::new();
    assert_eq!(status(), before);
    world.run(1, &line("true"));
    world.start(2, &line("sleep 1000"));
    assert_eq!(status(), before);
    world.supervisor.stop(task(2), StopMode::Terminate);
    world.end_of(2);
    drop(world);
    assert_eq!(status(), before);
}
