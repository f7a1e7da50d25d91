//! Following outcome files as they grow. Network file systems tell nobody of changes, so they
//! are looked at: often while there is news, and less and less often while there is none. Many
//! files are looked at less often each, so that it is as much in all.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use fs_err::{self as fs, File};
use packhorse_model::{Event, EventKind, Exit, NewPeak};
use serde::{Deserialize, Serialize};

use crate::SlurmError;
use crate::earlier_lives::whole_lines;
use crate::folder::SharedFolder;

/// After news, a file is looked at again so soon.
const SHORTEST: Duration = Duration::from_millis(100);
/// But all of them together no more often than once in such a while.
const FOR_EACH: Duration = Duration::from_millis(5);
/// What cannot be read is tried again after this, and then less and less often.
const RETRY: Duration = Duration::from_secs(1);
/// What could not be read for so long is no longer waited for.
const PATIENCE: Duration = Duration::from_mins(5);
/// It is looked at no less often.
const LONGEST: Duration = Duration::from_secs(5);
/// New files are looked for no more often.
const LISTING: Duration = Duration::from_millis(500);
/// At most so much is read of a file at once.
const PIECE: u64 = 4 << 20;

/// Which file: the element, and which of its lives.
pub(crate) type LifeId = (u32, u32);

/// What was read of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FilePosition {
    /// How far.
    pub(crate) position: u64,
    /// How far of what was learned.
    pub(crate) peaks: u64,
    /// The element has said that it is over: nothing follows.
    pub(crate) is_over: bool,
    /// How many of its tasks were left then.
    #[serde(default)]
    pub(crate) left: u64,
    /// Whether a signal has ended it.
    #[serde(default)]
    pub(crate) was_stopped: bool,
}

/// Which files are looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Looking<'a> {
    /// Those that are due.
    Due,
    /// All of them.
    Everything,
    /// Those of elements that do not run any more: what is not there now never will be.
    Gone(&'a BTreeSet<u32>),
}

/// Outcome files, and how far they were read.
pub(crate) struct OutcomeFiles {
    folder: SharedFolder,
    files: BTreeMap<LifeId, FollowedFile>,
    /// When to look for new ones, and after what pause again.
    listing: (Instant, Duration),
    /// Whether they could not be listed the last time.
    is_unlisted: bool,
}

#[derive(Debug, Default)]
struct FollowedFile {
    at: FilePosition,
    /// When it is looked at next.
    next: Option<Instant>,
    pause: Duration,
    /// Since when it cannot be read.
    unreadable: Option<Instant>,
}

/// Something that an element has written.
pub(crate) enum OutcomeNews {
    Event(Box<Event>),
    Peak(Box<NewPeak>),
}

impl OutcomeFiles {
    /// Goes on where somebody has stopped reading.
    pub(crate) fn new(folder: &SharedFolder, positions: BTreeMap<LifeId, FilePosition>) -> Self {
        let files = positions.into_iter().map(|(life, at)| {
            let file = FollowedFile { at, ..FollowedFile::default() };
            (life, file)
        });
        Self {
            folder: folder.clone(),
            files: files.collect(),
            listing: (Instant::now(), LISTING),
            is_unlisted: false,
        }
    }

    /// How far everything was read.
    pub(crate) fn positions(&self) -> BTreeMap<LifeId, FilePosition> {
        let files = self.files.iter();
        files.map(|(life, file)| (*life, file.at)).collect()
    }

    /// When there is something to look at again.
    pub(crate) fn due(&self) -> Instant {
        let open = self.files.values().filter(|file| !file.at.is_over);
        let next = open.filter_map(|file| file.next).min();
        next.map_or(self.listing.0, |next| next.min(self.listing.0))
    }

    /// The last life of an element, and what was read of it. `None`: it has not begun.
    pub(crate) fn last_life(&self, element: u32) -> Option<(u32, FilePosition)> {
        let mut lives = self.files.range((element, 0)..(element, u32::MAX));
        let (&(_, life), last) = lives.next_back()?;
        Some((life, last.at))
    }

    /// Whether the last life of an element has said that it is over. `None`: it has not begun.
    pub(crate) fn is_over(&self, element: u32) -> Option<bool> {
        self.last_life(element).map(|(_, at)| at.is_over)
    }

    /// The elements that have begun, as far as that was seen.
    pub(crate) fn elements(&self) -> BTreeSet<u32> {
        self.files.keys().map(|(element, _)| *element).collect()
    }

    /// Whether something cannot be read at the moment.
    pub(crate) fn has_unreadable(&self) -> bool {
        self.is_unlisted || self.files.values().any(|file| file.unreadable.is_some())
    }

    /// Whether there may be more of an element than can be read at the moment.
    pub(crate) fn is_unreadable(&self, element: u32, now: Instant) -> bool {
        let mut lives = self.files.range((element, 0)..=(element, u32::MAX));
        self.is_unlisted || lives.any(|(_, file)| file.is_waited_for(now))
    }

    /// Looks at files, and hands out what is new. Lives of an element are read one after the
    /// other. What cannot be read is not in the way of others; the first error is returned.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        looking: Looking<'_>,
        mut news: impl FnMut(LifeId, OutcomeNews),
    ) -> Result<(), SlurmError> {
        let mut trouble = None;
        if !matches!(looking, Looking::Due) || self.listing.0 <= now {
            let listed = self.list();
            self.is_unlisted = listed.is_err();
            let pause = match listed {
                Ok(true) => LISTING,
                Ok(false) => (self.listing.1 * 2).min(LONGEST),
                Err(error) => {
                    trouble = Some(error);
                    (self.listing.1 * 2).clamp(RETRY, LONGEST)
                }
            };
            self.listing = (now + pause, pause);
        }
        let open = self.files.values().filter(|file| !file.at.is_over).count();
        let for_all = FOR_EACH.saturating_mul(u32::try_from(open).unwrap_or(u32::MAX));
        let shortest = SHORTEST.max(for_all);
        for (life, file) in &mut self.files {
            let (is_wanted, holes) = match looking {
                Looking::Due => (file.next.is_none_or(|next| next <= now), Holes::MayFill),
                Looking::Everything => (true, Holes::MayFill),
                Looking::Gone(elements) => (elements.contains(&life.0), Holes::Stay),
            };
            if file.at.is_over || !is_wanted {
                continue;
            }
            let path = self.folder.outcome_file(life.0, life.1);
            let read = file.read(&path, looking, holes, |it| news(*life, it));
            let longer = file.pause * 3 / 2;
            file.pause = match read {
                Ok(has_news) => {
                    file.unreadable = None;
                    let pause = if has_news { shortest } else { longer };
                    pause.clamp(shortest, LONGEST.max(shortest))
                }
                Err(error) => {
                    file.unreadable.get_or_insert(now);
                    if file.is_waited_for(now) {
                        trouble.get_or_insert(error);
                    }
                    longer.max(shortest).clamp(RETRY, LONGEST.max(shortest))
                }
            };
            file.next = Some(now + file.pause);
        }
        trouble.map_or(Ok(()), Err)
    }

    /// Looks for new files. Whether there are any.
    fn list(&mut self) -> Result<bool, SlurmError> {
        let mut found = false;
        for entry in fs::read_dir(self.folder.outcomes())? {
            let name = entry?.file_name();
            let Some(life) = name.to_str().and_then(life_of) else {
                continue;
            };
            found |= !self.files.contains_key(&life);
            self.files.entry(life).or_default();
        }
        Ok(found)
    }
}

impl FollowedFile {
    /// Hands out what is new in the file. Whether anything is. While the job runs, what was
    /// learned is looked at only after news: it is written before that.
    fn read(
        &mut self,
        path: &Path,
        looking: Looking<'_>,
        holes: Holes,
        mut news: impl FnMut(OutcomeNews),
    ) -> Result<bool, SlurmError> {
        let mut has_news = false;
        loop {
            let (lines, length) = read_on(path, self.at.position, holes)?;
            for line in whole_lines(&lines) {
                // What cannot be read did not happen, or only a later version knows it.
                let Ok(event) = serde_json::from_slice::<Event>(line) else {
                    continue;
                };
                if let EventKind::RunEnded(summary) = &event.kind {
                    self.at.is_over = true;
                    self.at.left = summary.left;
                    self.at.was_stopped = matches!(summary.exit, Exit::Signal(_));
                }
                news(OutcomeNews::Event(Box::new(event)));
            }
            self.at.position += length;
            has_news |= length > 0;
            if length == 0 {
                break;
            }
        }
        if matches!(looking, Looking::Due) && !has_news {
            return Ok(false);
        }
        let peaks = path.with_extension("peaks");
        let (lines, length) = read_on(&peaks, self.at.peaks, holes)?;
        for line in whole_lines(&lines) {
            if let Ok(peak) = serde_json::from_slice::<NewPeak>(line) {
                news(OutcomeNews::Peak(Box::new(peak)));
            }
        }
        self.at.peaks += length;
        Ok(has_news)
    }

    /// Whether it cannot be read, but not for long.
    fn is_waited_for(&self, now: Instant) -> bool {
        self.unreadable.is_some_and(|since| now < since + PATIENCE)
    }
}

/// `3.1.jsonl`
fn life_of(name: &str) -> Option<LifeId> {
    let (element, life) = name.strip_suffix(".jsonl")?.split_once('.')?;
    Some((element.parse().ok()?, life.parse().ok()?))
}

/// What becomes of zeros in a file. A network file system may show a later page of it before
/// an earlier one, which reads as zeros until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holes {
    /// What was written there may come.
    MayFill,
    /// It is lost.
    Stay,
}

/// The whole lines behind a place, and how long they are. Opening the file each time has a
/// network file system ask how long it is by now.
fn read_on(path: &Path, position: u64, holes: Holes) -> Result<(Vec<u8>, u64), SlurmError> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(error.into()),
    };
    let length = file.metadata()?.len();
    if length <= position {
        return Ok((Vec::new(), 0));
    }
    file.seek(SeekFrom::Start(position))?;
    let mut piece = PIECE;
    loop {
        let mut text = Vec::new();
        file.by_ref().take(piece).read_to_end(&mut text)?;
        let hole = text.iter().position(|&byte| byte == 0);
        let hole = hole.filter(|_| holes == Holes::MayFill);
        if let Some(begin) = hole {
            text.truncate(begin);
        }
        match text.iter().rposition(|&byte| byte == b'\n') {
            Some(end) => {
                text.truncate(end + 1);
                let length = text.len() as u64;
                return Ok((text, length));
            }
            // A line may be longer than a piece, or be torn.
            None if hole.is_none() && position + piece < length => {
                piece *= 2;
                file.seek(SeekFrom::Start(position))?;
            }
            None => return Ok((Vec::new(), 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use fs_err::OpenOptions;

    fn warning(text: &str) -> String {
        format!("{{\"time\":1.0,\"event\":\"warning\",\"task\":null,\"message\":\"{text}\"}}\n")
    }

    fn append(folder: &SharedFolder, life: LifeId, text: &str) {
        let path = folder.outcome_file(life.0, life.1);
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn look(files: &mut OutcomeFiles) -> Vec<String> {
        look_at(files, Looking::Everything)
    }

    fn look_at(files: &mut OutcomeFiles, looking: Looking<'_>) -> Vec<String> {
        let mut read = Vec::new();
        let news = |life: LifeId, news| {
            let OutcomeNews::Event(event) = news else {
                return;
            };
            if let EventKind::Warning { message, .. } = event.kind {
                read.push(format!("{}.{} {message}", life.0, life.1));
            }
        };
        files.look(Instant::now(), looking, news).unwrap();
        read
    }

    #[test]
    fn files_are_read_as_they_grow_and_only_in_whole_lines() {
        let parent = tempfile::tempdir().unwrap();
        let folder = SharedFolder::create(parent.path()).unwrap();
        let mut files = OutcomeFiles::new(&folder, BTreeMap::new());
        assert!(look(&mut files).is_empty());
        let torn = warning("second");
        append(&folder, (2, 1), &(warning("first") + &torn[..10]));
        append(&folder, (0, 1), &warning("other"));
        assert_eq!(look(&mut files), ["0.1 other", "2.1 first"]);
        assert!(look(&mut files).is_empty());
        append(&folder, (2, 1), &torn[10..]);
        append(&folder, (2, 2), "nonsense\n");
        append(&folder, (2, 2), &warning("third"));
        assert_eq!(look(&mut files), ["2.1 second", "2.2 third"]);
        // Another reader goes on where this one stopped.
        let mut later = OutcomeFiles::new(&folder, files.positions());
        append(&folder, (0, 1), &warning("last"));
        assert_eq!(look(&mut later), ["0.1 last"]);
        assert_eq!((later.is_over(2), later.is_over(7)), (Some(false), None));
    }

    #[test]
    fn what_a_hole_hides_is_read_when_it_is_there() {
        let parent = tempfile::tempdir().unwrap();
        let folder = SharedFolder::create(parent.path()).unwrap();
        let (first, hidden, last) = (warning("first"), warning("hidden"), warning("last"));
        let hole = "\0".repeat(hidden.len() - 3);
        let path = folder.outcome_file(0, 1);
        // A line is torn by the hole.
        let torn = first.clone() + &hidden[..3] + &hole + &last;
        fs::write(&path, &torn).unwrap();
        let mut files = OutcomeFiles::new(&folder, BTreeMap::new());
        assert_eq!(look(&mut files), ["0.1 first"]);
        assert!(look(&mut files).is_empty());
        fs::write(&path, first + &hidden + &last).unwrap();
        assert_eq!(look(&mut files), ["0.1 hidden", "0.1 last"]);
        // What a dead node has not written never comes: what is behind it counts.
        append(&folder, (0, 1), &torn);
        assert_eq!(look(&mut files), ["0.1 first"]);
        let gone = BTreeSet::from([0]);
        assert_eq!(look_at(&mut files, Looking::Gone(&gone)), ["0.1 last"]);
    }

    #[test]
    fn a_line_may_be_longer_than_what_is_read_at_once() {
        let parent = tempfile::tempdir().unwrap();
        let folder = SharedFolder::create(parent.path()).unwrap();
        let long = "x".repeat(9 << 20);
        append(&folder, (0, 1), &(warning("a") + &warning(&long) + &warning("b")));
        let mut files = OutcomeFiles::new(&folder, BTreeMap::new());
        let read = look(&mut files);
        assert_eq!((read.len(), read[2].as_str()), (3, "0.1 b"));
    }

    #[test]
    fn a_file_without_news_is_looked_at_less_and_less_often() {
        let parent = tempfile::tempdir().unwrap();
        let folder = SharedFolder::create(parent.path()).unwrap();
        append(&folder, (0, 1), &warning("a"));
        let mut files = OutcomeFiles::new(&folder, BTreeMap::new());
        let mut now = Instant::now();
        let start = now;
        let mut looks = 0;
        while now < start + Duration::from_mins(10) {
            now = files.due().max(now);
            files.look(now, Looking::Due, |_, _| {}).unwrap();
            looks += 1;
        }
        assert!(looks < 300, "{looks}");
    }

    #[test]
    fn what_cannot_be_read_is_in_nobodys_way_and_is_tried_again_later() {
        let parent = tempfile::tempdir().unwrap();
        let folder = SharedFolder::create(parent.path()).unwrap();
        // Not even root can read a folder as a file.
        fs::create_dir(folder.outcome_file(0, 1)).unwrap();
        append(&folder, (1, 1), &warning("a"));
        let mut files = OutcomeFiles::new(&folder, BTreeMap::new());
        let now = Instant::now();
        let mut count = 0;
        let mut look = |files: &mut OutcomeFiles, now, looking: Looking<'_>| {
            count = 0;
            let looked = files.look(now, looking, |_, _| count += 1);
            (looked.is_ok(), count)
        };
        assert_eq!(look(&mut files, now, Looking::Due), (false, 1));
        assert!(files.due() > now, "it would be looked at all the time");
        assert!(files.is_unreadable(0, now) && !files.is_unreadable(1, now));
        // Nobody waits for it for ever.
        let later = now + PATIENCE;
        append(&folder, (1, 1), &warning("b"));
        assert_eq!(look(&mut files, later, Looking::Everything), (true, 1));
        assert!(!files.is_unreadable(0, later) && files.has_unreadable());
        // If it can be read after all, it is.
        fs::remove_dir(folder.outcome_file(0, 1)).unwrap();
        append(&folder, (0, 1), &warning("c"));
        assert_eq!(look(&mut files, later, Looking::Everything), (true, 1));
        assert!(!files.has_unreadable());
    }

    #[test]
    fn a_folder_that_cannot_be_listed_is_tried_again_later() {
        let parent = tempfile::tempdir().unwrap();
        let folder = SharedFolder::create(parent.path()).unwrap();
        append(&folder, (1, 1), &warning("a"));
        let mut files = OutcomeFiles::new(&folder, BTreeMap::new());
        let now = Instant::now();
        files.look(now, Looking::Everything, |_, _| {}).unwrap();
        fs::rename(folder.outcomes(), folder.file("elsewhere")).unwrap();
        fs::write(folder.outcomes(), "").unwrap();
        let now = now + LONGEST;
        assert!(files.look(now, Looking::Due, |_, _| {}).is_err());
        assert!(files.due() > now, "it would be looked at all the time");
        assert!(files.is_unreadable(1, now));
    }

    #[test]
    fn many_files_are_looked_at_no_more_often_in_all() {
        let parent = tempfile::tempdir().unwrap();
        let folder = SharedFolder::create(parent.path()).unwrap();
        for element in 0..200 {
            append(&folder, (element, 1), &warning("a"));
        }
        let mut files = OutcomeFiles::new(&folder, BTreeMap::new());
        let now = Instant::now();
        files.look(now, Looking::Due, |_, _| {}).unwrap();
        let soonest = files.files.values().filter_map(|file| file.next).min();
        assert_eq!(soonest, Some(now + Duration::from_secs(1)));
    }

    #[test]
    fn what_was_learned_is_looked_at_when_there_is_news() {
        let parent = tempfile::tempdir().unwrap();
        let folder = SharedFolder::create(parent.path()).unwrap();
        append(&folder, (0, 1), &warning("a"));
        let mut files = OutcomeFiles::new(&folder, BTreeMap::new());
        let mut now = Instant::now();
        let mut look = |looking: Looking<'_>| {
            now += LONGEST;
            files.look(now, looking, |_, _| {}).unwrap();
            files.files[&(0, 1)].at.peaks
        };
        look(Looking::Due);
        let peaks = folder.outcome_file(0, 1).with_extension("peaks");
        fs::write(&peaks, "{}\n").unwrap();
        assert_eq!(look(Looking::Due), 0);
        append(&folder, (0, 1), &warning("b"));
        assert_eq!(look(Looking::Due), 3);
        // What a job has learned last.
        fs::write(&peaks, "{}\n{}\n").unwrap();
        assert_eq!(look(Looking::Gone(&BTreeSet::from([0]))), 6);
    }
}
