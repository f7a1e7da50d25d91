//! Signals that come while attempts are started, and what attempts inherit.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use packhorse_model::{Outcome, ProcessEvent};
use packhorse_supervisor::{SignalMask, Supervisor};
use rustix::process::Signal;

use crate::support::{World, alone, line, settings};

/// How many attempts are started while signals come.
const STARTED: u32 = 400;

/// Who we are.
static OWNER: AtomicI32 = AtomicI32::new(0);
static CAUGHT: AtomicU32 = AtomicU32::new(0);

/// A handler ran in a child that still shares our memory.
static CAUGHT_IN_CHILD: AtomicBool = AtomicBool::new(false);

extern "C" fn count(_: libc::c_int) {
    // What the C library and the standard library tell may be remembered from us.
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let owner = OWNER.load(Ordering::Relaxed);
    if owner != 0 && owner != me {
        CAUGHT_IN_CHILD.store(true, Ordering::Relaxed);
    }
    CAUGHT.fetch_add(1, Ordering::Relaxed);
}

fn handle(signal: libc::c_int) {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    OWNER.store(me, Ordering::Relaxed);
    let handler: extern "C" fn(libc::c_int) = count;
    // SAFETY: the handler does nothing but ask for a number and count.
    unsafe { libc::signal(signal, handler as libc::sighandler_t) };
}

/// As a terminal does it: everybody in the group gets the signal, and those who are
/// just being started are in it.
fn start_many_while_signals_come(world: &mut World) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                rustix::process::kill_current_process_group(Signal::INT).unwrap();
            }
        });
        for number in 1..=STARTED {
            // Both those that we wait for and those that we do not.
            world.start(number, &line("true"));
            if number % 8 == 0 {
                while !world.supervisor.is_idle() {
                    world.wait();
                }
            }
        }
        while !world.supervisor.is_idle() {
            world.wait();
        }
        over.store(true, Ordering::Relaxed);
    });
    let ends = world.events.iter().filter_map(|event| match event {
        ProcessEvent::Ended(end) => Some(end.outcome),
        _ => None,
    });
    let ends: Vec<Outcome> = ends.collect();
    assert_eq!(ends.len(), STARTED as usize);
    let killed = ends.iter().filter(|end| !end.is_success()).count();
    assert_eq!(killed, 0, "of {}", ends.len());
    assert!(CAUGHT.load(Ordering::Relaxed) > 0);
    assert!(!CAUGHT_IN_CHILD.load(Ordering::Relaxed));
}

#[test]
fn an_interrupt_to_our_group_reaches_no_attempt() {
    if !alone("signals::an_interrupt_to_our_group_reaches_no_attempt") {
        return;
    }
    handle(libc::SIGINT);
    start_many_while_signals_come(&mut World::new());
}

#[test]
fn nor_does_it_when_we_handle_it_only_later() {
    if !alone("signals::nor_does_it_when_we_handle_it_only_later") {
        return;
    }
    let mut world = World::new();
    handle(libc::SIGINT);
    start_many_while_signals_come(&mut world);
}

/// The signals up to 31 that a process with this supervisor has blocked, ignored.
fn inherited(world: &mut World) -> Vec<u64> {
    // Without a shell, which sees to its own signals.
    let end = world.run(1, &line("grep -e ^SigBlk -e ^SigIgn /proc/self/status"));
    assert_eq!(end.outcome, Outcome::Succeeded);
    let out = world.log(1, 1);
    let sets = out.lines().map(|line| {
        let digits = line.split_whitespace().last().unwrap();
        u64::from_str_radix(digits, 16).unwrap() & 0x7fff_ffff
    });
    sets.collect()
}

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

#[test]
fn what_is_ignored_on_purpose_stays_ignored_and_nothing_else() {
    let name = "signals::what_is_ignored_on_purpose_stays_ignored_and_nothing_else";
    if !alone(name) {
        return;
    }
    // As under nohup; and as language runtimes do it for themselves.
    for signal in [libc::SIGHUP, libc::SIGXFSZ, libc::SIGPIPE] {
        // SAFETY: ignoring is no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    for signal in [libc::SIGTERM, libc::SIGUSR1] {
        handle(signal);
    }
    let mut world = World::new();
    assert_eq!(inherited(&mut world), [0, bit(libc::SIGHUP)]);
}

#[test]
fn attempts_get_the_mask_of_the_thread_that_made_the_supervisor_or_the_one_asked_for() {
    let name = "signals::attempts_get_the_mask_of_the_thread_that_made_the_supervisor_or_the_one_asked_for";
    if !alone(name) {
        return;
    }
    let mut world = World::new();
    let mask = SignalMask::default().with(libc::SIGUSR2).with(libc::SIGWINCH).with(0).with(65);
    let mut own = settings(packhorse_supervisor::Children::Marked, "masks");
    own.signal_mask = Some(mask);
    world.supervisor = Supervisor::new(own).unwrap();
    let blocked = bit(libc::SIGUSR2) | bit(libc::SIGWINCH);
    assert_eq!(inherited(&mut world)[0], blocked);
    assert_eq!(SignalMask::of_this_thread(), SignalMask::default());
    // SAFETY: the set is initialised before it is used.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGALRM);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
    let expected = SignalMask::default().with(libc::SIGALRM);
    assert_eq!(SignalMask::of_this_thread(), expected);
    let mut world = World::new();
    assert_eq!(inherited(&mut world)[0], bit(libc::SIGALRM));
}
