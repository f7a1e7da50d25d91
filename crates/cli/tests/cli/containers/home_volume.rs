//! The state folder on a volume whose mode is not its user's doing.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use packhorse_test_parts::needs;

use super::podman::Podman;
use crate::support::{World, finish};

const USER: u32 = 54321;
const OTHER: u32 = 54322;
const GROUP: u32 = 54323;

fn mode(path: &Path) -> u32 {
    fs_err::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Everything in a folder and below it.
fn all_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        if path.is_dir() {
            found.extend(fs_err::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

/// What the kubelet does to a volume at each mount.
fn apply_fs_group(volume: &Path) {
    for path in all_in(volume) {
        chown(&path, None, Some(GROUP)).unwrap();
        let of_group = if path.is_dir() { 0o2770 } else { 0o660 };
        set_mode(&path, mode(&path) | of_group);
    }
}

fn volume(world: &World, owner: u32, mode: u32) -> PathBuf {
    let volume = world.work().join("volume");
    fs_err::create_dir(&volume).unwrap();
    chown(&volume, Some(owner), Some(owner)).unwrap();
    set_mode(&volume, mode);
    // The user of the container comes through the folders above.
    set_mode(world.work().parent().unwrap(), 0o755);
    set_mode(&world.work(), 0o777);
    volume
}

#[test]
fn a_pod_with_fs_group_resumes() {
    needs!(Podman, Root);
    let world = World::new();
    let podman = Podman::new(&world);
    let volume = volume(&world, USER, 0o2770);
    apply_fs_group(&volume);
    let home = volume.join("home");
    let variable = format!("PACKHORSE_HOME={}", home.display());
    let user = format!("{USER}:{GROUP}");
    let options = ["--user", &user, "--env", &variable];
    let run = ["run", "--slots", "1", "--", "sh", "-c", "test -e go"];
    let done = podman.packhorse("pod", &options, &run);
    assert_eq!(done.code, 1, "{done:?}");

    apply_fs_group(&volume);
    world.write("go", "");
    let done = podman.packhorse("pod", &options, &["retry"]);
    assert_eq!(done.code, 0, "{done:?}");
    let told = format!("warning: the state folder `{}` was open to other users", home.display());
    assert!(done.stderr.starts_with(&told), "{done:?}");
    for path in all_in(&home) {
        assert_eq!(mode(&path) & 0o7077, 0, "{}", path.display());
    }
    assert_eq!(mode(&home), 0o700);
    let again = podman.packhorse("pod", &options, &["ls"]);
    assert_eq!(again.stderr, "", "it is told once");
}

#[test]
fn a_volume_that_cannot_be_made_private_has_a_private_folder_in_it() {
    needs!(Podman, Root);
    for (owner, opened, user) in [(0, 0o777, USER), (0, 0o755, 0), (OTHER, 0o1777, USER)] {
        let world = World::new();
        let podman = Podman::new(&world);
        let volume = volume(&world, owner, opened);
        let mount = format!("{}:/state", volume.display());
        let user_option = format!("{user}:{user}");
        let options =
            ["--volume", &mount, "--user", &user_option, "--env", "PACKHORSE_HOME=/state"];
        for words in [&["run", "--slots", "1", "--", "true"][..], &["ls"]] {
            let done = podman.packhorse("pod", &options, words);
            assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
        }
        let home = volume.join(format!("packhorse-{user}"));
        assert_eq!(mode(&home), 0o700);
        assert!(home.join("packhorse.db").exists());
        assert_eq!(mode(&volume), opened);

        // Another user was there first, with a folder or with a link to one of ours.
        fs_err::rename(&home, volume.join("away")).unwrap();
        fs_err::create_dir(&home).unwrap();
        chown(&home, Some(OTHER), Some(OTHER)).unwrap();
        let done = podman.packhorse("pod", &options, &["ls"]);
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains("belongs to user"), "{done:?}");
        fs_err::remove_dir(&home).unwrap();
        std::os::unix::fs::symlink("away", &home).unwrap();
        let done = podman.packhorse("pod", &options, &["ls"]);
        assert_eq!(done.code, 2, "{done:?}");
    }
}

#[test]
fn what_others_put_into_an_open_state_folder_is_not_believed() {
    needs!(Root, TwoUsers);
    let world = World::new();
    assert_eq!(world.packhorse(["run", "--slots", "1", "--", "true"]).code, 0);
    set_mode(&world.home(), 0o2770);
    set_mode(&world.home().join("runs"), 0o2770);
    let planted = world.home().join("runs/2");
    fs_err::create_dir(&planted).unwrap();
    chown(&planted, Some(OTHER), None).unwrap();
    let done = world.packhorse(["run", "--slots", "1", "--", "true"]);
    assert_eq!(done.code, 2, "{done:?}");
    let told = format!("`{}` in it belongs to user {OTHER}\nhint: ", planted.display());
    assert!(done.stderr.contains(&told), "{done:?}");

    // A folder that is ours and holds no id may be open on purpose.
    let other = world.work().join("other");
    fs_err::create_dir(&other).unwrap();
    set_mode(&other, 0o770);
    let mut command = world.command(["ls"]);
    command.env("PACKHORSE_HOME", &other);
    let done = finish(command);
    assert_eq!((done.code, mode(&other)), (2, 0o770), "{done:?}");
    assert!(done.stderr.contains("other/packhorse-0`"), "{done:?}");
}
