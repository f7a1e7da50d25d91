//! Where programs are.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;

/// How many programs are remembered.
const REMEMBERED: usize = 4096;

/// Finds programs on a search path, and remembers where they were.
pub(crate) struct Programs {
    path: OsString,
    /// By name; behind the search path and a zero, if that is not ours.
    found: FxHashMap<Vec<u8>, Program>,
    /// Of what was last looked for.
    key: Vec<u8>,
}

struct Program {
    file: Arc<CStr>,
    /// It could be executed the last time.
    executed: bool,
}

impl Programs {
    /// `path` are the folders to look in, with colons between them. `None`: what
    /// a C library assumes when there is no `PATH` at all.
    pub(crate) fn new(path: Option<OsString>) -> Self {
        Self {
            path: path.unwrap_or_else(|| "/bin:/usr/bin".into()),
            found: FxHashMap::default(),
            key: Vec::new(),
        }
    }

    /// The file to execute for `name`, and whether it could be executed the last
    /// time. `path` is where to look, if not in our folders. A name with a slash
    /// is the file.
    pub(crate) fn find(&mut self, name: &[u8], path: Option<&[u8]>) -> Option<(Arc<CStr>, bool)> {
        self.key.clear();
        if let Some(path) = path {
            self.key.extend_from_slice(path);
            self.key.push(0);
        }
        self.key.extend_from_slice(name);
        if !self.found.contains_key(&self.key) {
            let file = if name.contains(&b'/') {
                CString::new(name).ok()?
            } else {
                search(name, path.map_or(&self.path, |path| OsStr::from_bytes(path)))?
            };
            if self.found.len() >= REMEMBERED {
                self.found.clear();
            }
            let program = Program { file: file.into(), executed: false };
            self.found.insert(self.key.clone(), program);
        }
        let program = self.found.get(&self.key)?;
        Some((Arc::clone(&program.file), program.executed))
    }

    /// What was last looked for could be executed.
    pub(crate) fn set_executed(&mut self) {
        if let Some(program) = self.found.get_mut(&self.key) {
            program.executed = true;
        }
    }

    /// Forgets where it was what was last looked for: it is not there any more.
    pub(crate) fn forget(&mut self) {
        self.found.remove(&self.key);
    }
}

fn search(name: &[u8], path: &OsStr) -> Option<CString> {
    let name = Path::new(OsStr::from_bytes(name));
    std::env::split_paths(path)
        .map(|folder| folder.join(name))
        .find(|file| {
            file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
        })
        .and_then(|file| CString::new(file.into_os_string().into_vec()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_on_the_path() {
        let mut programs = Programs::new(std::env::var_os("PATH"));
        assert!(programs.find(b"sh", None).is_some());
        assert!(programs.find(b"no-such-program-anywhere", None).is_none());
        let (file, _) = programs.find(b"./x", None).unwrap();
        assert_eq!(&*file, c"./x");
        assert!(programs.find(b"sh", Some(b"/nonexistent")).is_none());
    }
}
