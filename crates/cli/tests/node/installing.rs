//! From nothing to a shared node: what an admin types.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use packhorse_fake_nvml::{FakeDevice, FakeState, STATE_VARIABLE, library_path};
use packhorse_slurm_lab::{Cgroups, SlurmVersion};
use packhorse_test_parts::needs;

use crate::fake_slurm::finish;
use crate::lab::{NOBODY, NodeLab, NodeSettings};

fn install(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packhorse"));
    command.args(["node", "install"]).args(words);
    let done = finish(command.env("PACKHORSE_NVML_LIBRARY", "none"));
    assert_eq!(done.code, Some(0), "{done:?}");
    done.stdout
}

#[test]
fn a_dry_run_writes_nothing_and_prints_everything() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("packhorse");
    let to = to.to_str().unwrap();
    let text = install(&[
        "--dry-run",
        "--folder",
        to,
        "--node",
        "lisa7",
        "--per-gpu",
        "320",
        "--scontrol",
        "/bin/false",
    ]);
    assert!(!folder.path().join("packhorse").exists());
    for part in [
        "mode \"choose\"\n  Slurm does not answer, so its release is not known",
        "# slurm.conf",
        "GresTypes=gpu,mps",
        &format!("Prolog={to}/packhorse-prolog"),
        "# gres.conf",
        "NodeName=lisa7 Name=mps Count=320",
        "ConstrainDevices=yes",
        "optional /usr/lib/packhorse/libpackhorse_spank.so",
        "count = 320",
        "function slurm_cli_pre_submit",
        "function slurm_job_submit",
        "packhorse node check",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let native = install(&["--dry-run", "--folder", to, "--mode", "native"]);
    assert!(native.contains("Flags=all_sharing"), "{native}");
    assert!(native.contains("mode = \"native\""), "{native}");
}

/// A machine whose GPUs have other numbers in their files than in the driver's list.
pub fn other_minors(folder: &Path) -> FakeState {
    let state = FakeState::new(folder.join("driver"));
    for index in 0..4 {
        let mut device = FakeDevice::new(index);
        device.minor = Some(3 - index);
        state.device(&device);
    }
    state
}

#[test]
fn a_uuid_is_written_to_the_file_of_the_same_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let state = other_minors(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_packhorse"));
    command.args(["node", "install", "--dry-run", "--folder"]);
    command.arg(folder.path().join("packhorse"));
    command.env("PACKHORSE_NVML_LIBRARY", library_path());
    let done = finish(command.env(STATE_VARIABLE, state.path()));
    for minor in 0..4 {
        let uuid = FakeDevice::new(3 - minor).uuid;
        let pair = format!("file = \"/dev/nvidia{minor}\"\n    uuid = \"{uuid}\"");
        assert!(done.stdout.contains(&pair), "{pair}: {done:?}");
    }
}

#[test]
fn a_file_of_settings_that_anybody_could_have_put_there_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let state = other_minors(folder.path());
    fs_err::write(folder.path().join("packhorse.toml"), "nonsense").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_packhorse"));
    command.args(["node", "install", "--dry-run", "--folder"]);
    command.arg(folder.path().join("packhorse"));
    command.current_dir(folder.path());
    command.env("PACKHORSE_NVML_LIBRARY", library_path());
    let done = finish(command.env(STATE_VARIABLE, state.path()));
    let uuid = FakeDevice::new(0).uuid;
    assert!(done.stdout.contains(&uuid), "{done:?}");
}

#[test]
fn everybody_can_read_what_is_installed_whatever_roots_umask_is() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("packhorse");
    let script = "umask 077; exec \"$@\"";
    let mut install = Command::new("/bin/sh");
    install.args(["-c", script, "sh", env!("CARGO_BIN_EXE_packhorse")]);
    install.args(["node", "install", "--folder"]).arg(&to);
    let done = finish(install.env("PACKHORSE_NVML_LIBRARY", "none"));
    assert_eq!(done.code, Some(0), "{done:?}");
    let mode = |name: &str| fs_err::metadata(to.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(""), 0o755);
    for name in ["node.toml", "cli_filter.lua", "job_submit.lua"] {
        assert_eq!(mode(name), 0o644, "{name}");
    }
    // And it is told where it is not so.
    let check = || {
        let mut check = Command::new(env!("CARGO_BIN_EXE_packhorse"));
        check.args(["node", "check", "--config"]);
        check.arg(to.join("node.toml"));
        finish(check.env("PACKHORSE_NVML_LIBRARY", "none")).stdout
    };
    assert!(check().contains("ok      everybody can read it"), "{}", check());
    fs_err::set_permissions(to.join("cli_filter.lua"), PermissionsExt::from_mode(0o600)).unwrap();
    let text = check();
    assert!(text.contains("chmod a+rX") && text.contains("cli_filter.lua"), "{text}");
}

#[test]
fn a_configuration_that_is_there_stays() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().to_str().unwrap();
    install(&["--folder", to, "--per-gpu", "100"]);
    let config = folder.path().join("node.toml");
    let text = fs_err::read_to_string(&config).unwrap().replace("count = 100", "count = 50");
    fs_err::write(&config, &text).unwrap();
    let said = install(&["--folder", to, "--per-gpu", "100"]);
    assert_eq!(fs_err::read_to_string(&config).unwrap(), text);
    assert!(said.contains("mps:50"), "{said}");
    assert!(folder.path().join("packhorse-prolog").exists());
}

fn check(lab: &NodeLab) -> (Option<i32>, String) {
    let done = finish(&mut lab.node(&["check"]));
    (done.code, done.stdout)
}

#[test]
fn check_says_what_is_right_and_what_to_do() {
    needs!(Slurm);
    let settings = NodeSettings {
        cgroups: Cgroups::Version1,
        slurm_conf: &["CliFilterPlugins=cli_filter/lua", "JobSubmitPlugins=lua"],
        files: ["cli_filter.lua", "job_submit.lua"]
            .map(|name| (name.to_owned(), crate::rules::filter_text(name)))
            .to_vec(),
        ..NodeSettings::default()
    };
    let lab = NodeLab::start(settings);
    let (code, text) = check(&lab);
    assert_eq!(code, Some(0), "{text}");
    assert!(!text.contains("wrong"), "{text}");
    assert!(text.contains("ok      Slurm answers: release 22.05"), "{text}");
    assert!(text.contains("better  GPU"), "no UUIDs: {text}");

    // Each thing that is missing is named with what to do.
    let etc = lab.folder().join("etc");
    let edit = |name: &str, from: &str, to: &str| {
        let file = etc.join(name);
        let text = fs_err::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        fs_err::write(&file, text.replace(from, to)).unwrap();
    };
    edit("node.toml", "count = 1280", "count = 640");
    edit("cgroup.conf", "ConstrainDevices=yes", "ConstrainDevices=no");
    edit("plugstack.conf", "optional", "required");
    edit("plugstack.conf", "state=", "scontrol=/opt/scontrol other=");
    edit("cli_filter.lua", "packhorse", "other");
    edit("node.toml", "servers = false", "patience = 100");
    let (code, text) = check(&lab);
    assert_eq!(code, Some(1), "{text}");
    for part in [
        "the node has mps:1280, the configuration says count = 640",
        "set ConstrainDevices=yes",
        "write `optional`",
        "the plugin looks in /run/packhorse",
        "the plugin asks /opt/scontrol",
        "cli_filter.lua does not call ours",
        "write wait=600 after its name",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn flags_of_the_prolog_that_do_not_fit_are_told() {
    needs!(Slurm24);
    for (flags, told) in [("Serial", "add Alloc"), ("Alloc,RunInJob", "leave out RunInJob")] {
        let line = format!("PrologFlags={flags}");
        let lab = NodeLab::start(NodeSettings {
            version: SlurmVersion::V24_11,
            slurm_conf: &[&line],
            ..NodeSettings::default()
        });
        let (_, text) = check(&lab);
        assert!(text.contains(told), "{flags}: {text}");
    }
}

#[test]
fn a_plugin_for_another_slurm_is_told() {
    needs!(Slurm, Slurm24);
    let settings = NodeSettings { version: SlurmVersion::V24_11, ..NodeSettings::default() };
    let lab = NodeLab::start(settings);
    let job = lab.submit(NOBODY, &["--gres=mps:64"], "true");
    lab.slurm.wait_for_job(&job, "COMPLETED");
    let plugstack = lab.folder().join("etc/plugstack.conf");
    let text = fs_err::read_to_string(&plugstack).unwrap();
    let other = crate::lab::plugin(SlurmVersion::Host);
    let word = text.split_whitespace().nth(1).unwrap();
    fs_err::write(&plugstack, text.replace(word, &other.display().to_string())).unwrap();
    let (code, text) = check(&lab);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("it was built for Slurm 22.05, and this is 24.11"), "{text}");
}
