//! The GPUs of a Slurm node, shared.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use packhorse_gpu::{Device, Driver, GpuError, Vendor};
use packhorse_model::Exit;
use packhorse_node::{
    GpuConfigEntry, InstallPlan, Installation, JobFacts, Mode, NodeStatus, PrologResult, SCONTROL,
    ServerTask, Slurm, SlurmConf, Verdict,
};
use packhorse_session::ask_driver;
use packhorse_session::settings::Settings;

use super::table::{print_json, print_table, table};
use crate::args::{DaemonTask, InstallArgs, ModeArg, NodeVerb};
use crate::stdout::stdout;
use crate::{complain, wording};

/// `packhorse node`
pub fn node(verb: NodeVerb) -> anyhow::Result<Exit> {
    match verb {
        NodeVerb::Install(args) => install(args),
        NodeVerb::Check { config, node } => check(&config.config, node.or_else(called).as_deref()),
        NodeVerb::Status { config, node, json } => {
            status(&config.config, node.or_else(called).as_deref(), json)
        }
        NodeVerb::Prolog(config) => Ok(prolog(&config.config)),
        NodeVerb::Epilog(config) => Ok(epilog(&config.config)),
        NodeVerb::Serve { config, server } => {
            packhorse_node::serve(&config.config, &server, &program()?)?;
            Ok(Exit::Success)
        }
        NodeVerb::Enter { uid, gid, cgroup, words } => {
            Err(packhorse_node::enter((uid, gid), cgroup.as_deref(), &words).into())
        }
        NodeVerb::Daemon { task, control, patience, folder, devices } => {
            let task = match task {
                DaemonTask::Start => ServerTask::Start,
                DaemonTask::End => ServerTask::End,
            };
            let patience = Duration::from_secs(patience);
            packhorse_node::run_as_user(task, &control, patience, &folder, &devices)?;
            Ok(Exit::Success)
        }
    }
}

/// What Slurm calls this node, where it says so.
fn called() -> Option<String> {
    std::env::var("SLURMD_NODENAME").ok()
}

fn program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// Before a job. Always succeeds: Slurm would take the node out of service.
pub fn prolog(config: &Path) -> Exit {
    let Some(facts) = JobFacts::new(std::env::vars_os()) else {
        return Exit::Success;
    };
    let acted = caught("prolog", || {
        match packhorse_node::prolog(config, &facts, &program()?) {
            PrologResult::NotOurs | PrologResult::Given(_) => {}
            PrologResult::Refused(reason) => complain(&format!("job {}: {reason}", facts.job)),
            PrologResult::SentBack(trouble) => complain(&format!("job {}: {trouble}", facts.job)),
        }
        Ok(())
    });
    if let Err(why) = acted {
        // Otherwise it would run with nothing checked and nothing counted.
        let _ = caught("prolog", || {
            packhorse_node::give_up(config, &facts, &why);
            Ok(())
        });
    }
    Exit::Success
}

/// After a job. Always succeeds, for the same reason.
pub fn epilog(config: &Path) -> Exit {
    let Some(facts) = JobFacts::new(std::env::vars_os()) else {
        return Exit::Success;
    };
    // What it left is found by the next prolog.
    let _ = caught("epilog", || {
        packhorse_node::epilog(config, &facts, &program()?)?;
        Ok(())
    });
    Exit::Success
}

/// Does something that must not end this program, and says if it went wrong.
fn caught(what: &str, act: impl FnOnce() -> anyhow::Result<()>) -> Result<(), String> {
    let acted = catch_unwind(AssertUnwindSafe(act))
        .unwrap_or_else(|_| Err(anyhow::anyhow!("internal error: please report it")));
    acted.map_err(|error| {
        complain(&format!("{what}: {error}"));
        error.to_string()
    })
}

fn check(config: &Path, node: Option<&str>) -> anyhow::Result<Exit> {
    let devices = devices_here().into_iter();
    let minors: Vec<(String, u32)> =
        devices.filter_map(|device| device.uuid.zip(device.minor)).collect();
    let points = packhorse_node::check(config, node, &minors);
    let mut out = stdout();
    let mut exit = Exit::Success;
    for point in points {
        let (mark, todo) = match point.verdict {
            Verdict::Ok => ("ok     ", None),
            Verdict::Better(todo) => ("better ", Some(todo)),
            Verdict::Wrong(todo) => {
                exit = Exit::TasksFailed;
                ("wrong  ", Some(todo))
            }
        };
        writeln!(out, "{mark} {}", wording::printable(&point.what))?;
        for line in todo.iter().flat_map(|todo| todo.lines()) {
            writeln!(out, "         {}", wording::printable(line))?;
        }
    }
    Ok(exit)
}

fn status(config: &Path, node: Option<&str>, as_json: bool) -> anyhow::Result<Exit> {
    let status = packhorse_node::status(config, node, &program()?)?;
    if as_json {
        return print_json(&serde_json::to_value(&status)?);
    }
    show(&status)?;
    Ok(Exit::Success)
}

fn show(status: &NodeStatus) -> io::Result<()> {
    let out = &mut stdout();
    let (node, mode, per_gpu) = (&status.node, status.mode, status.per_gpu);
    writeln!(out, "node {node}, mode {mode}, mps:{per_gpu} per GPU\n")?;
    let mut gpus =
        table("gpu  used  left  job  user  mps  threads  memory  for", &[1, 2, 3, 5, 6, 7, 8]);
    let limit = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for gpu in &status.gpus {
        let mut first = [gpu.index.to_string(), gpu.used.to_string(), gpu.free.to_string()];
        if gpu.jobs.is_empty() {
            gpus.add_row(first.iter());
        }
        for job in &gpu.jobs {
            let mut row = first.to_vec();
            first = Default::default();
            row.extend([
                job.job.to_string(),
                job.user.clone(),
                job.units.to_string(),
                limit(job.threads.map(|threads| format!("{threads}%"))),
                limit(job.memory_limit.map(|memory| memory.to_string())),
                wording::duration(Duration::from_secs(job.seconds)),
            ]);
            gpus.add_row(row);
        }
    }
    print_table(out, &gpus)?;
    if !status.servers.is_empty() {
        let mut servers = table("MPS server  state  jobs", &[]);
        for server in &status.servers {
            let state = match server.processes {
                0 => "not running".to_owned(),
                1 => "running".to_owned(),
                processes => format!("{processes} processes"),
            };
            let jobs: Vec<String> = server.jobs.iter().map(ToString::to_string).collect();
            servers.add_row([server.name.clone(), state, jobs.join(" ")]);
        }
        writeln!(out)?;
        print_table(out, &servers)?;
    }
    for job in &status.refused {
        let text = format!("refused: job {} of {}: {}", job.job, job.user, job.reason);
        writeln!(out, "\n{}", wording::printable(&text))?;
    }
    if !status.problems.is_empty() {
        writeln!(out, "\nlately (seconds since the boot):")?;
        for problem in &status.problems {
            writeln!(out, "  {}", wording::printable(problem))?;
        }
    }
    Ok(())
}

fn install(args: InstallArgs) -> anyhow::Result<Exit> {
    let scontrol = args.scontrol.clone().or_else(Slurm::find);
    let conf = scontrol.as_ref().and_then(|scontrol| SlurmConf::ask(&Slurm::new(scontrol)));
    let node = args.node.or_else(called);
    let mode = args.mode.map(|mode| match mode {
        ModeArg::Choose => Mode::Choose,
        ModeArg::Native => Mode::Native,
    });
    let plan = InstallPlan {
        folder: args.folder,
        program: program()?,
        plugin: args.plugin,
        node: node.unwrap_or_else(packhorse_node::host_name),
        release: conf.as_ref().and_then(SlurmConf::release),
        mode,
        per_gpu: args.per_gpu,
        gpus: gpus_here(),
        scontrol: scontrol.filter(|file| file != Path::new(SCONTROL)),
    };
    let installation = packhorse_node::install(&plan)?;
    if !args.dry_run {
        write(&plan, &installation)?;
    }
    print(&installation, args.dry_run)?;
    Ok(Exit::Success)
}

/// NVIDIA's GPUs of this machine, by their driver.
fn devices_here() -> Vec<Device> {
    let found = Settings::find_without_project(&mut complain).map_err(anyhow::Error::from);
    let found = found.and_then(|settings| {
        let devices = ask_driver(&settings.gpu_config(), &mut complain, |config| {
            let driver = Driver::detect(config)?;
            let is_nvidia = driver.vendor() == Some(Vendor::Nvidia);
            Ok::<_, GpuError>(if is_nvidia { driver.devices()? } else { Vec::new() })
        });
        Ok(devices??)
    });
    found.unwrap_or_else(|error| {
        complain(&error.to_string());
        Vec::new()
    })
}

/// The GPUs of this machine, by their driver; without one, by their device files.
fn gpus_here() -> Vec<GpuConfigEntry> {
    let mut devices = devices_here();
    let number = |device: &Device| device.minor.unwrap_or(device.index);
    devices.sort_by_key(number);
    let named: Vec<GpuConfigEntry> = devices
        .iter()
        .map(|device| GpuConfigEntry {
            file: PathBuf::from(format!("/dev/nvidia{}", number(device))),
            // A file without a UUID is better than the file of another GPU.
            uuid: device.minor.and_then(|_| device.uuid.clone()),
            memory: device.memory.as_ref().map(|memory| memory.total),
        })
        .collect();
    if !named.is_empty() {
        return named;
    }
    let files = (0..64).map(|index| PathBuf::from(format!("/dev/nvidia{index}")));
    let files: Vec<PathBuf> = files.filter(|file| file.exists()).collect();
    let files = if files.is_empty() {
        complain("no GPU was found here: the files below are for one, /dev/nvidia0");
        vec![PathBuf::from("/dev/nvidia0")]
    } else {
        files
    };
    let entry = |file| GpuConfigEntry { file, uuid: None, memory: None };
    files.into_iter().map(entry).collect()
}

/// Writes our own files: new ones only, and those that we made before.
fn write(plan: &InstallPlan, installation: &Installation) -> anyhow::Result<()> {
    let folder = &plan.folder;
    // Every user's sbatch reads them, whatever root's umask is.
    let readable = |path: &Path, mode| fs_err::set_permissions(path, Permissions::from_mode(mode));
    fs_err::create_dir_all(folder)?;
    readable(folder, 0o755)?;
    for (file, text) in &installation.files {
        let new = file.with_extension("new");
        fs_err::write(&new, text)?;
        readable(&new, 0o644)?;
        fs_err::rename(&new, file)?;
    }
    for link in &installation.links {
        match fs_err::remove_file(link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        symlink(&plan.program, link).with_context(|| format!("cannot make {}", link.display()))?;
    }
    Ok(())
}

fn print(installation: &Installation, is_dry: bool) -> anyhow::Result<()> {
    let out = &mut stdout();
    let (mode, why) = &installation.mode;
    let mode = match mode {
        Mode::Choose => "choose",
        Mode::Native => "native",
    };
    writeln!(out, "mode \"{mode}\"\n  {why}\n")?;
    for (file, text) in &installation.files {
        if is_dry {
            writeln!(out, "would write {}:\n", file.display())?;
            for line in text.lines() {
                writeln!(out, "    {line}")?;
            }
            writeln!(out)?;
        } else {
            writeln!(out, "wrote {}", file.display())?;
        }
    }
    for link in &installation.links {
        let verb = if is_dry { "would link" } else { "linked" };
        writeln!(out, "{verb} {} to packhorse", link.display())?;
    }
    for (file, lines) in &installation.lines {
        writeln!(out, "\n# {file}")?;
        for line in lines {
            writeln!(out, "{line}")?;
        }
    }
    writeln!(out, "\nThen `scontrol reconfigure`, restart slurmd, and `packhorse node check`.")?;
    Ok(())
}
