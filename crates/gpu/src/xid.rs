use std::fmt;

/// An error that NVIDIA's driver reports, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Xid(pub u64);

/// The errors after which a device should get no more work until somebody has
/// fixed it. All others are left out on purpose:
///
/// - 13, 31, 32, 43, 45, 68, 69, 109 and similar ones are a program's own fault,
///   or the cleanup after it;
/// - 63 says that a bad row of memory will be replaced at the next reset, and 94
///   that an error affected only the program that hit it: in both cases NVIDIA
///   considers the device usable;
/// - 92 and 121 are errors that were corrected;
/// - 154 says that the recommended action has changed, possibly for the better; a
///   device that must be reset shows it in its readings.
const HARDWARE: [(u64, &str); 15] = [
    (46, "it has stopped processing"),
    (48, "its memory has an error that cannot be corrected"),
    (54, "its power cable is not connected"),
    (62, "its internal controller has halted"),
    (64, "a bad row of its memory could not be replaced"),
    (74, "a link to another GPU has failed"),
    (79, "it has fallen off the bus"),
    (95, "an error in its memory could not be contained"),
    (110, "it has shut itself off after a security fault"),
    (119, "its system processor does not answer"),
    (120, "its system processor has failed"),
    (136, "its links to other GPUs could not be set up"),
    (140, "its memory has an error that cannot be corrected"),
    (143, "it could not be initialised"),
    (158, "it does not answer in time"),
];

/// Errors that a program causes by what it computes: an exception of the graphics engine or
/// the video decoder, a page fault, a channel that was reset. 45 is the cleanup after any
/// death, and tells nothing.
const PROGRAM: [u64; 6] = [13, 31, 32, 43, 68, 69];

impl Xid {
    /// The driver says that there was an error, but not which.
    pub const UNKNOWN: Self = Self(999);

    /// What is wrong with the device. `None`: nothing that we know of; the error is
    /// a program's.
    pub fn hardware(self) -> Option<&'static str> {
        let known = HARDWARE.iter().find(|(code, _)| *code == self.0);
        known.map(|(_, reason)| *reason)
    }

    /// Whether a program has caused the error.
    pub fn is_program_fault(self) -> bool {
        PROGRAM.contains(&self.0)
    }
}

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Xid {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_own_errors_do_not_blame_the_hardware() {
        for code in [13, 31, 43, 45, 63, 68, 94, 109, 999] {
            assert_eq!(Xid(code).hardware(), None, "{code}");
        }
        for (code, is_fault) in [(13, true), (31, true), (45, false), (48, false), (999, false)] {
            assert_eq!(Xid(code).is_program_fault(), is_fault, "{code}");
        }
        for code in [48, 62, 64, 74, 79, 95, 119, 120] {
            assert!(Xid(code).hardware().is_some(), "{code}");
        }
    }

    #[test]
    fn the_table_is_sorted_and_has_no_duplicates() {
        assert!(HARDWARE.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
