//! Whether a node's set-up is right, point by point.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use packhorse_orders::{SCONTROL, SERVER_SECONDS, STATE_FOLDER};

use crate::config::{Config, Mode};
use crate::heal::{exists, host_name};
use crate::slurm::Slurm;
use crate::slurm_conf::{Release, SlurmConf, fitting_mode};
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckPoint {
    /// What was checked.
    pub what: String,
    /// How it is.
    pub verdict: Verdict,
}

/// How a point is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Right.
    Ok,
    /// It works, but could be better: what to do.
    Better(String),
    /// It does not work: what to do.
    Wrong(String),
}

struct Points(Vec<CheckPoint>);

impl Points {
    fn add(&mut self, what: impl Into<String>, verdict: Verdict) {
        let what = what.into();
        self.0.push(CheckPoint { what, verdict });
    }

    fn wrong_unless(&mut self, what: impl Into<String>, is_right: bool, todo: &str) {
        let verdict = if is_right { Verdict::Ok } else { Verdict::Wrong(todo.to_owned()) };
        self.add(what, verdict);
    }
}

/// Checks everything that can be seen from here. `minors`: the UUIDs of this machine's GPUs and
/// the minor numbers of their device files, as far as the driver tells.
pub fn check(file: &Path, node: Option<&str>, minors: &[(String, u32)]) -> Vec<CheckPoint> {
    let mut points = Points(Vec::new());
    let is_root = rustix::process::geteuid().is_root();
    points.wrong_unless("run by root", is_root, "run it as root: prolog and epilog are");
    let config = match Config::read(file) {
        Ok(config) => config,
        Err(error) => {
            points.add(
                format!("configuration {}", file.display()),
                Verdict::Wrong(error.to_string()),
            );
            return points.0;
        }
    };
    points.add(format!("configuration {}", file.display()), Verdict::Ok);
    readable(file, &mut points);
    gpus(&config, minors, &mut points);
    mps(&config, &mut points);
    let state = State::open(&config.state).and_then(|state| state.lock().map(drop));
    points.add(
        format!("state folder {}", config.state.display()),
        state.map_or_else(|error| Verdict::Wrong(error.to_string()), |()| Verdict::Ok),
    );
    slurm(&config, node, &mut points);
    points.0
}

/// The filters run as whoever submits a job, and read the configuration.
fn readable(file: &Path, points: &mut Points) {
    let beside = ["cli_filter.lua", "job_submit.lua"].map(|name| file.with_file_name(name));
    let files = beside.iter().map(PathBuf::as_path).filter(|file| exists(file));
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let wanted = files.chain([file]).map(|file| (file, 0o444));
    let wanted = wanted.chain(folder.map(|folder| (folder, 0o555)));
    let unreadable = wanted.filter(|(path, bits)| {
        let mode = fs_err::metadata(path).map_or(0, |found| found.mode());
        mode & bits != *bits
    });
    let commands: Vec<String> =
        unreadable.map(|(path, _)| format!("chmod a+rX {}", path.display())).collect();
    points.wrong_unless(
        "everybody can read it, and the filters beside it",
        commands.is_empty(),
        &format!("users' sbatch could not:\n{}", commands.join("\n")),
    );
}

fn gpus(config: &Config, minors: &[(String, u32)], points: &mut Points) {
    for gpu in &config.gpus {
        let found = fs_err::metadata(&gpu.file).ok();
        let found = found.filter(|found| found.file_type().is_char_device());
        let what = format!("GPU {}", gpu.file.display());
        let Some(found) = found else {
            points.add(what, Verdict::Wrong("it is not a device file: is the driver loaded (nvidia-smi), and is the name right?".to_owned()));
            continue;
        };
        let minor = rustix::fs::minor(found.rdev());
        let mut known = minors.iter();
        let known = known.find(|(uuid, _)| Some(uuid) == gpu.uuid.as_ref());
        match known {
            Some((_, other)) if *other != minor => {
                let todo = format!(
                    "its uuid is that of /dev/nvidia{other}: jobs would be given one and see the other"
                );
                points.add(what, Verdict::Wrong(todo));
                continue;
            }
            None if gpu.uuid.is_some() && !minors.is_empty() => {
                let todo = "no GPU of this machine has its uuid (nvidia-smi -L shows them)";
                points.add(what, Verdict::Wrong(todo.to_owned()));
                continue;
            }
            _ => {}
        }
        let mut missing = Vec::new();
        if gpu.uuid.is_none() {
            missing.push("uuid, so that jobs are given the right one whatever they can see");
        }
        if gpu.memory.is_none() && config.mps.memory {
            missing.push("memory, so that it is limited");
        }
        let verdict = match missing[..] {
            [] => Verdict::Ok,
            _ => Verdict::Better(format!(
                "say its {} (`packhorse node install --dry-run` shows both)",
                missing.join(", and its ")
            )),
        };
        points.add(what, verdict);
    }
}

fn mps(config: &Config, points: &mut Points) {
    if !config.mps.servers {
        let todo = "servers = false: jobs share a GPU by taking turns, and their memory is not limited unless a server of your own runs";
        return points.add("MPS servers", Verdict::Better(todo.to_owned()));
    }
    let control = &config.mps.control;
    points.wrong_unless(
        format!("MPS control {}", control.display()),
        exists(control),
        "there is no such program: it comes with the driver; name it as mps.control, or set mps.servers = false",
    );
    let folder = &config.mps.folder;
    let closed = folder.ancestors().skip(1).find(|above| {
        let found = fs_err::metadata(above);
        found.is_ok_and(|found| found.mode() & 0o001 == 0)
    });
    let todo = closed.map(|above| format!("users cannot get there: chmod o+x {}", above.display()));
    points.wrong_unless(
        format!("folder of the servers {}", folder.display()),
        closed.is_none(),
        &todo.unwrap_or_default(),
    );
}

fn slurm(config: &Config, node: Option<&str>, points: &mut Points) {
    let what = format!("Slurm's commands beside {}", config.scontrol.display());
    let all = ["scontrol", "squeue", "scancel"].map(|name| config.scontrol.with_file_name(name));
    if let Some(missing) = all.iter().find(|program| !exists(program)) {
        let todo = format!("there is no {}: name scontrol in the configuration", missing.display());
        return points.add(what, Verdict::Wrong(todo));
    }
    points.add(what, Verdict::Ok);
    let slurm = Slurm::new(&config.scontrol);
    let Some(conf) = SlurmConf::ask(&slurm) else {
        let todo = "`scontrol show config` fails: is slurmctld running, and is SLURM_CONF right?";
        return points.add("Slurm answers", Verdict::Wrong(todo.to_owned()));
    };
    let release = conf.release();
    let name = release.map_or_else(|| "unknown".to_owned(), |release| release.to_string());
    points.add(format!("Slurm answers: release {name}"), Verdict::Ok);
    mode(config, release, points);
    settings(&conf, points);
    let host = host_name();
    gres(config, &conf, &slurm, node.unwrap_or(&host), points);
    plugin(config, &conf, release, points);
}

fn mode(config: &Config, release: Option<Release>, points: &mut Points) {
    let verdict = match (config.mode, release) {
        (Mode::Native, Some(release)) if release < Release(22, 5) => {
            Verdict::Wrong(fitting_mode(Some(release)).1)
        }
        (Mode::Native, Some(release)) if release < Release(23, 11) => {
            Verdict::Better(fitting_mode(Some(release)).1)
        }
        _ => Verdict::Ok,
    };
    let mode = match config.mode {
        Mode::Choose => "choose",
        Mode::Native => "native",
    };
    points.add(format!("mode \"{mode}\""), verdict);
}

fn settings(conf: &SlurmConf, points: &mut Points) {
    let has = |key: &str, word: &str| {
        let value = conf.get(key).unwrap_or_default();
        value.split([',', ' ']).any(|part| part.eq_ignore_ascii_case(word))
    };
    let types = has("GresTypes", "gpu") && has("GresTypes", "mps");
    points.wrong_unless("slurm.conf: GresTypes", types, "set GresTypes=gpu,mps");
    let tres = conf.get("SelectType") == Some("select/cons_tres");
    points.wrong_unless(
        "slurm.conf: SelectType",
        tres,
        "set SelectType=select/cons_tres: no other knows shares of GPUs",
    );
    for (key, verb) in [("Prolog", "prolog"), ("Epilog", "epilog")] {
        // Slurm may show several, or a pattern of files.
        let named = conf.settings_of(key);
        let ours = |path: &str| is_ours(Path::new(path), verb);
        let is_ours = named.iter().any(|path| ours(path));
        points.wrong_unless(
            format!("slurm.conf: {key}"),
            is_ours,
            &format!("set {key} to a link packhorse-{verb} to Packhorse, or to a script that calls `packhorse node {verb}`"),
        );
    }
    let verdict = if has("PrologFlags", "RunInJob") {
        // It would run in the job's cgroup, and the server that it starts would die with the job.
        Verdict::Wrong(
            "leave out RunInJob: an MPS server has to outlive the job that it was started for"
                .to_owned(),
        )
    } else if has("PrologFlags", "Alloc") || has("PrologFlags", "Contain") {
        Verdict::Ok
    } else {
        Verdict::Wrong(
            "add Alloc: without it a job has its nodes before its prolog has run there".to_owned(),
        )
    };
    points.add("slurm.conf: PrologFlags", verdict);
    let cgroup = has("TaskPlugin", "task/cgroup") || has("TaskPlugin", "cgroup");
    points.wrong_unless(
        "slurm.conf: TaskPlugin",
        cgroup,
        "add task/cgroup: without it every job can use every GPU",
    );
    let tracks = conf.get("ProctrackType") == Some("proctrack/cgroup");
    points.wrong_unless("slurm.conf: ProctrackType", tracks, "set ProctrackType=proctrack/cgroup");
    let lines = conf.lines("cgroup.conf").unwrap_or_default();
    let constrains = lines.iter().any(|line| {
        let line = line.replace(' ', "").to_ascii_lowercase();
        line.contains("constraindevices=yes")
    });
    points.wrong_unless(
        "cgroup.conf: ConstrainDevices",
        constrains,
        "set ConstrainDevices=yes: without it every job can use every GPU",
    );
    let harden = fs_err::read_to_string("/proc/sys/net/core/bpf_jit_harden");
    let is_version_2 = fs_err::metadata("/sys/fs/cgroup/cgroup.controllers").is_ok();
    points.add(
        "kernel: bpf_jit_harden",
        device_programs(harden.as_deref().unwrap_or_default(), is_version_2),
    );
    for (key, file) in
        [("CliFilterPlugins", "cli_filter.lua"), ("JobSubmitPlugins", "job_submit.lua")]
    {
        let value = conf.get(key).unwrap_or_default();
        let better = |why: &str| {
            Verdict::Better(format!(
                "{why}, jobs that break the rules are only ended on the node; see {file} of `packhorse node install --dry-run`"
            ))
        };
        let text = fs_err::read_to_string(conf.folder.join(file));
        let calls = |text: &str| {
            let mut lines = text.lines().map(str::trim_start);
            lines.any(|line| !line.starts_with("--") && line.contains("packhorse"))
        };
        let verdict = match text {
            _ if !value.contains("lua") => better("without lua there"),
            Ok(text) if !calls(&text) => {
                better(&format!("{file} does not call ours: until it does"))
            }
            // It is only on the machines where it is used.
            _ => Verdict::Ok,
        };
        points.add(format!("slurm.conf: {key}"), verdict);
    }
}

/// Whether the plugin can carry over what Slurm's device programs say, which is how devices are
/// allowed with cgroups of version 2. Hardened for root as well, they cannot be loaded again.
fn device_programs(harden: &str, is_version_2: bool) -> Verdict {
    if is_version_2 && harden.trim() == "2" {
        let todo = "sysctl net.core.bpf_jit_harden=1: with 2 no task can be held to its GPU, and each is ended";
        return Verdict::Wrong(todo.to_owned());
    }
    Verdict::Ok
}

/// Whether a prolog is ours: a link with our name, or a script that calls us.
fn is_ours(path: &Path, verb: &str) -> bool {
    let named = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.ends_with(&format!("packhorse-{verb}")))
    };
    if path.to_string_lossy().contains('*') {
        let entries = path.parent().map(fs_err::read_dir);
        let mut entries = entries.into_iter().flatten().flatten().flatten();
        return entries.any(|entry| is_ours(&entry.path(), verb));
    }
    if named(path) {
        return path.exists();
    }
    let text = fs_err::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[..text.len().min(1 << 16)]);
    text.contains("packhorse") && text.contains(verb)
}

fn gres(config: &Config, conf: &SlurmConf, slurm: &Slurm, node: &str, points: &mut Points) {
    let shown = slurm.show_node(node).unwrap_or_default();
    let gres = shown.split_whitespace().find_map(|word| word.strip_prefix("Gres="));
    let gres = gres.unwrap_or_default();
    let amount = gres.split(',').find_map(|part| {
        let part = part.split('(').next()?;
        part.strip_prefix("mps:")?.rsplit(':').next()?.parse::<u64>().ok()
    });
    let Some(lines) = conf.lines("gres.conf") else {
        let todo = format!("there is no gres.conf in {}", conf.folder.display());
        return points.add("gres.conf", Verdict::Wrong(todo));
    };
    let lines = lines.iter().map(|line| line.to_ascii_lowercase());
    let mps: Vec<String> = lines.filter(|line| line.contains("name=mps")).collect();
    let all_sharing = mps.iter().any(|line| line.contains("all_sharing"));
    let on_one = mps.iter().any(|line| line.contains("file="));
    let count = config.count;
    // Without a file, Slurm divides what the node has, and counts on one of the parts.
    let is_divided = config.mode == Mode::Choose && !on_one && !mps.is_empty();
    let parts = if is_divided { config.gpus.len() as u64 } else { 1 };
    let verdict = match amount {
        Some(amount) if amount == count * parts => Verdict::Ok,
        Some(amount) => Verdict::Wrong(format!(
            "the node has mps:{amount}, the configuration says count = {count}: make them the same"
        )),
        None => Verdict::Wrong(format!("add mps:{count} to Gres= in the line of node {node}")),
    };
    points.add(format!("slurm.conf: Gres of node {node}"), verdict);
    match config.mode {
        Mode::Native => points.wrong_unless(
            "gres.conf: mps on every GPU",
            all_sharing,
            &format!("Name=mps Count={count} Flags=all_sharing"),
        ),
        Mode::Choose => points.wrong_unless(
            "gres.conf: mps on one GPU",
            (on_one || is_divided) && !all_sharing,
            &format!("Name=mps Count={count} File={}, and no all_sharing: Slurm counts there, Packhorse chooses", config.gpus[0].file.display()),
        ),
    }
}

fn plugin(config: &Config, conf: &SlurmConf, release: Option<Release>, points: &mut Points) {
    let file = conf
        .get("PlugStackConfig")
        .map_or_else(|| conf.folder.join("plugstack.conf"), PathBuf::from);
    let text = fs_err::read_to_string(&file).unwrap_or_default();
    let what = format!("{}: the plugin", file.display());
    let line = text
        .lines()
        .map(str::trim)
        .find(|line| !line.starts_with('#') && line.contains("packhorse"));
    let Some(line) = line else {
        let todo = "add a line `optional /path/to/libpackhorse_spank.so`";
        return points.add(what, Verdict::Wrong(todo.to_owned()));
    };
    let mut words = line.split_whitespace();
    let verdict = match (words.next(), words.next()) {
        (Some("required"), _) => Verdict::Better(
            "write `optional`: after an update of Slurm a `required` plugin stops every job"
                .to_owned(),
        ),
        (_, Some(path)) if path.starts_with('/') && !exists(Path::new(path)) => {
            Verdict::Wrong(format!("there is no {path}"))
        }
        (_, Some(path)) if path.starts_with('/') => built_for(Path::new(path), release),
        _ => Verdict::Ok,
    };
    points.add(what.clone(), verdict);
    let words: Vec<&str> = words.collect();
    let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
    let scontrol = Path::new(value("scontrol=").unwrap_or(SCONTROL));
    points.wrong_unless(
        format!("{}: scontrol", file.display()),
        scontrol == config.scontrol,
        &format!(
            "the plugin asks {}: write scontrol={} after its name",
            scontrol.display(),
            config.scontrol.display()
        ),
    );
    let state = value("state=");
    let state = Path::new(state.unwrap_or(STATE_FOLDER));
    points.wrong_unless(
        format!("{}: the state folder", file.display()),
        state == config.state,
        &format!(
            "the plugin looks in {}: write state={} after its name",
            state.display(),
            config.state.display()
        ),
    );
    if config.mps.servers {
        let wait = value("wait=").and_then(|seconds| seconds.parse().ok());
        let wait = wait.unwrap_or(SERVER_SECONDS);
        // An old one may have to end before.
        let longest = 2 * config.longest_start().as_secs();
        let verdict = if u64::from(wait) >= longest {
            Verdict::Ok
        } else {
            Verdict::Better(format!(
                "a step goes on without its MPS server after {wait} s, and with this patience of mps one may take {longest} s to start: write wait={longest} after its name"
            ))
        };
        points.add(format!("{}: wait", file.display()), verdict);
    }
}

/// Whether the plugin was built for this Slurm: the file says for which.
fn built_for(path: &Path, release: Option<Release>) -> Verdict {
    let bytes = fs_err::read(path).unwrap_or_default();
    let mark = b"packhorse plugin for Slurm ";
    let found = bytes.windows(mark.len()).position(|window| window == mark);
    let text = found.map(|at| {
        String::from_utf8_lossy(&bytes[at + mark.len()..bytes.len().min(at + mark.len() + 16)])
            .into_owned()
    });
    let built = text.and_then(|text| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        let number: u32 = digits.parse().ok()?;
        Some(Release(number >> 16, number >> 8 & 0xff))
    });
    match (built, release) {
        (Some(built), Some(release)) if built != release => Verdict::Wrong(format!(
            "it was built for Slurm {built}, and this is {release}: Slurm does not load it; take the one for {release} of `cargo xtask dist`"
        )),
        (None, _) => Verdict::Wrong("it is not Packhorse's plugin".to_owned()),
        _ => Verdict::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_cannot_be_loaded_again_are_told() {
        assert_eq!(device_programs("1\n", true), Verdict::Ok);
        assert_eq!(device_programs("2\n", false), Verdict::Ok);
        assert!(matches!(device_programs("2\n", true), Verdict::Wrong(_)));
    }
}
