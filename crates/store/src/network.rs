//! Which file systems SQLite's shared memory cannot be trusted on.

use std::os::fd::AsFd;

use rustix::fs::{fstat, fstatfs, major, minor};

/// The name of the network file system that `folder` is on, if it is on one.
pub(crate) fn network_filesystem(folder: impl AsFd) -> Option<&'static str> {
    // A 32-bit magic number, sign-extended by some kernels' struct.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the kernel's magic numbers have 32 bits"
    )]
    let magic = fstatfs(&folder).ok()?.f_type as u32;
    let name = name(magic)?;
    if name != FUSE {
        return Some(name);
    }
    let device = fstat(&folder).ok()?.st_dev;
    let mounts = fs_err::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    fuse_over_network(&mounts, major(device), minor(device)).then_some(name)
}

/// Anything at all: the mount table knows more.
const FUSE: &str = "FUSE";

/// The file system with this magic number of `statfs(2)`, if it is or may be on a
/// network.
const fn name(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517b => "SMB",
        0xff53_4d42 | 0xfe53_4d42 => "CIFS",
        0x0bd0_0bd0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0x00c3_6400 => "Ceph",
        0x5346_414f => "AFS",
        0x0102_1997 => "9P",
        0xaad7_aaea => "PanFS",
        0x2003_0528 => "OrangeFS",
        0x7375_7245 => "Coda",
        0x6573_5546 => FUSE,
        _ => return None,
    })
}

/// Whether the FUSE mount of this device may be another machine's. Only those
/// that certainly are not (a block device, a container's layers, the host of
/// a virtual machine) are taken for local.
fn fuse_over_network(mountinfo: &str, major: u32, minor: u32) -> bool {
    let device = format!("{major}:{minor}");
    let kind = mountinfo.lines().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        (mount.split(' ').nth(2)? == device).then(|| source.split(' ').next())?
    });
    !matches!(kind, Some("fuseblk" | "fuse.fuse-overlayfs" | "fuse.bindfs" | "virtiofs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_clusters_are_known_and_those_of_disks_are_not_taken_for_one() {
        assert_eq!(name(0x6969), Some("NFS"));
        assert_eq!(name(0x0bd0_0bd0), Some("Lustre"));
        assert_eq!(name(0x6573_5546), Some(FUSE));
        // ext4, xfs, btrfs, tmpfs, overlayfs
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            assert_eq!(name(local), None, "{local:x}");
        }
    }

    #[test]
    fn sshfs_is_a_network_and_a_containers_overlay_is_not() {
        let mounts = "\
            22 1 0:51 / /far rw,nosuid - fuse.sshfs me@there:/ rw\n\
            23 1 0:52 / /near rw shared:7 - fuse.fuse-overlayfs fuse-overlayfs rw\n";
        assert!(fuse_over_network(mounts, 0, 51));
        assert!(!fuse_over_network(mounts, 0, 52));
        assert!(fuse_over_network(mounts, 0, 53), "unknown: be careful");
    }
}
