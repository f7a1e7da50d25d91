//! Copies of the code that jobs run, so that it can be changed while they wait.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use fs_err as fs;

use crate::SlurmError;
use crate::zip_file::ZipFile;

/// More code than this is probably a mistake, in bytes.
const LARGEST: u64 = 200_000_000;

/// What becomes of the code of a run before it is submitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeCopy {
    /// The folder with the code.
    pub from: PathBuf,
    /// Where the copy goes. For several, the folder in which each has its own; for an
    /// archive, its path without `.zip`.
    pub to: PathBuf,
    /// How it is copied.
    pub how: CopyKind,
    /// Whether the copy was made before, or is not wanted.
    pub is_skipped: bool,
    /// Whether it may go over what is there.
    pub overwrite: bool,
    /// Whether it may be large.
    pub any_size: bool,
}

/// How code is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyKind {
    /// Once, and all jobs run in the copy.
    #[default]
    Once,
    /// Once for each of so many jobs, which run in their own.
    ForEach(u32),
    /// Into an archive. Jobs run in the original.
    Archive,
}

impl CodeCopy {
    /// The folder that all jobs run in.
    pub fn run_in(&self) -> &Path {
        match self.how {
            CopyKind::Archive => &self.from,
            CopyKind::Once | CopyKind::ForEach(_) => &self.to,
        }
    }

    /// The folder that the job with this number runs in, if each has its own.
    pub fn folder_of(&self, job: u32) -> Option<PathBuf> {
        matches!(self.how, CopyKind::ForEach(_)).then(|| self.to.join(job.to_string()))
    }

    /// Looks whether it can be done: before anything is.
    pub fn check(&self) -> Result<(), SlurmError> {
        if self.is_skipped {
            return Ok(());
        }
        let refuse = |text: String| Err(SlurmError::Plan(text));
        let (from, to) = (normal(&self.from)?, normal(&self.to)?);
        if self.how != CopyKind::Archive {
            if to.starts_with(&from) {
                return refuse(format!(
                    "experiment_copy_dst {} is inside experiment_copy_src {}\n\
                     hint: a copy of the code cannot hold itself; choose a folder beside it",
                    self.to.display(),
                    self.from.display()
                ));
            }
            if !self.overwrite && self.to.exists() {
                return refuse(format!(
                    "{} is there already\n\
                     hint: choose another experiment_copy_dst, copy over it with -o, or use it as it \
                     is with --nocodecopy",
                    self.to.display()
                ));
            }
        }
        let mut size = 0;
        each_file(&self.from, &mut |_, file| {
            size += fs::symlink_metadata(file)?.len();
            Ok(())
        })?;
        if size > LARGEST && !self.any_size {
            return refuse(format!(
                "the code in {} is {} MB, and more than 200 MB is probably a mistake\n\
                 hint: --skipsizecheck copies it all the same, --nocodecopy copies nothing",
                self.from.display(),
                size / 1_000_000
            ));
        }
        Ok(())
    }

    /// Copies.
    pub fn make(&self) -> Result<(), SlurmError> {
        if self.is_skipped {
            return Ok(());
        }
        match self.how {
            CopyKind::Archive => self.pack()?,
            CopyKind::Once => self.copy_to(&self.to)?,
            CopyKind::ForEach(jobs) => {
                for job in 0..jobs {
                    self.copy_to(&self.to.join(job.to_string()))?;
                }
            }
        }
        Ok(())
    }

    /// Makes a copy that is there as a whole, or not at all. Over what is there, file by
    /// file.
    fn copy_to(&self, to: &Path) -> io::Result<()> {
        if to.exists() {
            return copy_folder(&self.from, to);
        }
        let parent = to.parent().unwrap_or(Path::new(""));
        if !parent.as_os_str().is_empty() {
            fs::create_dir_all(parent)?;
        }
        let new = parent.join(format!(".packhorse-copy-{}", std::process::id()));
        let copied = copy_folder(&self.from, &new).and_then(|()| fs::rename(&new, to));
        if copied.is_err() {
            let _ = fs::remove_dir_all(&new);
        }
        copied
    }

    fn pack(&self) -> io::Result<()> {
        let mut path = self.to.clone().into_os_string();
        path.push(".zip");
        let path = PathBuf::from(path);
        let mut archive = ZipFile::create(&path)?;
        each_file(&self.from, &mut |name, file| {
            // What cannot be read any more is no code.
            match fs::metadata(file) {
                Ok(data) if data.is_file() => archive.add(name, file),
                _ => Ok(()),
            }
        })?;
        archive.finish()
    }
}

/// Whether something within a folder of code is left out, by its name.
fn is_left_out(name: &str, is_top: bool) -> bool {
    if is_top {
        return name == ".git";
    }
    Path::new(name).extension().is_some_and(|end| end == "pyc")
        || name.starts_with("tmp")
        || name.starts_with(".git")
}

/// Calls `visit` with each file and link below a folder, and its path from there.
fn each_file(
    folder: &Path,
    visit: &mut dyn FnMut(&Path, &Path) -> io::Result<()>,
) -> io::Result<()> {
    fn walk(
        folder: &Path,
        below: &Path,
        visit: &mut dyn FnMut(&Path, &Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            if is_left_out(&name.to_string_lossy(), below.as_os_str().is_empty()) {
                continue;
            }
            let (path, below) = (entry.path(), below.join(&name));
            if entry.file_type()?.is_dir() {
                walk(&path, &below, visit)?;
            } else {
                visit(&below, &path)?;
            }
        }
        Ok(())
    }
    walk(folder, Path::new(""), visit)
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let inside = normal(from)?;
    each_file(from, &mut |name, file| {
        let copy = to.join(name);
        if let Some(parent) = copy.parent() {
            fs::create_dir_all(parent)?;
        }
        let kind = fs::symlink_metadata(file)?.file_type();
        if kind.is_symlink() {
            let target = fs::read_link(file)?;
            let beside = file.parent().unwrap_or(from);
            let absolute = normal(&beside.join(&target))?;
            // What points into the code points into the copy; everything else to where it
            // pointed before.
            let is_own = target.is_relative() && absolute.starts_with(&inside);
            let target = if is_own { target } else { absolute };
            let _ = fs::remove_file(&copy);
            return symlink(target, &copy);
        }
        if kind.is_file() {
            fs::copy(file, &copy)?;
        }
        Ok(())
    })
}

/// A whole path without `.` and `..`.
fn normal(path: &Path) -> io::Result<PathBuf> {
    let mut normal = PathBuf::new();
    for part in std::path::absolute(path)?.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            part => normal.push(part),
        }
    }
    Ok(normal)
}

#[cfg(test)]
mod tests {
    use packhorse_test_parts::needs;

    use super::*;

    /// A folder with code in it.
    fn code() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("src/main.py", "print(1)"),
            ("src/pkg/part.py", "x"),
            ("src/pkg/part.pyc", "old"),
            ("src/pkg/tmp_notes", "n"),
            ("src/.git/HEAD", "ref"),
            ("src/tmp_top.py", "kept"),
            ("other", "o"),
        ] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        symlink("pkg/part.py", folder.path().join("src/own")).unwrap();
        symlink("../other", folder.path().join("src/others")).unwrap();
        folder
    }

    fn copy(folder: &Path, to: &str) -> CodeCopy {
        CodeCopy { from: folder.join("src"), to: folder.join(to), ..CodeCopy::default() }
    }

    #[test]
    fn code_is_copied_without_what_belongs_to_nobody() {
        let folder = code();
        let copy = copy(folder.path(), "a/copy");
        copy.check().unwrap();
        copy.make().unwrap();
        let mut names = Vec::new();
        each_file(&copy.to, &mut |name, _| {
            names.push(name.display().to_string());
            Ok(())
        })
        .unwrap();
        let wanted = ["main.py", "others", "own", "pkg/part.py", "tmp_top.py"];
        assert_eq!(names, wanted);
        // A link within the code is one within the copy, another leads where it led.
        fs::remove_file(folder.path().join("src/pkg/part.py")).unwrap();
        assert_eq!(fs::read_to_string(copy.to.join("own")).unwrap(), "x");
        assert_eq!(fs::read_to_string(copy.to.join("others")).unwrap(), "o");
        assert_eq!(fs::read_dir(folder.path().join("a")).unwrap().count(), 1);
        assert_eq!(copy.run_in(), copy.to);
    }

    #[test]
    fn a_copy_does_not_go_over_another_unless_it_is_to() {
        let folder = code();
        let mut copy = copy(folder.path(), "copy");
        copy.make().unwrap();
        fs::write(folder.path().join("src/main.py"), "print(2)").unwrap();
        let refused = copy.check().unwrap_err().to_string();
        assert!(refused.contains("is there already\nhint: "), "{refused}");
        copy.overwrite = true;
        copy.check().unwrap();
        copy.make().unwrap();
        let text = fs::read_to_string(copy.to.join("main.py")).unwrap();
        assert_eq!(text, "print(2)");
    }

    #[test]
    fn a_copy_inside_of_the_code_or_too_much_code_is_refused() {
        let folder = code();
        let inside = copy(folder.path(), "src/../src/copy");
        let refused = inside.check().unwrap_err().to_string();
        assert!(refused.contains("is inside experiment_copy_src"), "{refused}");
        let mut large = copy(folder.path(), "copy");
        let file = fs::File::create(folder.path().join("src/data")).unwrap();
        // It takes no room on the disk.
        file.set_len(LARGEST + 1).unwrap();
        let refused = large.check().unwrap_err().to_string();
        assert!(refused.contains("is 200 MB"), "{refused}");
        large.any_size = true;
        large.check().unwrap();
        large.any_size = false;
        large.is_skipped = true;
        large.check().unwrap();
        large.make().unwrap();
        assert!(!large.to.exists());
    }

    #[test]
    fn each_job_may_have_a_copy_of_its_own() {
        let folder = code();
        let copy = CodeCopy { how: CopyKind::ForEach(2), ..copy(folder.path(), "copies") };
        copy.make().unwrap();
        for job in 0..2 {
            let own = copy.folder_of(job).unwrap();
            assert!(own.join("pkg/part.py").is_file());
        }
        assert_eq!(fs::read_dir(&copy.to).unwrap().count(), 2);
    }

    #[test]
    fn an_archive_is_one_that_others_read() {
        needs!(Python);
        let folder = code();
        let copy = CodeCopy { how: CopyKind::Archive, ..copy(folder.path(), "code") };
        copy.check().unwrap();
        copy.make().unwrap();
        assert_eq!(copy.run_in(), copy.from);
        let archive = folder.path().join("code.zip");
        let program = "import sys, zipfile\n\
            z = zipfile.ZipFile(sys.argv[1])\n\
            assert z.testzip() is None\n\
            print(sorted(z.namelist()), z.read('own').decode())";
        let output = std::process::Command::new("python3")
            .args(["-c", program])
            .arg(archive)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let wanted = "['main.py', 'others', 'own', 'pkg/part.py', 'tmp_top.py'] x\n";
        assert_eq!(said, wanted, "{}", String::from_utf8_lossy(&output.stderr));
    }
}
