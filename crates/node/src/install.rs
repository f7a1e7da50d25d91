//! What has to be in which file, on the node and in Slurm's configuration.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use packhorse_orders::{SCONTROL, STATE_FOLDER};

use crate::config::{CONFIG, Config, GpuConfigEntry, Mode};
use crate::lua;
use crate::slurm_conf::{Release, fitting_mode};

/// How many `mps` a GPU has, unless somebody says otherwise: so that they are percents.
const PER_GPU: u64 = 100;

/// What `packhorse node install` is told.
#[derive(Clone, Debug)]
pub struct InstallPlan {
    /// The folder of our own files.
    pub folder: PathBuf,
    /// Packhorse itself.
    pub program: PathBuf,
    /// Where the plugin is, or will be.
    pub plugin: PathBuf,
    /// What Slurm calls this node.
    pub node: String,
    /// Slurm's release, if it is known.
    pub release: Option<Release>,
    /// The mode, if somebody has decided.
    pub mode: Option<Mode>,
    /// The `mps` of a GPU, if somebody has decided.
    pub per_gpu: Option<u64>,
    /// The GPUs of this machine.
    pub gpus: Vec<GpuConfigEntry>,
    /// Where `scontrol` is, if it is not where it usually is.
    pub scontrol: Option<PathBuf>,
}

/// What belongs where.
#[derive(Clone, Debug)]
pub struct Installation {
    /// Which mode, and why.
    pub mode: (Mode, String),
    /// Our own files and what is in them.
    pub files: Vec<(PathBuf, String)>,
    /// Links to Packhorse itself.
    pub links: Vec<PathBuf>,
    /// Lines for Slurm's files, which are never changed by us.
    pub lines: Vec<(&'static str, Vec<String>)>,
}

/// Works out what belongs where. A configuration that is there already stays and decides.
pub fn install(plan: &InstallPlan) -> Result<Installation, crate::ConfigError> {
    let file = plan.folder.join("node.toml");
    let existing = file.exists().then(|| Config::read(&file)).transpose()?;
    let (fitting, why) = fitting_mode(plan.release);
    let mode = existing.as_ref().map_or(plan.mode.unwrap_or(fitting), |config| config.mode);
    let gpus: Vec<GpuConfigEntry> = match &existing {
        Some(config) => config.gpus.clone(),
        None => plan.gpus.clone(),
    };
    let per_gpu = match &existing {
        Some(config) => config.per_gpu(),
        None => plan.per_gpu.unwrap_or(PER_GPU),
    };
    let count = per_gpu * gpus.len() as u64;
    let mut files = Vec::new();
    if existing.is_none() {
        files.push((file.clone(), config_text(plan, mode, count)));
    }
    let name = file.display().to_string();
    files.push((plan.folder.join("cli_filter.lua"), lua::cli_filter(&name)));
    files.push((plan.folder.join("job_submit.lua"), lua::job_submit(&name)));
    let usual = plan.scontrol.as_deref().unwrap_or(Path::new(SCONTROL));
    let (state, scontrol) = existing
        .as_ref()
        .map_or((Path::new(STATE_FOLDER), usual), |config| (&config.state, &config.scontrol));
    let plugin = plugin_line(plan, state, scontrol);
    Ok(Installation {
        mode: (mode, why),
        files,
        links: ["packhorse-prolog", "packhorse-epilog"].map(|name| plan.folder.join(name)).to_vec(),
        lines: lines(plan, mode, count, &gpus, plugin),
    })
}

fn lines(
    plan: &InstallPlan,
    mode: Mode,
    count: u64,
    gpus: &[GpuConfigEntry],
    plugin: String,
) -> Vec<(&'static str, Vec<String>)> {
    let folder = plan.folder.display();
    let (node, number) = (&plan.node, gpus.len());
    let mut slurm = vec![
        "GresTypes=gpu,mps".to_owned(),
        "SelectType=select/cons_tres".to_owned(),
        "ProctrackType=proctrack/cgroup".to_owned(),
        "TaskPlugin=task/cgroup,task/affinity".to_owned(),
        "PrologFlags=Alloc".to_owned(),
        format!("Prolog={folder}/packhorse-prolog"),
        format!("Epilog={folder}/packhorse-epilog"),
        "CliFilterPlugins=cli_filter/lua".to_owned(),
        "JobSubmitPlugins=lua".to_owned(),
        format!("NodeName={node} Gres=gpu:{number},mps:{count} ..."),
    ];
    let files: Vec<String> = gpus.iter().map(|gpu| gpu.file.display().to_string()).collect();
    let mut gres: Vec<String> =
        files.iter().map(|file| format!("NodeName={node} Name=gpu File={file}")).collect();
    match mode {
        Mode::Choose => {
            let first = files.first().map_or("/dev/nvidia0", String::as_str);
            gres.push(format!("NodeName={node} Name=mps Count={count} File={first}"));
        }
        Mode::Native => {
            gres.push(format!("NodeName={node} Name=mps Count={count} Flags=all_sharing"));
            if plan.release.is_some_and(|release| release >= Release(23, 11)) {
                slurm.push("SelectTypeParameters=CR_Core_Memory,LL_SHARED_GRES".to_owned());
            }
        }
    }
    let text_lines = |text: String| text.lines().map(str::to_owned).collect();
    vec![
        ("slurm.conf", slurm),
        ("gres.conf", gres),
        ("cgroup.conf", vec!["ConstrainDevices=yes".to_owned()]),
        ("plugstack.conf", vec![plugin]),
        ("cli_filter.lua", text_lines(lua::calls_cli_filter(&format!("{folder}/cli_filter.lua")))),
        ("job_submit.lua", text_lines(lua::calls_job_submit(&format!("{folder}/job_submit.lua")))),
    ]
}

/// The line of plugstack.conf, with what is not as the plugin expects it.
fn plugin_line(plan: &InstallPlan, state: &Path, scontrol: &Path) -> String {
    let mut line = format!("optional {}", plan.plugin.display());
    for (name, value, usual) in [("state", state, STATE_FOLDER), ("scontrol", scontrol, SCONTROL)] {
        if value != Path::new(usual) {
            // Writing to a text cannot fail.
            let _ = write!(line, " {name}={}", value.display());
        }
    }
    line
}

fn config_text(plan: &InstallPlan, mode: Mode, count: u64) -> String {
    let mode = match mode {
        Mode::Choose => "choose",
        Mode::Native => "native",
    };
    let mut text = format!(
        "# How this node is shared: see docs/slurm-node.md. Read by the prolog, the epilog and\n\
         # the filters. Root owns it, and nobody else may write it.\n\
         mode = \"{mode}\"      # choose: Packhorse chooses the GPU; native: Slurm does\n\
         count = {count}        # mps of the whole node, as in gres.conf\n\
         placing = \"spread\"   # or \"pack\"\n"
    );
    if let Some(scontrol) = &plan.scontrol {
        text.push_str(&format!("scontrol = \"{}\"\n", scontrol.display()));
    }
    for gpu in &plan.gpus {
        text.push_str(&format!("\n[[gpus]]\nfile = \"{}\"\n", gpu.file.display()));
        if let Some(uuid) = &gpu.uuid {
            text.push_str(&format!("uuid = \"{uuid}\"\n"));
        }
        if let Some(memory) = gpu.memory {
            text.push_str(&format!("memory = \"{}M\"\n", memory.0 >> 20));
        }
    }
    text.push_str(
        "\n[mps]\n\
         servers = true       # a server for each user and GPU\n\
         threads = true       # limit threads by the share\n\
         memory = true        # limit memory by the share\n\
         control = \"/usr/bin/nvidia-cuda-mps-control\"\n\
         \n\
         # Who may ask for mps: whoever one of these admits. Without any, everybody may.\n\
         # [[allow]]\n\
         # reservations = [\"jupyterhub_course_*\"]\n\
         # most = 50\n",
    );
    text
}

/// The configuration that is used if none is named: beside the link that was called, or the
/// usual one.
pub fn config_beside(link: &Path) -> PathBuf {
    let beside = link.parent().map(|folder| folder.join("node.toml"));
    let beside = beside.filter(|file| link.is_absolute() && file.exists());
    beside.unwrap_or_else(|| PathBuf::from(CONFIG))
}
