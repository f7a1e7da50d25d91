use std::fmt;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::UnixMicros;

/// A name for a run that no other run anywhere has: a UUID of version 7.
///
/// Run numbers are per state folder; where several folders meet (a cluster, a
/// copied database) this one tells runs apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunUuid(pub [u8; 16]);

impl RunUuid {
    /// A new one: the time in milliseconds, then 74 random bits.
    pub fn new(now: UnixMicros) -> Self {
        let mut bytes = [0; 16];
        // Before the kernel's pool is ready, early in a machine's boot, this
        // gives nothing; the time and the process's number must do then.
        if !matches!(getrandom(&mut bytes[6..], GetRandomFlags::NONBLOCK), Ok(10)) {
            let pid = rustix::process::getpid().as_raw_nonzero().get();
            bytes[8..12].copy_from_slice(&pid.to_be_bytes());
            bytes[12..].copy_from_slice(&now.0.to_be_bytes()[4..]);
        }
        bytes[..6].copy_from_slice(&(now.0 / 1000).to_be_bytes()[2..]);
        bytes[6] = bytes[6] & 0x0f | 0x70;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Self(bytes)
    }
}

impl fmt::Display for RunUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            if matches!(place, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_says_its_version_and_its_time() {
        let text = RunUuid::new(UnixMicros(0x0123_4567_89ab * 1000)).to_string();
        assert_eq!(&text[..15], "01234567-89ab-7", "{text}");
        assert!(matches!(&text[19..20], "8" | "9" | "a" | "b"), "{text}");
    }

    #[test]
    fn two_uuids_of_one_moment_differ() {
        let now = UnixMicros::now();
        assert_ne!(RunUuid::new(now), RunUuid::new(now));
    }
}
