use clap::ValueEnum;
use packhorse_model::FolderInDoubt;

/// Which tests run that are skipped or left alone otherwise: the value of `grid --force` and of
/// `exp -o`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rerun {
    /// All of them
    All,
    /// Those that are left alone, since they may run elsewhere
    LeftAlone,
}

impl Rerun {
    /// What becomes of tests that may run elsewhere.
    pub const fn in_doubt(rerun: Option<Self>) -> FolderInDoubt {
        match rerun {
            Some(_) => FolderInDoubt::Take,
            None => FolderInDoubt::LeaveAlone,
        }
    }
}
