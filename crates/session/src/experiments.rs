//! An experiment file as a source of tasks: which repetitions are done, and which run.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use packhorse_intake::Colour;
use packhorse_intake::experiments::{Experiments, ReadOptions, Repetition};
use packhorse_model::{ExperimentsSpec, Outcome, SavedFile, TaskSpec};
use packhorse_proc::{LARGEST_SETTINGS, read_regular, read_whole, utf8};

use crate::SessionError;
use crate::grid::{FolderNameHashes, GridPlaces, TestState, is_absence, marked_state};
use crate::marker_file::draft_number;
use crate::source::{Generator, TaskSource};

/// Reads an experiment file and those that it imports, and saves what is in them in `spec`.
/// `text` is the file's own, if it was read before.
pub fn read_experiments(
    path: &Path,
    text: Option<String>,
    spec: &mut ExperimentsSpec,
    colour: Colour,
) -> Result<Experiments, SessionError> {
    let path = std::path::absolute(path)?;
    let mut files: Vec<SavedFile> = Vec::new();
    if let Some(text) = text {
        let path = path.clone();
        files.push(SavedFile { path, text });
    }
    let mut read = |path: &Path| {
        if let Some(known) = files.iter().find(|file| file.path == path) {
            return Ok(known.text.clone());
        }
        // The first is the one that the person has named.
        let bytes = if files.is_empty() {
            read_whole(path, LARGEST_SETTINGS)
        } else {
            read_regular(path, LARGEST_SETTINGS)
        };
        let text = utf8(bytes?, &path.display().to_string())?;
        files.push(SavedFile { path: path.to_owned(), text: text.clone() });
        Ok(text)
    };
    let experiments = open(&path, spec, &mut read, colour)?;
    spec.files = files;
    Ok(experiments)
}

/// The experiments as they were when a run began.
pub fn open_experiments(
    spec: &ExperimentsSpec,
    colour: Colour,
) -> Result<Experiments, SessionError> {
    let mut read = |path: &Path| {
        let mut files = spec.files.iter();
        let known = files.find(|file| file.path == path);
        let missing = || io::Error::new(io::ErrorKind::NotFound, "it was not saved");
        known.map(|file| file.text.clone()).ok_or_else(missing)
    };
    let path = spec.files.first().map(|file| file.path.clone());
    open(&path.unwrap_or_default(), spec, &mut read, colour)
}

fn open(
    path: &Path,
    spec: &ExperimentsSpec,
    read: &mut dyn FnMut(&Path) -> io::Result<String>,
    colour: Colour,
) -> Result<Experiments, SessionError> {
    let options = ReadOptions {
        selected: spec.selected.clone(),
        prefix: spec.prefix.clone(),
        debug: spec.debug,
        host: host(),
        base: spec.base.as_ref().map(|base| base.display().to_string()),
        command: spec.command.clone(),
        plain_command: spec.plain_command,
        log: spec.log,
    };
    Experiments::read(path, &spec.shown, &options, read)
        .map_err(|error| SessionError::Rendered(error.render(colour)))
}

/// The name of this machine.
fn host() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

/// What stands before the names of experiments that are told apart by the time.
pub fn time_stamp() -> String {
    jiff::Zoned::now().strftime("%m%d-%H%M%S").to_string()
}

/// Each repetition with its state, in their order. Those that are there before are left out.
pub fn repetition_states(
    experiments: &Experiments,
    job: Option<u32>,
) -> impl Iterator<Item = io::Result<(u32, Repetition<'_>, TestState)>> {
    let mut folders = RunFolders::default();
    let places = (0..experiments.len()).filter(|place| !experiments.is_repeated(*place));
    let repetitions = places.map(|place| (place, experiments.at(place)));
    let repetitions = repetitions.filter(move |(_, rep)| job.is_none_or(|job| rep.job() == job));
    repetitions.map(move |(place, rep)| {
        let state = folders.state(&rep)?;
        Ok((place, rep, state))
    })
}

/// What is in the folders that the folders of runs are in.
///
/// Their names are read once: to ask the system for every repetition costs seconds for a
/// million of them.
#[derive(Default)]
struct RunFolders(BTreeMap<String, FolderNameHashes>);

impl RunFolders {
    /// What the folder of a repetition says of it.
    fn state(&mut self, rep: &Repetition<'_>) -> io::Result<TestState> {
        let parent = rep.parent();
        if !self.0.contains_key(&parent) {
            let names = FolderNameHashes::read(&folder_of(&parent))?;
            self.0.insert(parent.clone(), names);
        }
        // A name may have a slash in it.
        let first = rep.run().split('/').next().unwrap_or_default();
        let is_there = self.0.get(&parent).is_some_and(|names| names.contains(first));
        if !is_there && !rep.is_written_back() {
            return Ok(TestState::New);
        }
        let folder = rep.folder();
        let folder = Path::new(&folder);
        match marked_state(folder)? {
            Some(TestState::Tried) if rep.is_debug() => {
                let outcome = Outcome::Succeeded.word().to_owned();
                return Ok(TestState::Marked(outcome));
            }
            Some(state) => return Ok(state),
            None => {}
        }
        match fs_err::read_dir(folder) {
            Ok(mut entries) => Ok(match entries.next() {
                // It was made before its repetition began.
                None => TestState::New,
                Some(_) => TestState::Unmarked,
            }),
            Err(error) if is_absence(&error) => Ok(TestState::New),
            Err(error) => Err(error),
        }
    }
}

/// The repetitions as a source, whose tasks before `first` were made by earlier sessions.
pub fn experiments_source(
    spec: &ExperimentsSpec,
    experiments: Rc<Experiments>,
    first: u32,
) -> Box<dyn TaskSource> {
    changed_source(spec, experiments, first, |_, _| {})
}

/// The same with a change to each task.
pub fn changed_source(
    spec: &ExperimentsSpec,
    experiments: Rc<Experiments>,
    first: u32,
    change: impl Fn(&Repetition<'_>, &mut TaskSpec) + 'static,
) -> Box<dyn TaskSource> {
    let places = GridPlaces::new(&spec.places);
    let count = places.count;
    Box::new(Generator::new(count, first, move |number| {
        let rep = experiments.at(places.of(number));
        let mut task = rep.task();
        change(&rep, &mut task);
        task
    }))
}

/// Writes what was read back, with everything in it: `path/relative_FILE.yml`, and
/// `path/NAME/relative_FILE_NAME.yml` for each experiment.
pub fn write_back(experiments: &Experiments, spec: &ExperimentsSpec) -> io::Result<()> {
    write_back_into(Path::new(experiments.basic_path()), experiments, spec)
}

/// The same into another folder than `path`.
pub fn write_back_into(
    folder: &Path,
    experiments: &Experiments,
    spec: &ExperimentsSpec,
) -> io::Result<()> {
    let name = |name: Option<&OsStr>| name.unwrap_or_default().to_string_lossy().into_owned();
    let (file, stem) = (name(spec.shown.file_name()), name(spec.shown.file_stem()));
    for (name, of_name) in experiments.by_name() {
        let file = format!("relative_{stem}_{name}.yml");
        let path = folder.join(name).join(file);
        write_whole(&path, |out| experiments.write_back(Some(&of_name), out))?;
    }
    let file = match spec.selected.as_slice() {
        [] => format!("relative_{file}"),
        selected => format!("relative_{stem}_{}.yml", selected.join("_")),
    };
    write_whole(&folder.join(file), |out| experiments.write_back(None, out))
}

/// Writes a file whole or not at all.
fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new(""));
    if !folder.as_os_str().is_empty() {
        fs_err::create_dir_all(folder)?;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = folder.join(format!(".{name}.{}", draft_number()));
    let mut out = BufWriter::new(fs_err::File::create(&new)?);
    let written =
        write(&mut out).and_then(|()| out.flush()).and_then(|()| fs_err::rename(&new, path));
    if written.is_err() {
        let _ = fs_err::remove_file(&new);
    }
    written
}

/// A folder as it is opened: nothing is the one we are in.
fn folder_of(path: &str) -> PathBuf {
    PathBuf::from(if path.is_empty() { "." } else { path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_file_gives_the_same_tasks_from_any_place_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yml");
        let base = "{name: DEFAULT, params: {x: 1e-3}, repetitions: 5, command: run}";
        fs_err::write(folder.path().join("base.yml"), base).unwrap();
        fs_err::write(&path, "{name: a, path: p, import_path: base.yml}").unwrap();
        let mut spec = ExperimentsSpec { shown: "config.yml".into(), ..ExperimentsSpec::default() };
        read_experiments(&path, None, &mut spec, Colour::Off).unwrap();
        assert_eq!(spec.files.len(), 2);
        spec.places = vec![(1, 1), (3, 2)];
        drop(folder);
        let experiments = Rc::new(open_experiments(&spec, Colour::Off).unwrap());
        let mut source = experiments_source(&spec, experiments, 1);
        assert_eq!(source.total(), Some(3));
        let tasks = source.read(10).tasks;
        let folders = tasks.iter().map(|(task, _)| task.results.clone().unwrap());
        let folders: Vec<PathBuf> = folders.collect();
        assert_eq!(folders, [3, 4].map(|rep| PathBuf::from(format!("p/a/log/rep_0{rep}"))));
        assert_eq!(tasks[0].0.command.to_text(), "run --x 1e-3");
    }
}
