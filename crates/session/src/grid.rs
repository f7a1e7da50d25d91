//! A grid file as a source of tasks: which tests are done, and which run.

use std::hash::BuildHasher as _;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

use packhorse_intake::Colour;
use packhorse_intake::grid::{Grid, GridFileError, GridSelection};
use packhorse_model::{Command, GridLanguage, GridSpec, Marker, Outcome};
use rustc_hash::FxBuildHasher;

use crate::SessionError;
use crate::marked_run::RunningTest;
use crate::marker_file::remove_unfinished;
use crate::results::{WrongMarker, read_marker};
use crate::source::{Generator, TaskSource};

/// What the folder of a test says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestState {
    /// There is no folder.
    New,
    /// There is a folder without a marker: made by the original, and done.
    Unmarked,
    /// The marker says that it runs. It may have been killed since.
    Running(RunningTest),
    /// The marker says that it has succeeded, as a trial run of an experiment.
    Tried,
    /// The marker has this outcome.
    Marked(String),
}

impl TestState {
    /// Whether the test need not run.
    pub fn is_done(&self) -> bool {
        match self {
            Self::New | Self::Running(_) | Self::Tried => false,
            Self::Unmarked => true,
            Self::Marked(outcome) => outcome == Outcome::Succeeded.word(),
        }
    }

    pub fn word(&self) -> &str {
        match self {
            Self::New => "new",
            Self::Unmarked => "done",
            Self::Running(_) => Marker::RUNNING,
            Self::Tried => "debug",
            Self::Marked(outcome) => outcome,
        }
    }
}

/// What a grid file is written in, by the end of its name.
pub fn grid_language(path: &Path) -> Option<GridLanguage> {
    let end = path.extension().and_then(|end| end.to_str())?;
    Some(match end.to_ascii_lowercase().as_str() {
        "yaml" | "yml" => GridLanguage::Yaml,
        "toml" => GridLanguage::Toml,
        "json" => GridLanguage::Json,
        "py" => GridLanguage::Python,
        _ => return None,
    })
}

/// Reads a grid file of this name, and checks all of it.
pub fn read_grid(
    text: &str,
    language: GridLanguage,
    command: Option<&Command>,
    name: &str,
    colour: Colour,
) -> Result<Grid, SessionError> {
    Grid::read(text, language, command).map_err(|error| {
        SessionError::Rendered(match error {
            GridFileError::File(error) => error.render(name, colour),
            other => other.to_string(),
        })
    })
}

/// What is in the folder of all results.
///
/// Its names are read once, as hashes, in their order: to ask the system for every test costs
/// seconds for a million of them.
struct ResultRoot(FolderNameHashes);

/// The names in a folder, as hashes in their order.
pub(crate) struct FolderNameHashes(Vec<u64>);

impl FolderNameHashes {
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        let mut names = Vec::new();
        let entries = match fs_err::read_dir(folder) {
            Ok(entries) => entries,
            // A file in its place is no result; starting a test tells what is wrong.
            Err(error) if is_absence(&error) => return Ok(Self(names)),
            Err(error) => return Err(error),
        };
        for entry in entries {
            names.push(hash(entry?.file_name().as_bytes()));
        }
        names.sort_unstable();
        Ok(Self(names))
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.binary_search(&hash(name.as_bytes())).is_ok()
    }
}

impl ResultRoot {
    fn read(grid: &Grid) -> io::Result<Self> {
        let root = Path::new(&grid.scheduler().result_root_folder);
        FolderNameHashes::read(root).map(Self)
    }

    /// What the folder of a test says of it.
    fn state(&self, grid: &Grid, place: u32) -> io::Result<TestState> {
        let name = grid.folder_name(place);
        if !name.is_empty() && !self.0.contains(&name) {
            return Ok(TestState::New);
        }
        let folder = grid.folder(place);
        let folder = Path::new(&folder);
        let unmarked = || {
            // The folder of all results is there for the other tests.
            if (grid.len() > 1 && name.is_empty()) || !folder.is_dir() {
                TestState::New
            } else {
                TestState::Unmarked
            }
        };
        Ok(marked_state(folder)?.unwrap_or_else(unmarked))
    }
}

/// What the marker of a folder says, if there is one.
pub(crate) fn marked_state(folder: &Path) -> io::Result<Option<TestState>> {
    match read_marker(&folder.join(Marker::FILE)) {
        Ok(Some(marker)) => Ok(Some(match (RunningTest::of(&marker), marker.outcome.as_str()) {
            (Some(test), _) => TestState::Running(test),
            (None, "") => TestState::Marked("damaged".to_owned()),
            (None, outcome) if marker.debug && outcome == Outcome::Succeeded.word() => {
                TestState::Tried
            }
            _ => TestState::Marked(marker.outcome),
        })),
        Ok(None) => Ok(None),
        Err(WrongMarker::Unreadable(error)) if is_absence(&error) => Ok(None),
        Err(WrongMarker::Unreadable(error)) => Err(error),
        Err(_) => Ok(Some(TestState::Marked("damaged".to_owned()))),
    }
}

pub(crate) fn is_absence(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

fn hash(name: &[u8]) -> u64 {
    FxBuildHasher.hash_one(name)
}

/// Each test that is selected, with its place and state, in their order.
pub fn test_states<'g>(
    grid: &'g Grid,
    selection: &'g GridSelection,
) -> io::Result<impl Iterator<Item = io::Result<(u32, TestState)>> + 'g> {
    let root = ResultRoot::read(grid)?;
    let places = (0..grid.len()).filter(|place| grid.is_selected(selection, *place));
    Ok(places.map(move |place| Ok((place, root.state(grid, place)?))))
}

/// Adds a place to those that run.
pub fn add_place(places: &mut Vec<(u32, u32)>, place: u32) {
    match places.last_mut() {
        Some((first, count)) if first.checked_add(*count) == Some(place) => *count += 1,
        _ => places.push((place, 1)),
    }
}

/// The tests of a grid that run, by the numbers of their tasks.
pub(crate) struct GridPlaces {
    /// The number of the first of several in a row, counted from 0, and its place.
    rows: Vec<(u32, u32)>,
    pub(crate) count: u32,
}

impl GridPlaces {
    pub(crate) fn new(places: &[(u32, u32)]) -> Self {
        let (mut rows, mut count) = (Vec::with_capacity(places.len()), 0_u32);
        for &(first, length) in places {
            rows.push((count, first));
            count = count.saturating_add(length);
        }
        Self { rows, count }
    }

    /// The place of the task with this number, counted from 0.
    pub(crate) fn of(&self, number: u32) -> u32 {
        let after = self.rows.partition_point(|(start, _)| *start <= number);
        let row = after.checked_sub(1).and_then(|row| self.rows.get(row));
        row.map_or(0, |(start, place)| place + (number - start))
    }
}

/// Removes what runs that were killed have left in the folder of all results.
pub fn tidy_results(grid: &Grid) {
    remove_unfinished(Path::new(&grid.scheduler().result_root_folder));
}

/// The tests as a source, whose tasks before `first` were made by earlier sessions.
pub fn grid_source(spec: &GridSpec, grid: Rc<Grid>, first: u32) -> Box<dyn TaskSource> {
    let places = GridPlaces::new(&spec.places);
    let count = places.count;
    Box::new(Generator::new(count, first, move |number| grid.test(places.of(number))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_a_row_are_kept_as_one() {
        let mut places = Vec::new();
        for place in [0, 1, 2, 5, 9, 10] {
            add_place(&mut places, place);
        }
        assert_eq!(places, [(0, 3), (5, 1), (9, 2)]);
        let places = GridPlaces::new(&places);
        let all: Vec<u32> = (0..places.count).map(|number| places.of(number)).collect();
        assert_eq!(all, [0, 1, 2, 5, 9, 10]);
    }
}
