use packhorse_engine::{DeviceView, Input, LeasedDevice, MemberView, OtherRun, Owner, ProcessView};
use packhorse_model::{Bytes, TaskId};

use super::{Lab, gib, id};

/// A GPU as its driver would show it.
pub(crate) struct PretendedGpu {
    memory: Bytes,
    processes: Vec<ProcessView>,
    /// Memory that no process is listed for.
    left: Bytes,
    pub(crate) lost: Option<String>,
    /// Whether the driver answers.
    pub(crate) answers: bool,
    pub(crate) utilisation: Option<u8>,
}

impl PretendedGpu {
    pub(crate) fn new(memory: Bytes) -> Self {
        Self {
            memory,
            processes: Vec::new(),
            left: Bytes(0),
            lost: None,
            answers: true,
            utilisation: None,
        }
    }

    fn set(&mut self, pid: u32, owner: Owner, memory: Bytes) {
        self.processes.retain(|process| process.pid != pid);
        if memory.0 > 0 {
            self.processes.push(ProcessView {
                pid,
                memory: Some(memory),
                draws: false,
                owner,
                description: "python, ada".to_owned(),
            });
        }
    }

    /// A task's processes are gone.
    pub(crate) fn leave(&mut self, task: TaskId) {
        let others = |process: &ProcessView| process.owner != Owner::Task(task);
        self.processes.retain(others);
    }

    /// Everybody else's processes are gone.
    pub(crate) fn leave_strangers(&mut self) {
        let ours = |process: &ProcessView| process.owner != Owner::Stranger;
        self.processes.retain(ours);
    }

    fn view(&self) -> MemberView {
        let used = self.processes.iter().filter_map(|it| it.memory);
        let used = used.map(|memory| memory.0).sum::<u64>() + self.left.0;
        let used = used.min(self.memory.0);
        MemberView {
            memory: Some((Bytes(used), Bytes(self.memory.0 - used))),
            processes: Some(self.processes.clone()),
            utilisation: self.utilisation,
            lost: self.lost.clone(),
        }
    }
}

impl Lab {
    /// What the driver answers now.
    pub(super) fn views(&self) -> Vec<Input> {
        let gpus = self.gpus.iter().enumerate().filter(|(_, gpu)| gpu.answers);
        let view = |(device, gpu): (usize, &PretendedGpu)| {
            Input::Sampled(DeviceView {
                device,
                at: self.now,
                members: vec![gpu.view()],
                ended: self.ended.clone(),
            })
        };
        gpus.map(view).collect()
    }

    /// The driver tells how all devices are, whether or not it was asked.
    pub(crate) fn sample(&mut self) {
        for view in self.views() {
            self.feed(view);
        }
    }

    /// A running task takes so many GiB on each of its GPUs from now on, and that is seen.
    pub(crate) fn holds(&mut self, task: &str, memory: u64) {
        self.holds_unseen(task, memory);
        self.pass(super::A_LOOK);
        self.sample();
    }

    /// The same before anybody looks.
    pub(crate) fn holds_unseen(&mut self, task: &str, memory: u64) {
        self.holds_mebibytes(task, memory << 10);
    }

    /// The same in MiB.
    pub(crate) fn holds_mebibytes(&mut self, task: &str, memory: u64) {
        let task = id(task);
        let devices = self.running[&task].placement.devices.clone();
        for granted in devices {
            let pid = task.run.0 * 1000 + task.number;
            let gpu = &mut self.gpus[granted.device.0 as usize];
            gpu.set(pid, Owner::Task(task), Bytes(memory << 20));
        }
    }

    /// Somebody else's process takes so many GiB of a GPU from now on.
    pub(crate) fn stranger(&mut self, gpu: usize, memory: u64) {
        let pid = 90_000 + u32::try_from(gpu).unwrap();
        self.gpus[gpu].set(pid, Owner::Stranger, gib(memory));
    }

    /// Somebody's desktop takes so many GiB of a GPU from now on.
    pub(crate) fn desktop(&mut self, gpu: usize, memory: u64) {
        let pid = 60_000 + u32::try_from(gpu).unwrap();
        self.gpus[gpu].set(pid, Owner::Stranger, gib(memory));
        let last = self.gpus[gpu].processes.last_mut();
        last.expect("it was just added").draws = true;
    }

    /// The devices are looked at before there is a run.
    pub(crate) fn first_look(&mut self) {
        let views = self.views().into_iter().map(|view| match view {
            Input::Sampled(view) => view,
            other => panic!("{other:?} is no view"),
        });
        self.feed(Input::FirstLook(views.collect()));
    }

    /// So many GiB of a GPU are held that no process is listed for.
    pub(crate) fn left_on(&mut self, gpu: usize, memory: u64) {
        self.gpus[gpu].left = gib(memory);
    }

    /// A process that is not to be found here is listed with so many GiB.
    pub(crate) fn unseen(&mut self, gpu: usize, memory: u64) {
        self.gpus[gpu].set(70_000, Owner::Unseen, gib(memory));
    }

    /// A server of MPS takes what it needs for itself.
    pub(crate) fn mps_server(&mut self, gpu: usize) {
        self.gpus[gpu].set(80_000, Owner::Stranger, Bytes(30 << 20));
    }

    /// A process of another run does.
    pub(crate) fn other_run_holds(&mut self, gpu: usize, pid: u32, memory: u64) {
        self.gpus[gpu].set(pid, Owner::OtherRun(pid), gib(memory));
    }

    /// Another run tells what it holds of a GPU.
    pub(crate) fn other_run(&mut self, pid: u32, gpu: usize, held: &LeasedDevice) {
        let device = format!("GPU-{gpu}").into();
        let devices = vec![LeasedDevice { device, ..held.clone() }];
        self.feed(Input::OtherRuns(vec![OtherRun { pid, devices, ..OtherRun::default() }]));
    }
}
