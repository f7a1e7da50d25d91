use packhorse_model::{Claim, LeaseContent, LeasedDevice, RunId, printable};
use packhorse_proc::ProcessKey;
use rustix::fs::{Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::LeaseError;
use crate::folder::UserFolder;
use crate::lease_name::LeaseName;
use crate::process::{SystemId, is_shortage};

/// A longer file is not read.
const LONGEST: usize = 64 * 1024;

/// Longer text is truncated.
const LONGEST_TEXT: usize = 256;

/// How many first processes of attempts a file names. More would not fit into it.
const MOST_LEADERS: usize = 1024;

/// The version of the file format. Files of other versions are ignored.
const VERSION: u32 = 2;

/// Who holds a lease: what a process tells others about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseOwner {
    /// The name of its user. Empty if the process was not told: to look it up may take longer
    /// than all else that it does before its first task, and whoever reads a lease may have
    /// others wait for it.
    pub user: String,
    /// The run that it executes.
    pub run: Option<RunId>,
    /// How it was started.
    pub command: String,
    /// The id of its state folder, which marks the processes of its tasks.
    pub home: String,
}

/// What one process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The process.
    pub pid: u32,
    /// Its user, according to the system.
    pub uid: u32,
    /// Who it is, according to itself.
    pub owner: LeaseOwner,
    /// What it holds. May include devices that nobody knows and amounts that nothing has: use
    /// saturating sums.
    pub held: Vec<LeasedDevice>,
    /// What it waits for. The same goes for this.
    pub claim: Option<Claim>,
    /// If the process is dead: what it left running, which is why the lease still counts.
    pub left: Option<Vec<u32>>,
}

impl Lease {
    /// The processes from which those of its tasks descend, each with that which leads, or
    /// led, the run.
    pub fn processes(&self) -> Vec<(u32, u32)> {
        match &self.left {
            Some(left) => left.iter().map(|&pid| (pid, self.pid)).collect(),
            None => vec![(self.pid, self.pid)],
        }
    }

    /// The name of its user, according to the process, or to `look_up`.
    pub fn user(&self, look_up: impl FnOnce(u32) -> String) -> String {
        if self.owner.user.is_empty() { look_up(self.uid) } else { self.owner.user.clone() }
    }

    /// What people know it by who use the state folder with the id `home`. `user`: the name
    /// of its [user](Self::user).
    pub fn describe(&self, home: &str, user: &str) -> String {
        let run = &self.owner.run;
        let name = match run {
            Some(run) => format!("run {run}"),
            None => "a run".to_owned(),
        };
        match (&self.left, run) {
            (None, _) => format!("{name} of {user}, process {}", self.pid),
            (Some(_), Some(run)) if self.owner.home == home => {
                format!("left by {name}, which was killed; `packhorse stop {run}` ends them")
            }
            (Some(_), _) => format!("left by {name} of {user}, which was killed"),
        }
    }
}

/// The content of a lease's file. The file's name tells whose it is.
#[derive(Serialize, Deserialize)]
struct LeaseJson<'a> {
    version: u32,
    boot: &'a str,
    namespace: u64,
    #[serde(flatten)]
    owner: LeaseOwner,
    devices: Vec<LeasedDevice>,
    claim: Option<Claim>,
    /// The number and start time of the first process of each attempt.
    leaders: Vec<(u32, u64)>,
}

/// The bytes of a lease's file.
pub(crate) fn write(
    system: &SystemId,
    owner: &LeaseOwner,
    content: &LeaseContent,
    leaders: &[ProcessKey],
) -> Result<Vec<u8>, LeaseError> {
    let LeaseContent { held, claim } = content;
    let leaders = leaders.iter().take(MOST_LEADERS);
    let content = LeaseJson {
        version: VERSION,
        boot: &system.boot,
        namespace: system.namespace,
        owner: owner.printable(),
        devices: held.clone(),
        claim: claim.clone(),
        leaders: leaders.map(|it| (it.pid, it.start_time)).collect(),
    };
    let bytes = serde_json::to_vec(&content).map_err(std::io::Error::from)?;
    if bytes.len() > LONGEST {
        let devices = held.len();
        return Err(LeaseError::TooLong { devices });
    }
    Ok(bytes)
}

/// What a lease's file contains.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LeaseFile {
    /// A lease, if its process is alive or one of the attempts that these lead.
    Lease(Lease, Vec<ProcessKey>),
    /// A lease from before the last boot.
    Stale,
    /// No valid lease.
    Nothing,
    /// It cannot be read at the moment.
    Unread(Errno),
}

/// Reads the file with this name.
pub(crate) fn read(folder: &UserFolder, name: LeaseName, system: &SystemId) -> LeaseFile {
    match bytes(folder, name) {
        Ok(Some(bytes)) => parse(&bytes, name, system),
        Err(errno) if is_shortage(errno) => LeaseFile::Unread(errno),
        _ => LeaseFile::Nothing,
    }
}

/// The content of a file, if it belongs to the user in its name and is not too long.
fn bytes(folder: &UserFolder, name: LeaseName) -> Result<Option<Vec<u8>>, Errno> {
    // It may be a link, or a pipe that nobody writes to. What is not a regular file does not
    // yield as many bytes as its size says.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(folder, name.to_string(), flags, Mode::empty())?;
    let stat = fstat(&file)?;
    let length = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
    if stat.st_uid != name.uid || length > LONGEST {
        return Ok(None);
    }
    // One byte more than its size, to notice a file that has grown meanwhile.
    let mut bytes = vec![0; length + 1];
    let read = rustix::io::read(&file, &mut bytes)?;
    bytes.truncate(read);
    Ok((read == length).then_some(bytes))
}

fn parse(bytes: &[u8], name: LeaseName, system: &SystemId) -> LeaseFile {
    let Ok(content) = serde_json::from_slice::<LeaseJson<'_>>(bytes) else {
        return LeaseFile::Nothing;
    };
    if content.version != VERSION {
        return LeaseFile::Nothing;
    }
    if content.boot != system.boot {
        return LeaseFile::Stale;
    }
    if content.namespace != system.namespace {
        return LeaseFile::Nothing;
    }
    let leaders = content.leaders.into_iter().take(MOST_LEADERS);
    let leaders = leaders.map(|(pid, start_time)| ProcessKey { pid, start_time });
    let lease = Lease {
        pid: name.pid,
        uid: name.uid,
        owner: content.owner.printable(),
        held: content.devices.into_iter().map(named_printably).collect(),
        claim: content.claim.map(|claim| Claim {
            devices: claim.devices.into_iter().map(named_printably).collect(),
            ..claim
        }),
        left: None,
    };
    LeaseFile::Lease(lease, leaders.collect())
}

impl LeaseOwner {
    fn printable(&self) -> Self {
        Self {
            user: short(&self.user),
            run: self.run,
            command: short(&self.command),
            home: short(&self.home),
        }
    }
}

fn named_printably(mut held: LeasedDevice) -> LeasedDevice {
    held.device = short(&held.device).into();
    held
}

/// Other users choose the text, and it ends up on a terminal: its beginning, printable.
fn short(text: &str) -> String {
    printable(text).chars().take(LONGEST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use packhorse_model::{Bytes, Milli};

    use super::*;

    const NAME: LeaseName = LeaseName { uid: 1000, pid: 42, start: 7 };

    fn system() -> SystemId {
        SystemId { boot: "this one".to_owned(), namespace: 5 }
    }

    fn owner() -> LeaseOwner {
        LeaseOwner {
            user: "ann".to_owned(),
            run: Some(RunId(12)),
            command: "packhorse run".to_owned(),
            home: "a-b".to_owned(),
        }
    }

    fn content(held: &[LeasedDevice]) -> LeaseContent {
        LeaseContent { held: held.to_vec(), claim: None }
    }

    fn held(device: &str, memory: u64) -> LeasedDevice {
        LeasedDevice {
            device: device.into(),
            memory: Bytes(memory),
            share: Milli(500),
            attempts: 2,
            whole: false,
        }
    }

    fn lease(held: Vec<LeasedDevice>) -> Lease {
        Lease { pid: NAME.pid, uid: NAME.uid, owner: owner(), held, claim: None, left: None }
    }

    #[test]
    fn a_lease_reads_as_it_was_written() {
        let all = vec![held("GPU-1", u64::MAX), LeasedDevice { whole: true, ..held("0", 0) }];
        let claim = Claim { since: u64::MAX, devices: vec![held("1", 5)] };
        let told = LeaseContent { held: all.clone(), claim: Some(claim.clone()) };
        let leaders = [ProcessKey { pid: 7, start_time: 8 }];
        let bytes = write(&system(), &owner(), &told, &leaders).unwrap();
        let expected = Lease { claim: Some(claim), ..lease(all) };
        let expected = LeaseFile::Lease(expected, leaders.to_vec());
        assert_eq!(parse(&bytes, NAME, &system()), expected);
    }

    #[test]
    fn a_user_who_was_not_told_is_not_looked_up_by_reading() {
        let nobody = LeaseOwner { user: String::new(), ..owner() };
        let bytes = write(&system(), &nobody, &content(&[]), &[]).unwrap();
        let LeaseFile::Lease(lease, _) = parse(&bytes, NAME, &system()) else {
            panic!("not read");
        };
        assert_eq!(lease.owner.user, "");
        assert_eq!(lease.user(|uid| format!("number {uid}")), "number 1000");
    }

    #[test]
    fn amounts_in_a_file_are_whole_numbers() {
        let bytes = write(&system(), &owner(), &content(&[held("GPU-1", 7)]), &[]).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let devices =
            r#""devices":[{"device":"GPU-1","memory":7,"share":500,"attempts":2,"whole":false}]"#;
        assert!(text.contains(devices), "{text}");
        assert!(text.contains(r#""run":12"#), "{text}");
    }

    #[test]
    fn a_lease_of_another_boot_namespace_or_version_does_not_count() {
        let bytes = write(&system(), &owner(), &content(&[held("GPU-1", 1)]), &[]).unwrap();
        let other_boot = SystemId { boot: "the last one".to_owned(), ..system() };
        assert_eq!(parse(&bytes, NAME, &other_boot), LeaseFile::Stale);
        let elsewhere = SystemId { namespace: 6, ..system() };
        assert_eq!(parse(&bytes, NAME, &elsewhere), LeaseFile::Nothing);
        let text = String::from_utf8(bytes).unwrap();
        let newer = text.replace(r#""version":2"#, r#""version":3"#);
        assert_ne!(newer, text);
        assert_eq!(parse(newer.as_bytes(), NAME, &system()), LeaseFile::Nothing);
        for wrong in ["", "{}", "[]", "nonsense", &text[..text.len() - 1]] {
            assert_eq!(parse(wrong.as_bytes(), NAME, &system()), LeaseFile::Nothing);
        }
    }

    #[test]
    fn text_is_short_and_has_no_control_characters() {
        let wild = LeaseOwner {
            user: "\u{1b}[2Jroot\u{9b}".to_owned(),
            command: "x".repeat(10_000),
            ..owner()
        };
        let bytes = write(&system(), &wild, &content(&[]), &[]).unwrap();
        let LeaseFile::Lease(lease, _) = parse(&bytes, NAME, &system()) else {
            panic!("not read");
        };
        assert_eq!(lease.owner.user, "␛[2Jroot\u{fffd}");
        assert_eq!(lease.owner.command.len(), LONGEST_TEXT);
        // Somebody else may write it in another way.
        let text = String::from_utf8(bytes).unwrap();
        let raw = text.replace("␛[2J", r"\u001b[2J");
        assert_ne!(raw, text);
        assert_eq!(parse(raw.as_bytes(), NAME, &system()), LeaseFile::Lease(lease, Vec::new()));
    }

    #[test]
    fn devices_have_no_control_characters_in_their_names() {
        let wild = || held("\u{1b}[2J\nGPU 1", 1);
        let told = LeaseContent {
            held: vec![wild()],
            claim: Some(Claim { since: 1, devices: vec![wild()] }),
        };
        let bytes = write(&system(), &owner(), &told, &[]).unwrap();
        let LeaseFile::Lease(lease, _) = parse(&bytes, NAME, &system()) else {
            panic!("not read");
        };
        let tame = [held("␛[2J␊GPU 1", 1)];
        assert_eq!(lease.held, tame);
        assert_eq!(lease.claim.unwrap().devices, tame);
    }

    #[test]
    fn a_lease_that_is_too_long_to_be_read_is_refused() {
        let many = vec![held("GPU-01234567-89ab-cdef-0123-456789abcdef", 1 << 33); 2000];
        let error = write(&system(), &owner(), &content(&many), &[]).unwrap_err();
        assert!(matches!(error, LeaseError::TooLong { devices: 2000 }));
    }

    #[test]
    fn of_many_attempts_the_first_that_fit_are_named() {
        let leader = |pid| ProcessKey { pid, start_time: u64::MAX };
        let many: Vec<ProcessKey> = (1..=9000).map(leader).collect();
        let bytes = write(&system(), &owner(), &content(&[held("GPU-1", 1)]), &many).unwrap();
        let LeaseFile::Lease(_, leaders) = parse(&bytes, NAME, &system()) else {
            panic!("not read");
        };
        assert_eq!(leaders, many[..MOST_LEADERS]);
    }
}
