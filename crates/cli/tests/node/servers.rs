//! MPS servers: one for each user and GPU.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::Path;

use crate::fake_slurm::{FakeNode, finish};
use crate::lab::{GAMES, NOBODY, NodeLab, NodeSettings};
use packhorse_fake_nvml::fake_mps_control_path;
use packhorse_slurm_lab::{Cgroups, SlurmVersion};
use packhorse_test_parts::{needs, wait_for_change};

/// A lab with a stand-in for NVIDIA's program.
fn lab() -> NodeLab {
    let control = format!(
        "#!/bin/sh\nexport FAKE_NVML_STATE={{lab}}/gpus\nexec {} \"$@\"\n",
        fake_mps_control_path().display()
    );
    NodeLab::start(NodeSettings {
        more: "[mps]\ncontrol = \"{lab}/etc/mps-control\"\n",
        files: vec![("mps-control".to_owned(), control)],
        ..NodeSettings::default()
    })
}

/// The servers that run, by name. `packhorse node status` would end those that it finds
/// unused, so it is not asked.
fn running(lab: &NodeLab) -> BTreeSet<String> {
    let folder = format!("CUDA_MPS_PIPE_DIRECTORY={}/", lab.folder().join("mps").display());
    let name = |process: fs_err::DirEntry| {
        let environment = fs_err::read(process.path().join("environ")).ok()?;
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let mut variables = environment.split('\0');
        variables.clone().find(|variable| variable.starts_with("PACKHORSE_SERVICE="))?;
        let pipes = variables.find_map(|variable| variable.strip_prefix(&folder))?;
        Some(pipes.split('/').next()?.to_owned())
    };
    // Those of the node, among all others of this machine.
    fs_err::read_dir("/proc").unwrap().flatten().filter_map(name).collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn each_user_has_a_server_on_each_gpu_from_the_first_job_to_the_last() {
    needs!(Slurm);
    let lab = lab();
    let show = "echo $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT; \
                ls $CUDA_MPS_PIPE_DIRECTORY/control; read x <$NAME";
    let gates = ["a", "b", "c", "d", "e", "f"].map(|name| (name, lab.gate(name)));
    let submit = |user, name: &str| {
        let script = show.replace("$NAME", name);
        let job = lab.submit(user, &["--gres=mps:320", &format!("--output={name}.txt")], &script);
        lab.wait_for_work(&job);
        job
    };
    let end = |name: &str, job: &str| {
        let (_, gate) = gates.iter().find(|(it, _)| *it == name).unwrap();
        (&*gate).write_all(b"\n").unwrap();
        lab.slurm.wait_for_job(job, "COMPLETED");
    };
    // Three GPUs are taken, so that these two users share the fourth.
    let full: Vec<String> = ["a", "b", "c"].iter().map(|name| submit(NOBODY, name)).collect();
    let small = |user, name: &str| {
        let script = show.replace("$NAME", name);
        let output = format!("--output={name}.txt");
        let job = lab.submit(user, &["--gres=mps:80", &output], &script);
        lab.wait_for_work(&job);
        job
    };
    let first = small(NOBODY, "d");
    let second = small(GAMES, "e");
    let third = small(GAMES, "f");
    let all = names(&["0-65534", "1-65534", "2-65534", "3-65534", "3-5"]);
    let seen = lab.slurm.wait(|_| (running(&lab) == all).then_some(()));
    assert!(seen.is_some(), "{:?}", running(&lab));
    let wrote = |name: &str| {
        let text =
            lab.slurm.wait(|_| Some(lab.wrote(name)).filter(|text| text.lines().count() == 2));
        text.unwrap_or_else(|| panic!("{name}: {}", lab.wrote(name)))
    };
    // A quarter of 24 GiB, at a server of one's own, which was there before the job.
    for (name, server) in [("d.txt", "3-65534"), ("e.txt", "3-5"), ("f.txt", "3-5")] {
        let text = wrote(name);
        assert!(text.contains(&format!("mps/{server}/pipe 0=6144M")), "{text}");
        assert!(text.contains("/control\n"), "{text}");
    }
    // Nobody else can reach into it.
    let mut ls = lab.by(GAMES, "ls");
    let listed = ls.arg(lab.folder().join("mps/3-65534")).output().unwrap();
    assert!(!listed.status.success());

    end("e", &second);
    let seen = lab.slurm.wait(|_| running(&lab).contains("3-5").then_some(()));
    assert!(seen.is_some(), "its user's other job needs it");
    end("f", &third);
    let seen = lab.slurm.wait(|_| (!running(&lab).contains("3-5")).then_some(()));
    assert!(seen.is_some(), "it was the last");
    assert!(running(&lab).contains("3-65534"), "another user's goes on");
    end("d", &first);
    for (name, job) in ["a", "b", "c"].iter().zip(&full) {
        end(name, job);
    }
    let seen = lab.slurm.wait(|_| running(&lab).is_empty().then_some(()));
    assert!(seen.is_some(), "{:?}", running(&lab));
    let folders = fs_err::read_dir(lab.folder().join("mps")).unwrap();
    assert_eq!(folders.count(), 0);
    lab.saw_every_epilog();
}

fn a_server_can_open_the_gpu_of_its_job_alone(version: SlurmVersion, cgroups: Cgroups) {
    let control = "#!/bin/sh\nfor i in 0 1 2 3; do (exec 3<{lab}/dev/nvidia$i) 2>&1 | \
                   grep -q 'No such device' && echo $i >>{lab}/out/opens; done\n\
                   [ -z \"$CUDA_VISIBLE_DEVICES\" ] || \
                   echo $CUDA_VISIBLE_DEVICES >>{lab}/out/visible\nexit 1\n";
    let lab = NodeLab::start(NodeSettings {
        version,
        cgroups,
        more: "[mps]\ncontrol = \"{lab}/etc/mps-control\"\n",
        files: vec![("mps-control".to_owned(), control.to_owned())],
        ..NodeSettings::default()
    });
    for gpu in ["0", "1"] {
        let job = lab.submit_lasting(NOBODY, 64);
        lab.wait_for_work(&job);
        let opens = lab.slurm.wait(|_| {
            let text = lab.wrote("opens");
            text.ends_with(&format!("{gpu}\n")).then_some(text)
        });
        let opens =
            opens.unwrap_or_else(|| panic!("{gpu}: {} {}", lab.wrote("opens"), lab.problems()));
        assert!(opens.lines().all(|line| line == gpu), "{opens}");
        fs_err::remove_file(lab.folder().join("out/opens")).unwrap();
    }
    // Without UUIDs it counts what it can open.
    assert_eq!(lab.wrote("visible"), "0\n0\n");
    // What ends it is its user's as well.
    lab.end_lasting();
    let seen = lab.slurm.wait(|_| {
        let mut folder = fs_err::read_dir(lab.folder().join("mps")).unwrap();
        folder.next().is_none().then(|| lab.wrote("opens"))
    });
    let opens = seen.expect("both end");
    let mut opens: Vec<&str> = opens.lines().collect();
    opens.sort_unstable();
    opens.dedup();
    assert_eq!(opens, ["0", "1"]);
}

#[test]
fn a_server_can_open_the_gpu_of_its_job_alone_with_cgroups_of_version_1() {
    needs!(Slurm);
    a_server_can_open_the_gpu_of_its_job_alone(SlurmVersion::Host, Cgroups::Version1);
}

#[test]
fn a_server_can_open_the_gpu_of_its_job_alone_with_cgroups_of_version_2() {
    needs!(Slurm24);
    a_server_can_open_the_gpu_of_its_job_alone(SlurmVersion::V24_11, Cgroups::Version2);
}

#[test]
fn whatever_a_user_has_made_of_a_server_ends_with_it() {
    needs!(Root);
    let node = FakeNode::new("");
    let control = node.path("control");
    node.configure(&format!("[mps]\ncontrol = \"{}\"\n", control.display()));
    let pid = node.path("pid");
    // Nothing about it says whose it is.
    let script = format!(
        "#!/bin/sh\n[ -s {0} ] || env -i setsid sh -c 'echo $$ >{0}; exec sleep 1000' >/dev/null 2>&1 &\nexit 1\n",
        pid.display()
    );
    fs_err::write(&control, script).unwrap();
    fs_err::write(&pid, "").unwrap();
    for (path, mode) in [(node.path(""), 0o755), (control, 0o755), (pid.clone(), 0o666)] {
        fs_err::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    node.prolog(1, 64);
    wait_for_server(&node, "0-1000");
    let process = wait_for_change(&[&node.path("")], None, || {
        Some(fs_err::read_to_string(&pid).unwrap()).filter(|text| text.ends_with('\n'))
    });
    let process = process.unwrap();
    let status = format!("/proc/{}/status", process.trim());
    let is_alive = || {
        let text = fs_err::read_to_string(&status).unwrap_or_default();
        !text.is_empty() && !text.contains("\nState:\tZ")
    };
    assert!(is_alive());
    node.epilog(1, 64);
    wait_for_server(&node, "0-1000");
    assert!(!is_alive());
    let inode = fs_err::metadata(node.state()).unwrap().ino();
    let group = format!("/sys/fs/cgroup/devices/packhorse-{inode}/0-1000");
    assert!(!Path::new(&group).exists());
}

/// As a job waits for its server.
fn wait_for_server(node: &FakeNode, name: &str) {
    let ready = node.state().join(format!("locks/{name}.ready"));
    let ready = fs_err::File::open(ready).unwrap();
    rustix::fs::flock(ready.file(), rustix::fs::FlockOperation::LockShared).unwrap();
}

#[test]
fn a_user_who_stops_the_own_part_of_a_server_holds_nobody_up_for_ever() {
    needs!(Root);
    let node = FakeNode::new("");
    let control = node.path("control");
    node.configure(&format!("[mps]\ncontrol = \"{}\"\npatience = 1\n", control.display()));
    // Whatever a user's process does to another of the same user.
    fs_err::write(&control, "#!/bin/sh\nkill -STOP $PPID\n").unwrap();
    for path in [node.path(""), control] {
        fs_err::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    node.prolog(1, 64);
    wait_for_server(&node, "0-1000");
    let log = fs_err::read_to_string(node.state().join("log")).unwrap();
    assert!(log.contains("MPS server 0-1000: it was killed after 3 s"), "{log}");
}

#[test]
fn a_server_runs_in_its_users_own_group_and_not_where_the_state_is() {
    let node = FakeNode::new("[mps]\ncontrol = \"/bin/false\"\n");
    let folder = node.path("mps");
    let mut command = node.command("prolog", 1, Some(64));
    // The user games is in group 60.
    command.env("SLURM_JOB_UID", GAMES.0.to_string());
    finish(command.env_remove("SLURM_JOB_GID"));
    let orders = fs_err::read_to_string(node.orders(1)).unwrap();
    assert!(orders.contains("\ngid 60\n"), "{orders}");
    let pipes = node.variable(1, "CUDA_MPS_PIPE_DIRECTORY").unwrap();
    assert_eq!(Path::new(&pipes), folder.join("0-5/pipe"));
    wait_for_server(&node, "0-5");
}

#[test]
fn users_reach_their_server_whatever_umask_the_prolog_has() {
    let node = FakeNode::new("");
    let config = fs_err::read_to_string(node.config()).unwrap();
    let folder = format!("folder = \"{}\"", node.path("mps").display());
    let below = format!(
        "folder = \"{}\"\ncontrol = \"/bin/false\"",
        node.path("var/packhorse/mps").display()
    );
    let config = config.replace(&folder, &below);
    fs_err::write(node.config(), config.replace("servers = false", "")).unwrap();
    let prolog = node.command("prolog", 1, Some(64));
    let mut shell = std::process::Command::new("/bin/sh");
    shell.args(["-c", "umask 077; exec \"$0\" \"$@\""]);
    shell.arg(prolog.get_program()).args(prolog.get_args());
    let variables = prolog.get_envs();
    shell.env_clear().envs(variables.filter_map(|(name, value)| Some((name, value?))));
    finish(&mut shell);
    wait_for_server(&node, "0-1000");
    for (name, mode) in [("var", 0o755), ("var/packhorse", 0o755), ("var/packhorse/mps", 0o711)] {
        let found = fs_err::metadata(node.path(name)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{name}");
    }
}

#[test]
fn servers_of_gone_jobs_are_ended_also_if_the_asking_job_is_refused() {
    let node = FakeNode::new("[mps]\ncontrol = \"/bin/false\"\n[[allow]]\nmost = 64\n");
    node.prolog(1, 64);
    wait_for_server(&node, "0-1000");
    let folder = node.path("mps/0-1000");
    assert!(folder.exists());
    // Its epilog never ran.
    node.knows(&[2]);
    node.forgets();
    node.prolog(2, 320);
    assert!(node.asked().contains("scancel 2"), "{}", node.asked());
    wait_for_server(&node, "0-1000");
    assert!(!folder.exists());
}

#[test]
fn an_epilog_that_is_not_the_last_of_its_server_starts_nothing() {
    let node = FakeNode::new("placing = \"pack\"\n[mps]\ncontrol = \"/bin/false\"\n");
    let folder = node.path("mps");
    // Each time that the server is looked after is in the log: it cannot be started.
    let times = || {
        wait_for_server(&node, "0-1000");
        let log = fs_err::read_to_string(node.state().join("log")).unwrap();
        log.matches("MPS server 0-1000").count()
    };
    for job in 1..=3 {
        node.prolog(job, 64);
        assert_eq!(times(), job as usize);
    }
    node.epilog(1, 64);
    node.epilog(2, 64);
    assert_eq!(times(), 3);
    assert!(folder.join("0-1000").exists());
    node.epilog(3, 64);
    times();
    assert!(!folder.join("0-1000").exists());
}

#[test]
fn a_server_that_nobody_ended_is_found_by_the_next_prolog_that_asks() {
    let node = FakeNode::new("[mps]\ncontrol = \"/bin/false\"\n");
    node.prolog(1, 64);
    wait_for_server(&node, "0-1000");
    let folder = node.path("mps/0-1000");
    assert!(folder.exists());
    // As if an epilog was killed after it had given the share back.
    fs_err::remove_file(node.orders(1)).unwrap();
    node.knows(&[2]);
    node.forgets();
    let mut command = node.command("prolog", 2, Some(64));
    finish(command.env("SLURM_JOB_UID", GAMES.0.to_string()));
    wait_for_server(&node, "0-1000");
    assert!(!folder.exists());
}

#[test]
fn the_server_of_a_job_whose_file_is_damaged_goes_on() {
    let node = FakeNode::new("[mps]\ncontrol = \"/bin/false\"\n");
    let folder = node.path("mps/0-1000");
    for mode in ["choose", "native"] {
        node.configure(&format!("mode = \"{mode}\"\n[mps]\ncontrol = \"/bin/false\"\n"));
        node.prolog(1, 64);
        wait_for_server(&node, "0-1000");
        assert!(folder.exists());
        fs_err::write(node.orders(1), "nonsense").unwrap();
        node.falls_silent();
        node.status();
        wait_for_server(&node, "0-1000");
        assert!(folder.exists(), "{mode}: its job may run");
        fs_err::remove_file(node.path("silent")).unwrap();
        node.status();
        wait_for_server(&node, "0-1000");
        assert!(folder.exists(), "{mode}: its job runs");
        node.epilog(1, 64);
        node.status();
        wait_for_server(&node, "0-1000");
        assert!(!folder.exists(), "{mode}: it has ended");
    }
}

#[test]
fn what_else_is_in_the_folder_of_the_servers_is_left_alone() {
    let node = FakeNode::new("[mps]\ncontrol = \"/bin/false\"\n");
    node.prolog(1, 64);
    wait_for_server(&node, "0-1000");
    // No server's name, and a folder of somebody else's with one.
    let other = format!("1-{}", rustix::process::geteuid().as_raw() + 1);
    for name in ["alice", "lost+found", &other] {
        fs_err::create_dir(node.path("mps").join(name)).unwrap();
    }
    node.epilog(1, 64);
    node.status();
    for name in ["0-1000", &other] {
        wait_for_server(&node, name);
    }
    let left = |name: &str| node.path("mps").join(name).exists();
    assert!(left("alice") && left("lost+found") && left(&other));
    assert!(!left("0-1000"));
}
