//! Files that somebody made up, and things that are taken away.

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Child, Command};

use crate::support::*;
use packhorse_leases::{LeaseError, Leases, read_leases};
use packhorse_proc::ProcessKey;
use packhorse_test_parts::needs;

/// A folder with the lease of a living process in it, and that lease's name in
/// its three parts, of which the first is its folder's.
struct Model {
    place: TestFolder,
    _peer: Peer,
    text: String,
    name: [u64; 3],
}

#[expect(clippy::unwrap_used, reason = "this is part of tests")]
fn model() -> Model {
    let place = test_folder();
    let mut peer = place.peer();
    peer.tell("hold GPU-1 7");
    let file = place.file();
    let text = fs_err::read_to_string(&file).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    let parts: Vec<u64> = name.split('-').map(|part| part.parse().unwrap()).collect();
    let uid = rustix::process::geteuid().as_raw();
    Model { text, name: [uid.into(), parts[0], parts[1]], _peer: peer, place }
}

impl Model {
    /// Puts a lease under another name into a folder of its own, and tells how
    /// many leases count there and whether the file is still there.
    #[expect(clippy::unwrap_used, reason = "this is part of tests")]
    fn tried(&self, name: [u64; 3], text: &str) -> (usize, bool) {
        self.tried_with(name, |file| fs_err::write(file, text).unwrap())
    }

    #[expect(clippy::unwrap_used, reason = "this is part of tests")]
    fn tried_with(&self, [uid, pid, start]: [u64; 3], make: impl Fn(&Path)) -> (usize, bool) {
        let name = format!("{pid}-{start}");
        // Both ways to come across it: it is there already, or it comes.
        let before = test_folder();
        drop(before.open());
        let file = before.user(uid).join(&name);
        make(&file);
        let seen = read_leases(&before.path).unwrap().len();
        let mut mine = before.open();
        let count = others(&mut mine).len();
        assert_eq!(seen, count, "people see what counts");
        let there = file.symlink_metadata().is_ok();

        let after = test_folder();
        drop(after.open());
        let folder = after.user(uid);
        let mut mine = after.open();
        let draft = self.place.path.with_extension("draft");
        make(&draft);
        fs_err::rename(&draft, folder.join(&name)).unwrap();
        let is_ours = uid == self.name[0];
        assert_eq!(has_changes(&mine), is_ours, "others' folders are theirs alone");
        assert_eq!(others(&mut mine).len(), count);
        let still = folder.join(&name).symlink_metadata().is_ok();
        assert_eq!(still, there);
        assert!(!has_changes(&mine), "it is dealt with");
        (count, there)
    }
}

#[test]
fn a_copy_of_a_good_lease_counts() {
    let model = model();
    assert_eq!(model.tried(model.name, &model.text), (1, true));
}

#[test]
fn a_lease_of_a_reused_process_number_is_removed() {
    let model = model();
    let [uid, pid, start] = model.name;
    assert_eq!(model.tried([uid, pid, start - 1], &model.text), (0, false));
}

#[test]
fn a_lease_of_a_process_that_never_was_is_removed() {
    let model = model();
    let [uid, _, start] = model.name;
    let beyond = 4_194_304 + 1; // no Linux counts further
    assert_eq!(model.tried([uid, beyond, start], &model.text), (0, false));
}

#[test]
fn a_lease_of_another_boot_is_removed() {
    let model = model();
    let boot = fs_err::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let other = model.text.replace(boot.trim(), "00000000-0000-0000-0000-000000000000");
    assert_ne!(other, model.text);
    assert_eq!(model.tried(model.name, &other), (0, false));
}

#[test]
fn a_lease_of_another_pid_namespace_is_left_alone() {
    let model = model();
    let other = model.text.replace(r#""namespace":"#, r#""namespace":9"#);
    assert_ne!(other, model.text);
    assert_eq!(model.tried(model.name, &other), (0, true));
}

#[test]
fn a_lease_that_is_not_its_owners_does_not_count() {
    let model = model();
    let [uid, pid, start] = model.name;
    // Named after somebody else.
    let other = [uid + 1, pid, start];
    assert_eq!(model.tried(other, &model.text), (0, true));
}

#[test]
fn a_lease_that_another_user_made_does_not_count() {
    needs!(TwoUsers);
    let model = model();
    let [uid, pid, start] = model.name;
    let owner = u32::try_from(uid + 1).unwrap();
    // Made by somebody else.
    let given_away = |file: &Path| {
        fs_err::write(file, &model.text).unwrap();
        chown(file, Some(owner), None).unwrap();
    };
    assert_eq!(model.tried_with(model.name, given_away), (0, true));
    // Somebody who names another one's process.
    let theirs = test_folder();
    drop(theirs.open());
    let folder = theirs.user(owner.into());
    chown(&folder, Some(owner), None).unwrap();
    given_away(&folder.join(format!("{pid}-{start}")));
    assert_eq!(others(&mut theirs.open()), []);
}

#[test]
fn a_folder_that_others_write_to_does_not_count() {
    let model = model();
    let [uid, pid, start] = model.name;
    let place = test_folder();
    drop(place.open());
    let folder = place.user(uid);
    fs_err::write(folder.join(format!("{pid}-{start}")), &model.text).unwrap();
    assert_eq!(read_leases(&place.path).unwrap().len(), 1);
    for open in [0o775, 0o757, 0o1777] {
        fs_err::set_permissions(&folder, PermissionsExt::from_mode(open)).unwrap();
        assert_eq!(read_leases(&place.path).unwrap(), []);
    }
}

#[test]
fn nobody_can_be_kept_from_telling_what_they_hold() {
    const OTHER: u32 = 54_321;
    needs!(TwoUsers);
    let place = test_folder();
    let mut mine = place.open();
    // Whatever somebody puts there in their name.
    for name in [format!("{OTHER}-0123456789abcdef"), format!("{OTHER}")] {
        fs_err::create_dir(place.path.join(name)).unwrap();
    }
    let mut peer = place.peer_of(OTHER);
    peer.tell("hold GPU-1 7");
    assert_eq!(memory(&mut mine, "GPU-1"), 7);
}

#[test]
fn junk_is_read_once() {
    let place = test_folder();
    let mut mine = place.open_deaf();
    publish(&mut mine, &[held("GPU-1", 3)]);
    let uid = rustix::process::geteuid().as_raw();
    for number in 0..5000 {
        fs_err::write(place.path.join(format!("junk-{number}")), "").unwrap();
        fs_err::create_dir(place.path.join(format!("{}-{number:016x}", uid + 1))).unwrap();
    }
    let mut peer = place.peer();
    peer.tell("hold GPU-1 7");
    assert_eq!(memory(&mut mine, "GPU-1"), 7);
    // Long enough ago for the file system's clock.
    let old = std::time::SystemTime::now() - std::time::Duration::from_mins(1);
    let folder = fs_err::File::open(&place.path).unwrap().into_file();
    folder.set_modified(old).unwrap();
    drop(mine.lock().unwrap());
    let began = std::time::Instant::now();
    for round in 0..200 {
        peer.tell(&format!("hold GPU-1 {round}"));
        assert_eq!(memory(&mut mine, "GPU-1"), round);
    }
    let took = began.elapsed();
    assert!(took < std::time::Duration::from_secs(2), "{took:?}");
}

#[test]
fn nonsense_does_not_count() {
    let model = model();
    let longer = format!("{}{}", model.text, " ".repeat(64 * 1024));
    let torn = &model.text[..model.text.len() / 2];
    for text in ["", "{}", "nonsense", torn, &longer] {
        assert_eq!(model.tried(model.name, text), (0, true));
    }
    let [uid, pid, start] = model.name;
    for name in [format!("{pid}-{start}.new"), format!("{pid}-0{start}")] {
        let place = test_folder();
        drop(place.open());
        fs_err::write(place.user(uid).join(name), &model.text).unwrap();
        assert_eq!(others(&mut place.open()), []);
    }
}

#[test]
fn what_is_no_file_does_not_count_and_is_not_waited_for() {
    let model = model();
    let real = model.place.file();
    let link = |file: &Path| symlink(&real, file).unwrap();
    assert_eq!(model.tried_with(model.name, link), (0, true));
    let folder = |file: &Path| fs_err::create_dir(file).unwrap();
    assert_eq!(model.tried_with(model.name, folder), (0, true));
    let pipe = |file: &Path| {
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, file, kind, 0o644.into(), 0).unwrap();
    };
    assert_eq!(model.tried_with(model.name, pipe), (0, true));
}

#[test]
fn a_lease_that_somebody_removes_is_put_back() {
    let place = test_folder();
    let mut mine = place.open();
    let mut peer = place.peer();
    publish(&mut mine, &[held("GPU-1", 3)]);
    assert_eq!(peer.tell("memory GPU-1"), "3");
    fs_err::remove_file(place.file()).unwrap();
    assert!(has_changes(&mine));
    drop(mine.lock().unwrap());
    assert!(!has_changes(&mine));
    assert_eq!(peer.tell("memory GPU-1"), "3");
}

#[test]
fn all_go_on_in_a_new_folder_if_the_old_one_is_removed() {
    let place = test_folder();
    let mut mine = place.open();
    let mut peer = place.peer();
    publish(&mut mine, &[held("GPU-1", 3)]);
    peer.tell("hold GPU-1 7");
    assert_eq!(memory(&mut mine, "GPU-1"), 7);
    fs_err::remove_dir_all(&place.path).unwrap();
    assert!(has_changes(&mine));
    assert_eq!(memory(&mut mine, "GPU-1"), 7, "it has not noticed yet");
    assert_eq!(peer.tell("memory GPU-1"), "3");
    assert!(has_changes(&mine));
    peer.tell("hold GPU-1 8");
    assert_eq!(memory(&mut mine, "GPU-1"), 8);
    let mode = fs_err::metadata(&place.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o1777);
    // And they have one lock with whoever comes new.
    place.peer().tell("lock");
    assert!(mine.lock().unwrap().warning().is_none(), "it has died");
    let mut new = place.peer();
    new.tell("lock");
    assert!(mine.lock().unwrap().warning().is_some());
}

#[test]
fn one_who_only_waits_for_its_task_moves_to_the_new_folder_as_well() {
    let place = test_folder();
    let mut mine = place.open_deaf();
    publish(&mut mine, &[held("GPU-1", 3)]);
    mine.guard(Vec::new()).unwrap();
    let away = place.path.with_extension("away");
    fs_err::rename(&place.path, &away).unwrap();
    fs_err::remove_dir_all(&away).unwrap();
    assert!(has_changes(&mine));
    assert!(!mine.has_freed().unwrap());
    assert_eq!(place.peer().tell("memory GPU-1"), "3");
    assert!(!has_changes(&mine));
    fs_err::remove_file(place.file()).unwrap();
    assert!(has_changes(&mine), "it is watched there, too");
}

#[test]
fn one_who_does_not_come_to_the_new_folder_holds_nothing_after_a_while() {
    let place = test_folder();
    let mut mine = place.open();
    let mut peer = place.peer();
    peer.tell("hold GPU-1 7");
    assert_eq!(memory(&mut mine, "GPU-1"), 7);
    let away = place.path.with_extension("away");
    fs_err::rename(&place.path, &away).unwrap();
    assert_eq!(memory(&mut mine, "GPU-1"), 7, "it may not have noticed yet");
    mine.lock().unwrap().set_seen();
    wait_for_change(&mine);
    assert!(mine.has_freed().unwrap());
    assert_eq!(memory(&mut mine, "GPU-1"), 0);
    // One who ends before it has come holds nothing at once.
    peer.tell("memory GPU-1");
    assert_eq!(memory(&mut mine, "GPU-1"), 7);
    fs_err::rename(&place.path, away.with_extension("again")).unwrap();
    assert_eq!(memory(&mut mine, "GPU-1"), 7);
    peer.kill();
    assert_eq!(memory(&mut mine, "GPU-1"), 0);
}

#[test]
fn a_folder_that_cannot_be_replaced_is_tried_again_later() {
    let place = test_folder();
    let mut mine = place.open();
    publish(&mut mine, &[held("GPU-1", 3)]);
    mine.guard(Vec::new()).unwrap();
    let mut peer = place.peer();
    peer.tell("hold GPU-1 7");
    assert_eq!(memory(&mut mine, "GPU-1"), 7);
    fs_err::rename(&place.path, place.path.with_extension("away")).unwrap();
    fs_err::remove_dir_all(place.path.with_extension("away")).unwrap();
    fs_err::write(&place.path, "").unwrap();
    assert!(has_changes(&mine));
    let error = mine.has_freed().unwrap_err();
    assert!(matches!(error, LeaseError::NotAFolder { .. }), "{error}");
    assert!(!has_changes(&mine), "nothing can be done about it now");
    peer.kill();
    assert!(has_changes(&mine));
    mine.has_freed().unwrap_err();
    assert!(!has_changes(&mine), "its end was heard");
    fs_err::remove_file(&place.path).unwrap();
    wait_for_change(&mine);
    assert!(mine.has_freed().unwrap());
    assert_eq!(place.peer().tell("memory GPU-1"), "3");
}

#[test]
fn a_lease_that_could_not_be_written_is_written_next_time() {
    let place = test_folder();
    let mut mine = place.open();
    let mut peer = place.peer();
    publish(&mut mine, &[held("GPU-1", 3)]);
    let mut draft = place.file().into_os_string();
    draft.push(".new");
    fs_err::create_dir(&draft).unwrap();
    let more = [held("GPU-1", 4)];
    let error = mine.lock().unwrap().publish(&holding(&more)).unwrap_err();
    assert!(error.to_string().contains("write lease"), "{error}");
    assert_eq!(peer.tell("memory GPU-1"), "3");
    fs_err::remove_dir(&draft).unwrap();
    publish(&mut mine, &more);
    assert_eq!(peer.tell("memory GPU-1"), "4");
}

#[test]
fn a_draft_that_was_left_is_written_over() {
    let place = test_folder();
    let mut mine = place.open();
    publish(&mut mine, &[held("GPU-1", 3)]);
    let mut draft = place.file().into_os_string();
    draft.push(".new");
    fs_err::write(&draft, "half of i").unwrap();
    publish(&mut mine, &[held("GPU-1", 4)]);
    assert!(!Path::new(&draft).exists());
}

#[test]
fn a_folder_that_somebody_else_made_will_do_if_it_is_sticky() {
    needs!(TwoUsers);
    let place = test_folder();
    drop(place.open());
    chown(&place.path, Some(12_345), None).unwrap();
    let mut mine = place.open();
    let mut peer = place.peer_of(54_321);
    peer.tell("hold GPU-1 7");
    assert_eq!(memory(&mut mine, "GPU-1"), 7);
    fs_err::set_permissions(&place.path, PermissionsExt::from_mode(0o777)).unwrap();
    let error = Leases::open(&place.path, owner()).unwrap_err();
    assert!(matches!(error, LeaseError::NotSticky { .. }), "{error}");
}

#[test]
fn folder_and_leases_are_for_all_whatever_the_umask() {
    let place = test_folder();
    let mut peer = place.secretive_peer();
    peer.tell("hold GPU-1 3");
    let mode = |path: &Path| fs_err::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&place.path), 0o1777);
    assert_eq!(mode(&place.file()), 0o644);
}

#[test]
fn leases_that_somebody_made_up_are_gone_in_a_moment() {
    let model = model();
    let [uid, pid, start] = model.name;
    let place = test_folder();
    drop(place.open());
    for other in 0..2000 {
        let name = format!("{pid}-{}", start + 1 + other);
        fs_err::write(place.user(uid).join(name), &model.text).unwrap();
    }
    let mut mine = place.open_deaf();
    assert!(mine.lock().unwrap().others().count() > 0, "they may have left something running");
    assert_eq!(others(&mut mine), []);
    assert_eq!(place.files(), [""; 0]);
}

/// Processes that do nothing, until this is dropped.
struct Sleeping(Vec<Child>);

impl Sleeping {
    #[expect(clippy::unwrap_used, reason = "this is part of tests")]
    fn start(count: usize) -> Self {
        let start = |_| Command::new("sleep").arg("1000").spawn().unwrap();
        Self((0..count).map(start).collect())
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

#[test]
fn however_many_wait_whoever_holds_something_is_seen() {
    let model = model();
    let [uid, ..] = model.name;
    let place = test_folder();
    drop(place.open());
    let folder = place.user(uid);
    let sleeping = Sleeping::start(300);
    let sleeping = &sleeping.0;
    let file = |pid| {
        let ProcessKey { pid, start_time } = ProcessKey::of(pid).unwrap();
        folder.join(format!("{pid}-{start_time}"))
    };
    let start = model.text.find(r#""devices":"#).unwrap();
    let end = start + model.text[start..].find(']').unwrap() + 1;
    let waiting = format!(r#"{}"devices":[]{}"#, &model.text[..start], &model.text[end..]);
    for (number, child) in sleeping.iter().enumerate() {
        let holds = number % 15 == 0;
        let text = if holds { &model.text } else { &waiting };
        fs_err::write(file(child.id()), text).unwrap();
    }
    let mut peer = place.peer();
    assert_eq!(peer.tell("memory GPU-1"), (20 * 7).to_string());
    let mut mine = place.open_deaf();
    assert_eq!(others(&mut mine).len(), 20 + 256, "not all who wait count");
    let all = read_leases(&place.path).unwrap();
    let holds = all.iter().filter(|lease| !lease.held.is_empty());
    assert_eq!(holds.count(), 20);
    publish(&mut mine, &[held("GPU-2", 1)]);
    let own = file(std::process::id());
    // If too many hold something, it is not known who holds what.
    let draft = place.path.with_extension("draft");
    for child in sleeping {
        fs_err::write(&draft, &model.text).unwrap();
        fs_err::rename(&draft, file(child.id())).unwrap();
    }
    let told = format!(
        "what other runs hold cannot be seen at the moment: more than 256 runs of user {uid} \
         hold GPUs; nothing is started until some of them have ended"
    );
    let error = place.open_deaf().lock().unwrap_err();
    assert_eq!(error.to_string(), told);
    assert!(mine.lock().unwrap_err().hides_others());
    // Whoever has done with a GPU gives it up all the same: otherwise nobody ever would.
    assert!(own.exists());
    mine.lower(&holding(&[])).unwrap();
    assert!(!own.exists());
    for child in &sleeping[256..] {
        fs_err::remove_file(file(child.id())).unwrap();
    }
    for leases in [&mut mine, &mut place.open_deaf()] {
        assert_eq!(memory(leases, "GPU-1"), 256 * 7);
    }
}

#[test]
fn one_user_cannot_use_up_the_descriptors_of_others() {
    let model = model();
    let [uid, pid, start] = model.name;
    let place = test_folder();
    drop(place.open());
    let sleeping = Sleeping::start(20);
    let leaders = sleeping.0.iter().map(|child| {
        let ProcessKey { pid, start_time } = ProcessKey::of(child.id()).unwrap();
        format!("[{pid},{start_time}]")
    });
    let leaders: Vec<String> = leaders.collect();
    let leaders = format!(r#""leaders":[{}]"#, leaders.join(","));
    let text = model.text.replace(r#""leaders":[]"#, &leaders);
    assert_ne!(text, model.text);
    for other in 1..=256 {
        let name = format!("{pid}-{}", start + other);
        fs_err::write(place.user(uid).join(name), &text).unwrap();
    }
    let mut peer = place.peer();
    assert_eq!(peer.tell("others"), "256", "all of them count");
    let open = fs_err::read_dir(format!("/proc/{}/fd", peer.pid())).unwrap();
    assert!(open.count() < 600);
    drop(sleeping);
    assert_eq!(peer.tell("others"), "0", "until all have ended");
}

#[test]
fn a_flood_of_events_hides_nothing() {
    let model = model();
    let [uid, pid, start] = model.name;
    // More than is read at once, and more than the kernel keeps.
    for count in [3000, 40_000] {
        let place = test_folder();
        let mut mine = place.open();
        let mut peer = place.peer();
        publish(&mut mine, &[held("GPU-1", 3)]);
        // Of another version, so that none of them counts.
        let folder = place.user(uid);
        let name = |number| folder.join(format!("{pid}-{}", start + number));
        let text = model.text.replace(r#""version":2"#, r#""version":1"#);
        fs_err::write(name(0), text).unwrap();
        for number in 0..count {
            fs_err::rename(name(number), name(number + 1)).unwrap();
        }
        peer.tell("hold GPU-1 7");
        assert_eq!(memory(&mut mine, "GPU-1"), 7);
        assert_eq!(others(&mut mine).len(), 1);
    }
}

#[test]
fn what_cannot_be_read_for_want_of_descriptors_is_read_when_there_are_some() {
    let place = test_folder();
    let mut mine = place.open();
    publish(&mut mine, &[held("GPU-1", 3)]);
    let mut peer = place.peer();
    assert_eq!(peer.tell("look"), "1");
    let mut third = place.peer();
    peer.tell("exhaust");
    third.tell("hold GPU-2 5");
    let told = "what other runs hold cannot be seen at the moment: Too many open files";
    let answer = peer.tell("look");
    assert!(answer.starts_with(told), "{answer}");
    // Nor is one that was known taken for dead.
    publish(&mut mine, &[held("GPU-1", 4)]);
    assert!(peer.tell("look").starts_with(told));
    peer.tell("recover");
    assert_eq!(peer.tell("look"), "2");
    assert_eq!(peer.tell("memory GPU-1"), "4");
    assert_eq!(peer.tell("memory GPU-2"), "5");
}
