//! NVIDIA's own Python module takes the library for the real one.

#![expect(clippy::unwrap_used, reason = "a test without its set-up has failed")]

use std::path::Path;
use std::process::Command;

use packhorse_fake_nvml::{
    Code, FakeDevice, FakeDriver, FakeMig, FakeProcess, FakeState, Lost, Mig, ProcessKind,
    STATE_VARIABLE, library_path,
};
use packhorse_test_parts::{needs, test_python};
use serde_json::{Value, json};

/// What the module reads, with the library found as the loader finds it.
fn read(state: &FakeState, folder: &Path, uuids: &[&str]) -> Value {
    std::os::unix::fs::symlink(library_path(), folder.join("libnvidia-ml.so.1")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvidia_ml_py.py");
    let output = Command::new(test_python())
        .arg(script)
        .args(uuids)
        .env(STATE_VARIABLE, state.path())
        .env("LD_LIBRARY_PATH", folder)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn nvidia_ml_py_reads_a_whole_machine() {
    needs!(Python);
    let folder = tempfile::tempdir().unwrap();
    let state = FakeState::new(folder.path().join("state"));
    let whole =
        FakeDevice { utilisation: Some(30), near_cores: vec![0, 1, 64], ..FakeDevice::new(0) };
    let divided = FakeDevice {
        mig: Mig::Enabled(vec![FakeMig::new(1, 0), FakeMig::new(1, 2)]),
        power: None,
        ..FakeDevice::new(1)
    };
    let mut lost = FakeDevice::new(2);
    lost.faults.lost = Some(Lost::Entirely);
    state.device(&whole).device(&divided).device(&lost);
    let second = &divided.instances()[1];
    state
        .process(&whole.uuid, &FakeProcess::pretended(77, 3 << 30))
        .process(
            &whole.uuid,
            &FakeProcess { kind: ProcessKind::Graphics, ..FakeProcess::pretended(78, 1 << 20) },
        )
        .process(&second.uuid, &FakeProcess::pretended(79, 1 << 30));

    let uuids = [whole.uuid.as_str(), second.uuid.as_str()];
    let answer = read(&state, folder.path(), &uuids);

    assert_eq!(answer["by_uuid"], json!([0, 2]));
    assert_eq!(answer["near_cores"], json!([3, 1]));
    assert_eq!(answer["event"], json!(["error 10", 1, 8, 79, u32::MAX]));
    assert_eq!(answer["after_shutdown"], "error 1");

    let used = (3 << 30) + (1 << 20);
    let (total, reserved) = (24_u64 << 30, 512_u64 << 20);
    assert_eq!(
        answer["devices"][0],
        json!({
            "uuid": whole.uuid, "name": whole.name, "index": 0,
            "v1": [total, total - reserved - used, used + reserved],
            "v2": [total, reserved, total - reserved - used, used],
            "utilisation": 30, "temperature": 40,
            "power": 60_000, "limit": 300_000,
            "pci": ["00000000:01:00.0", 0, 1, 0],
            "compute": [[77, 3_u64 << 30, u32::MAX]],
            "compute_v2": [[77, 3_u64 << 30, u32::MAX]],
            "graphics": [[78, 1 << 20, u32::MAX]],
            "mig": "error 3",
        })
    );
    let parent = &answer["devices"][1];
    assert_eq!(parent["mig"], json!([1, 1]));
    assert_eq!(parent["utilisation"], "error 3");
    assert_eq!(parent["power"], "error 3");
    assert_eq!(parent["compute"], json!([[79, 1 << 30, 9]]));
    assert_eq!(answer["devices"][2], "error 15");

    let instances = answer["instances"].as_array().unwrap();
    assert_eq!(instances.len(), 2);
    assert_eq!(instances[0]["compute"], json!([]));
    assert_eq!(instances[1]["uuid"], second.uuid.as_str());
    assert_eq!(instances[1]["name"], "NVIDIA Fake 24GB MIG 1g.5gb");
    assert_eq!(instances[1]["index"], 2);
    assert_eq!(instances[1]["v2"], json!([5_u64 << 30, 0, 4_u64 << 30, 1 << 30]));
}

#[test]
fn nvidia_ml_py_meets_an_old_driver_and_a_missing_one() {
    needs!(Python);
    let folder = tempfile::tempdir().unwrap();
    let state = FakeState::new(folder.path().join("state"));
    state.driver(&FakeDriver::old());
    state.device(&FakeDevice { near_cores: vec![0], ..FakeDevice::new(0) });
    state.device(&FakeDevice::new(1));

    let answer = read(&state, folder.path(), &[]);
    assert_eq!(answer["devices"][0]["v2"], "error 13");
    assert_eq!(answer["devices"][0]["compute"], "error 13");
    assert_eq!(answer["devices"][0]["compute_v2"], json!([]));
    assert_eq!(answer["devices"][0]["v1"][0], 24_u64 << 30);

    state.change_driver(|driver| driver.init = Some(Code::DriverNotLoaded));
    let other = tempfile::tempdir().unwrap();
    let answer = read(&state, other.path(), &[]);
    assert_eq!(answer, json!({"init": "error 9"}));
}
