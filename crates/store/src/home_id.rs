use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use packhorse_model::Timestamp;
use packhorse_trust::write_private;
use rustix::fs::OFlags;

use crate::{Home, new_run_uuid};

/// The file that holds the id, in the state folder.
pub(crate) const NAME: &str = "id";
/// No id is longer.
const LONGEST: usize = 64;

impl Home {
    /// What tells this state folder from others, however its path is spelled and wherever
    /// it is moved: the processes of its tasks are marked with it.
    pub fn id(&self) -> io::Result<String> {
        let path = self.path().join(NAME);
        match read_at_once(&path) {
            Ok(text) if is_id(text.trim()) => return Ok(text.trim().to_owned()),
            Ok(_) => fs::remove_file(&path)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        // Whole or not at all, and the first of several who make one decides.
        // A process in another container may have the same process id.
        let id = new_run_uuid(Timestamp::now()).to_string();
        let draft = self.path().join(format!("{NAME}.{id}"));
        write_private(&draft, format!("{id}\n"))?;
        let mut made = fs::hard_link(&draft, &path);
        if !path.exists() {
            // Not every file system has links.
            made = fs::rename(&draft, &path);
        }
        let _ = fs::remove_file(&draft);
        match fs::read_to_string(&path) {
            Ok(text) if is_id(text.trim()) => Ok(text.trim().to_owned()),
            _ => made.map(|()| id),
        }
    }
}

/// Reads a file, but does not wait for whoever writes into a fifo in its place.
pub(crate) fn read_at_once(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(flags);
    options.open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

fn is_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !text.is_empty() && text.len() <= LONGEST && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_its_id_however_it_is_spelled() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path().join("home")).unwrap();
        let id = home.id().unwrap();
        assert_eq!(home.id().unwrap(), id);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(home.path(), &link).unwrap();
        assert_eq!(Home::open(link).unwrap().id().unwrap(), id);
        let other = Home::open(dir.path().join("other")).unwrap();
        assert_ne!(other.id().unwrap(), id);
    }

    #[test]
    fn one_that_is_damaged_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path().join("home")).unwrap();
        fs::write(home.path().join(NAME), "\0\0").unwrap();
        let id = home.id().unwrap();
        assert!(is_id(&id), "{id}");
        let files = fs::read_dir(home.path()).unwrap().count();
        assert_eq!(files, 1, "nothing else is left");
    }
}
