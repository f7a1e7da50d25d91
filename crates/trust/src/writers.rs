//! Which users other than its owner can write to a file.

use std::ffi::CStr;
use std::fs::Metadata;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;

use crate::account::{Group, group, has_other_users, local_users, user_group, user_name};

const ACCESS_LIST: &CStr = c"system.posix_acl_access";

/// Who can write to a file besides its owner and root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    Nobody,
    /// A group that is not the owner's private one.
    Group(u32),
    Everybody,
    /// Users or groups that an access list (`setfacl`) may name.
    AccessList,
}

impl Writers {
    /// Looks at an open file or folder.
    pub fn of(file: BorrowedFd<'_>, metadata: &Metadata) -> Self {
        let by_mode = Self::by_mode(metadata);
        // Where there is an access list, the bits of the group say what its entries can have at
        // most. So without them there is no need to look, and with them the group is not all.
        let has_group_bit = metadata.mode() & 0o020 != 0;
        if by_mode == Self::Nobody && has_group_bit && has_access_list(file) {
            return Self::AccessList;
        }
        by_mode
    }

    fn by_mode(metadata: &Metadata) -> Self {
        let (mode, uid, gid) = (metadata.mode(), metadata.uid(), metadata.gid());
        if mode & 0o002 != 0 {
            return Self::Everybody;
        }
        if mode & 0o020 == 0 {
            return Self::Nobody;
        }
        let is_private =
            is_private(gid, uid, &group(gid), user_name(uid).as_deref(), user_group(uid))
                && !local_users().is_some_and(|users| has_other_users(users, gid, uid));
        if is_private { Self::Nobody } else { Self::Group(gid) }
    }
}

/// Whether a group is a user's private one: called like the user, or without a name and with the
/// user's number; and no other user is listed as a member. Users whose own group it is may be
/// known to LDAP alone, so the number does not make a group with another name private.
fn is_private(gid: u32, uid: u32, group: &Group, user: Option<&str>, own: Option<u32>) -> bool {
    match group {
        Group::Known { name, members } => {
            user == Some(name) && members.iter().all(|member| user == Some(member))
        }
        // In containers, users and groups often are but numbers.
        Group::Unknown => gid == uid && own.is_none_or(|own| own == gid),
        Group::Unclear => false,
    }
}

/// Whether a file has an access list, as far as can be told.
fn has_access_list(file: BorrowedFd<'_>) -> bool {
    // SAFETY: the name ends in a zero, and with a length of 0 nothing is written.
    let length =
        unsafe { libc::fgetxattr(file.as_raw_fd(), ACCESS_LIST.as_ptr(), std::ptr::null_mut(), 0) };
    // A file system may know none.
    length >= 0
        || !matches!(io::Error::last_os_error().raw_os_error(), Some(libc::ENODATA | libc::ENOTSUP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_group_is_the_users_alone() {
        let known = |name: &str, members: &[&str]| Group::Known {
            name: name.to_owned(),
            members: members.iter().map(ToString::to_string).collect(),
        };
        for (gid, group, private) in [
            (1000, known("ada", &[]), true),
            (1000, known("ada", &["ada"]), true),
            (2000, known("ada", &[]), true),
            (1000, known("staff", &[]), false),
            (1000, known("staff", &["ada"]), false),
            (1000, known("ada", &["ada", "bob"]), false),
            (2000, known("ada", &["bob"]), false),
            (2000, known("lab", &[]), false),
            (2000, known("lab", &["ada"]), false),
            (1000, Group::Unknown, true),
            (2000, Group::Unknown, false),
            (1000, Group::Unclear, false),
        ] {
            let found = is_private(gid, 1000, &group, Some("ada"), Some(1000));
            assert_eq!(found, private, "{gid} {group:?}");
        }
        // A user without a name has no group with one.
        assert!(!is_private(2000, 1000, &known("ada", &[]), None, None));
        assert!(!is_private(1000, 1000, &known("ada", &[]), None, None));
        assert!(is_private(1000, 1000, &Group::Unknown, None, None));
        assert!(!is_private(1000, 1000, &Group::Unknown, Some("ada"), Some(100)));
    }

    #[test]
    fn users_of_a_group_are_found_in_the_list_of_users() {
        let users = "root:x:0:0:root:/root:/bin/bash\nada:x:1000:1000::/home/ada:/bin/sh\n\
                     +::::::\nbob:x:1001:1000::/home/bob:/bin/sh\neve:x:1002:1002::/:/bin/sh\n";
        for (gid, uid, found) in [
            (1000, 1000, true),
            (1000, 1001, true),
            (1000, 1002, true),
            (1002, 1002, false),
            (1002, 1000, true),
            (0, 0, false),
            (1001, 1001, false),
        ] {
            assert_eq!(has_other_users(users.as_bytes(), gid, uid), found, "{gid} {uid}");
        }
    }
}
