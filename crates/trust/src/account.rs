//! What the C library knows of users and groups. Shared GPU machines often keep theirs in LDAP,
//! where only its lookup finds them.

use std::ffi::{CStr, c_char};
use std::io::{BufRead, BufReader};
use std::mem::MaybeUninit;
use std::path::Path;

/// Room for the entry of a user, or of a group that is private: one with more text than this has
/// members.
const ROOM: usize = 1 << 14;

/// The name of a user, without control characters.
pub fn user_name(uid: u32) -> Option<String> {
    entry(uid).map(|(name, _)| name)
}

/// The number of a user's own group.
pub fn user_group(uid: u32) -> Option<u32> {
    entry(uid).map(|(_, group)| group)
}

/// A user's name and group.
fn entry(uid: u32) -> Option<(String, u32)> {
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut texts: Vec<c_char> = vec![0; ROOM];
    let mut found = std::ptr::null_mut();
    // SAFETY: every pointer is to a live local of the right type, and the
    // length is that of `texts`.
    let status = unsafe {
        libc::getpwuid_r(uid, entry.as_mut_ptr(), texts.as_mut_ptr(), texts.len(), &raw mut found)
    };
    if status != 0 || found.is_null() {
        return None;
    }
    // SAFETY: success with a result means that it points to `entry`, which is
    // then filled in.
    let (name, group) = unsafe { ((*found).pw_name, (*found).pw_gid) };
    // SAFETY: the name ends in a zero and lies within `texts`, which is still
    // alive.
    unsafe { text(name) }.map(|name| (name, group))
}

/// What the system says of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Known {
        name: String,
        members: Vec<String>,
    },
    Unknown,
    /// The lookup failed, or the entry is longer than that of a private group.
    Unclear,
}

/// Looks a group up.
pub(crate) fn group(gid: u32) -> Group {
    let mut entry = MaybeUninit::<libc::group>::uninit();
    let mut texts: Vec<c_char> = vec![0; ROOM];
    let mut found = std::ptr::null_mut();
    // SAFETY: every pointer is to a live local of the right type, and the
    // length is that of `texts`.
    let status = unsafe {
        libc::getgrgid_r(gid, entry.as_mut_ptr(), texts.as_mut_ptr(), texts.len(), &raw mut found)
    };
    match status {
        0 if found.is_null() => return Group::Unknown,
        0 => {}
        // What POSIX has libraries say where there is no such group.
        libc::ENOENT | libc::ESRCH => return Group::Unknown,
        _ => return Group::Unclear,
    }
    // SAFETY: success with a result means that it points to `entry`, which is
    // then filled in.
    let (name, mut member) = unsafe { ((*found).gr_name, (*found).gr_mem) };
    // SAFETY: the name ends in a zero and lies within `texts`, which is still alive.
    let name = unsafe { text(name) }.unwrap_or_default();
    let mut members = Vec::new();
    // SAFETY: the list ends in a null pointer, and it and its texts lie within `texts`.
    while let Some(text) = unsafe { member.as_ref().and_then(|name| text(*name)) } {
        members.push(text);
        // SAFETY: this was not the null pointer at the list's end.
        member = unsafe { member.add(1) };
    }
    Group::Known { name, members }
}

/// The users that this machine lists. Those of LDAP are not looked through: that may take minutes.
pub(crate) fn local_users() -> Option<impl BufRead> {
    let file = std::fs::OpenOptions::new().read(true).open(Path::new("/etc/passwd"));
    file.ok().map(BufReader::new)
}

/// Whether a list of users, as `/etc/passwd` is one, has a user other than `uid` whose own group
/// this is. The members that a group lists do not include those.
pub(crate) fn has_other_users(users: impl BufRead, gid: u32, uid: u32) -> bool {
    let mut lines = users.split(b'\n').map_while(Result::ok);
    lines.any(|line| {
        let mut fields = line.split(|&byte| byte == b':').skip(2);
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<u32>().ok();
        let (user, group) = (number(), number());
        group == Some(gid) && user.is_some_and(|user| user != uid)
    })
}

/// A text of the C library, without control characters.
///
/// # Safety
///
/// `text` is null, or points to bytes that end in a zero.
unsafe fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().replace(char::is_control, " "))
}
