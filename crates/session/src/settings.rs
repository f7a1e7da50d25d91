//! Settings in layers: what was set where, and what holds.
//!
//! Arguments outrank the environment, which outranks `packhorse.toml` of the project (in
//! the current folder or the nearest above it), which outranks the user's
//! `config.toml`, which outranks the defaults.
//!
//! A file that is found counts only if no other user can have written it
//! ([`packhorse_trust`]). One that the person names takes the place of the project's.
//!
//! ```toml
//! [pool]                 # what tasks run on
//! max_per_gpu = 2
//! [task]                 # what each task needs that says nothing itself
//! vram = "auto"
//! retries = 1
//! env = { OMP_NUM_THREADS = "4" }
//! [slurm]                # what `--slurm` asks for
//! partition = "gpu"
//! ```

mod files;
mod layer_checks;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use packhorse_gpu::GpuConfig;
use packhorse_model::{
    Ageing, DEFAULT_REQUEUES, DEFAULT_REST, GpuRequest, Grace, OutputMode, Placing, PoolSpec,
    Priority, SlurmSpec, TaskSpec, TimeLimit, parse_duration,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::variables::{READ, SettingKind};
use crate::{Notices, SessionError};

use files::FoundFiles;
pub use files::LeftOutFile;

/// How long what happens is told only once it is written, if nobody says.
const STORE_PATIENCE: Duration = Duration::from_secs(1);

/// Where the folders of Slurm runs are, if nobody says: tasks run in the current folder,
/// so every node sees it.
pub const SLURM_FOLDER: &str = "packhorse-slurm";

/// The project's file, looked for in the current folder and above it.
const PROJECT_FILE: &str = "packhorse.toml";

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingOrigin {
    /// A variable of the environment.
    Variable(&'static str),
    File(PathBuf),
}

impl SettingOrigin {
    /// What is wrong with what was set there.
    fn error(&self, message: String) -> SessionError {
        let origin = self.clone();
        SessionError::Setting { origin, message }
    }
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => f.write_str(name),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// What can be set. What is left out is whatever the layer below says.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Layer {
    pool: PoolSpec,
    task: TaskSpec,
    slurm: SlurmSpec,
    output: Option<OutputMode>,
    driver_patience: Option<String>,
    store_patience: Option<String>,
    lease_folder: Option<String>,
    oom_texts: Option<String>,
    nvml_library: Option<String>,
    sysfs: Option<String>,
    mps_control: Option<String>,
}

/// The variable that names a file of settings.
const SETTINGS_VARIABLE: &str = "PACKHORSE_SETTINGS";

/// What names such a file on the command line.
const NAMING: &str = "--config ";

/// Keys that a file may not set, separated by blanks, and why.
type RefusedKeys = (&'static str, &'static str);

/// They name what is loaded or executed, or where the person's own things are.
const NOT_FOR_PROJECTS: RefusedKeys = (
    "lease_folder oom_texts nvml_library sysfs mps_control slurm.program",
    "cannot be set by a project\nhint: put it into your own config.toml",
);

/// They make sense for a single task only.
const OF_SINGLE_TASKS: RefusedKeys =
    ("task.command task.name task.after task.log", "is for single tasks, not for all");

/// How devices were named once, which is kept with a run.
const OF_STORED_RUNS: RefusedKeys = ("pool.as_written", "is no setting");

/// What can be set in files alone, separated by blanks.
const WITHOUT_VARIABLE: &str = "pool.gpus pool.at_most pool.thread_percentage task.cores \
    task.env task.folder task.gpus task.group task.group_limit task.params task.preload \
    task.priority task.probe task.results task.signature \
    slurm.partition slurm.account slurm.job_name slurm.time slurm.gres slurm.ntasks \
    slurm.cpus_per_task slurm.mem slurm.mem_per_cpu slurm.jobs slurm.sbatch slurm.sh_lines \
    slurm.venv slurm.template slurm.output slurm.folder slurm.program slurm.requeues \
    slurm.task_time slurm.margin";

/// All that was set, below the arguments.
#[derive(Clone, Debug)]
pub struct Settings {
    pool: PoolSpec,
    task: TaskSpec,
    slurm: SlurmSpec,
    /// What becomes of the tasks' output.
    pub output: Option<OutputMode>,
    /// Each key that is set, its value, and where that comes from.
    set: BTreeMap<String, (Value, SettingOrigin)>,
    /// How long what happens is told only once it is written.
    pub store_patience: Duration,
    driver_patience: Option<Duration>,
    /// The file of signs of running out of GPU memory that was found, and its text.
    found_oom_texts: Option<(PathBuf, String)>,
    /// The file that the person has named.
    named: Option<PathBuf>,
    left_out: Vec<LeftOutFile>,
}

impl Settings {
    /// What the environment, the project's file and the user's file say. `named` counts instead
    /// of the file that the environment names, and that instead of the project's. Tells which
    /// files were left out.
    pub fn find(named: Option<&Path>, notices: &mut Notices<'_>) -> Result<Self, SessionError> {
        let folder = std::env::current_dir().unwrap_or_default();
        Self::find_from(named, Some(&folder), |name| std::env::var_os(name), notices)
    }

    /// The same without a project's file: root reads none where it happens to be.
    pub fn find_without_project(notices: &mut Notices<'_>) -> Result<Self, SessionError> {
        Self::find_from(None, None, |name| std::env::var_os(name), notices)
    }

    /// The file that the person has named.
    pub fn named(&self) -> Option<&Path> {
        self.named.as_deref()
    }

    /// The files that were found and do not count.
    pub fn left_out(&self) -> &[LeftOutFile] {
        &self.left_out
    }

    fn find_from(
        named: Option<&Path>,
        folder: Option<&Path>,
        variable: impl Fn(&str) -> Option<OsString>,
        notices: &mut Notices<'_>,
    ) -> Result<Self, SessionError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let config_folder = set("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| {
            let home = set("HOME").map(PathBuf::from);
            home.map(|home| home.join(".config"))
        });
        let config_folder = config_folder.map(|folder| folder.join("packhorse"));
        let named = named.map(Path::to_owned).or_else(|| {
            let variable = folder.and_then(|_| set(SETTINGS_VARIABLE));
            variable.map(PathBuf::from)
        });
        let named = named.map(std::path::absolute).transpose()?;
        let mut layers = environment(set)?;
        let mut files = FoundFiles::default();
        if let Some(path) = &named {
            let text = files::read_named(path)?;
            layers.push(read(path.clone(), &text, &[OF_SINGLE_TASKS, OF_STORED_RUNS])?);
        } else {
            let folders = folder.into_iter().flat_map(Path::ancestors);
            let mut projects = folders.map(|folder| folder.join(PROJECT_FILE));
            let found = projects.find_map(|path| files.read(&path, NAMING).transpose());
            if let Some((path, text)) = found.transpose()? {
                let refused = [OF_SINGLE_TASKS, OF_STORED_RUNS, NOT_FOR_PROJECTS];
                layers.push(read(path, &text, &refused)?);
            }
        }
        let own = config_folder.as_ref().map(|folder| folder.join("config.toml"));
        if let Some(path) = own
            && let Some((path, text)) = files.read(&path, NAMING)?
        {
            layers.push(read(path, &text, &[OF_SINGLE_TASKS, OF_STORED_RUNS])?);
        }
        let mut settings = Self::merge(layers)?;
        settings.named = named;
        if settings.path("oom_texts").is_none()
            && let Some(folder) = config_folder
        {
            settings.found_oom_texts =
                files.read(&folder.join("oom-texts"), "PACKHORSE_OOM_TEXTS=")?;
        }
        settings.left_out = files.left_out;
        for file in &settings.left_out {
            notices(&file.to_string());
        }
        Ok(settings)
    }

    /// Lays the layers over each other, the first on top.
    fn merge(layers: Vec<(Layer, SettingOrigin)>) -> Result<Self, SessionError> {
        let mut settings = Self {
            pool: PoolSpec::default(),
            task: TaskSpec::default(),
            slurm: SlurmSpec::default(),
            output: None,
            set: BTreeMap::new(),
            store_patience: STORE_PATIENCE,
            driver_patience: None,
            found_oom_texts: None,
            named: None,
            left_out: Vec::new(),
        };
        for (layer, origin) in layers {
            layer_checks::check(&layer, &origin)?;
            for (key, value) in flat(&layer) {
                let entry = settings.set.entry(key);
                entry.or_insert((value, origin.clone()));
            }
            let mut task = layer.task;
            task.cores = settings.pool.cores_below(task.cores);
            settings.task = settings.task.over(&task);
            settings.pool = settings.pool.over(&layer.pool);
            settings.slurm = settings.slurm.over(&layer.slurm);
            settings.output = settings.output.or(layer.output);
        }
        // What holds may come from several layers, or be ruled out by another setting.
        let holds = flat(&Layer {
            pool: settings.pool.clone(),
            task: settings.task.clone(),
            slurm: settings.slurm.clone(),
            ..Layer::default()
        });
        settings.set.retain(|key, (value, _)| match holds.get(key) {
            Some(held) => {
                value.clone_from(held);
                true
            }
            None => !key.contains('.'),
        });
        settings.driver_patience = settings.duration("driver_patience")?;
        if let Some(patience) = settings.duration("store_patience")? {
            settings.store_patience = patience;
        }
        Ok(settings)
    }

    fn duration(&self, key: &str) -> Result<Option<Duration>, SessionError> {
        let Some((value, origin)) = self.set.get(key) else {
            return Ok(None);
        };
        let time = parse_duration(value.as_str().unwrap_or_default());
        time.map(Some).map_err(|error| match origin {
            SettingOrigin::Variable(_) => origin.error(error.to_string()),
            SettingOrigin::File(_) => origin.error(format!("{key}: {error}")),
        })
    }

    fn path(&self, key: &str) -> Option<PathBuf> {
        let (value, _) = self.set.get(key)?;
        value.as_str().map(PathBuf::from)
    }

    /// What is asked for on the command line, laid over what was set elsewhere. Who asks
    /// for slots gets nothing from there that is about GPUs.
    pub fn under(&self, pool: PoolSpec, task: TaskSpec) -> (PoolSpec, TaskSpec) {
        let mut below = self.task.clone();
        below.cores = pool.cores_below(below.cores);
        let pool = pool.over(&self.pool);
        if pool.slots.is_some() {
            without_gpus(&mut below);
        } else if below.gpus == Some(GpuRequest::None) {
            below.gpus = None;
        }
        (pool, task.over(&below))
    }

    /// What is asked of Slurm, laid over what was set elsewhere.
    pub fn under_slurm(&self, spec: SlurmSpec) -> SlurmSpec {
        spec.over(&self.slurm)
    }

    /// How GPUs are found.
    pub fn gpu_config(&self) -> GpuConfig {
        let config = GpuConfig::from_env();
        GpuConfig {
            driver_patience: self.driver_patience.unwrap_or(config.driver_patience),
            nvml_library: self.path("nvml_library").or(config.nvml_library),
            sysfs: self.path("sysfs").unwrap_or(config.sysfs),
            mps_control: self.path("mps_control").unwrap_or(config.mps_control),
            ..config
        }
    }

    /// Where runs tell each other what they hold.
    pub fn lease_folder(&self) -> PathBuf {
        let set = self.path("lease_folder");
        set.unwrap_or_else(|| packhorse_leases::DEFAULT_FOLDER.into())
    }

    /// The person's own signs of running out of GPU memory: the file and its text.
    pub(crate) fn oom_texts(&self) -> Result<Option<(PathBuf, String)>, SessionError> {
        match self.path("oom_texts") {
            Some(named) => {
                let text = files::read_named(&named)?;
                Ok(Some((named, text)))
            }
            None => Ok(self.found_oom_texts.clone()),
        }
    }

    /// Every setting there is: its value, if it has one, and where that comes from, if
    /// somebody has set it.
    pub fn list(&self) -> BTreeMap<String, (Option<Value>, Option<SettingOrigin>)> {
        let mut defaults = defaults();
        defaults.pool = self.pool.clone().over(&defaults.pool);
        if defaults.pool.slots.is_some() {
            without_gpus(&mut defaults.task);
        }
        let defaults = flat(&defaults);
        let with_variable = READ.iter().filter_map(|variable| variable.setting);
        let with_variable = with_variable.map(|setting| setting.key);
        let known = with_variable.chain(WITHOUT_VARIABLE.split(' '));
        let unset = known.map(|key| (key.to_owned(), (defaults.get(key).cloned(), None)));
        let set = self.set.iter();
        let set = set.map(|(key, (value, origin))| {
            let set = (Some(value.clone()), Some(origin.clone()));
            (key.clone(), set)
        });
        let mut all: BTreeMap<_, _> = unset.chain(set).collect();
        // Where single variables are listed, there is nothing to say of all of them.
        for all_of in ["task.env", "task.params"] {
            let single = format!("{all_of}.");
            if self.set.keys().any(|key| key.starts_with(&single)) {
                all.remove(all_of);
            }
        }
        all
    }
}

/// What holds if nobody sets anything, as far as that is a value.
fn defaults() -> Layer {
    let config = GpuConfig::default();
    let path = |path: PathBuf| path.into_os_string().into_string().ok();
    let seconds = |time: Duration| Some(format!("{}s", time.as_secs()));
    Layer {
        pool: PoolSpec {
            gpus: vec!["all".to_owned()],
            place: Some(Placing::default()),
            ageing: Some(Ageing::default()),
            rest: Some(TimeLimit::After(DEFAULT_REST)),
            leases: Some(true),
            mps: Some(false),
            equal_cores: Some(false),
            thread_caps: Some(true),
            ..PoolSpec::default()
        },
        task: TaskSpec {
            gpus: Some(GpuRequest::default()),
            priority: Some(Priority::default()),
            retries: Some(0),
            timeout: Some(TimeLimit::Never),
            grace: Some(Grace::default()),
            ..TaskSpec::default()
        },
        slurm: SlurmSpec {
            folder: Some(SLURM_FOLDER.into()),
            requeues: Some(DEFAULT_REQUEUES),
            ..SlurmSpec::default()
        },
        output: Some(OutputMode::default()),
        driver_patience: seconds(config.driver_patience),
        store_patience: seconds(STORE_PATIENCE),
        lease_folder: Some(packhorse_leases::DEFAULT_FOLDER.to_owned()),
        sysfs: path(config.sysfs),
        mps_control: path(config.mps_control),
        ..Layer::default()
    }
}

/// Takes out what means something on GPUs only.
pub(crate) fn without_gpus(task: &mut TaskSpec) {
    task.gpus = None;
    task.vram = None;
    task.probe = None;
    task.gpu_model = None;
}

/// One layer for each variable that is set.
fn environment(
    set: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<(Layer, SettingOrigin)>, SessionError> {
    let mut layers = Vec::new();
    for variable in READ {
        let (Some(setting), Some(text)) = (variable.setting, set(variable.name)) else {
            continue;
        };
        let origin = SettingOrigin::Variable(variable.name);
        let text = text.into_string().map_err(|_| origin.error("it is not UTF-8".to_owned()))?;
        let wrong = |what| origin.error(format!("`{text}` is not {what}"));
        let value = match setting.kind {
            SettingKind::Text => Value::String(text),
            SettingKind::Whole => match text.trim().parse::<u32>() {
                Ok(number) => number.into(),
                Err(_) => return Err(wrong("a whole number that can be used here")),
            },
            SettingKind::Truth => match text.trim() {
                "true" | "1" => true.into(),
                "false" | "0" => false.into(),
                _ => return Err(wrong("true or false")),
            },
        };
        let value = setting.key.rsplit('.').fold(value, |value, key| {
            Value::Object([(key.to_owned(), value)].into_iter().collect())
        });
        let layer =
            serde_json::from_value(value).map_err(|error| origin.error(error.to_string()))?;
        layers.push((layer, origin));
    }
    Ok(layers)
}

/// The layer of a file.
fn read(
    path: PathBuf,
    text: &str,
    refused: &[RefusedKeys],
) -> Result<(Layer, SettingOrigin), SessionError> {
    let origin = SettingOrigin::File(path);
    let layer = toml::from_str(text)
        .map_err(|error| origin.error(layer_checks::reworded(&error, refused)))?;
    let set = flat(&layer);
    for (keys, why) in refused {
        if let Some(key) = keys.split(' ').find(|key| set.contains_key(*key)) {
            return Err(origin.error(format!("`{key}` {why}")));
        }
    }
    Ok((layer, origin))
}

/// What a layer sets: `pool.slots` and its value.
fn flat(layer: &Layer) -> BTreeMap<String, Value> {
    let mut keys = BTreeMap::new();
    let Ok(Value::Object(top)) = serde_json::to_value(layer) else {
        return keys;
    };
    for (name, value) in top {
        match value {
            Value::Null => {}
            Value::Object(section) if matches!(name.as_str(), "pool" | "task" | "slurm") => {
                for (key, value) in section {
                    match value {
                        // Each of these may come from another layer.
                        Value::Object(map) if matches!(key.as_str(), "env" | "params") => {
                            let map = map.into_iter();
                            keys.extend(
                                map.map(|(of, value)| (format!("{name}.{key}.{of}"), value)),
                            );
                        }
                        value => {
                            keys.insert(format!("{name}.{key}"), value);
                        }
                    }
                }
            }
            value => {
                keys.insert(name, value);
            }
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use packhorse_model::{Bytes, VramRequest};

    use super::*;

    fn find(folder: &Path, variables: &[(&str, &str)]) -> Result<Settings, SessionError> {
        let home = folder.join("home").into_os_string();
        let variable = |name: &str| {
            let set = variables.iter().find(|(set, _)| *set == name);
            let set = set.map(|(_, value)| OsString::from(value));
            set.or_else(|| (name == "HOME").then(|| home.clone()))
        };
        let below = folder.join("project/deep/down");
        Settings::find_from(None, Some(&below), variable, &mut |notice| panic!("{notice}"))
    }

    fn folder(project: &str, user: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("home/.config/packhorse");
        fs_err::create_dir_all(folder.path().join("project/deep/down")).unwrap();
        fs_err::create_dir_all(&config).unwrap();
        fs_err::write(folder.path().join("project/packhorse.toml"), project).unwrap();
        fs_err::write(config.join("config.toml"), user).unwrap();
        folder
    }

    #[test]
    fn arguments_outrank_the_environment_which_outranks_the_project_and_the_user() {
        let folder = folder(
            "[task]\nretries = 2\nvram = \"9G\"\nenv = { A = \"project\" }\n[pool]\nmax_per_gpu = 3\n",
            "[task]\nretries = 1\ncores = 4\nenv = { A = \"user\", B = \"user\" }\n",
        );
        let settings = find(folder.path(), &[("PACKHORSE_RETRIES", "5")]).unwrap();
        let (pool, task) = settings.under(PoolSpec::default(), TaskSpec::default());
        assert_eq!(task.retries, Some(5));
        assert_eq!(task.vram, Some(VramRequest::Bytes(Bytes(9 << 30))));
        assert_eq!(task.cores, Some(4));
        assert_eq!(task.env["A"], "project".into());
        assert_eq!(task.env["B"], "user".into());
        assert_eq!(pool.max_per_gpu, Some(3));
        let argument = TaskSpec { retries: Some(0), ..TaskSpec::default() };
        let (_, task) = settings.under(PoolSpec::default(), argument);
        assert_eq!(task.retries, Some(0));
        let origin = |key: &str| settings.list()[key].1.clone();
        assert_eq!(origin("task.retries"), Some(SettingOrigin::Variable("PACKHORSE_RETRIES")));
        assert!(
            matches!(origin("task.vram"), Some(SettingOrigin::File(path)) if path.ends_with("project/packhorse.toml"))
        );
        assert!(
            matches!(origin("task.cores"), Some(SettingOrigin::File(path)) if path.ends_with("config.toml"))
        );
        assert_eq!(origin("pool.slots"), None);
    }

    #[test]
    fn who_asks_for_slots_gets_nothing_about_gpus_from_files() {
        let folder = folder("", "[task]\nvram = \"auto\"\nretries = 1\n[pool]\ngpus = \"0,1\"\n");
        let settings = find(folder.path(), &[]).unwrap();
        let slots = PoolSpec { slots: Some(2), ..PoolSpec::default() };
        let (pool, task) = settings.under(slots, TaskSpec::default());
        assert!(pool.gpus.is_empty());
        assert_eq!((task.vram, task.retries), (None, Some(1)));
    }

    #[test]
    fn equal_parts_and_a_number_of_cores_are_two_answers_to_one_question() {
        let equal = "[pool]\nequal_cores = true\n";
        let number = "[task]\ncores = 4\n";
        let both = |folder: &tempfile::TempDir, pool: PoolSpec, task: TaskSpec| {
            let settings = find(folder.path(), &[]).unwrap();
            let (pool, task) = settings.under(pool, task);
            (pool.equal_cores, task.cores)
        };
        let plain = |folder| both(&folder, PoolSpec::default(), TaskSpec::default());
        assert_eq!(plain(folder(equal, number)), (Some(true), None));
        // The number is higher up, and counts.
        assert_eq!(plain(folder(number, equal)), (Some(true), Some(4)));
        let asked = PoolSpec { equal_cores: Some(true), ..PoolSpec::default() };
        let asked = both(&folder(number, ""), asked, TaskSpec::default());
        assert_eq!(asked, (Some(true), None));
    }

    #[test]
    fn what_is_listed_is_what_holds() {
        let folder = folder(
            "[task]\nenv = { A = \"project\" }\n",
            "[task]\nenv = { A = \"user\", B = \"user\" }\n[pool]\ngpus = \"0,1\"\n",
        );
        let listed = |variables: &[(&str, &str)]| find(folder.path(), variables).unwrap().list();
        for (name, file) in [("A", "packhorse.toml"), ("B", "config.toml")] {
            let (value, origin) = listed(&[])[&format!("task.env.{name}")].clone();
            let expected = if name == "A" { "project" } else { "user" };
            assert_eq!(value, Some(expected.into()));
            assert!(matches!(origin, Some(SettingOrigin::File(path)) if path.ends_with(file)));
        }
        assert!(!listed(&[]).contains_key("task.env"));
        assert!(listed(&[])["pool.gpus"].1.is_some());
        let slots = listed(&[("PACKHORSE_SLOTS", "2")]);
        assert!(slots["pool.slots"].1.is_some());
        assert_eq!(slots["pool.gpus"], (None, None));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_place() {
        let text = |folder: &tempfile::TempDir, variables: &[(&str, &str)]| {
            find(folder.path(), variables).unwrap_err().to_string()
        };
        let unknown = folder("[task]\nretrys = 1\n", "");
        assert!(text(&unknown, &[]).contains("no setting is called `retrys`"));
        assert!(text(&unknown, &[]).ends_with("hint: did you mean `retries`?"));
        let unknown = folder("[task]\nlogs = \"x\"\n", "");
        assert!(!text(&unknown, &[]).contains("did you mean"));
        assert!(text(&unknown, &[]).contains("packhorse.toml"));
        let single = folder("", "[task]\nlog = \"all.log\"\n");
        assert!(text(&single, &[]).contains("`task.log` is for single tasks"));
        let forbidden = folder("mps_control = \"./evil\"\n", "");
        assert!(text(&forbidden, &[]).contains("cannot be set by a project"));
        let kept = folder("[pool]\nas_written = true\n", "");
        assert!(text(&kept, &[]).contains("`pool.as_written` is no setting"));
        for (project, key) in [
            ("[pool]\nslots = 0\n", "pool.slots: nothing could run"),
            ("[pool]\nignore_process = [\"uid:x\"]\n", "pool.ignore_process: `x`"),
            ("[task]\nprobe = \"no braces\"\n", "task.probe: "),
            ("[task]\nenv = { \"A=B\" = \"1\" }\n", "task.env: "),
        ] {
            let wrong = text(&folder(project, ""), &[]);
            assert!(wrong.contains("packhorse.toml") && wrong.contains(key), "{wrong}");
        }
        let empty = folder("", "");
        for (variable, value, why) in [
            ("PACKHORSE_SLOTS", "-1", "`-1` is not a whole number"),
            ("PACKHORSE_SLOTS", "0", "nothing could run on 0 slots"),
            ("PACKHORSE_MPS", "on", "`on` is not true or false"),
        ] {
            let wrong = text(&empty, &[(variable, value)]);
            assert!(wrong.starts_with(variable) && wrong.contains(why), "{wrong}");
        }
        let settings = find(empty.path(), &[("PACKHORSE_USE_LEASES", "0")]).unwrap();
        assert_eq!(settings.pool.leases, Some(false));
        let wrong = text(&empty, &[("PACKHORSE_RETRIES", "many")]);
        assert!(wrong.starts_with("PACKHORSE_RETRIES is wrong"), "{wrong}");
        let wrong = text(&empty, &[("PACKHORSE_STORE_PATIENCE", "soon")]);
        assert!(wrong.starts_with("PACKHORSE_STORE_PATIENCE is wrong"), "{wrong}");
    }

    /// What is not understood is answered with all that is.
    #[test]
    fn every_setting_is_listed() {
        let folder = folder("", "");
        let settings = find(folder.path(), &[]).unwrap();
        let listed = settings.list();
        for section in ["pool", "task", "slurm"] {
            let unknown = format!("[{section}]\nunknown = 1\n");
            let error = toml::from_str::<Layer>(&unknown).unwrap_err().to_string();
            let (_, expected) = error.split_once("expected one of ").unwrap();
            for name in expected.split('`').skip(1).step_by(2) {
                let key = format!("{section}.{name}");
                let known =
                    listed.contains_key(&key) || OF_SINGLE_TASKS.0.split(' ').any(|of| of == key);
                let other = ["model", "as_written"].contains(&name) || name.contains('-');
                assert!(known || other, "{key}");
            }
        }
    }
}
