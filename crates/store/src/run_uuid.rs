use packhorse_model::Timestamp;
use rustix::rand::{GetRandomFlags, getrandom};
use uuid::{Builder, Uuid};

/// A new UUID of version 7 for a run that starts now.
///
/// Run numbers are per state folder; where several folders meet (a cluster, a
/// copied database) the UUID tells runs apart.
pub fn new_run_uuid(now: Timestamp) -> Uuid {
    let mut random = [0; 10];
    // Early in a machine's boot the kernel has no random numbers yet, and waiting
    // for them would hold up the run: the time and the process id must do then.
    if !matches!(getrandom(&mut random, GetRandomFlags::NONBLOCK), Ok(10)) {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        random[2..6].copy_from_slice(&pid.to_be_bytes());
        random[6..].copy_from_slice(&now.0.to_be_bytes()[4..]);
    }
    let millis = u64::try_from(now.0 / 1000).unwrap_or(0);
    Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_says_its_version_and_its_time() {
        let text = new_run_uuid(Timestamp(0x0123_4567_89ab * 1000)).to_string();
        assert_eq!(&text[..15], "01234567-89ab-7", "{text}");
    }

    #[test]
    fn two_uuids_of_one_moment_differ() {
        let now = Timestamp::now();
        assert_ne!(new_run_uuid(now), new_run_uuid(now));
    }
}
