//! What single tasks ask for, as far as it is known before anything starts.

use std::collections::VecDeque;
use std::io::{Read as _, Seek as _, SeekFrom};

use packhorse_intake::{Colour, TaskLanguage, TaskReader};
use packhorse_model::{TaskSpec, printable};
use rustc_hash::FxHashSet;

use crate::SessionError;
use crate::launch::Launch;
use crate::own_paths::OwnPaths;
use crate::source::InputStream;

/// What tasks of files ask for themselves, each different request once.
#[derive(Default)]
pub struct TaskChecks {
    seen: FxHashSet<String>,
    checks: Vec<Check>,
    paths: OwnPaths,
}

struct Check {
    source: String,
    /// Where it was met first.
    line: u64,
    /// What matters for where a task may run.
    spec: TaskSpec,
}

impl TaskChecks {
    /// For tasks of a run with these defaults.
    pub fn new(defaults: &TaskSpec) -> Self {
        Self { paths: OwnPaths::new(defaults), ..Self::default() }
    }

    /// Looks through files, and goes back to their starts. Tells what is wrong with them.
    /// A pipe can be read only once and is looked at as it comes; what follows it is too,
    /// for it may need names from it. Returns how many tasks there are, if all could be
    /// looked through.
    pub fn look_through(
        &mut self,
        streams: &mut VecDeque<InputStream>,
        language: TaskLanguage,
        colour: Colour,
        mut mistake: impl FnMut(String),
    ) -> Result<Option<u64>, SessionError> {
        let mut tasks = 0;
        let mut reader = TaskReader::new(language);
        let mut buffer = vec![0; 64 * 1024];
        for stream in streams {
            if !stream.file.metadata()?.is_file() {
                return Ok(None);
            }
            let start = stream.file.stream_position()?;
            loop {
                let length = stream.file.read(&mut buffer)?;
                match length {
                    0 => reader.finish(),
                    length => reader.push(&buffer[..length]),
                }
                for read in &mut reader {
                    match read {
                        Ok(entry) => {
                            tasks += 1;
                            let (name, line) = (&stream.name, entry.line);
                            self.note(name, line, &entry.spec);
                            if let Err(shared) = self.take_paths(name, line, &entry.spec) {
                                mistake(shared);
                            }
                        }
                        Err(error) => mistake(error.render(&stream.name, colour)),
                    }
                }
                if length == 0 {
                    break;
                }
            }
            reader.next_source();
            stream.file.seek(SeekFrom::Start(start))?;
        }
        Ok(Some(tasks))
    }

    /// Takes the paths that the task at a line has for itself. The error says which earlier task
    /// has one of them.
    pub fn take_paths(&mut self, source: &str, line: u64, spec: &TaskSpec) -> Result<(), String> {
        let taken = self.paths.take(spec, source, line);
        taken.map_err(|shared| format!("error: {}:{line}: {shared}", printable(source)))
    }

    /// Takes note of what the task at a line asks for.
    pub fn note(&mut self, source: &str, line: u64, spec: &TaskSpec) {
        if spec.is_plain() {
            return;
        }
        let spec = TaskSpec {
            gpus: spec.gpus,
            vram: spec.vram,
            gpu_model: spec.gpu_model.clone(),
            cores: spec.cores,
            cpu: spec.cpu,
            ram: spec.ram,
            ..TaskSpec::default()
        };
        if spec.is_plain() {
            return;
        }
        // A specification has one written form.
        let written = serde_json::to_string(&spec).unwrap_or_default();
        if self.seen.insert(written) {
            self.checks.push(Check { source: source.to_owned(), line, spec });
        }
    }

    /// What they ask for: source, line and request.
    pub fn requests(&self) -> impl Iterator<Item = (&str, u64, &TaskSpec)> {
        let checks = self.checks.iter();
        checks.map(|check| (check.source.as_str(), check.line, &check.spec))
    }

    /// Tells which of them could never run: source, line and reason.
    pub fn refused<'a>(
        &'a self,
        launch: &'a Launch,
    ) -> impl Iterator<Item = (&'a str, u64, String)> {
        self.checks.iter().filter_map(|check| {
            let reason = launch.refusal(&check.spec)?;
            Some((check.source.as_str(), check.line, reason))
        })
    }
}
