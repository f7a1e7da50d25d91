//! The file of all tasks, a TaskSpec a line, and the lines of it that an element has.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use fs_err::File;
use packhorse_model::TaskSpec;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::SlurmError;
use crate::folder::{AgainTask, ElementSpec, SharedFolder, json};

/// The place of every so many lines is remembered: the elements are cut when all are
/// written.
const STRIDE: u32 = 1024;

/// Writes lines, and remembers where some of them begin.
pub(crate) struct TaskFileWriter {
    name: String,
    file: BufWriter<File>,
    length: u64,
    lines: u32,
    /// Where the first of each stride begins.
    places: Vec<u64>,
}

impl TaskFileWriter {
    pub(crate) fn create(folder: &SharedFolder, name: &str) -> Result<Self, SlurmError> {
        let file = File::create(folder.file(name))?;
        Ok(Self {
            name: name.to_owned(),
            file: BufWriter::with_capacity(256 * 1024, file),
            length: 0,
            lines: 0,
            places: Vec::new(),
        })
    }

    pub(crate) fn add(&mut self, task: &impl Serialize) -> Result<(), SlurmError> {
        if self.lines.is_multiple_of(STRIDE) {
            self.places.push(self.length);
        }
        self.lines += 1;
        let line = json(task) + "\n";
        self.length += line.len() as u64;
        Ok(self.file.write_all(line.as_bytes())?)
    }

    /// Everything is there, for other nodes too.
    pub(crate) fn finish(&mut self) -> Result<(), SlurmError> {
        self.file.flush()?;
        Ok(self.file.get_ref().sync_data()?)
    }

    /// An element with these lines.
    pub(crate) fn element(&self, lines: Vec<(u32, u32)>) -> ElementSpec {
        let first = lines.first().map_or(1, |(first, _)| *first).max(1);
        let stride = (first - 1) / STRIDE;
        let place = self.places.get(stride as usize);
        ElementSpec {
            file: self.name.clone(),
            lines,
            offset: place.copied().unwrap_or(0),
            offset_line: stride * STRIDE + 1,
            ..ElementSpec::default()
        }
    }
}

/// Which tasks come after which, by number.
pub(crate) type AfterNumbers = FxHashMap<u32, Vec<u32>>;

/// The tasks of an element, in the order of their numbers.
pub(crate) struct ElementTasks {
    path: PathBuf,
    reader: BufReader<File>,
    element: ElementSpec,
    /// The number of the line that is read next.
    line: u32,
    /// Which of the element's rows is read.
    row: usize,
    is_again: bool,
    buffer: Vec<u8>,
}

impl ElementTasks {
    pub(crate) fn open(folder: &SharedFolder, element: &ElementSpec) -> Result<Self, SlurmError> {
        let path = folder.file(&element.file);
        let mut file = File::open(&path)?;
        file.seek(SeekFrom::Start(element.offset))?;
        Ok(Self {
            path,
            reader: BufReader::with_capacity(256 * 1024, file),
            line: element.offset_line,
            row: 0,
            is_again: element.file != SharedFolder::TASKS,
            element: element.clone(),
            buffer: Vec::new(),
        })
    }

    /// The next task, as it was submitted.
    pub(crate) fn next_task(
        &mut self,
        after: &AfterNumbers,
    ) -> Result<Option<AgainTask>, SlurmError> {
        loop {
            let Some(&(first, count)) = self.element.lines.get(self.row) else {
                return Ok(None);
            };
            if self.line >= first + count {
                self.row += 1;
                continue;
            }
            self.buffer.clear();
            if self.reader.read_until(b'\n', &mut self.buffer)? == 0 {
                return Err(std::io::Error::other(format!(
                    "{} has fewer lines than were written",
                    self.path.display()
                ))
                .into());
            }
            let line = self.line;
            self.line += 1;
            if line < first {
                continue;
            }
            let read = if self.is_again {
                serde_json::from_slice(&self.buffer)
            } else {
                let spec = serde_json::from_slice::<TaskSpec>(&self.buffer);
                spec.map(|spec| AgainTask {
                    number: line,
                    attempts: 0,
                    after: after.get(&line).cloned().unwrap_or_default(),
                    spec,
                })
            };
            let path = &self.path;
            return read
                .map(Some)
                .map_err(|source| SlurmError::Damaged { path: path.clone(), source });
        }
    }
}

/// The last element that each of these tasks is in.
pub(crate) fn elements_of(
    folder: &SharedFolder,
    numbers: &BTreeSet<u32>,
) -> Result<BTreeMap<u32, u32>, SlurmError> {
    let mut found = BTreeMap::new();
    if numbers.is_empty() {
        return Ok(found);
    }
    for (element, spec) in (0_u32..).zip(folder.elements()?) {
        if spec.file == SharedFolder::TASKS {
            // The numbers of its lines are those of its tasks.
            for &(first, count) in &spec.lines {
                let here = numbers.range(first..first.saturating_add(count));
                found.extend(here.map(|&number| (number, element)));
            }
            continue;
        }
        let mut tasks = ElementTasks::open(folder, &spec)?;
        while let Some(task) = tasks.next_task(&AfterNumbers::default())? {
            if numbers.contains(&task.number) {
                found.insert(task.number, element);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use packhorse_model::Command;

    use super::*;

    #[test]
    fn a_task_is_in_the_element_that_it_was_last_put_into() {
        let parent = tempfile::tempdir().unwrap();
        let folder = SharedFolder::create(parent.path()).unwrap();
        let spec = || TaskSpec::new(Command::Line(b"true".to_vec()));
        let mut all = TaskFileWriter::create(&folder, SharedFolder::TASKS).unwrap();
        for _ in 1..=5 {
            all.add(&spec()).unwrap();
        }
        all.finish().unwrap();
        let mut again = TaskFileWriter::create(&folder, "again.2.jsonl").unwrap();
        for number in [2, 5] {
            let (attempts, after) = (1, Vec::new());
            let spec = spec();
            let task = AgainTask { number, attempts, after, spec };
            again.add(&task).unwrap();
        }
        again.finish().unwrap();
        let elements = [
            all.element(vec![(1, 2), (5, 1)]),
            all.element(vec![(3, 2)]),
            again.element(vec![(2, 1)]),
        ];
        folder.write_elements(&elements).unwrap();
        let found = elements_of(&folder, &BTreeSet::from([1, 2, 4, 5])).unwrap();
        assert_eq!(found, BTreeMap::from([(1, 0), (2, 0), (4, 1), (5, 2)]));
    }

    #[test]
    fn an_element_finds_its_tasks_wherever_they_are() {
        let parent = tempfile::tempdir().unwrap();
        let folder = SharedFolder::create(parent.path()).unwrap();
        let mut writer = TaskFileWriter::create(&folder, SharedFolder::TASKS).unwrap();
        for number in 1..=5000 {
            let command = Command::Line(format!("echo {number}").into_bytes());
            writer.add(&TaskSpec::new(command)).unwrap();
        }
        writer.finish().unwrap();
        let element = writer.element(vec![(3000, 2), (4999, 2)]);
        assert!(element.offset > 0 && element.count() == 4);
        let mut tasks = ElementTasks::open(&folder, &element).unwrap();
        let after = AfterNumbers::from_iter([(4999, vec![3000])]);
        let mut read = Vec::new();
        while let Some(task) = tasks.next_task(&after).unwrap() {
            read.push((task.number, task.spec.command.to_text().into_owned(), task.after));
        }
        let wanted =
            |number: u32, after: &[u32]| (number, format!("echo {number}"), after.to_vec());
        assert_eq!(
            read,
            [wanted(3000, &[]), wanted(3001, &[]), wanted(4999, &[3000]), wanted(5000, &[])]
        );
    }
}
