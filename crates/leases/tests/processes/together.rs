//! Several processes that know of each other.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::support::*;
use packhorse_leases::{LeaseError, LeaseOwner, LeasedDevice, read_leases};
use packhorse_model::{Bytes, Milli};
use packhorse_test_parts::needs;

#[test]
fn each_sees_what_the_other_holds() {
    let place = test_folder();
    let mut mine = place.open();
    let mut peer = place.peer();
    assert_eq!(others(&mut mine), []);
    let whole = LeasedDevice { whole: true, ..held("GPU-2", 5) };
    publish(&mut mine, &[held("GPU-1", 10), whole]);
    assert_eq!(peer.tell("memory GPU-1"), "10");
    assert_eq!(peer.tell("memory GPU-2"), "5");
    assert_eq!(peer.tell("memory GPU-3"), "0");
    peer.tell("hold GPU-1 7");
    let theirs = others(&mut mine);
    assert_eq!(theirs.len(), 1);
    let lease = &theirs[0];
    assert_eq!(lease.pid, peer.pid());
    assert_eq!(lease.uid, rustix::process::geteuid().as_raw());
    let theirs = LeaseOwner { home: peer.pid().to_string(), ..owner() };
    assert_eq!(lease.owner, theirs);
    let expected = LeasedDevice {
        device: "GPU-1".into(),
        memory: Bytes(7),
        share: Milli(250),
        attempts: 1,
        whole: false,
    };
    assert_eq!(lease.held, [expected]);
    publish(&mut mine, &[held("GPU-1", 11)]);
    assert_eq!(peer.tell("memory GPU-1"), "11");
    assert_eq!(peer.tell("memory GPU-2"), "0");
}

#[test]
fn whoever_comes_later_sees_what_was_there_before() {
    let place = test_folder();
    let mut peer = place.peer();
    peer.tell("hold GPU-1 7");
    let mut mine = place.open();
    assert!(!has_changes(&mine));
    assert_eq!(memory(&mut mine, "GPU-1"), 7);
}

#[test]
fn what_a_killed_process_held_is_free_a_moment_later() {
    let place = test_folder();
    let mut mine = place.open();
    let mut peer = place.peer();
    peer.tell("hold GPU-1 7");
    assert_eq!(memory(&mut mine, "GPU-1"), 7);
    let mut seen = mine.lock().unwrap().revision();
    assert!(!has_changes(&mine));
    peer.kill();
    wait_for_change(&mine);
    assert!(has_news(&mut mine, &mut seen));
    assert_eq!(memory(&mut mine, "GPU-1"), 0);
    assert_eq!(place.files(), [""; 0], "and its file is removed");
    assert!(!has_changes(&mine));
}

#[test]
fn what_a_process_held_that_was_killed_before_is_not_counted() {
    let place = test_folder();
    let mut peer = place.peer();
    peer.tell("hold GPU-1 7");
    peer.kill();
    assert_eq!(place.files().len(), 1);
    let mut mine = place.open();
    assert_eq!(others(&mut mine), []);
    assert_eq!(place.files(), [""; 0]);
}

#[test]
fn a_process_that_ends_withdraws_its_lease() {
    let place = test_folder();
    let mut mine = place.open();
    let mut peer = place.peer();
    peer.tell("hold GPU-1 7");
    assert_eq!(memory(&mut mine, "GPU-1"), 7);
    peer.end();
    assert_eq!(place.files(), [""; 0]);
    assert!(has_changes(&mine));
    assert_eq!(memory(&mut mine, "GPU-1"), 0);
}

#[test]
fn a_change_wakes_others_and_not_oneself() {
    let place = test_folder();
    let mut mine = place.open();
    let mut peer = place.peer();
    let mut seen = mine.lock().unwrap().revision();
    peer.order("hear");
    for amount in 1..=3 {
        publish(&mut mine, &[held("GPU-1", amount)]);
        assert!(!has_changes(&mine));
    }
    assert_eq!(peer.answer(), "true");
    assert_eq!(peer.tell("memory GPU-1"), "3");
    peer.order("hear");
    publish(&mut mine, &[]);
    assert!(!has_changes(&mine));
    assert_eq!(peer.answer(), "true");
    peer.tell("hold GPU-1 7");
    assert!(has_changes(&mine));
    assert!(has_news(&mut mine, &mut seen));
    assert!(!has_changes(&mine));
    assert!(!has_news(&mut mine, &mut seen), "nothing new");
}

#[test]
fn who_does_not_listen_is_not_woken_and_learns_all_when_it_asks() {
    let place = test_folder();
    let mut mine = place.open_deaf();
    publish(&mut mine, &[held("GPU-1", 1)]);
    let mut peer = place.peer();
    peer.tell("hold GPU-1 7");
    assert!(!has_changes(&mine));
    assert_eq!(memory(&mut mine, "GPU-1"), 7);
    let mut seen = mine.lock().unwrap().revision();
    peer.tell("hold GPU-1 5");
    assert!(has_news(&mut mine, &mut seen));
    assert!(!has_news(&mut mine, &mut seen), "nothing new");
    assert_eq!(memory(&mut mine, "GPU-1"), 5);
    // From when it listens, nothing is missed.
    peer.tell("hold GPU-1 6");
    mine.listen().unwrap();
    assert_eq!(memory(&mut mine, "GPU-1"), 6);
    peer.tell("hold GPU-1 8");
    assert!(has_changes(&mine));
    assert_eq!(memory(&mut mine, "GPU-1"), 8);
    // A process that ends is heard of by anybody who knows it.
    let mut deaf = place.open_deaf();
    assert_eq!(memory(&mut deaf, "GPU-1"), 8);
    peer.kill();
    assert_eq!(memory(&mut deaf, "GPU-1"), 0);
}

#[test]
fn what_others_do_while_one_publishes_still_wakes_one() {
    let place = test_folder();
    let mut mine = place.open();
    let mut peer = place.peer();
    peer.tell("hold GPU-1 7");
    assert_eq!(memory(&mut mine, "GPU-1"), 7);
    let mut guard = mine.lock().unwrap();
    let mut seen = guard.revision();
    peer.kill();
    guard.publish(&holding(&[held("GPU-1", 1)])).unwrap();
    drop(guard);
    assert!(has_changes(&mine));
    assert!(has_news(&mut mine, &mut seen));
    assert!(!has_changes(&mine));
}

#[test]
fn what_was_told_already_is_not_written_again() {
    let place = test_folder();
    let mut mine = place.open();
    let mut peer = place.peer();
    publish(&mut mine, &[held("GPU-1", 1)]);
    assert_eq!(peer.tell("memory GPU-1"), "1");
    let inode = || {
        use std::os::unix::fs::MetadataExt;
        fs_err::metadata(place.file()).unwrap().ino()
    };
    let before = inode();
    publish(&mut mine, &[held("GPU-1", 1)]);
    assert_eq!(inode(), before);
    publish(&mut mine, &[held("GPU-1", 2)]);
    assert_ne!(inode(), before);
}

#[test]
fn nothing_is_promised_twice_however_many_decide_at_once() {
    const MOST: u64 = 5;
    let place = test_folder();
    let mut mine = place.open();
    let mut peers: Vec<_> = (0..3).map(|_| place.peer()).collect();
    for peer in &mut peers {
        peer.order(&format!("compete 300 {MOST}"));
    }
    compete(&mut mine, 300, MOST);
    for peer in &mut peers {
        assert_eq!(peer.answer(), "done");
    }
    assert_eq!(others(&mut mine), []);
}

#[test]
fn a_lock_that_somebody_keeps_is_waited_for_and_told_once() {
    let place = test_folder();
    let mut mine = place.open();
    let mut peer = place.peer();
    peer.tell("hold GPU-1 7");
    peer.tell("lock");
    let began = Instant::now();
    let mut guard = mine.lock().unwrap();
    assert!(began.elapsed() >= Duration::from_millis(900));
    let warning = guard.warning().unwrap();
    let pid = peer.pid();
    assert!(
        matches!(warning, LeaseError::Locked { holder: Some(holder), .. } if holder == pid),
        "{warning:?}"
    );
    assert_eq!(guard.others().count(), 1, "the rest goes on");
    guard.publish(&holding(&[held("GPU-1", 1)])).unwrap();
    drop(guard);
    // Nobody waits for it again; if all did, this would go on for ever.
    loop {
        let began = Instant::now();
        let mut guard = mine.lock().unwrap();
        assert!(guard.warning().is_none());
        drop(guard);
        if began.elapsed() < Duration::from_millis(900) {
            break;
        }
    }
    peer.tell("unlock");
    assert_eq!(peer.tell("memory GPU-1"), "1");
}

#[test]
fn a_process_that_dies_with_the_lock_does_not_keep_it() {
    let place = test_folder();
    let mut mine = place.open();
    let mut peer = place.peer();
    peer.tell("lock");
    peer.kill();
    assert!(mine.lock().unwrap().warning().is_none());
}

#[test]
fn people_see_everybody_and_change_nothing() {
    let place = test_folder();
    assert_eq!(read_leases(&place.path).unwrap(), []);
    assert!(!place.path.exists());
    let mut mine = place.open();
    let mut peer = place.peer();
    let mut dead = place.peer();
    publish(&mut mine, &[held("GPU-1", 1)]);
    peer.tell("hold GPU-1 7");
    dead.tell("hold GPU-1 9");
    dead.kill();
    let mut pids: Vec<u32> = read_leases(&place.path).unwrap().iter().map(|l| l.pid).collect();
    pids.sort_unstable();
    let mut expected = [std::process::id(), peer.pid()];
    expected.sort_unstable();
    assert_eq!(pids, expected);
    assert_eq!(place.files().len(), 3, "the dead one's is still there");
}

#[test]
fn children_inherit_nothing_of_it() {
    let place = test_folder();
    let mut mine = place.open();
    let mut peer = place.peer();
    peer.tell("hold GPU-1 7");
    assert_eq!(others(&mut mine).len(), 1);
    let flags = rustix::io::fcntl_getfd(mine.as_fd()).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    let listing = std::process::Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    let listing = String::from_utf8(listing.stdout).unwrap();
    let ours = ["inotify", "eventpoll", "eventfd", "pidfd", "leases"];
    for word in ours {
        assert!(!listing.contains(word), "{listing}");
    }
}

#[test]
fn a_lease_of_another_user_counts_and_tells_whose_it_is() {
    const OTHER: u32 = 54_321;
    needs!(TwoUsers);
    let place = test_folder();
    let mut mine = place.open();
    let mut peer = place.peer_of(OTHER);
    peer.tell("hold GPU-1 7");
    let theirs = others(&mut mine);
    assert_eq!(theirs.len(), 1);
    assert_eq!((theirs[0].uid, theirs[0].pid), (OTHER, peer.pid()));
    publish(&mut mine, &[held("GPU-1", 3)]);
    assert_eq!(peer.tell("memory GPU-1"), "3");
    peer.kill();
    wait_for_change(&mine);
    assert_eq!(memory(&mut mine, "GPU-1"), 0);
}

#[test]
fn what_another_users_process_left_does_not_count_even_if_one_may_not_remove_it() {
    const OTHER: u32 = 54_321;
    needs!(TwoUsers);
    let place = test_folder();
    drop(place.open());
    let mut dead = place.peer();
    dead.tell("hold GPU-1 7");
    dead.kill();
    let mut peer = place.peer_of(OTHER);
    assert_eq!(peer.tell("others"), "0");
    assert_eq!(place.files().len(), 1);
}

#[test]
fn a_lease_of_a_dead_process_counts_while_what_it_led_lives() {
    counts_while_what_it_led_lives(TestFolder::peer);
}

#[test]
fn a_lease_of_another_users_dead_process_counts_while_what_it_led_lives() {
    needs!(TwoUsers);
    counts_while_what_it_led_lives(|place| place.peer_of(54_321));
}

#[expect(clippy::unwrap_used, reason = "this is part of tests")]
fn counts_while_what_it_led_lives(start_peer: impl Fn(&TestFolder) -> Peer) {
    let place = test_folder();
    let mut mine = place.open();
    let mut peer = start_peer(&place);
    peer.tell("hold GPU-1 7");
    let leader = peer.tell("lead");
    peer.kill();
    wait_for_change(&mine);
    let theirs = others(&mut mine);
    assert_eq!(theirs.len(), 1);
    assert_eq!(theirs[0].left, Some(vec![leader.parse().unwrap()]));
    assert_eq!(theirs[0].describe("ours", "ann"), "left by run 12 of ann, which was killed");
    assert_eq!(read_leases(&place.path).unwrap(), theirs);
    // Also for one that comes later, and listens to nobody.
    assert_eq!(place.peer().tell("memory GPU-1"), "7");
    let leader = rustix::process::Pid::from_raw(leader.parse().unwrap()).unwrap();
    rustix::process::kill_process(leader, rustix::process::Signal::KILL).unwrap();
    wait_for_change(&mine);
    assert_eq!(others(&mut mine), []);
    assert_eq!(place.files(), [""; 0]);
}

#[test]
fn a_guarded_lease_comes_back_though_nobody_listens() {
    let place = test_folder();
    let mut mine = place.open_deaf();
    publish(&mut mine, &[held("GPU-1", 3)]);
    mine.guard(Vec::new()).unwrap();
    assert!(!has_changes(&mine));
    fs_err::remove_file(place.file()).unwrap();
    assert!(has_changes(&mine));
    assert!(!mine.has_freed().unwrap());
    assert!(place.file().exists());
    assert!(!has_changes(&mine), "our own file wakes nobody");
    fs_err::remove_dir_all(place.file().parent().unwrap()).unwrap();
    assert!(has_changes(&mine));
    drop(mine.lock().unwrap());
    assert!(place.file().exists());
    publish(&mut mine, &[held("GPU-1", 4)]);
    assert!(!has_changes(&mine));
}

#[test]
fn only_what_is_given_up_is_worth_a_look() {
    let place = test_folder();
    let mut mine = place.open();
    let mut peer = place.peer();
    for (order, freed) in [
        ("hold GPU-1 5", false),
        ("hold GPU-1 7", false),
        ("hold GPU-1 6", true),
        ("hold GPU-2 6", true),
    ] {
        peer.tell(order);
        wait_for_change(&mine);
        assert_eq!(mine.has_freed().unwrap(), freed, "{order}");
        assert!(!has_changes(&mine));
        mine.lock().unwrap().set_seen();
    }
    peer.kill();
    wait_for_change(&mine);
    assert!(mine.has_freed().unwrap());
}
