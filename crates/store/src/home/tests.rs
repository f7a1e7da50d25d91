use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

fn chosen(set: &[(&str, &str)], home: Option<&str>) -> Option<String> {
    let variable = |name: &str| {
        let found = set.iter().find(|(known, _)| *known == name)?;
        Some(OsString::from(found.1))
    };
    let (Chosen::Named(path) | Chosen::Found(path)) =
        choose(variable, || home.map(PathBuf::from)).ok()?;
    Some(path.display().to_string())
}

fn mode(path: &Path) -> u32 {
    fs_err::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn the_nearest_variable_names_the_folder() {
    let all = [("PACKHORSE_HOME", "/p"), ("XDG_STATE_HOME", "/x")];
    assert_eq!(chosen(&all, Some("/h")).as_deref(), Some("/p"));
    assert_eq!(chosen(&all[1..], Some("/h")).as_deref(), Some("/x/packhorse"));
    assert_eq!(chosen(&[], Some("/h")).as_deref(), Some("/h/.local/state/packhorse"));
}

#[test]
fn empty_and_relative_variables_are_as_good_as_none() {
    let set = [("PACKHORSE_HOME", ""), ("XDG_STATE_HOME", "state")];
    assert_eq!(chosen(&set, Some("/h")).as_deref(), Some("/h/.local/state/packhorse"));
}

#[test]
fn without_any_variable_the_error_says_which_to_set() {
    let error = choose(|_| None, || None).err().unwrap().to_string();
    assert!(error.contains("hint: set PACKHORSE_HOME"), "{error}");
}

#[test]
fn a_new_folder_is_its_owners_alone_and_so_are_those_above_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state/packhorse");
    let home = Home::open(&path).unwrap();
    assert_eq!(mode(home.path()), 0o700);
    assert_eq!(mode(&dir.path().join("state")), 0o700);
}

#[test]
fn a_folder_that_is_open_to_others_is_refused_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    for open in [0o755, 0o710, 0o702] {
        fs_err::set_permissions(dir.path(), PermissionsExt::from_mode(open)).unwrap();
        let error = Home::open(dir.path()).unwrap_err();
        assert!(matches!(error, StoreError::OpenHome { .. }), "{error}");
        assert_eq!(mode(dir.path()), open);
    }
}

#[test]
fn a_folder_of_another_user_is_refused_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    // Only root can give a folder away; for everybody else root's own will do.
    let path = if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(dir.path(), Some(12345), None).unwrap();
        dir.path()
    } else {
        Path::new("/")
    };
    let before = fs_err::metadata(path).unwrap().mode();
    let error = Home::open(path).unwrap_err();
    assert!(matches!(error, StoreError::ForeignHome { .. }), "{error}");
    assert!(error.to_string().contains("belongs to user"), "{error}");
    assert_eq!(fs_err::metadata(path).unwrap().mode(), before);
}

#[test]
fn a_file_in_the_folders_place_is_named_in_the_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("taken");
    fs_err::write(&path, "").unwrap();
    let error = Home::open(&path).unwrap_err().to_string();
    assert!(error.contains("taken"), "{error}");
}
