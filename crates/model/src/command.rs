use std::time::Duration;

use crate::{Priority, Request, TaskId};

/// What to execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A line as a shell would read it. Bytes, because file names need not be
    /// UTF-8.
    Line(Vec<u8>),
    /// A program and its arguments, each exactly as given.
    Words(Vec<Vec<u8>>),
}

/// One thing to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Which one it is.
    pub id: TaskId,
    /// A name that other tasks may come after.
    pub name: Option<String>,
    /// What to execute.
    pub command: Command,
    /// What it needs.
    pub request: Request,
    /// Its place in the order.
    pub priority: Priority,
    /// How many more attempts a failure gets.
    pub retries: u32,
    /// How long an attempt may take.
    pub time_limit: Option<Duration>,
    /// The tasks that must have succeeded before it may start.
    pub after: Vec<TaskId>,
}
