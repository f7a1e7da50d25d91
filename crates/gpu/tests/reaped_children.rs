//! Somebody else collects our children, as a run's supervisor does. A test of
//! its own process: it is the whole process that loses its children.

use std::time::Duration;

use packhorse_fake_nvml::{FakeDevice, FakeState, fake_mps_control_path};
use packhorse_gpu::GpuConfig;
use packhorse_gpu::mps::{Daemon, MpsError};

#[test]
fn mps_is_controlled_though_somebody_else_collects_our_children() {
    // The kernel itself collects them then, before anybody can wait.
    // SAFETY: no handler is installed, and nothing else runs in this process.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let folder = tempfile::tempdir().unwrap();
    let state = FakeState::new(folder.path().join("state"));
    state.device(&FakeDevice::new(0));
    let _turn = state.activate();
    let config = GpuConfig { mps_control: fake_mps_control_path(), ..GpuConfig::default() };
    let uuid = FakeDevice::new(0).uuid;
    let daemon = Daemon::start(&config, &folder.path().join("mps"), &uuid).unwrap();
    assert!(daemon.is_running().unwrap());
    assert!(daemon.servers().unwrap().is_empty());
    daemon.quit(Duration::from_secs(5)).unwrap();
    assert!(matches!(daemon.servers(), Err(MpsError::NotRunning { .. })));
}
