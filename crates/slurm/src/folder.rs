//! The folder that a run and its jobs share. Every node sees it, and nothing in it has two
//! writers.
//!
//! ```text
//! run.json                    what the run is
//! tasks.jsonl                 its tasks, a TaskSpec a line
//! after.jsonl                 which of them come after others
//! again.2.jsonl               what was left when it was submitted a second time
//! elements.jsonl              which tasks each element of the array has, an element a line
//! peaks.jsonl                 what was learned of commands like these before
//! script.sh                   what sbatch was given
//! submitting/BASE.ID.sh       the script under another name, while sbatch has not answered
//! jobs.jsonl                  what was submitted, an array a line
//! jobs/ELEMENT.LIFE.json      what an element has submitted to go on
//! outcomes/ELEMENT.LIFE.jsonl what happened, an Event a line
//! logs/TASK.ATTEMPT.log       what tasks wrote
//! slurm/                      what the script itself wrote
//! stop                        there if nothing more is to start
//! ```

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use fs_err::{self as fs, File, OpenOptions};
use packhorse_model::{ByteString, RunId, RunSpec, Timestamp};
use packhorse_store::Uuid;
use packhorse_trust::create_private_folder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::SlurmError;
use crate::earlier_lives::whole_lines;

/// The folder of one run. See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedFolder(PathBuf);

/// What a run is: all that its jobs need to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFile {
    /// Its number in the person's store.
    pub run: RunId,
    /// What tells it from a run of the same number in a copy of that store.
    #[serde(default)]
    pub uuid: Uuid,
    /// What tells the person's store from others.
    pub home: String,
    /// The folder that tasks run in.
    pub folder: ByteString,
    /// The rest of it.
    pub spec: RunSpec,
}

/// Which tasks an element of the array has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElementSpec {
    /// The file that they are in.
    pub file: String,
    /// Which lines of it: the first of several in a row, counted from 1, and how many.
    pub lines: Vec<(u32, u32)>,
    /// Where the first of them begins, or one before it.
    pub offset: u64,
    /// The number of the line that begins there.
    pub offset_line: u32,
    /// At most so many of them at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<u32>,
    /// The folder that they run in, if it is another than the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<ByteString>,
}

impl ElementSpec {
    /// How many tasks it has.
    pub fn count(&self) -> u32 {
        self.lines.iter().map(|(_, count)| count).sum()
    }
}

/// An array that was handed to Slurm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmittedJob {
    /// Slurm's number.
    pub job: u32,
    /// The element that its index 0 stands for.
    pub base: u32,
    /// Its elements: the first of several in a row, and how many.
    pub elements: Vec<(u32, u32)>,
    /// When.
    pub at: Timestamp,
    /// The cluster that it is on, if Slurm tells: numbers mean others elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

impl SubmittedJob {
    /// All of its elements.
    pub fn each(&self) -> impl Iterator<Item = u32> {
        let rows = self.elements.iter();
        rows.flat_map(|&(first, count)| first..first.saturating_add(count))
    }
}

/// A task that was submitted before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgainTask {
    pub number: u32,
    /// How many attempts it has had.
    pub attempts: u32,
    /// The numbers of tasks that it comes after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u32>,
    pub spec: packhorse_model::TaskSpec,
}

impl SharedFolder {
    /// The name of the file of all tasks.
    pub const TASKS: &str = "tasks.jsonl";

    /// Takes a folder that is there.
    pub fn open(path: PathBuf) -> Self {
        Self(path)
    }

    /// Makes a new one below `parent`, which has no run yet.
    pub fn create(parent: &Path) -> Result<Self, SlurmError> {
        let parent = std::path::absolute(parent)?;
        fs::create_dir_all(&parent)?;
        // Somebody may have died over one with this number.
        let names = (0_u32..).map(|twin| format!(".new-{}-{twin}", std::process::id()));
        for path in names.map(|name| parent.join(name)) {
            match create_private_folder(&path) {
                Ok(()) => {
                    let folder = Self(path);
                    for part in ["outcomes", "logs", "slurm", "jobs", "submitting"] {
                        fs::create_dir(folder.0.join(part))?;
                    }
                    return Ok(folder);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(std::io::Error::from(ErrorKind::AlreadyExists).into())
    }

    /// Calls it after its run.
    pub fn rename(&mut self, run: RunId) -> Result<(), SlurmError> {
        let parent = self.0.parent().unwrap_or(Path::new("")).to_owned();
        // Somebody else's run may have the same number there.
        let twins = (2_u32..).map(|twin| format!("{run}-{twin}"));
        let names = std::iter::once(run.to_string()).chain(twins);
        for path in names.map(|name| parent.join(name)) {
            // The folder is private: variables of tasks may be secrets. An empty folder is
            // replaced, so this takes the name, and then the place.
            match create_private_folder(&path) {
                Ok(()) => {
                    fs::rename(&self.0, &path)?;
                    self.0 = path;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(std::io::Error::from(ErrorKind::AlreadyExists).into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The script that sbatch is given.
    pub fn script(&self) -> PathBuf {
        self.file("script.sh")
    }

    /// The folder of links to it, one for each array that is handed to Slurm.
    pub fn submitting(&self) -> PathBuf {
        self.file("submitting")
    }

    /// The folder of outcome files.
    pub fn outcomes(&self) -> PathBuf {
        self.file("outcomes")
    }

    /// The outcome file of one life of an element.
    pub fn outcome_file(&self, element: u32, life: u32) -> PathBuf {
        self.outcomes().join(format!("{element}.{life}.jsonl"))
    }

    /// The folder of the tasks' logs.
    pub fn logs(&self) -> PathBuf {
        self.file("logs")
    }

    /// Writes down what the run is.
    pub fn write_run(&self, run: &RunFile) -> Result<(), SlurmError> {
        self.write("run.json", &format!("{}\n", json(run)))
    }

    pub fn read_run(&self) -> Result<RunFile, SlurmError> {
        let path = self.file("run.json");
        let text = fs::read_to_string(&path)?;
        serde_json::from_str(&text).map_err(|source| SlurmError::Damaged { path, source })
    }

    /// Writes a file whole, or not at all.
    pub fn write(&self, name: &str, text: &str) -> Result<(), SlurmError> {
        let (path, draft) = (self.file(name), self.file(&format!(".{name}.new")));
        let mut file = File::create(&draft)?;
        file.write_all(text.as_bytes())?;
        // Other nodes see it when it is there, not some time later.
        file.sync_data()?;
        drop(file);
        Ok(fs::rename(draft, path)?)
    }

    /// The elements there are, in their order.
    pub fn elements(&self) -> Result<Vec<ElementSpec>, SlurmError> {
        self.lines("elements.jsonl")
    }

    /// Writes down which elements there are.
    pub fn write_elements(&self, elements: &[ElementSpec]) -> Result<(), SlurmError> {
        let lines: Vec<String> = elements.iter().map(|it| json(it) + "\n").collect();
        self.write("elements.jsonl", &lines.concat())
    }

    /// Writes down an array that was submitted by whoever holds the run's lock.
    pub fn add_job(&self, job: &SubmittedJob) -> Result<(), SlurmError> {
        let mut options = OpenOptions::new();
        let mut file =
            options.create(true).read(true).append(true).open(self.file("jobs.jsonl"))?;
        // A disk that was full has left half a line.
        let length = file.metadata()?.len();
        let mut last = [b'\n'];
        if length > 0 {
            file.file().read_exact_at(&mut last, length - 1)?;
        }
        let before = if last == *b"\n" { "" } else { "\n" };
        file.write_all(format!("{before}{}\n", json(job)).as_bytes())?;
        Ok(file.sync_data()?)
    }

    /// Writes down what a life of an element has submitted.
    pub fn add_job_of(
        &self,
        element: u32,
        life: u32,
        job: &SubmittedJob,
    ) -> Result<(), SlurmError> {
        let mut file = File::create(self.job_file(element, life))?;
        file.write_all(format!("{}\n", json(job)).as_bytes())?;
        Ok(file.sync_data()?)
    }

    /// What the last life of an element has submitted that has submitted anything, of so many.
    pub(crate) fn last_job_of(
        &self,
        element: u32,
        lives: u32,
    ) -> Result<Option<SubmittedJob>, SlurmError> {
        for life in (1..=lives).rev() {
            let text = match fs::read(self.job_file(element, life)) {
                Ok(text) => text,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            };
            // One that is torn was not written.
            if let Ok(job) = serde_json::from_slice(&text) {
                return Ok(Some(job));
            }
        }
        Ok(None)
    }

    fn job_file(&self, element: u32, life: u32) -> PathBuf {
        self.file(&format!("jobs/{element}.{life}.json"))
    }

    /// All arrays that were submitted, by whomever, in the order of Slurm's numbers.
    pub fn jobs(&self) -> Result<Vec<SubmittedJob>, SlurmError> {
        let mut jobs: Vec<SubmittedJob> = self.readable_lines("jobs.jsonl")?;
        let entries = match fs::read_dir(self.file("jobs")) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(jobs),
            Err(error) => return Err(error.into()),
        };
        for entry in entries {
            // One that is being written is there the next time.
            let text = fs::read_to_string(entry?.path())?;
            jobs.extend(serde_json::from_str::<SubmittedJob>(&text).ok());
        }
        jobs.sort_by_key(|job| job.job);
        // What goes on by itself may have been found before it was written down.
        jobs.dedup_by(|one, other| one.job == other.job && one.cluster == other.cluster);
        Ok(jobs)
    }

    /// The lines of a file, each a JSON value; none if there is no file. A torn last line is
    /// a line that was not written.
    pub fn lines<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>, SlurmError> {
        let text = self.read(name)?;
        let read: Result<Vec<T>, _> = whole_lines(&text).map(serde_json::from_slice).collect();
        read.map_err(|source| SlurmError::Damaged { path: self.file(name), source })
    }

    /// The same, without those that mean nothing: what was torn was taken back.
    fn readable_lines<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>, SlurmError> {
        let text = self.read(name)?;
        let read = whole_lines(&text).filter_map(|line| serde_json::from_slice(line).ok());
        Ok(read.collect())
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, SlurmError> {
        match fs::read(self.file(name)) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A value on one line.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("all keys in it are text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_of_the_same_number_have_folders_of_their_own() {
        let parent = tempfile::tempdir().unwrap();
        let mut one = SharedFolder::create(parent.path()).unwrap();
        one.rename(RunId(3)).unwrap();
        let mut other = SharedFolder::create(parent.path()).unwrap();
        other.rename(RunId(3)).unwrap();
        assert!(one.path().ends_with("3") && other.path().ends_with("3-2"));
    }

    #[test]
    fn a_torn_line_was_not_written() {
        let parent = tempfile::tempdir().unwrap();
        let folder = SharedFolder::create(parent.path()).unwrap();
        let job = |number| SubmittedJob {
            job: number,
            base: 0,
            elements: vec![(0, 2), (7, 1)],
            at: Timestamp(5),
            cluster: None,
        };
        folder.add_job(&job(4)).unwrap();
        let whole = fs::read(folder.file("jobs.jsonl")).unwrap();
        let torn = [&whole[..], &whole[..20]].concat();
        fs::write(folder.file("jobs.jsonl"), torn).unwrap();
        folder.add_job_of(7, 1, &job(2)).unwrap();
        assert_eq!(folder.jobs().unwrap(), [job(2), job(4)]);
        assert_eq!(job(4).each().collect::<Vec<_>>(), [0, 1, 7]);
        // The next is not glued to it.
        folder.add_job(&job(5)).unwrap();
        assert_eq!(folder.jobs().unwrap(), [job(2), job(4), job(5)]);
    }
}
