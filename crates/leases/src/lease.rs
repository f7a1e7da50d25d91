use std::collections::BTreeMap;

use packhorse_model::{Bytes, Milli, RunId};
use rustix::fs::{Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::folder::Folder;
use crate::name::Name;
use crate::process::Here;

/// A longer file is not read.
const LONGEST: usize = 64 * 1024;

/// A longer text is cut.
const LONGEST_TEXT: usize = 256;

/// The form of the files. Those of another one are left alone.
const VERSION: u32 = 1;

/// What a process tells others about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The name of its user.
    pub user: String,
    /// The run that it works on.
    pub run: Option<RunId>,
    /// How it was started, for people to read.
    pub command: String,
}

/// What is held of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Its UUID, or its id as it was typed where no driver knows it.
    pub device: Box<str>,
    /// Memory promised.
    pub memory: Bytes,
    /// Shares given out.
    pub share: Milli,
    /// How many attempts are on it.
    pub attempts: u32,
    /// Whether nobody else is to join them.
    pub whole: bool,
}

/// What one process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The process.
    pub pid: u32,
    /// Its user, as the system tells.
    pub uid: u32,
    /// Its user, as it says itself.
    pub user: String,
    /// The run that it works on.
    pub run: Option<RunId>,
    /// How it was started, as it says itself.
    pub command: String,
    /// What it holds. Devices that nobody knows may be among it.
    pub held: Vec<Held>,
}

/// What these leases hold of each device together. However much somebody
/// claims, no sum overflows.
pub fn total<'a>(leases: impl IntoIterator<Item = &'a Lease>) -> BTreeMap<&'a str, Held> {
    let mut sums = BTreeMap::<&str, Held>::new();
    for held in leases.into_iter().flat_map(|lease| &lease.held) {
        let sum = sums.entry(&held.device).or_insert_with(|| Held {
            device: held.device.clone(),
            ..Held::default()
        });
        sum.memory = Bytes(sum.memory.0.saturating_add(held.memory.0));
        sum.share = Milli(sum.share.0.saturating_add(held.share.0));
        sum.attempts = sum.attempts.saturating_add(held.attempts);
        sum.whole |= held.whole;
    }
    sums
}

/// A lease as it is in its file. Whose it is, the file's name tells.
#[derive(Serialize, Deserialize)]
struct Content<'a> {
    version: u32,
    boot: &'a str,
    namespace: u64,
    user: String,
    run: Option<u32>,
    command: String,
    devices: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    device: Box<str>,
    memory: u64,
    share: u32,
    attempts: u32,
    whole: bool,
}

/// The bytes of a lease's file.
pub(crate) fn write(here: &Here, about: &About, held: &[Held]) -> Result<Vec<u8>, Error> {
    let entry = |held: &Held| Entry {
        device: held.device.clone(),
        memory: held.memory.0,
        share: held.share.0,
        attempts: held.attempts,
        whole: held.whole,
    };
    let content = Content {
        version: VERSION,
        boot: &here.boot,
        namespace: here.namespace,
        user: presentable(&about.user),
        run: about.run.map(|run| run.0),
        command: presentable(&about.command),
        devices: held.iter().map(entry).collect(),
    };
    let bytes = serde_json::to_vec(&content).map_err(std::io::Error::from)?;
    if bytes.len() > LONGEST {
        let devices = held.len();
        return Err(Error::TooLong { devices });
    }
    Ok(bytes)
}

/// What there is under a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// A lease, if its process lives.
    Lease(Lease),
    /// Left over from an earlier boot.
    Stale,
    /// Nothing, or nothing that counts.
    Nothing,
}

/// Reads the file of this name.
pub(crate) fn read(folder: &Folder, name: Name, here: &Here) -> Reading {
    match bytes(folder, name) {
        Ok(Some(bytes)) => parse(&bytes, name, here),
        _ => Reading::Nothing,
    }
}

/// The content of a file that belongs to the user its name tells, and is not
/// too long.
fn bytes(folder: &Folder, name: Name) -> Result<Option<Vec<u8>>, Errno> {
    // Somebody may have put a link there, or a pipe that nobody writes to. From
    // what is no file, not as many bytes are read as it says it has, or none.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(folder, name.to_string(), flags, Mode::empty())?;
    let stat = fstat(&file)?;
    let length = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
    if stat.st_uid != name.uid || length > LONGEST {
        return Ok(None);
    }
    // One byte more than it has: one that has grown meanwhile is not whole.
    let mut bytes = vec![0; length + 1];
    let read = rustix::io::read(&file, &mut bytes)?;
    bytes.truncate(read);
    Ok((read == length).then_some(bytes))
}

fn parse(bytes: &[u8], name: Name, here: &Here) -> Reading {
    let Ok(content) = serde_json::from_slice::<Content<'_>>(bytes) else {
        return Reading::Nothing;
    };
    if content.version != VERSION {
        return Reading::Nothing;
    }
    if content.boot != here.boot {
        return Reading::Stale;
    }
    if content.namespace != here.namespace {
        return Reading::Nothing;
    }
    let held = |entry: Entry| Held {
        device: entry.device,
        memory: Bytes(entry.memory),
        share: Milli(entry.share),
        attempts: entry.attempts,
        whole: entry.whole,
    };
    Reading::Lease(Lease {
        pid: name.pid,
        uid: name.uid,
        user: presentable(&content.user),
        run: content.run.map(RunId),
        command: presentable(&content.command),
        held: content.devices.into_iter().map(held).collect(),
    })
}

/// Strangers choose the text, and it ends up on a terminal: short, and without
/// anything that a terminal would obey.
fn presentable(text: &str) -> String {
    let visible = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    text.chars().take(LONGEST_TEXT).map(visible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Name = Name {
        uid: 1000,
        pid: 42,
        start: 7,
    };

    fn here() -> Here {
        Here {
            boot: "this one".to_owned(),
            namespace: 5,
        }
    }

    fn about() -> About {
        About {
            user: "ann".to_owned(),
            run: Some(RunId(12)),
            command: "packhorse run".to_owned(),
        }
    }

    fn held(device: &str, memory: u64) -> Held {
        Held {
            device: device.into(),
            memory: Bytes(memory),
            share: Milli(500),
            attempts: 2,
            whole: false,
        }
    }

    fn lease(held: Vec<Held>) -> Lease {
        Lease {
            pid: NAME.pid,
            uid: NAME.uid,
            user: "ann".to_owned(),
            run: Some(RunId(12)),
            command: "packhorse run".to_owned(),
            held,
        }
    }

    #[test]
    fn a_lease_reads_as_it_was_written() {
        let all = vec![
            held("GPU-1", u64::MAX),
            Held {
                whole: true,
                ..held("0", 0)
            },
        ];
        let bytes = write(&here(), &about(), &all).unwrap();
        assert_eq!(parse(&bytes, NAME, &here()), Reading::Lease(lease(all)));
    }

    #[test]
    fn what_is_of_another_boot_place_or_version_does_not_count() {
        let bytes = write(&here(), &about(), &[held("GPU-1", 1)]).unwrap();
        let other_boot = Here {
            boot: "the last one".to_owned(),
            ..here()
        };
        assert_eq!(parse(&bytes, NAME, &other_boot), Reading::Stale);
        let elsewhere = Here {
            namespace: 6,
            ..here()
        };
        assert_eq!(parse(&bytes, NAME, &elsewhere), Reading::Nothing);
        let text = String::from_utf8(bytes).unwrap();
        let newer = text.replace(r#""version":1"#, r#""version":2"#);
        assert_ne!(newer, text);
        assert_eq!(parse(newer.as_bytes(), NAME, &here()), Reading::Nothing);
        for wrong in ["", "{}", "[]", "nonsense", &text[..text.len() - 1]] {
            assert_eq!(parse(wrong.as_bytes(), NAME, &here()), Reading::Nothing);
        }
    }

    #[test]
    fn strangers_text_is_short_and_moves_no_cursor() {
        let wild = About {
            user: "\u{1b}[2Jroot\u{9b}".to_owned(),
            command: "x".repeat(10_000),
            ..about()
        };
        let bytes = write(&here(), &wild, &[]).unwrap();
        let Reading::Lease(lease) = parse(&bytes, NAME, &here()) else {
            panic!("not read");
        };
        assert_eq!(lease.user, "\u{fffd}[2Jroot\u{fffd}");
        assert_eq!(lease.command.len(), LONGEST_TEXT);
        // Nobody need write it in this way.
        let text = String::from_utf8(bytes).unwrap();
        let raw = text.replace("\u{fffd}[2J", r"\u001b[2J");
        assert_ne!(raw, text);
        assert_eq!(parse(raw.as_bytes(), NAME, &here()), Reading::Lease(lease));
    }

    #[test]
    fn a_lease_that_nobody_would_read_is_refused() {
        let many = vec![held("GPU-01234567-89ab-cdef-0123-456789abcdef", 1 << 33); 2000];
        let error = write(&here(), &about(), &many).unwrap_err();
        assert!(matches!(error, Error::TooLong { devices: 2000 }));
    }

    #[test]
    fn sums_are_for_each_device_and_do_not_overflow() {
        let leases = [
            lease(vec![held("a", u64::MAX), held("b", 1)]),
            lease(vec![
                Held {
                    share: Milli(u32::MAX),
                    attempts: u32::MAX,
                    whole: true,
                    ..held("a", 5)
                },
                held("c", 3),
                held("c", 4),
            ]),
        ];
        let sums = total(&leases);
        assert_eq!(sums.len(), 3);
        let a = Held {
            device: "a".into(),
            memory: Bytes(u64::MAX),
            share: Milli(u32::MAX),
            attempts: u32::MAX,
            whole: true,
        };
        assert_eq!(sums["a"], a);
        assert_eq!(sums["b"], held("b", 1));
        assert_eq!((sums["c"].memory, sums["c"].attempts), (Bytes(7), 4));
    }
}
