//! An explanation as a sentence.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use packhorse_model::{Bytes, DeviceId, GpuRequest, MemoryRequest, Milli, Placement};

use crate::Outside;
use crate::explain::{Explanation, Holder, MissingResources, Reserved, WaitReason, WaitingTask};
use crate::finished::TaskEnding;

/// How many of several are named before the rest is only counted.
const NAMED: usize = 3;

/// An [`Explanation`] with names for its devices; its `Display` is a sentence.
pub struct Prose<'a> {
    explanation: &'a Explanation,
    name: &'a dyn Fn(DeviceId) -> String,
}

impl fmt::Debug for Prose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Prose").field(self.explanation).finish()
    }
}

impl Explanation {
    /// The same in words, with devices called as `name` says.
    pub fn prose<'a>(&'a self, name: &'a dyn Fn(DeviceId) -> String) -> Prose<'a> {
        Prose {
            explanation: self,
            name,
        }
    }
}

impl Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.prose(&|device| format!("device {}", device.0)).fmt(f)
    }
}

impl Display for Prose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.explanation {
            Explanation::Running { running, lasting } => {
                write!(f, "{} has been running ", running.task)?;
                self.write_place(f, &running.placement)?;
                write!(f, " for {}", Lasting(*lasting))?;
                match running.attempt {
                    0 => f.write_str(" to be measured")?,
                    1 => {}
                    attempt => write!(f, " (attempt {attempt})")?,
                }
                if running.stopping {
                    f.write_str(" and is being stopped")?;
                }
                Ok(())
            }
            Explanation::Blocked { task, on } if on.is_empty() => {
                write!(f, "{task} waits until one like it has been measured")
            }
            Explanation::Blocked { task, on } => {
                let on: Vec<String> = on
                    .iter()
                    .map(|on| match on.running {
                        Some(lasting) => format!("{} (running for {})", on.task, Lasting(lasting)),
                        None => format!("{} (not started)", on.task),
                    })
                    .collect();
                write!(f, "{task} waits until {} succeeded", Has(&on))
            }
            Explanation::Held { task } => write!(f, "{task} waits: its run is held"),
            Explanation::Waiting(waiting) => self.write_waiting(f, waiting),
            Explanation::Finished { task, ending } => match ending {
                TaskEnding::Succeeded => write!(f, "{task} has succeeded"),
                TaskEnding::Unsuccessful => write!(f, "{task} is over and did not succeed"),
                TaskEnding::Interrupted => write!(f, "{task} was interrupted"),
            },
        }
    }
}

impl Prose<'_> {
    fn names(&self, devices: &[DeviceId]) -> Vec<String> {
        devices.iter().map(|&device| (self.name)(device)).collect()
    }

    fn write_place(&self, f: &mut fmt::Formatter<'_>, placement: &Placement) -> fmt::Result {
        let devices: Vec<DeviceId> = placement
            .devices
            .iter()
            .map(|granted| granted.device)
            .collect();
        let mut with = Vec::new();
        match placement.devices.first() {
            None => f.write_str("without a GPU")?,
            Some(granted) => {
                write!(f, "on {}", Share(granted.share, &self.names(&devices)))?;
                if granted.memory > Bytes(0) {
                    with.push(granted.memory.to_string());
                }
            }
        }
        if !placement.cores.is_empty() {
            let noun = if placement.cores.len() == 1 {
                "core"
            } else {
                "cores"
            };
            let cores: Vec<String> = placement.cores.iter().map(ToString::to_string).collect();
            with.push(format!("{noun} {}", cores.join(", ")));
        }
        if with.is_empty() {
            return Ok(());
        }
        write!(f, " with {}", with.join(" and "))
    }

    fn write_waiting(&self, f: &mut fmt::Formatter<'_>, waiting: &WaitingTask) -> fmt::Result {
        write!(f, "{} waits", waiting.task)?;
        match &waiting.reason {
            WaitReason::Held => f.write_str(": nothing is handed out at the moment")?,
            WaitReason::Slots { slots, longest } => {
                let all = if *slots == 1 {
                    "the only one is"
                } else {
                    "all are"
                };
                write!(f, " for one of {}: {all} taken", Number(*slots, "slot"))?;
                if let Some(holder) = longest {
                    let lasting = Lasting(holder.lasting);
                    write!(f, ", the longest by {} (for {lasting})", holder.task)?;
                }
            }
            WaitReason::Missing(missing) => self.write_missing(f, missing)?,
            WaitReason::Drained(devices) => {
                let names = self.names(devices);
                let verb = if names.len() == 1 { "takes" } else { "take" };
                write!(f, ": {} {verb} nothing new, being drained", Several(&names))?;
            }
            WaitReason::Impossible(reason) => {
                // The rest is a hint for whoever submits it.
                let reason = reason.to_string();
                let reason = reason.lines().next().unwrap_or_default();
                write!(f, ": {reason}")?;
            }
            WaitReason::Reserved => {}
        }
        if let Some(reserved) = &waiting.reserved {
            if waiting.reason == WaitReason::Reserved {
                f.write_str(": ")?;
                self.write_reserved(f, reserved, waiting)?;
                f.write_str(", and it fits nowhere else")?;
            } else {
                f.write_str("; ")?;
                self.write_reserved(f, reserved, waiting)?;
            }
        }
        match waiting.ahead {
            0 => f.write_str("; it is first in line")?,
            1 => write!(f, "; {} is in front of it", waiting.first)?,
            ahead => write!(
                f,
                "; {ahead} tasks are in front of it, {} first",
                waiting.first
            )?,
        }
        match waiting.attempt {
            0 => f.write_str("; it will be measured first"),
            1 => Ok(()),
            attempt => write!(f, "; it will be attempt {attempt}"),
        }
    }

    fn write_missing(&self, f: &mut fmt::Formatter<'_>, missing: &MissingResources) -> fmt::Result {
        let mut wanted = Vec::new();
        if !missing.devices.is_empty() {
            let gpus = gpus(missing.gpus, missing.memory);
            let unseen = missing.outside.iter().any(|(_, held)| held.unseen);
            wanted.push(match missing.free.filter(|_| !unseen) {
                Some(free) => format!("{gpus} ({free} free)"),
                None => gpus,
            });
        }
        if let Some(short) = missing.cores {
            let cores = Number(short.wanted, "core");
            wanted.push(format!("{cores} of one machine with {} free", short.free));
        }
        // Whoever lacks cores of its own lacks busy ones as well.
        if let (Some(short), None) = (missing.cpu, missing.cores) {
            let (wanted_cpu, free) = (short.wanted, short.free);
            wanted.push(format!(
                "{wanted_cpu} cores' work on one machine with {free} left"
            ));
        }
        if let Some(short) = missing.ram {
            let (wanted_ram, free) = (short.wanted, short.free);
            wanted.push(format!("{wanted_ram} of main memory ({free} free)"));
        }
        write!(f, " for {}", wanted.join(" and "))?;
        let ours = missing.holders.iter();
        let ours = ours.map(|holder| self.holder(holder, missing));
        let others = missing.outside.iter();
        let others = others.flat_map(|(device, held)| self.others(*device, held, missing));
        let holders: Vec<String> = ours.chain(others).collect();
        if holders.is_empty() {
            return Ok(());
        }
        write!(f, ": {}", Several(&holders))
    }

    fn holder(&self, holder: &Holder, missing: &MissingResources) -> String {
        let mut things = Vec::new();
        if !holder.devices.is_empty() {
            let names = self.names(&holder.devices);
            things.push(if missing.free.is_some() && !holder.whole {
                format!("{} of {}", holder.memory, Several(&names))
            } else {
                Share(holder.share, &names).to_string()
            });
        }
        if holder.cores > 0 {
            things.push(Number(holder.cores, "core").to_string());
        } else if holder.cpu > Milli(0) {
            things.push(format!("{} cores' work", holder.cpu));
        }
        if holder.ram > Bytes(0) {
            things.push(format!("{} of main memory", holder.ram));
        }
        let (task, lasting) = (holder.task, Lasting(holder.lasting));
        format!("{task} holds {} (for {lasting})", things.join(" and "))
    }

    /// What others hold on a device, as far as it matters.
    fn others(&self, device: DeviceId, held: &Outside, missing: &MissingResources) -> Vec<String> {
        let name = (self.name)(device);
        let mut texts = Vec::new();
        if held.whole {
            texts.push(format!("another run holds {name}"));
            return texts;
        }
        if held.unseen && missing.memory != MemoryRequest::Uncounted {
            texts.push(format!("{name} has not been looked at yet"));
            return texts;
        }
        if missing.free.is_some() {
            // Memory is all that is lacking.
            if held.runs > Bytes(0) {
                texts.push(format!("other runs hold {} of {name}", held.runs));
            }
        } else if held.attempts > 0 || held.share > Milli(0) {
            let names = [name.clone()];
            let what = Share(held.share, &names);
            texts.push(format!("other runs hold {what}"));
        }
        let strangers = Bytes(held.memory.0.saturating_sub(held.runs.0));
        if strangers > Bytes(0) && missing.memory != MemoryRequest::Uncounted {
            texts.push(format!("processes of others hold {strangers} of {name}"));
        }
        texts
    }

    fn write_reserved(
        &self,
        f: &mut fmt::Formatter<'_>,
        reserved: &Reserved,
        waiting: &WaitingTask,
    ) -> fmt::Result {
        let mut things = self.names(&reserved.devices);
        if reserved.cores > 0 {
            things.push(Number(reserved.cores, "core").to_string());
        } else if reserved.cpu > Milli(0) {
            things.push(format!("{} cores' work", reserved.cpu));
        }
        if reserved.ram > Bytes(0) {
            things.push(format!("{} of main memory", reserved.ram));
        }
        let are = if things.len() == 1 && reserved.cores <= 1 && reserved.cpu <= Milli::ONE {
            "is"
        } else {
            "are"
        };
        write!(f, "{} {are} kept for ", Several(&things))?;
        if reserved.task == waiting.task {
            f.write_str("it")?;
        } else {
            reserved.task.fmt(f)?;
        }
        match reserved.within {
            Some(within) => write!(f, " (it starts within {})", Lasting(within)),
            None => Ok(()),
        }
    }
}

/// What is asked of devices.
fn gpus(gpus: GpuRequest, memory: MemoryRequest) -> String {
    let many = match gpus {
        GpuRequest::None => "no GPU".to_owned(),
        GpuRequest::Whole(1) => "a whole GPU".to_owned(),
        GpuRequest::Whole(number) => format!("{number} whole GPUs of one machine"),
        GpuRequest::Share(_) if memory == MemoryRequest::Whole => "a GPU to itself".to_owned(),
        GpuRequest::Share(Milli(0)) => match memory {
            MemoryRequest::Bytes(memory) => return format!("{memory} of GPU memory"),
            _ => "a place on a GPU".to_owned(),
        },
        GpuRequest::Share(share) => format!("{share} of a GPU"),
    };
    match memory {
        MemoryRequest::Bytes(memory) => format!("{many} with {memory} of its memory"),
        MemoryRequest::Uncounted | MemoryRequest::Whole => many,
    }
}

/// `a, b and c`, or `a, b, c and 7 more`.
struct Several<'a>(&'a [String]);

impl Display for Several<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // "and 1 more" is no shorter than naming it.
        let named = if self.0.len() <= NAMED + 1 {
            self.0.len()
        } else {
            NAMED
        };
        let last = named == self.0.len();
        for (index, text) in self.0[..named].iter().enumerate() {
            match index {
                0 => {}
                _ if last && index + 1 == named => f.write_str(" and ")?,
                _ => f.write_str(", ")?,
            }
            f.write_str(text)?;
        }
        if last {
            Ok(())
        } else {
            write!(f, " and {} more", self.0.len() - named)
        }
    }
}

/// The subject of a sentence, with its verb.
struct Has<'a>(&'a [String]);

impl Display for Has<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.0.len() == 1 { "has" } else { "have" };
        write!(f, "{} {verb}", Several(self.0))
    }
}

/// `0.5 of gpu0`, or `gpu0 and gpu1`; a share of nothing is a place there.
struct Share<'a>(Milli, &'a [String]);

impl Display for Share<'_> {
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
        write!(f, "{} {}", self.0, self.1)?;
        if self.0 == 1 {
            Ok(())
        } else {
            f.write_char('s')
        }
    }
}

/// A length of time in its two largest units.
struct Lasting(Duration);

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
