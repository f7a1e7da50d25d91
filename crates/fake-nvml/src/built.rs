use std::path::PathBuf;

/// The shared library, as Cargo has built it beside the running test.
///
/// A crate with this one among its dev-dependencies makes Cargo build it.
pub fn library_path() -> PathBuf {
    find("libpackhorse_fake_nvml.so")
}

/// The program `fake-cuda`, as Cargo has built it beside the running test.
///
/// Cargo builds programs of other packages only when told to:
/// `cargo build -p packhorse-fake-nvml`.
pub fn fake_cuda_path() -> PathBuf {
    find("fake-cuda")
}

/// The stand-in for `nvidia-cuda-mps-control`, as Cargo has built it beside the
/// running test. To be built as [`fake_cuda_path`] says.
pub fn fake_mps_control_path() -> PathBuf {
    find("fake-mps-control")
}

/// Tests run from `target/PROFILE/deps`, programs from `target/PROFILE`.
fn find(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("the kernel knows our program");
    let beside = program.parent().expect("a program is in a folder");
    [beside.join(name), beside.join("deps").join(name), beside.join("..").join(name)]
        .into_iter()
        .find(|path| path.is_file())
        .unwrap_or_else(|| {
            panic!(
                "{name} is not beside {}\nhint: build it with `cargo build -p packhorse-fake-nvml`",
                program.display()
            )
        })
}
