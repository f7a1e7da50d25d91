use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

/// The name of a user, without control characters.
pub fn user_name(uid: u32) -> Option<String> {
    entry(uid).map(|(name, _)| name)
}

/// The number of a user's own group.
pub fn user_group(uid: u32) -> Option<u32> {
    entry(uid).map(|(_, group)| group)
}

/// A user's name and group. Shared GPU machines often keep their users in LDAP, where only
/// the C library's lookup finds them.
fn entry(uid: u32) -> Option<(String, u32)> {
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut texts: Vec<c_char> = vec![0; 1 << 14];
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
    if name.is_null() {
        return None;
    }
    // SAFETY: the name ends in a zero and lies within `texts`, which is still
    // alive.
    let name = unsafe { CStr::from_ptr(name) };
    let name = name.to_string_lossy().replace(char::is_control, " ");
    Some((name, group))
}
