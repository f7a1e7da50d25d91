use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};

use packhorse_test_parts::needs;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

const STRANGER: u32 = 54_322;

fn text(found: io::Result<Found>) -> String {
    match found.unwrap() {
        Found::Nothing => "nothing".to_owned(),
        Found::LeftOut(distrust) => distrust.to_string(),
        Found::File(mut file) => {
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            text
        }
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn only_regular_files_count_and_pipes_are_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    assert_eq!(text(find_file(&path("none"))), "nothing");
    assert_eq!(text(find_file(&path("none/below"))), "nothing");
    mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    for other in [path("pipe"), folder.path().to_owned(), "/dev/zero".into()] {
        assert_eq!(text(find_file(&other)), "it is not a regular file");
    }
}

#[test]
fn a_file_that_others_can_write_to_is_left_out_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs_err::write(&file, "text").unwrap();
    for (mode, remedy) in [(0o644, None), (0o600, None), (0o646, Some("chmod go-w"))] {
        set_mode(&file, mode);
        let found = find_file(&file).unwrap();
        match remedy {
            None => assert!(matches!(found, Found::File(_)), "{mode:o}: {found:?}"),
            Some(remedy) => match found {
                Found::LeftOut(distrust) => assert_eq!(distrust.remedy(), Some(remedy)),
                other => panic!("{other:?}"),
            },
        }
    }
}

#[test]
fn links_count_if_they_are_ours() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs_err::write(path("file"), "text").unwrap();
    symlink("file", path("link")).unwrap();
    symlink(path("link"), path("second")).unwrap();
    assert_eq!(text(find_file(&path("second"))), "text");
    symlink("nowhere", path("dangling")).unwrap();
    assert_eq!(text(find_file(&path("dangling"))), "nothing");
    symlink("round", path("round")).unwrap();
    assert!(text(find_file(&path("round"))).starts_with("it cannot be read"));
}

#[test]
fn what_others_own_does_not_count() {
    needs!(TwoUsers);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs_err::write(path("ours"), "text").unwrap();
    fs_err::write(path("theirs"), "text").unwrap();
    chown(path("theirs"), Some(STRANGER), None).unwrap();
    assert!(text(find_file(&path("theirs"))).starts_with("it belongs to user 54322, not"));
    symlink("ours", path("link")).unwrap();
    lchown(path("link"), Some(STRANGER), None).unwrap();
    assert!(text(find_file(&path("link"))).starts_with("it is a link of user 54322"));
    // A link of ours that leads to one of theirs is theirs.
    symlink("link", path("second")).unwrap();
    assert!(text(find_file(&path("second"))).starts_with("it is a link of user 54322"));
    assert!(check_link(&path("second")).is_ok() && check_link(&path("link")).is_err());
    // Their file is not opened: a pipe would tell them of it.
    set_mode(&path("theirs"), 0);
    assert!(text(find_file(&path("theirs"))).starts_with("it belongs to user 54322"));
}

#[test]
fn a_group_of_the_owner_alone_may_write_and_no_other() {
    needs!(TwoUsers);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs_err::write(&file, "text").unwrap();
    chown(&file, Some(0), Some(STRANGER)).unwrap();
    set_mode(&file, 0o664);
    match find_file(&file).unwrap() {
        Found::LeftOut(distrust) => {
            assert_eq!(distrust.to_string(), "the group 54322 can write to it");
            assert_eq!(distrust.remedy(), Some("chmod g-w"));
        }
        other => panic!("{other:?}"),
    }
    chown(&file, None, Some(0)).unwrap();
    assert_eq!(text(find_file(&file)), "text");
}

/// The bits of the group are those of an access list's mask: they say less than the list.
#[test]
fn an_access_list_is_not_a_private_group() {
    needs!(Root);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs_err::write(&file, "text").unwrap();
    chown(&file, Some(0), Some(0)).unwrap();
    // user::rw-, user:54322:rw-, group::r--, mask::rw-, other::r--
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 6, u32::MAX),
        (0x02, 6, STRANGER),
        (0x04, 4, u32::MAX),
        (0x10, 6, u32::MAX),
        (0x20, 4, u32::MAX),
    ];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, access, id) in entries {
        list.extend(tag.to_le_bytes().into_iter().chain(access.to_le_bytes()));
        list.extend(id.to_le_bytes());
    }
    let set = rustix::fs::setxattr(
        &file,
        c"system.posix_acl_access",
        &list,
        rustix::fs::XattrFlags::empty(),
    );
    set.expect("the file system of temporary files has access lists");
    match find_file(&file).unwrap() {
        Found::LeftOut(distrust) => assert_eq!(distrust.remedy(), Some("setfacl -b")),
        other => panic!("{other:?}"),
    }
    // An entry that the mask keeps from writing cannot.
    set_mode(&file, 0o644);
    assert_eq!(text(find_file(&file)), "text");
}

#[test]
fn what_others_could_have_written_is_not_trusted_on_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs_err::write(&file, "text").unwrap();
    set_mode(&file, 0o644);
    assert_eq!(read_trusted(&file).unwrap(), "text");
    for writable in [0o664, 0o646] {
        set_mode(&file, writable);
        assert!(read_trusted(&file).is_err(), "{writable:o}");
    }
    set_mode(&file, 0o600);
    fs_err::write(&file, "x".repeat(1 << 17)).unwrap();
    assert!(read_trusted(&file).is_err(), "too large");
    let error = read_trusted(&folder.path().join("none")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}
