use crate::BrokenDriver;

/// Why a selection of GPUs cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// There is no id between two separators, or none at all.
    #[error(
        "`{text}` has an empty GPU id\n\
         hint: separate GPUs with commas or spaces, and join the GPUs of a group with +, as in 0+1,2+3"
    )]
    EmptyId {
        /// The value as written.
        text: String,
    },
    /// Something that cannot be an id.
    #[error(
        "`{id}` is not a GPU id\nhint: name GPUs by index (0, 0-3), by UUID (GPU-…, MIG-…), or all; a file goes before --gpus"
    )]
    NotAnId {
        /// The id as written.
        id: String,
    },
    /// `all` or `none` together with something else.
    #[error("`{word}` already says which GPUs; it cannot be combined with others")]
    NotAlone {
        /// `all` or `none`.
        word: &'static str,
    },
    /// The driver does not know the id.
    #[error("there is no GPU `{id}`\nhint: known GPUs: {}", list(.known))]
    Unknown {
        /// The id as written.
        id: String,
        /// The ids that the driver knows.
        known: Vec<String>,
    },
    /// The beginning of more than one UUID.
    #[error("`{id}` matches {}\nhint: write more of the UUID", list(.matches))]
    Ambiguous {
        /// The id as written.
        id: String,
        /// The UUIDs that begin with it.
        matches: Vec<String>,
    },
    /// The device exists but does not work.
    #[error("GPU `{id}` does not work: {reason}")]
    Lost {
        /// The id as written.
        id: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The same device was named twice.
    #[error("`{second}` is the same GPU as `{first}`\nhint: name each GPU once")]
    Twice {
        /// How it was named first.
        first: String,
        /// How it was named again.
        second: String,
    },
    /// `all`, but there is no driver to say what that is.
    #[error("no GPUs found: {}\nhint: {WHAT_TO_DO}", no_driver(.broken.as_ref()))]
    NoGpus {
        /// The driver, if there is a broken one.
        broken: Option<BrokenDriver>,
    },
    /// The list in an environment variable names something that cannot be used.
    #[error("{variable} is set to `{list}`: {error}")]
    WrongList {
        variable: String,
        /// Its value.
        list: String,
        /// What is wrong with it.
        error: Box<SelectError>,
    },
    /// The list in an environment variable is empty.
    #[error(
        "no GPUs to use: {variable} is set to `{list}`, which allows none\n\
         hint: unset it, or run N tasks at a time without GPUs with --slots N"
    )]
    EmptyList {
        variable: String,
        /// Its value.
        list: String,
    },
    /// The device is not among those that an environment variable allows.
    #[error(
        "GPU `{id}` is not among those that may be used here: --gpus names {named}, and {variable} allows {}\nhint: {}",
        list(.allowed), advice(.variable, .allowed)
    )]
    NotVisible {
        /// The id as written.
        id: String,
        /// All that was written.
        named: String,
        variable: String,
        /// The ids in the variable, as far as they mean anything.
        allowed: Vec<String>,
    },
    /// No program can compute on the device.
    #[error(
        "GPU `{id}` is in compute mode PROHIBITED, so no program can compute on it\n\
         hint: `nvidia-smi -i {id} -c DEFAULT`, as root, changes that"
    )]
    Prohibited {
        /// The id as written.
        id: String,
    },
    /// A program could not use the members of a group together.
    #[error(
        "{ids} cannot be one group: a program sees a single MIG instance, and nothing beside it\n\
         hint: name them apart, as in --gpus {}", .ids.replace('+', ",")
    )]
    MigInGroup {
        /// The group as written.
        ids: String,
    },
    /// There is a driver, and no device.
    #[error("no GPUs to use: the driver has none\nhint: {WHAT_TO_DO}")]
    NoDevices,
    /// There are devices, but none that can be used.
    #[error("no GPUs to use: {reason}\nhint: {WHAT_TO_DO}")]
    Nothing {
        /// Why not.
        reason: String,
    },
}

impl SelectError {
    /// Whether there is simply no GPU to use, and nothing is broken or named wrong.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::NoGpus { broken: None } | Self::NoDevices | Self::EmptyList { .. })
    }
}

const WHAT_TO_DO: &str =
    "name them with --gpus 0,1, or run N tasks at a time without GPUs with --slots N";

fn no_driver(broken: Option<&BrokenDriver>) -> String {
    match broken {
        None => "this machine has neither an NVIDIA nor an AMD driver".to_owned(),
        Some(broken) => broken.to_string(),
    }
}

fn advice(variable: &str, allowed: &[String]) -> String {
    match allowed {
        [] => format!("unset {variable}"),
        allowed => format!(
            "--gpus takes the driver's ids, not places in that list: write --gpus {}, or leave --gpus out",
            allowed.join(",")
        ),
    }
}

fn list(items: &[String]) -> String {
    match items {
        [] => "none".to_owned(),
        [one] => one.clone(),
        [front @ .., last] => format!("{} and {last}", front.join(", ")),
    }
}
