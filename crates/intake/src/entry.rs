use packhorse_model::TaskSpec;

/// A task, and where in the input it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The line it begins on, counted from 1.
    pub line: u64,
    pub spec: TaskSpec,
}
