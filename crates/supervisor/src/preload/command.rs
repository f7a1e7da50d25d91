//! Which commands are a Python that can be forked, and what it runs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// What a Python is told to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PythonTarget<'a> {
    /// `python train.py`
    Script(&'a [u8]),
    /// `python -m package.train`
    Module(&'a [u8]),
    /// `python -c 'print(1)'`
    Code(&'a [u8]),
}

/// A command that runs a Python.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PythonCommand<'a> {
    /// What is for the interpreter itself, such as `-u`.
    pub options: Vec<&'a [u8]>,
    pub target: PythonTarget<'a>,
    /// How many words come before the program's own arguments.
    pub skip: usize,
}

/// Options of the interpreter that take no value, and that a Python may have which runs
/// something else.
const FLAGS: &[u8] = b"bBdEIOPqRsSuv";

impl<'a> PythonCommand<'a> {
    /// Reads the words of a command, or says why no other Python can stand in for it.
    pub(super) fn parse(words: &[&'a [u8]]) -> Result<Self, &'static str> {
        let program = words.first().copied().unwrap_or_default();
        if !is_python(program) {
            return Err("it does not run a Python");
        }
        let mut options = Vec::new();
        let mut at = 1;
        let (target, skip) = 'found: loop {
            let word = words.get(at).copied().unwrap_or_default();
            let Some(letters) = word.strip_prefix(b"-").filter(|rest| !rest.is_empty()) else {
                match word {
                    b"" | b"-" => return Err("its Python reads its program from its input"),
                    script => break (PythonTarget::Script(script), at + 1),
                }
            };
            for (index, &letter) in letters.iter().enumerate() {
                let attached = &letters[index + 1..];
                let next = words.get(at + 1).copied();
                let value = Some(attached).filter(|text| !text.is_empty());
                let skip = at + if value.is_some() { 1 } else { 2 };
                let value = value.or(next);
                match (letter, value) {
                    (b'c' | b'm', Some(value)) => {
                        // The letters before it are flags, which are its own word here.
                        if index > 0 {
                            options.push(&word[..=index]);
                        }
                        let target = match letter {
                            b'c' => PythonTarget::Code(value),
                            _ => PythonTarget::Module(value),
                        };
                        break 'found (target, skip);
                    }
                    (b'W' | b'X', Some(_)) => {
                        options.extend(words[at..skip].iter().copied());
                        at = skip;
                        continue 'found;
                    }
                    (letter, _) if FLAGS.contains(&letter) => {}
                    _ => return Err("its Python has an option that cannot be preloaded with"),
                }
            }
            options.push(word);
            at += 1;
        };
        Ok(Self { options, target, skip })
    }

    /// The first folder in which it looks for modules, for a Python that is started in
    /// `folder`; or why no other Python can run it.
    pub(super) fn search_folder(&self, folder: &Path) -> Result<PathBuf, &'static str> {
        let PythonTarget::Script(script) = self.target else {
            return Ok(folder.to_owned());
        };
        let script = folder.join(OsStr::from_bytes(script));
        let extension = script.extension().unwrap_or_default();
        if ["pyc", "pyz", "zip", "egg"].iter().any(|it| extension == *it) || script.is_dir() {
            return Err("its Python runs no plain text");
        }
        // One that is missing is told by Python itself.
        let real = fs_err::canonicalize(&script).unwrap_or(script);
        Ok(real.parent().unwrap_or(folder).to_owned())
    }
}

/// Whether a program is a Python by its name: `python`, `python3`, `python3.12`.
fn is_python(program: &[u8]) -> bool {
    let name = program.rsplit(|&byte| byte == b'/').next();
    let version = name.and_then(|name| name.strip_prefix(b"python"));
    version.is_some_and(|version| {
        let version = version.strip_suffix(b"t").unwrap_or(version);
        version.iter().all(|&byte| byte == b'.' || byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<(Vec<String>, String, usize), &'static str> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        PythonCommand::parse(&words).map(|command| {
            let target = match command.target {
                PythonTarget::Script(script) => text(script),
                PythonTarget::Module(module) => format!("-m {}", text(module)),
                PythonTarget::Code(code) => format!("-c {}", text(code)),
            };
            let options = command.options.iter().map(|option| text(option));
            (options.collect(), target, command.skip)
        })
    }

    #[test]
    fn a_pythons_own_options_are_told_from_its_programs() {
        for (line, options, target, skip) in [
            ("python a.py", "", "a.py", 2),
            ("/opt/bin/python3.12 a.py -m x", "", "a.py", 2),
            ("python -m a.b -c 1", "", "-m a.b", 3),
            ("python3 -c x -u", "", "-c x", 3),
            ("python3 -cx -u", "", "-c x", 2),
            ("python3 -uBm a", "-uB", "-m a", 3),
            ("python3 -uO -W error -Xdev a.py 1", "-uO -W error -Xdev", "a.py", 6),
            ("python3 -OWignore a.py 1", "-OWignore", "a.py", 3),
            ("python3.13t a.py", "", "a.py", 2),
        ] {
            let (found, program, length) = parse(line).unwrap();
            assert_eq!((&*found.join(" "), &*program), (options, target), "{line}");
            assert_eq!(length, skip, "{line}");
        }
    }

    #[test]
    fn what_no_other_python_can_stand_in_for_is_said_to_be_so() {
        for line in [
            "sh -c python",
            "pythonic a.py",
            "python",
            "python -",
            "python -u",
            "python -i a.py",
            "python -V",
            "python --version",
            "python -c",
            "python -X",
            "python -h a.py",
        ] {
            parse(line).unwrap_err();
        }
    }

    #[test]
    fn modules_are_looked_for_beside_the_script_as_it_really_is() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs_err::canonicalize(folder.path()).unwrap();
        fs_err::create_dir(root.join("code")).unwrap();
        fs_err::write(root.join("code/a.py"), "").unwrap();
        fs_err::os::unix::fs::symlink("code/a.py", root.join("b.py")).unwrap();
        let search = |line: &str| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            PythonCommand::parse(&words).unwrap().search_folder(&root)
        };
        assert_eq!(search("python b.py"), Ok(root.join("code")));
        assert_eq!(search("python code/a.py"), Ok(root.join("code")));
        assert_eq!(search("python -m b"), Ok(root.clone()));
        assert_eq!(search("python missing.py"), Ok(root.clone()));
        search("python code").unwrap_err();
        search("python a.pyz").unwrap_err();
    }
}
