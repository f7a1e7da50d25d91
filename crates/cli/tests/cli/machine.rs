//! A machine with GPUs that are pretended, behind the real NVML calls.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use packhorse_fake_nvml::{FakeDevice, FakeState, STATE_VARIABLE, fake_cuda_path, library_path};
use packhorse_test_parts::wait_for_change;

use crate::support::{Done, Running, World, finish, wait_until};

/// A machine with a pretended driver.
pub struct Machine {
    pub world: World,
    pub state: FakeState,
}

impl Machine {
    /// With so many GPUs of NVIDIA's.
    pub fn new(gpus: u32) -> Self {
        let world = World::new();
        let state = FakeState::new(world.work().join("state"));
        for index in 0..gpus {
            state.device(&FakeDevice::new(index));
        }
        Self { world, state }
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = self.world.command(words);
        command
            .env("PACKHORSE_NVML_LIBRARY", library_path())
            .env(STATE_VARIABLE, self.state.path())
            .env("PACKHORSE_SYSFS", self.world.work().join("sys"));
        command
    }

    pub fn packhorse(&self, words: &[&str]) -> Done {
        finish(self.command(words))
    }

    /// Waits until processes hold so much on GPU `index`.
    pub fn await_memory(&self, index: u32, bytes: u64) {
        let uuid = FakeDevice::new(index).uuid;
        let held = || {
            let processes = self.state.read_processes(&uuid).unwrap();
            processes.iter().map(|process| process.memory).sum::<u64>()
        };
        wait_until(&self.state.path().join("processes"), || held() >= bytes);
    }

    /// Waits until GPU `index` has been looked at so often from now on.
    pub fn await_looks(&self, index: u32, number: u64) {
        let uuid = FakeDevice::new(index).uuid;
        let looks = || self.state.looks(&uuid).unwrap();
        let then = looks();
        wait_until(&self.state.look_folder(), || looks() >= then + number);
    }

    /// Waits until GPU 0 was not looked at for so long.
    pub fn await_no_look(&self, time: Duration) {
        let uuid = FakeDevice::new(0).uuid;
        let looks = || self.state.looks(&uuid).unwrap();
        let mut before = looks();
        while let Some(more) =
            wait_for_change(&[&self.state.look_folder()], Some(Instant::now() + time), || {
                Some(looks()).filter(|looks| *looks != before)
            })
        {
            before = more;
        }
    }

    /// Waits until runs have told that their tasks hold so much of GPU 0.
    pub fn await_told(&self, bytes: u64) {
        wait_until(&self.world.leases(), || {
            let gpus = self.packhorse(&["gpus", "--json"]).json();
            gpus[0]["held_by"][0]["memory"].as_u64() >= Some(bytes)
        });
    }

    /// Somebody else's program takes so much memory, and holds it until the file is there.
    pub fn stranger(&self, peak: &str, gate: &str) -> Child {
        let gate = self.world.work().join(gate);
        let mut program = Command::new(fake_cuda_path());
        program.args(["--peak", peak, "--hold-until-exists"]).arg(gate);
        program.env(STATE_VARIABLE, self.state.path());
        program.stdout(Stdio::null()).spawn().unwrap()
    }

    /// Starts `packhorse` with pipes to talk to it.
    pub fn start(&self, words: &[&str]) -> Running {
        Running::start(self.command(words))
    }
}

/// A task that takes so much memory, and holds it until the file is there.
pub fn holding(peak: &str, gate: &str) -> String {
    taking(&format!("--peak {peak} --hold-until-exists {gate}"))
}

/// A task that takes memory and ends.
pub fn taking(options: &str) -> String {
    format!("{} {options}", fake_cuda_path().display())
}
