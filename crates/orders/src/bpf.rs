//! Device programs of cgroup version 2, by the plain system call.
//!
//! Slurm attaches a program that denies the GPUs it did not give. Programs of several
//! owners all have to agree, so to allow what Slurm denied, its program has to be
//! replaced. Ours answers for the GPUs of the configuration, and goes on with Slurm's
//! instructions for every other device. If those cannot be carried over, nothing is replaced.
//!
//! Which programs decide in a folder: its own, or those of the nearest folder above that has
//! any; and besides all above whose owner has said that they hold for all below
//! (`BPF_F_ALLOW_MULTI`, as systemd does).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::path::Path;

use crate::DeviceRule;

const PROG_LOAD: i32 = 5;
const PROG_ATTACH: i32 = 8;
const PROG_GET_FD_BY_ID: i32 = 13;
const OBJ_GET_INFO_BY_FD: i32 = 15;
const PROG_QUERY: i32 = 16;

/// `BPF_PROG_TYPE_CGROUP_DEVICE` and `BPF_CGROUP_DEVICE`.
const TYPE: u32 = 15;
const POINT: u32 = 6;

const ALLOW_OVERRIDE: u32 = 1;
const ALLOW_MULTI: u32 = 2;
const REPLACE: u32 = 4;
const QUERY_EFFECTIVE: u32 = 1;

/// The kernel's own limit for a program of this kind, long ago.
const MOST_INSTRUCTIONS: usize = 4096;

/// One instruction: operation, registers, offset and value, as the kernel lays them out.
type Instruction = u64;

/// Only where this is compiled for machines whose layout this is.
#[cfg(target_endian = "little")]
const fn instruction(operation: u8, to: u8, from: u8, offset: u16, value: u32) -> Instruction {
    operation as u64
        | (to as u64) << 8
        | (from as u64) << 12
        | (offset as u64) << 16
        | (value as u64) << 32
}

/// `*(u32 *)(from + offset)`, `to = value`, `to &= value`, `if to != value skip offset`, and
/// the end.
const LOAD: u8 = 0x61;
const MOVE: u8 = 0xb7;
const AND: u8 = 0x57;
const JUMP_UNLESS: u8 = 0x55;
const EXIT: u8 = 0x95;

/// `BPF_DEVCG_DEV_CHAR`
const CHARACTER: u32 = 2;

/// The program: `rules` for their devices, then what `others` say. It leaves the first
/// register as it is, which is all that those begin with.
fn program(rules: &[DeviceRule], others: &[Instruction]) -> Vec<Instruction> {
    let jump = |steps: usize| u16::try_from(steps).unwrap_or(u16::MAX);
    let mut program = vec![
        instruction(LOAD, 2, 1, 0, 0),
        instruction(AND, 2, 0, 0, 0xffff),
        instruction(LOAD, 3, 1, 4, 0),
        instruction(LOAD, 4, 1, 8, 0),
        instruction(JUMP_UNLESS, 2, 0, jump(rules.len() * 4), CHARACTER),
    ];
    for rule in rules {
        program.extend([
            instruction(JUMP_UNLESS, 3, 0, 3, rule.major),
            instruction(JUMP_UNLESS, 4, 0, 2, rule.minor),
            instruction(MOVE, 0, 0, 0, rule.allowed.into()),
            instruction(EXIT, 0, 0, 0, 0),
        ]);
    }
    program.extend_from_slice(others);
    program
}

/// Everything else is allowed.
const ALLOW_OTHERS: [Instruction; 2] =
    [instruction(MOVE, 0, 0, 0, 1), instruction(EXIT, 0, 0, 0, 0)];

/// Holds what is in this cgroup folder to `rules`.
pub(crate) fn attach(path: &Path, rules: &[DeviceRule]) -> io::Result<()> {
    let folder = open(path)?;
    let folder = folder.as_raw_fd();
    let (flags, own) = query(folder, 0)?;
    let mut others = match own[..] {
        [] => inherited(path, folder)?,
        [one] => instructions(one)?,
        _ => {
            return Err(io::Error::other("several device programs are attached there"));
        }
    };
    let ours = program(rules, &[]);
    if others.starts_with(&ours) {
        if !own.is_empty() {
            return Ok(());
        }
        others.drain(..ours.len());
    }
    let program = load(&program(rules, &others))?;
    // The kernel replaces a program only by one with the same flags, and one of several only
    // if it is named.
    match own[..] {
        [one] if flags & ALLOW_MULTI != 0 => put(folder, &program, flags, Some(&by_id(one)?)),
        [] => put(folder, &program, ALLOW_OVERRIDE, None),
        _ => put(folder, &program, flags, None),
    }
}

/// Attaches a program, in the place of another if one is named.
fn put(folder: RawFd, program: &OwnedFd, flags: u32, other: Option<&OwnedFd>) -> io::Result<()> {
    let mut attributes = Attributes::default();
    attributes.put32(0, raw(folder));
    attributes.put32(4, raw(program.as_raw_fd()));
    attributes.put32(8, POINT);
    attributes.put32(12, flags);
    if let Some(other) = other {
        attributes.put32(12, flags | REPLACE);
        attributes.put32(16, raw(other.as_raw_fd()));
    }
    attributes.call(PROG_ATTACH).map(drop)
}

/// What decides in a folder without a program of its own, and would no longer if it had one.
fn inherited(path: &Path, folder: RawFd) -> io::Result<Vec<Instruction>> {
    for above in path.ancestors().skip(1) {
        // The first that is no cgroup is above them all.
        let Ok((flags, own)) = open(above).and_then(|above| query(above.as_raw_fd(), 0)) else {
            break;
        };
        match own[..] {
            [] => {}
            // They go on deciding, whatever is attached below.
            _ if flags & ALLOW_MULTI != 0 => return Ok(ALLOW_OTHERS.to_vec()),
            [one] => return instructions(one),
            _ => break,
        }
    }
    let (_, in_effect) = query(folder, QUERY_EFFECTIVE)?;
    if !in_effect.is_empty() {
        let why = "a device program decides there that cannot be found";
        return Err(io::Error::other(why));
    }
    Ok(ALLOW_OTHERS.to_vec())
}

fn open(folder: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).open(folder)
}

/// The programs of a folder, and the flags of its own.
fn query(folder: RawFd, which: u32) -> io::Result<(u32, Vec<u32>)> {
    let mut ids = [0_u32; 64];
    let mut attributes = Attributes::default();
    attributes.put32(0, raw(folder));
    attributes.put32(4, POINT);
    attributes.put32(8, which);
    attributes.put64(16, ids.as_mut_ptr() as u64);
    attributes.put32(24, 64);
    attributes.call(PROG_QUERY)?;
    let count = usize::try_from(attributes.get32(24)).unwrap_or(0).min(64);
    Ok((attributes.get32(12), ids[..count].to_vec()))
}

fn by_id(id: u32) -> io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    attributes.put32(0, id);
    let program = attributes.call(PROG_GET_FD_BY_ID)?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(program) })
}

fn instructions(id: u32) -> io::Result<Vec<Instruction>> {
    let program = by_id(id)?;
    let mut found = vec![0_u64; MOST_INSTRUCTIONS];
    // `struct bpf_prog_info`: the length is at 20, the pointer at 32.
    let mut info = Attributes::default();
    info.put32(20, u32::try_from(found.len() * 8).unwrap_or(u32::MAX));
    info.put64(32, found.as_mut_ptr() as u64);
    let mut attributes = Attributes::default();
    attributes.put32(0, raw(program.as_raw_fd()));
    attributes.put32(4, 40);
    attributes.put64(8, info.0.as_mut_ptr() as u64);
    attributes.call(OBJ_GET_INFO_BY_FD)?;
    let count = usize::try_from(info.get32(20)).unwrap_or(usize::MAX) / 8;
    if info.get64(32) == 0 || count == 0 || count > MOST_INSTRUCTIONS {
        return Err(io::Error::other("its instructions cannot be read"));
    }
    found.truncate(count);
    Ok(found)
}

fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    let license = c"Apache-2.0";
    let mut attributes = Attributes::default();
    attributes.put32(0, TYPE);
    attributes.put32(4, u32::try_from(program.len()).unwrap_or(u32::MAX));
    attributes.put64(8, program.as_ptr() as u64);
    attributes.put64(16, license.as_ptr() as u64);
    let program = attributes.call(PROG_LOAD)?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(program) })
}

fn raw(descriptor: RawFd) -> u32 {
    descriptor.cast_unsigned()
}

/// `union bpf_attr`, or a structure like it: numbers at fixed places.
#[derive(Default)]
struct Attributes([u64; 16]);

impl Attributes {
    fn put32(&mut self, at: usize, value: u32) {
        let shift = (at % 8) * 8;
        self.0[at / 8] &= !(u64::from(u32::MAX) << shift);
        self.0[at / 8] |= u64::from(value) << shift;
    }

    fn put64(&mut self, at: usize, value: u64) {
        self.0[at / 8] = value;
    }

    fn get32(&self, at: usize) -> u32 {
        let value = self.0[at / 8] >> ((at % 8) * 8);
        u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0)
    }

    fn get64(&self, at: usize) -> u64 {
        self.0[at / 8]
    }

    fn call(&mut self, command: i32) -> io::Result<RawFd> {
        // SAFETY: the attributes are large enough for each of the commands used here, what
        // they point to lives until the call returns, and is as large as they say.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), size_of_val(&self.0))
        };
        match RawFd::try_from(result) {
            Ok(result @ 0..) => Ok(result),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use packhorse_test_parts::needs;

    use super::*;

    /// A cgroup of version 2 of our own, and one below it.
    struct Cgroup(PathBuf);

    impl Cgroup {
        fn new(name: &str) -> Self {
            let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
            let is_one = |root: &&&str| Path::new(root).join("cgroup.controllers").exists();
            let root = roots.iter().find(is_one).unwrap();
            let name = format!("packhorse-test-{name}-{}", std::process::id());
            let folder = Path::new(root).join(name);
            fs_err::create_dir(&folder).unwrap();
            fs_err::create_dir(folder.join("below")).unwrap();
            Self(folder)
        }

        fn below(&self) -> PathBuf {
            self.0.join("below")
        }
    }

    impl Drop for Cgroup {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir(self.below());
            let _ = std::fs::remove_dir(&self.0);
        }
    }

    fn rules(rules: &[(u32, bool)]) -> Vec<DeviceRule> {
        let rule = |&(minor, allowed): &(u32, bool)| DeviceRule { major: 1, minor, allowed };
        rules.iter().map(rule).collect()
    }

    /// Another owner's program, which denies these.
    fn deny(folder: &Path, minors: &[u32], flags: u32) {
        let denied: Vec<_> = minors.iter().map(|&minor| (minor, false)).collect();
        let program = load(&program(&rules(&denied), &ALLOW_OTHERS)).unwrap();
        put(open(folder).unwrap().as_raw_fd(), &program, flags, None).unwrap();
    }

    /// Which of /dev/null, /dev/zero and /dev/full a process in it can open.
    fn opens(folder: &Path) -> String {
        let script = "echo $$ >\"$1/cgroup.procs\"; \
                      for name in null zero full; do (exec 3</dev/$name) && echo $name; done";
        let mut shell = Command::new("/bin/sh");
        let output = shell.args(["-c", script, "sh"]).arg(folder).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.split_whitespace().collect::<Vec<&str>>().join(" ")
    }

    fn own(folder: &Path) -> Vec<u32> {
        query(open(folder).unwrap().as_raw_fd(), 0).unwrap().1
    }

    const NULL: u32 = 3;
    const ZERO: u32 = 5;
    const FULL: u32 = 7;

    /// Allows one that Slurm denies, denies another, and says nothing of the third.
    fn ours() -> Vec<DeviceRule> {
        rules(&[(ZERO, true), (NULL, false)])
    }

    #[test]
    fn what_another_program_says_of_other_devices_still_holds() {
        needs!(Cgroups2);
        // Slurm's own, with and without leave for others; and one that is inherited.
        for (name, flags) in [("none", 0), ("override", ALLOW_OVERRIDE), ("multi", ALLOW_MULTI)] {
            let cgroup = Cgroup::new(name);
            assert_eq!(opens(&cgroup.0), "null zero full");
            deny(&cgroup.0, &[ZERO, FULL], flags);
            assert_eq!(opens(&cgroup.0), "null");
            attach(&cgroup.0, &ours()).unwrap();
            assert_eq!(opens(&cgroup.0), "zero", "{name}");
            // Once more changes nothing.
            let before = own(&cgroup.0);
            attach(&cgroup.0, &ours()).unwrap();
            assert_eq!(own(&cgroup.0), before, "{name}");
        }
        let cgroup = Cgroup::new("inherited");
        deny(&cgroup.0, &[ZERO, FULL], ALLOW_OVERRIDE);
        attach(&cgroup.below(), &ours()).unwrap();
        assert_eq!(opens(&cgroup.below()), "zero");
        assert_eq!(opens(&cgroup.0), "null");
    }

    #[test]
    fn a_program_above_that_holds_for_all_below_goes_on_beside_slurms() {
        needs!(Cgroups2);
        // Either of them may be the one that denies the third.
        for (name, above, own) in
            [("systemd", &[FULL][..], &[ZERO][..]), ("slurm", &[], &[ZERO, FULL])]
        {
            let cgroup = Cgroup::new(name);
            deny(&cgroup.0, above, ALLOW_MULTI);
            deny(&cgroup.below(), own, ALLOW_OVERRIDE);
            assert_eq!(opens(&cgroup.below()), "null");
            attach(&cgroup.below(), &ours()).unwrap();
            assert_eq!(opens(&cgroup.below()), "zero", "{name}");
        }
    }

    #[test]
    fn what_cannot_be_carried_over_is_not_replaced() {
        needs!(Cgroups2);
        let cgroup = Cgroup::new("several");
        deny(&cgroup.0, &[ZERO], ALLOW_MULTI);
        deny(&cgroup.0, &[FULL], ALLOW_MULTI);
        attach(&cgroup.0, &ours()).unwrap_err();
        assert_eq!(opens(&cgroup.0), "null");
    }
}
