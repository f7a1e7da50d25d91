//! The words of Packhorse as types, and its two languages.
//!
//! Every other crate speaks in these. A [`TaskSpec`] is the one form of a task: it
//! comes in through a door, is kept in the store, and can be written as one JSON
//! object. The core gives each attempt a [`Placement`] for its [`Request`], and the
//! task ends in exactly one [`Outcome`]. An [`Event`] is the one form of what
//! happened: what `--json` prints. A [`RunSpec`] is what a run needs to be resumed.
//!
//! There is no logic here beyond reading and writing a value the way people write
//! it, and no input or output at all.

mod attempt_place;
mod byte_string;
mod command;
mod event;
mod exit;
mod id;
mod lease;
mod marker;
mod metric;
mod optional;
mod outcome;
mod peak;
mod placement;
mod printable;
mod process;
mod quantity;
mod record;
mod request;
mod run_spec;
#[cfg(feature = "schema")]
mod schema;
mod slurm_spec;
mod stranger;
mod task_spec;
mod time;
mod written;

pub use attempt_place::AttemptPlace;
pub use byte_string::ByteString;
pub use command::Command;
pub use event::{
    Event, EventKind, Measurement, Phase, RunSummary, Stream, TaskResult, Utilisation,
};
pub use exit::Exit;
pub use id::{CoreId, DeviceId, NodeId, RunId, TaskId};
pub use lease::{Claim, LeaseContent, LeasedDevice};
pub use marker::{GitState, Marker};
pub use metric::{MetricLine, MetricLineError, MetricSummary};
pub use outcome::Outcome;
pub use peak::{LearnedPeak, PeakOrigin};
pub use placement::{Granted, Placement};
pub use printable::{TerminalFilter, printable, printable_output, push_printable};
pub use process::{AttemptEnd, OutputMode, ProcessEvent, StopMode};
pub use quantity::{Bytes, Milli, ParseValueError, parse_duration};
pub use record::{
    AttemptMetrics, EndedAttempt, NewPeak, NewRun, NewTask, Record, StartedAttempt, StoredTask,
};
pub use request::{GpuRequest, MemoryRequest, Models, Priority, Request, TimeLimit, VramRequest};
pub use run_spec::{
    Ageing, ConsumedRows, DEFAULT_REST, ExperimentDebug, ExperimentsSpec, FolderInDoubt,
    GridLanguage, GridSpec, InputFile, Placing, PoolSpec, RunSpec, SavedFile, SourceSpec,
    SweepSpec,
};
pub use slurm_spec::{DEFAULT_REQUEUES, JobTime, SlurmSpec};
pub use stranger::{Stranger, StrangersOn};
pub use task_spec::{Grace, ProbeSpec, TaskSpec};
pub use time::Timestamp;
