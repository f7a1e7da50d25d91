use anyhow::bail;

use crate::{complain, complain_as_it_is, wording};

/// So many are shown: a file that has more is not what it was taken for.
const SHOWN: u64 = 10;

/// What is wrong with an input. The first mistakes are told as they are met, and
/// how many more there were at the end.
#[derive(Default)]
pub struct Mistakes(u64);

impl Mistakes {
    /// Tells of one more, fit to be printed, unless there were enough.
    pub fn tell(&mut self, render: impl FnOnce() -> String) {
        if self.0 < SHOWN {
            complain_as_it_is(&render());
        }
        self.0 += 1;
    }

    /// Tells how many were not shown.
    pub fn tell_rest(&self) {
        if self.0 > SHOWN {
            complain(&format!("and {} more", self.0 - SHOWN));
        }
    }

    /// Refuses to go on if there are any; `consequence` is what was not done.
    pub fn refuse(&self, consequence: &str) -> anyhow::Result<()> {
        if self.0 == 0 {
            return Ok(());
        }
        self.tell_rest();
        bail!("{consequence} because of {}", wording::count(self.0, "mistake"));
    }
}
