//! Parts of sentences.

use std::fmt::{self, Display};
use std::time::Duration;

use packhorse_model::{GpuRequest, MemoryRequest, Milli};

/// How many of several are named before the rest is only counted.
const NAMED: usize = 3;

/// What is asked of devices.
pub(crate) fn gpus(gpus: GpuRequest, memory: MemoryRequest) -> String {
    let many = match gpus {
        GpuRequest::None => "no GPU".to_owned(),
        GpuRequest::Whole(1) => "a whole GPU".to_owned(),
        GpuRequest::Whole(number) => format!("{number} whole GPUs of one machine"),
        GpuRequest::Share(_) if memory == MemoryRequest::Whole => "a GPU to itself".to_owned(),
        GpuRequest::Share(Milli(0)) => match memory {
            MemoryRequest::Bytes(memory) => return format!("{memory} of GPU memory"),
            MemoryRequest::AtLeast(memory) => return format!("{memory} of GPU memory or more"),
            _ => "a place on a GPU".to_owned(),
        },
        GpuRequest::Share(share) => format!("{share} of a GPU"),
    };
    match memory {
        MemoryRequest::Bytes(memory) => format!("{many} with {memory} of its memory"),
        MemoryRequest::AtLeast(memory) => format!("{many} with {memory} of its memory or more"),
        MemoryRequest::Uncounted | MemoryRequest::Whole => many,
    }
}

/// `a, b and c`, or `a, b, c and 7 more`.
pub(crate) struct Several<'a>(pub(crate) &'a [String]);

impl Display for Several<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            [one] => f.write_str(one),
            // "and 1 more" is no shorter than naming it.
            [first @ .., last] if first.len() <= NAMED => {
                write!(f, "{} and {last}", first.join(", "))
            }
            all => {
                let (named, more) = all.split_at(NAMED);
                write!(f, "{} and {} more", named.join(", "), more.len())
            }
        }
    }
}

/// `0.5 of gpu0`, or `gpu0 and gpu1`; a share of nothing is a place there.
pub(crate) struct ShareInWords<'a>(pub(crate) Milli, pub(crate) &'a [String]);

impl Display for ShareInWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > Milli(0) && self.0 < Milli::ONE {
            write!(f, "{} of ", self.0)?;
        }
        Several(self.1).fmt(f)
    }
}

/// `1 core`, `2 cores`.
pub(crate) struct Number(pub(crate) u32, pub(crate) &'static str);

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} {}{plural}", self.0, self.1)
    }
}

/// A length of time in its two largest units.
pub(crate) struct Lasting(pub(crate) Duration);

impl Display for Lasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
        match seconds {
            0..60 => write!(f, "{seconds}s"),
            60..3600 => write!(f, "{minutes}m{}s", seconds % 60),
            3600..86400 => write!(f, "{hours}h{}m", minutes % 60),
            _ => write!(f, "{days}d{}h", hours % 24),
        }
    }
}
