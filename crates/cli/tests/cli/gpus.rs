//! `packhorse gpus`, and `--gpus` where there is a driver: all through the real
//! NVML calls, against a pretended driver.

use std::process::Command;

use packhorse_fake_nvml::{
    Code, FakeDevice, FakeMig, FakeProcess, Lost, Mig, STATE_VARIABLE, fake_cuda_path,
};
use serde_json::Value;

use crate::machine::Machine;
use crate::support::{Running, World, finish};
use crate::terminal::Terminal;

impl Machine {
    fn json(&self) -> Vec<Value> {
        let done = self.packhorse(&["gpus", "--json"]);
        assert_eq!(done.code, 0, "{done:?}");
        serde_json::from_str(&done.stdout).unwrap()
    }

    /// What tasks that run at the same time see in the variable, sorted; as
    /// many tasks as there are values wanted.
    #[track_caller]
    fn assert_seen(&self, variable: &str, prepare: impl Fn(&mut Command), wanted: &[&str]) {
        let gate = self.world.gate("gate");
        let task = format!("echo ${variable} > $PACKHORSE_TASK; read x < gate\n");
        self.world.write("tasks", task.repeat(wanted.len() + 1));
        let mut command = self.command(&["run", "tasks"]);
        prepare(&mut command);
        let mut running = Running::start(command);
        running.wait_for(&format!("1.{} started", wanted.len()));
        gate.pass(wanted.len() + 1);
        let done = running.finish();
        assert_eq!(done.code, 0, "{done:?}");
        let seen = (1..=wanted.len()).map(|number| self.world.read(&format!("1.{number}")));
        let mut seen: Vec<String> = seen.map(|id| id.trim_end().to_owned()).collect();
        seen.sort_unstable();
        assert_eq!(seen, wanted);
        // The one task too many had to wait.
        let (before, _) = done.stdout.split_once(" succeeded in ").unwrap();
        let started = before.matches(" started on ").count();
        assert_eq!(started, wanted.len(), "{before}");
        fs_err::remove_file(self.world.work().join("gate")).unwrap();
    }

    #[track_caller]
    fn assert_refused(&self, gpus: &[&str], wanted: &[&str]) {
        let words = [&["run", "--gpus"], gpus, &["--", "touch", "started"]].concat();
        let done = self.packhorse(&words);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
        for text in wanted {
            assert!(done.stderr.contains(text), "{}", done.stderr);
        }
        assert!(!self.world.work().join("started").exists());
    }

    /// Puts an AMD card into the machine.
    fn amd(&self, card: u32) {
        let folder = format!("sys/class/drm/card{card}/device");
        fs_err::create_dir_all(self.world.work().join(&folder)).unwrap();
        let slot = format!("PCI_SLOT_NAME=0000:{:02x}:00.0\n", card + 3);
        for (name, text) in [
            ("vendor", "0x1002\n"),
            ("device", "0x740f\n"),
            ("uevent", &slot),
            ("mem_info_vram_total", "68719476736\n"),
            ("mem_info_vram_used", "1073741824\n"),
            ("gpu_busy_percent", "55\n"),
        ] {
            self.world.write(&format!("{folder}/{name}"), text);
        }
    }
}

fn uuid(index: u32) -> String {
    FakeDevice::new(index).uuid
}

/// The cells of the table's line that begins so.
fn row<'a>(table: &'a str, begin: &str) -> Vec<&'a str> {
    let line = table.lines().find(|line| line.trim().starts_with(begin));
    let line = line.unwrap_or_else(|| panic!("no line begins with `{begin}`:\n{table}"));
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn the_table_has_a_line_for_each_gpu() {
    let machine = Machine::new(2);
    machine.state.change(1, |device| {
        device.utilisation = Some(93);
        device.temperature = None;
    });
    let done = machine.packhorse(&["gpus"]);
    assert_eq!(done.code, 0, "{done:?}");
    let (first, second) = (uuid(0), uuid(1));
    let name = "NVIDIA Fake 24GB";
    for (begin, busy, heat, uuid) in [("0 ", "0 %", "40 °C", first), ("1 ", "93 %", "-", second)] {
        let cells = row(&done.stdout, begin);
        assert_eq!(cells[1..3], [name, "24.0 GiB"], "{}", done.stdout);
        assert_eq!(cells[4..], [busy, heat, "60 W of 300 W", &uuid], "{}", done.stdout);
    }
}

#[test]
fn programs_get_all_readings_in_exact_numbers() {
    let machine = Machine::new(1);
    machine.state.change(0, |device| {
        device.utilisation = Some(93);
        device.power = None;
        device.near_cores = vec![0, 1, 5];
    });
    let devices = machine.json();
    assert_eq!(devices.len(), 1);
    let device = &devices[0];
    assert_eq!(device["index"], 0);
    assert_eq!(device["uuid"], uuid(0));
    assert_eq!(device["vendor"], "nvidia");
    assert_eq!(device["pci_bus_id"], "0000:01:00.0");
    assert_eq!(device["memory"]["total"], 24_u64 << 30);
    assert_eq!(device["memory"]["reserved"], 512_u64 << 20);
    assert_eq!(device["memory"]["free"], (24_u64 << 30) - (512 << 20));
    assert_eq!(device["utilisation_percent"], 93);
    assert_eq!(device["temperature_celsius"], 40);
    assert_eq!(device["power_milliwatts"], Value::Null);
    assert_eq!(device["power_limit_milliwatts"], 300_000);
    assert_eq!(device["near_cores"], serde_json::json!([0, 1, 5]));
    assert_eq!(device["lost"], Value::Null);
}

#[test]
fn who_is_on_a_gpu_is_shown_with_user_and_command() {
    let machine = Machine::new(2);
    let gate = machine.world.fifo("gate");
    let peak = ["--peak", "2G", "--hold-until-closed", gate.to_str().unwrap()];
    let mut command = machine.world.program(fake_cuda_path(), peak);
    command
        .env(STATE_VARIABLE, machine.state.path())
        .env("CUDA_VISIBLE_DEVICES", "1")
        .env("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    let stranger = Running::start(command);
    // It opens the pipe when it has its memory.
    let held = fs_err::OpenOptions::new().write(true).open(&gate).unwrap();

    let pid = stranger.pid().as_raw_nonzero().to_string();
    let table = machine.packhorse(&["gpus"]).stdout;
    let (_, people) = table.split_once("\n\n").unwrap();
    let cells = row(people, "1 ");
    assert_eq!(cells[1], pid);
    assert_eq!(cells[3], "2.0 GiB");
    assert!(cells[4].contains("fake-cuda --peak 2G"), "{people}");

    let devices = machine.json();
    assert_eq!(devices[0]["processes"], serde_json::json!([]));
    let process = &devices[1]["processes"][0];
    assert_eq!(process["pid"].to_string(), pid);
    assert_eq!(process["memory"], 2_u64 << 30);
    assert_eq!(process["user"], cells[2]);
    assert!(process["command"].as_str().unwrap().contains("fake-cuda"));
    drop(held);
    assert_eq!(stranger.finish().code, 0);
}

#[test]
fn a_process_of_another_world_is_shown_by_its_number() {
    let machine = Machine::new(1);
    // No process has this number: the kernel's limit is lower.
    machine.state.process(&uuid(0), &FakeProcess::pretended(2_000_000_000, 1 << 30));
    let table = machine.packhorse(&["gpus"]).stdout;
    let (_, people) = table.split_once("\n\n").unwrap();
    assert_eq!(row(people, "0 ")[1..], ["2000000000", "-", "1.0 GiB", "-"]);
}

#[test]
fn a_lost_gpu_does_not_hide_the_others() {
    for lost in [Lost::Entirely, Lost::Readings] {
        let machine = Machine::new(3);
        machine.state.change(1, |device| device.faults.lost = Some(lost));
        let done = machine.packhorse(&["gpus"]);
        assert_eq!(done.code, 0, "{done:?}");
        assert_eq!(row(&done.stdout, "0 ")[1], "NVIDIA Fake 24GB");
        assert!(row(&done.stdout, "1 ")[1].contains("lost: "), "{done:?}");
        assert_eq!(row(&done.stdout, "2 ")[1], "NVIDIA Fake 24GB");
        let devices = machine.json();
        assert_eq!(devices.len(), 3);
        assert!(devices[1]["lost"].is_string(), "{devices:?}");
        assert!(devices[2]["lost"].is_null(), "{devices:?}");
    }
}

#[test]
fn instances_of_a_divided_gpu_are_listed_under_it() {
    let machine = Machine::new(1);
    let instances = vec![FakeMig::new(0, 0), FakeMig::new(0, 2)];
    let uuids = [0, 1].map(|place: usize| instances[place].uuid.clone());
    machine.state.change(0, |device| device.mig = Mig::Enabled(instances));
    let done = machine.packhorse(&["gpus"]);
    for uuid in &uuids {
        let line = done.stdout.lines().find(|line| line.contains(uuid));
        let line = line.unwrap_or_else(|| panic!("{}", done.stdout));
        assert!(line.contains("MIG 1g.5gb"), "{line}");
        assert!(line.contains("5.0 GiB"), "{line}");
    }
    let mig = &machine.json()[0]["mig"];
    assert_eq!(mig[1]["uuid"], uuids[1]);
    assert_eq!(mig[1]["profile"], "1g.5gb");
}

#[test]
fn amds_cards_are_shown_too() {
    let machine = Machine::new(0);
    machine.amd(0);
    let done = machine.packhorse(&["gpus"]);
    let cells = row(&done.stdout, "0 ");
    assert_eq!(cells[1..5], ["AMD GPU 0x740f", "64.0 GiB", "63.0 GiB", "55 %"]);
    assert_eq!(machine.json()[0]["vendor"], "amd");
}

#[test]
fn a_machine_without_gpus_says_so_and_what_to_do() {
    let machine = Machine::new(0);
    let done = machine.packhorse(&["gpus"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, "no GPUs\n"));
    assert!(done.stderr.contains("--slots"), "{done:?}");
    assert_eq!(machine.json(), Vec::<Value>::new());

    let done = machine.packhorse(&["run", "--", "true"]);
    assert_eq!(done.code, 2);
    assert!(done.stderr.contains("--slots N"), "{done:?}");
    assert!(done.stderr.contains("--gpus 0,1"), "{done:?}");
}

#[test]
fn a_driver_that_fails_to_start_is_explained() {
    let machine = Machine::new(2);
    for (code, reason, hint) in [
        (Code::DriverNotLoaded, "kernel module is not loaded", "modprobe"),
        (Code::LibRmVersionMismatch, "different versions", "reboot"),
    ] {
        machine.state.change_driver(|driver| driver.init = Some(code));
        for words in [&["gpus"][..], &["run", "--", "true"]] {
            let done = machine.packhorse(words);
            assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
            assert!(done.stderr.contains(reason), "{}", done.stderr);
            assert!(done.stderr.contains(hint), "{}", done.stderr);
        }
    }
}

#[test]
fn a_library_that_cannot_be_loaded_is_named() {
    let machine = Machine::new(0);
    let mut command = machine.command(&["gpus"]);
    command.env("PACKHORSE_NVML_LIBRARY", machine.world.write("broken.so", "no library"));
    let done = finish(command);
    assert_eq!(done.code, 2);
    assert!(done.stderr.contains("broken.so"), "{done:?}");
    assert!(done.stderr.contains("PACKHORSE_NVML_LIBRARY"), "{done:?}");
}

#[test]
fn by_default_every_healthy_gpu_is_used() {
    Machine::new(3).assert_seen("CUDA_VISIBLE_DEVICES", |_| {}, &["0", "1", "2"]);
    let machine = Machine::new(3);
    machine.state.change(1, |device| device.faults.lost = Some(Lost::Entirely));
    // CUDA counts without the lost one: only UUIDs are sure to hit.
    let all = |command: &mut Command| {
        command.args(["--gpus", "all"]);
    };
    machine.assert_seen("CUDA_VISIBLE_DEVICES", all, &[&uuid(0), &uuid(2)]);
}

#[test]
fn a_divided_gpu_is_used_by_its_instances() {
    let machine = Machine::new(2);
    let instances = vec![FakeMig::new(1, 0), FakeMig::new(1, 3)];
    let wanted = [uuid(0), instances[0].uuid.clone(), instances[1].uuid.clone()];
    machine.state.change(1, |device| device.mig = Mig::Enabled(instances));
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    machine.assert_seen("CUDA_VISIBLE_DEVICES", |_| {}, &wanted);

    let one = |command: &mut Command| {
        command.args(["--gpus", wanted[2]]);
    };
    let machine = Machine { world: World::new(), ..machine };
    machine.assert_seen("CUDA_VISIBLE_DEVICES", one, &[wanted[2]]);
}

#[test]
fn a_limit_in_the_environment_is_what_all_means() {
    for (limit, wanted) in [("2,3", ["2", "3"]), ("3,1,9,0", ["1", "3"])] {
        let machine = Machine::new(4);
        let limited = |command: &mut Command| {
            command.env("CUDA_VISIBLE_DEVICES", limit);
        };
        machine.assert_seen("CUDA_VISIBLE_DEVICES", limited, &wanted);
    }
}

#[test]
fn a_limit_in_the_environment_that_makes_no_sense_is_named() {
    let machine = Machine::new(2);
    for (list, wanted) in [
        ("", "CUDA_VISIBLE_DEVICES is set to ``, which allows none"),
        ("-1", "CUDA_VISIBLE_DEVICES is set to `-1`, which allows none"),
        ("7", "CUDA_VISIBLE_DEVICES is set to `7`: there is no GPU `7`"),
        ("0,0", "CUDA_VISIBLE_DEVICES is set to `0,0`: `0` is the same GPU as `0`"),
    ] {
        let mut command = machine.command(&["run", "--", "true"]);
        command.env("CUDA_VISIBLE_DEVICES", list);
        let done = finish(command);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{list}");
        assert!(done.stderr.contains(wanted), "{}", done.stderr);
        assert!(done.stderr.contains("\nhint: "), "{}", done.stderr);
    }
    // Ids that a person wrote are not the environment's.
    let mut command = machine.command(&["run", "--gpus", "9", "--", "true"]);
    command.env("CUDA_VISIBLE_DEVICES", "7");
    let done = finish(command);
    assert!(done.stderr.starts_with("error: there is no GPU `9`"), "{done:?}");
}

#[test]
fn gpus_are_named_by_index_or_uuid_and_passed_on_as_written() {
    let machine = Machine::new(3);
    let (uuid, short) = (uuid(1), "GPU-00000002");
    let named = |command: &mut Command| {
        command.args(["--gpus", "0", &uuid, short]);
    };
    machine.assert_seen("CUDA_VISIBLE_DEVICES", named, &["0", &uuid, short]);
}

#[test]
fn a_gpu_that_is_not_there_is_refused_with_what_there_is() {
    let machine = Machine::new(2);
    let there = [&*format!("0 ({})", uuid(0)), &format!("1 ({})", uuid(1))];
    for id in ["7", "GPU-7", "MIG-7", "fast"] {
        let wanted = [&*format!("there is no GPU `{id}`"), there[0], there[1]];
        machine.assert_refused(&[&format!("0,{id}")], &wanted);
    }
    machine.assert_refused(&["GPU-0000"], &["write more of the UUID"]);
}

#[test]
fn a_gpu_named_twice_is_refused() {
    let machine = Machine::new(2);
    machine.assert_refused(&["1,1"], &["`1` is the same GPU as `1`"]);
    machine.assert_refused(&["1", &uuid(1)], &["is the same GPU as `1`"]);
    machine.assert_refused(&["0+1", "GPU-00000001"], &["is the same GPU as `1`"]);
}

#[test]
fn a_lost_gpu_that_is_named_is_refused_with_the_reason() {
    let machine = Machine::new(2);
    machine.state.change(1, |device| device.faults.lost = Some(Lost::Readings));
    machine.assert_refused(&["0,1"], &["GPU `1` does not work", "fallen off the bus"]);
}

#[test]
fn tasks_on_amds_cards_are_told_in_amds_variables() {
    let machine = Machine::new(0);
    machine.amd(0);
    machine.amd(1);
    machine.assert_seen("ROCR_VISIBLE_DEVICES", |_| {}, &["0", "1"]);
    let machine = Machine { world: World::new(), state: machine.state };
    machine.amd(0);
    machine.amd(1);
    let all = "$ROCR_VISIBLE_DEVICES/$HIP_VISIBLE_DEVICES/${CUDA_VISIBLE_DEVICES-unset}";
    let script = format!("echo {all} > seen");
    let done = machine.packhorse(&["run", "-g", "2", "--", "sh", "-c", &script]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(machine.world.read("seen"), "0,1/0,1/unset\n");
}

#[test]
fn a_cuda_program_sees_the_device_it_was_given() {
    let machine = Machine::new(3);
    // The fastest card is not the first: an order that is not set would show.
    machine.state.change(2, |device| device.speed = 9);
    let program = fake_cuda_path();
    let words = ["run", "--gpus", "1", "--", program.to_str().unwrap()];
    let done = machine.packhorse(&words);
    assert_eq!(done.code, 0, "{done:?}");
    let log = machine.packhorse(&["logs", "1"]).stdout;
    assert_eq!(log, format!("device 0: {}\n", uuid(1)));
}

#[test]
fn without_a_driver_ids_are_taken_as_they_are() {
    let machine = Machine::new(2);
    // As good as none: nobody can say what there is.
    machine.state.change_driver(|driver| driver.init = Some(Code::DriverNotLoaded));
    let named = |command: &mut Command| {
        command.args(["--gpus", "7,GPU-fast,x:y"]);
    };
    machine.assert_seen("CUDA_VISIBLE_DEVICES", named, &["7", "GPU-fast", "x:y"]);
}

#[test]
fn on_a_terminal_of_80_columns_no_line_is_broken_and_no_uuid_is_cut() {
    let machine = Machine::new(2);
    let reason = "something that takes many words to say and more columns than there are";
    machine.state.change(1, |device| device.faults.lost = Some(Lost::Entirely));
    machine.state.change(0, |device| device.name = reason.to_owned());
    let mut command = machine.command(&["gpus"]);
    command.env("TERM", "xterm");
    let mut terminal = Terminal::start(command, 80, 24);
    assert_eq!(terminal.finish(), 0);
    let text = terminal.text();
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{text}");
    let lost = "lost: it has fallen off the bus; a reboot may bring it back";
    for wanted in ["POWER", "something that takes ma…", &uuid(0), lost] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    // As wide as it likes where it is not on a terminal.
    let table = machine.packhorse(&["gpus"]).stdout;
    assert!(row(&table, "0 ").contains(&reason), "{table}");
}
