//! Telemetry during a run.

use std::cell::RefCell;
use std::ops::Deref;
use std::time::{Duration, Instant};

use packhorse_fake_nvml::{
    Code, FakeDevice, FakeDriver, FakeMig, FakeProcess, Lost, Mig, ProcessKind,
};
use packhorse_gpu::{
    DeviceReading, DeviceSample, Driver, Health, Percent, ProcessMemory, Sampler, SamplerReport,
    Xid,
};
use packhorse_model::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::machine::Machine;

const GIB: u64 = 1 << 30;

/// Longer than any test should take.
const LONG: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// A sampler, and its reports that no test has looked at yet.
struct TestSampler {
    sampler: Sampler,
    reports: RefCell<Vec<SamplerReport>>,
}

impl TestSampler {
    fn start(machine: &Machine, gpus: &str) -> Self {
        Self {
            sampler: Sampler::start(machine.driver(), &machine.units(gpus)).unwrap(),
            reports: RefCell::default(),
        }
    }

    fn is_readable(&self, patience: &Timespec) -> bool {
        let mut waiting = [PollFd::new(&self.sampler, PollFlags::IN)];
        poll(&mut waiting, Some(patience)).unwrap() == 1
    }

    /// Waits for the first report like this.
    fn until(&self, is_it: impl Fn(&SamplerReport) -> bool) -> SamplerReport {
        let mut reports = self.reports.borrow_mut();
        loop {
            if let Some(place) = reports.iter().position(&is_it) {
                return reports.remove(place);
            }
            assert!(self.is_readable(&LONG), "nothing was reported");
            reports.extend(self.sampler.fetch());
        }
    }

    /// Waits for the next sample of a unit.
    fn sample(&self, unit: usize) -> DeviceSample {
        self.sample_since(unit, None)
    }

    /// Waits for the next sample of a unit that was begun after this time.
    fn sample_since(&self, unit: usize, begun: Option<Instant>) -> DeviceSample {
        let is_it = |sample: &DeviceSample| sample.unit == unit && Some(sample.at) >= begun;
        match self.until(|report| matches!(report, SamplerReport::Sample(s) if is_it(s))) {
            SamplerReport::Sample(sample) => sample,
            SamplerReport::Xid { .. } => unreachable!("a sample was picked"),
        }
    }

    /// Waits for the next Xid.
    fn xid(&self) -> (usize, Xid) {
        match self.until(|report| matches!(report, SamplerReport::Xid { .. })) {
            SamplerReport::Xid { unit, xid } => (unit, xid),
            SamplerReport::Sample(_) => unreachable!("an Xid was picked"),
        }
    }

    /// Asks, and waits for the one member of the unit.
    fn sample_one(&self, unit: usize) -> DeviceReading {
        let asked = Instant::now();
        self.sampler.request_all();
        let mut members = self.sample_since(unit, Some(asked)).members;
        assert_eq!(members.len(), 1);
        members.remove(0)
    }
}

impl Deref for TestSampler {
    type Target = Sampler;

    fn deref(&self) -> &Sampler {
        &self.sampler
    }
}

#[test]
fn a_sample_tells_what_changes_of_every_member() {
    let machine = Machine::with(3);
    let process = FakeProcess { utilisation: 40, ..FakeProcess::pretended(4_999_999, 6 * GIB) };
    machine.state.process(&FakeDevice::new(2).uuid, &process);
    let sampler = TestSampler::start(&machine, "0,1+2");
    let before = Instant::now();
    sampler.request_all();

    let group = sampler.sample(1);
    assert!(group.at >= before && group.at <= Instant::now());
    let [idle, busy] = &group.members[..] else {
        panic!("there are two in the group: {group:?}");
    };
    assert_eq!(idle.processes, Some(vec![]));
    assert_eq!(idle.utilisation, Some(Percent(0)));
    let memory = busy.memory.unwrap();
    assert_eq!(memory.total, Bytes(24 * GIB));
    assert_eq!(memory.used, Bytes(6 * GIB));
    assert_eq!(memory.reserved, Bytes(GIB / 2));
    assert_eq!(memory.free, Bytes(18 * GIB - GIB / 2));
    let held = ProcessMemory { pid: 4_999_999, memory: Some(Bytes(6 * GIB)), draws: false };
    assert_eq!(busy.processes, Some(vec![held]));
    assert_eq!(busy.utilisation, Some(Percent(40)));
    assert_eq!(busy.health, Health::Ok);
}

#[test]
fn strangers_come_and_go_between_samples() {
    let machine = Machine::with(2);
    let sampler = TestSampler::start(&machine, "all");
    let first = machine.state.stranger(1, 3 * GIB);
    let second = machine.state.stranger(1, GIB);
    let reading = sampler.sample_one(1);
    assert_eq!(reading.memory.unwrap().used, Bytes(4 * GIB));
    let pids: Vec<u32> = reading.processes.unwrap().iter().map(|p| p.pid).collect();
    assert_eq!(pids, [first, second]);

    machine.state.stranger_leaves(1, first);
    assert_eq!(sampler.sample_one(1).memory.unwrap().used, Bytes(GIB));
    assert_eq!(sampler.sample_one(0).memory.unwrap().used, Bytes(0));
}

#[test]
fn memory_that_lingers_is_shown_until_it_is_released() {
    let machine = Machine::with(1);
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let process = FakeProcess::real(child.id(), 2 * GIB);
    child.wait().unwrap();
    let uuid = FakeDevice::new(0).uuid;
    machine.state.process(&uuid, &process).linger(0);
    let sampler = TestSampler::start(&machine, "0");
    let reading = sampler.sample_one(0);
    assert_eq!(reading.memory.unwrap().used, Bytes(2 * GIB));
    assert_eq!(reading.processes, Some(vec![]));
    machine.state.release(0);
    assert_eq!(sampler.sample_one(0).memory.unwrap().used, Bytes(0));
}

#[test]
fn a_mig_instance_is_a_unit_of_its_own() {
    let parts = vec![FakeMig::new(0, 0), FakeMig::new(0, 2)];
    let divided = FakeDevice { mig: Mig::Enabled(parts.clone()), ..FakeDevice::new(0) };
    let machine = Machine::new(&[divided]);
    machine.state.process(&parts[1].uuid, &FakeProcess::pretended(4_999_999, GIB));
    let sampler = TestSampler::start(&machine, "all");
    assert_eq!(sampler.sample_one(0).memory.unwrap().used, Bytes(0));
    let reading = sampler.sample_one(1);
    let memory = reading.memory.unwrap();
    assert_eq!((memory.total, memory.used), (Bytes(5 * GIB), Bytes(GIB)));
    assert_eq!(reading.processes.unwrap().len(), 1);
    assert_eq!(reading.utilisation, None);
    assert_eq!(reading.health, Health::Ok);

    // An error of the device is one of each part of it.
    machine.state.xid(0, 79);
    let blamed = [sampler.xid().0, sampler.xid().0];
    assert_eq!(blamed, [0, 1]);
}

#[test]
fn programs_behind_an_mps_server_are_counted() {
    let machine = Machine::with(1);
    let process = FakeProcess { kind: ProcessKind::Mps, ..FakeProcess::pretended(4_999_999, GIB) };
    machine.state.process(&FakeDevice::new(0).uuid, &process);
    let sampler = TestSampler::start(&machine, "0");
    assert_eq!(sampler.sample_one(0).processes.unwrap()[0].pid, 4_999_999);
    assert_eq!(machine.devices()[0].processes.as_ref().unwrap().len(), 1);
}

#[test]
fn nothing_is_reported_that_was_not_asked_for() {
    let machine = Machine::with(1);
    let sampler = TestSampler::start(&machine, "0");
    assert_eq!(sampler.fetch(), []);
    sampler.sample_one(0);
    assert_eq!(sampler.fetch(), []);
    assert!(!sampler.is_readable(&Timespec::default()));
}

#[test]
fn a_gpu_that_hangs_does_not_hide_the_others() {
    let machine = Machine::with(3);
    let sampler = TestSampler::start(&machine, "all");
    machine.state.hang(1);
    // Asking it again does not hold up others.
    for _ in 0..20 {
        sampler.sample_one(0);
        sampler.sample_one(2);
    }
    let of_it = |report: &SamplerReport| matches!(report, SamplerReport::Sample(s) if s.unit == 1);
    assert!(!sampler.reports.borrow().iter().any(of_it));

    machine.state.answer(1);
    assert_eq!(sampler.sample(1).members[0].health, Health::Ok);
}

#[test]
fn what_was_asked_for_meanwhile_is_one_sample_more() {
    let machine = Machine::with(1);
    let sampler = TestSampler::start(&machine, "0");
    machine.state.hang(0);
    sampler.request_all();
    machine.state.await_hung_look(0);
    for _ in 0..10 {
        sampler.request_all();
    }
    let last = Instant::now();
    sampler.request_all();
    machine.state.answer(0);
    // A sample from before the last request does not answer it.
    let mut all = vec![sampler.sample(0)];
    while all[all.len() - 1].at < last {
        all.push(sampler.sample(0));
    }
    assert_eq!(all.len(), 2, "{all:?}");
}

#[test]
fn dropping_does_not_wait_for_a_gpu_that_hangs() {
    let machine = Machine::with(1);
    let sampler = TestSampler::start(&machine, "0");
    machine.state.hang(0);
    sampler.request_all();
    machine.state.await_hung_look(0);
    drop(sampler);
    machine.state.answer(0);
}

#[test]
fn a_lost_gpu_is_told_and_the_others_go_on() {
    let machine = Machine::with(2);
    let sampler = TestSampler::start(&machine, "all");
    assert_eq!(sampler.sample_one(0).health, Health::Ok);
    for lost in [Lost::Readings, Lost::Entirely] {
        machine.state.change(0, |device| {
            device.faults.lost = Some(lost);
        });
        let reading = sampler.sample_one(0);
        let Health::Lost(reason) = reading.health else {
            panic!("it is lost");
        };
        assert!(reason.contains("fallen off the bus"), "{reason}");
        assert_eq!((reading.memory, reading.processes), (None, None));
        assert_eq!(sampler.sample_one(1).health, Health::Ok);
        machine.state.find_again(0);
        assert_eq!(sampler.sample_one(0).health, Health::Ok);
    }
}

#[test]
fn xids_arrive_without_being_asked_for() {
    let machine = Machine::with(2);
    // What happened before is of no interest.
    machine.state.xid(1, 48);
    let sampler = TestSampler::start(&machine, "1");
    machine.state.xid(0, 79).xid(1, 31).xid(1, 79);
    let (unit, program) = sampler.xid();
    assert_eq!((unit, program), (0, Xid(31)));
    assert_eq!(program.hardware(), None);
    let (unit, hardware) = sampler.xid();
    assert_eq!((unit, hardware), (0, Xid(79)));
    assert!(hardware.hardware().unwrap().contains("off the bus"));
    assert_eq!(hardware.to_string(), "Xid 79");
}

#[test]
fn devices_without_events_do_not_cost_the_others_theirs() {
    let machine = Machine::with(3);
    for (index, call) in [(0, "nvmlDeviceGetSupportedEventTypes"), (1, "nvmlDeviceRegisterEvents")]
    {
        machine.state.change(index, |device| {
            let fail = &mut device.faults.fail;
            fail.insert(call.to_owned(), Code::NotSupported);
        });
    }
    let sampler = TestSampler::start(&machine, "all");
    machine.state.xid(2, 62);
    assert_eq!(sampler.xid(), (2, Xid(62)));
    assert_eq!(sampler.sample_one(0).health, Health::Ok);
}

#[test]
fn a_device_that_goes_while_events_are_waited_for_is_left_out() {
    for driver in [FakeDriver::default(), FakeDriver::old()] {
        let machine = Machine::with(2);
        machine.state.driver(&driver);
        leave_out_the_one_that_goes(&machine);
    }
}

fn leave_out_the_one_that_goes(machine: &Machine) {
    let sampler = TestSampler::start(machine, "all");
    // Once one has come, others are waited for.
    machine.state.xid(0, 31);
    assert_eq!(sampler.xid(), (0, Xid(31)));
    machine.state.change(0, |device| device.faults.lost = Some(Lost::Entirely));
    // The driver cannot even say whose event it was.
    machine.state.xid(0, 79);
    let health = sampler.sample(0).members.remove(0).health;
    assert!(matches!(health, Health::Lost(_)), "{health:?}");
    machine.state.xid(1, 48);
    assert_eq!(sampler.xid(), (1, Xid(48)));
}

#[test]
fn units_that_no_driver_knows_are_not_asked_about() {
    let machine = Machine::with(2);
    let units = machine.units("0");
    let sampler = Sampler::start(Driver::None, &units).unwrap();
    sampler.request_all();
    assert_eq!(sampler.fetch(), []);
}

#[test]
fn no_signal_is_delivered_to_a_sampling_thread() {
    let machine = Machine::with(1);
    let sampler = TestSampler::start(&machine, "0");
    // A thread that has reported runs, and has its name.
    sampler.sample_one(0);
    machine.state.xid(0, 31);
    sampler.xid();
    let mut threads = 0;
    for task in fs_err::read_dir("/proc/self/task").unwrap() {
        let status = task.unwrap().path().join("status");
        // Threads of other tests end meanwhile.
        let status = fs_err::read_to_string(status).unwrap_or_default();
        if !status.starts_with("Name:\tsample-") {
            continue;
        }
        threads += 1;
        let blocked = status.lines().find_map(|l| l.strip_prefix("SigBlk:"));
        let blocked = u64::from_str_radix(blocked.unwrap().trim(), 16).unwrap();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD] {
            assert_ne!(blocked & (1 << (signal - 1)), 0, "{signal}");
        }
    }
    assert!(threads >= 2, "{threads}");
}

#[test]
fn a_sample_waits_for_a_slow_driver() {
    let machine = Machine::with(1);
    machine.state.change(0, |device| device.faults.slow_ms = 5);
    let sampler = TestSampler::start(&machine, "0");
    sampler.request_all();
    assert!(sampler.sample(0).at.elapsed() >= Duration::from_millis(5));
}

#[test]
fn amds_cards_are_sampled_through_sysfs() {
    let machine = Machine::with(0);
    let card = |name: &str, text: &str| {
        machine.sysfs(&format!("class/drm/card0/device/{name}"), text);
    };
    card("vendor", "0x1002\n");
    card("uevent", "PCI_SLOT_NAME=0000:03:00.0\n");
    card("mem_info_vram_total", "1000\n");
    card("mem_info_vram_used", "400\n");
    card("gpu_busy_percent", "55\n");
    machine.sysfs("class/kfd/kfd/topology/nodes/1/gpu_id", "77\n");
    machine.sysfs("class/kfd/kfd/topology/nodes/1/properties", "location_id 768\ndomain 0\n");
    machine.sysfs("class/kfd/kfd/proc/4999999/vram_77", "300\n");
    let sampler = TestSampler::start(&machine, "0");
    let reading = sampler.sample_one(0);
    assert_eq!(reading.memory.unwrap().free, Bytes(600));
    assert_eq!(reading.utilisation, Some(Percent(55)));
    let held = ProcessMemory { pid: 4_999_999, memory: Some(Bytes(300)), draws: false };
    assert_eq!(reading.processes, Some(vec![held]));
    card("mem_info_vram_used", "900\n");
    assert_eq!(sampler.sample_one(0).memory.unwrap().used, Bytes(900));
}
