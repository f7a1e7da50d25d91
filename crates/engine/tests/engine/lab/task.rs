use std::num::NonZeroU32;
use std::time::Duration;

use packhorse_model::{
    Command, GpuRequest, Milli, Priority, ProbeSpec, TaskSpec, TimeLimit, VramRequest,
};

use super::gib;

/// A task that is to arrive.
#[derive(Clone, Debug)]
pub(crate) struct NewTask {
    spec: TaskSpec,
    after: Vec<u32>,
}

/// A task with a command and nothing else.
pub(crate) fn task(command: &str) -> NewTask {
    NewTask { spec: TaskSpec::new(Command::Line(command.as_bytes().to_vec())), after: Vec::new() }
}

impl NewTask {
    pub(crate) fn parts(self) -> (TaskSpec, Vec<u32>) {
        (self.spec, self.after)
    }

    fn with(mut self, change: impl FnOnce(&mut TaskSpec)) -> Self {
        change(&mut self.spec);
        self
    }

    /// It asks for so many GiB.
    pub(crate) fn vram(self, memory: u64) -> Self {
        self.with(|spec| spec.vram = Some(VramRequest::Bytes(gib(memory))))
    }

    pub(crate) fn vram_auto(self) -> Self {
        self.with(|spec| spec.vram = Some(VramRequest::Auto))
    }

    /// It asks for whole GPUs.
    pub(crate) fn gpus(self, count: u32) -> Self {
        self.with(|spec| spec.gpus = Some(GpuRequest::Whole(count)))
    }

    /// It asks for a part of a GPU, in thousandths.
    pub(crate) fn share(self, milli: u32) -> Self {
        self.with(|spec| spec.gpus = Some(GpuRequest::Share(Milli(milli))))
    }

    pub(crate) fn probe(self, template: &str) -> Self {
        self.with(|spec| spec.probe = Some(ProbeSpec::Template(template.to_owned())))
    }

    pub(crate) fn priority(self, priority: i32) -> Self {
        self.with(|spec| spec.priority = Some(Priority(priority)))
    }

    pub(crate) fn retries(self, retries: u32) -> Self {
        self.with(|spec| spec.retries = Some(retries))
    }

    /// At most so many of this group run at a time.
    pub(crate) fn group(self, name: &str, limit: u32) -> Self {
        self.with(|spec| {
            spec.group = Some(name.to_owned());
            spec.group_limit = NonZeroU32::new(limit);
        })
    }

    pub(crate) fn timeout(self, limit: Duration) -> Self {
        self.with(|spec| spec.timeout = Some(TimeLimit::After(limit)))
    }

    pub(crate) fn after(mut self, number: u32) -> Self {
        self.after.push(number);
        self
    }
}
