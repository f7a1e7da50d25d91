//! `packhorse exp --slurm`: the SLURM document becomes an array, with an element for each
//! job of the file.

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context as _, bail};
use packhorse_intake::experiments::{Experiments, SlurmDocument};
use packhorse_model::{ByteString, Command, Exit, GpuRequest, SlurmSpec, SourceSpec, TaskSpec};
use packhorse_session::{
    SharedRoom, TaskChecks, add_place, changed_source, say_what_each_gets, warn_of_limits,
    write_back,
};
use packhorse_slurm::{CodeCopy, CopyKind, Cut, GivenElement, JobShape};

use super::experiments::OpenExperiments;
use super::launch::{DoorRun, Order};
use super::slurm::{ClusterLaunch, launch};
use crate::args::{ExperimentArgs, Rerun};
use crate::complain;

/// Whether repetitions run in another folder than this one, because the code is copied.
pub fn runs_elsewhere(experiments: &Experiments, args: &ExperimentArgs) -> bool {
    let document = experiments.slurm();
    document.is_some_and(|document| match (args.zip, &document.experiment_copy_src) {
        (_, None) => false,
        (true, Some(_)) => true,
        (false, Some(_)) => has_destination(document),
    })
}

fn has_destination(document: &SlurmDocument) -> bool {
    document.experiment_copy_dst.is_some() || document.experiment_copy_auto_dst.is_some()
}

/// Hands the repetitions to Slurm. They are cancelled when the process `end_with` ends.
/// `ended_runs` have left some of them unfinished.
pub fn submit(
    open: &OpenExperiments,
    args: &ExperimentArgs,
    ended_runs: Vec<String>,
    end_with: Option<OwnedFd>,
) -> anyhow::Result<Exit> {
    let nothing = SlurmDocument::default();
    let experiments = Rc::clone(&open.experiments);
    let document = experiments.slurm().unwrap_or(&nothing);
    let copy = code_copy(&experiments, document, args)?;
    let mut order = order(&experiments, document, copy.is_some(), args)?;
    order.spec.ended_runs = ended_runs;
    let elements = elements(open, &order, document, copy.as_ref());
    let folder = match &copy {
        Some(copy) => Some(std::path::absolute(copy.run_in())?),
        None => None,
    };
    if let Some(copy) = &copy {
        copy.check()?;
        if args.dry_run && !copy.is_skipped {
            let (from, to) = (copy.from.display(), copy.to.display());
            complain(&format!("the code in {from} would be copied to {to}"));
        }
    }
    let how = ClusterLaunch {
        cut: Cut::Given(elements),
        folder,
        before: Some(Box::new(|script: &str| {
            before_submission(open, document, copy.as_ref(), script)
        })),
        ..ClusterLaunch::new(&args.launch, args.dry_run).ending_with(end_with)?
    };
    let door = door(order, open, copy.clone());
    launch(door, how, Ok)
}

/// What is left to do when all is prepared.
fn before_submission(
    open: &OpenExperiments,
    document: &SlurmDocument,
    copy: Option<&CodeCopy>,
    script: &str,
) -> anyhow::Result<()> {
    if let Some(copy) = copy {
        copy.make().context("the code cannot be copied")?;
    }
    if open.is_file {
        write_back(&open.experiments, &open.spec)
            .context("what was read cannot be written back")?;
    }
    if let Some(log) = &document.slurm_log {
        // Slurm makes no folders, and a job without one fails without a word.
        fs_err::create_dir_all(log)?;
    }
    if let Some(path) = &document.slurm_output {
        fs_err::write(path, script)?;
    }
    Ok(())
}

/// What is asked of Slurm, and what each repetition gets of a job.
fn order(
    experiments: &Experiments,
    document: &SlurmDocument,
    is_copied: bool,
    args: &ExperimentArgs,
) -> anyhow::Result<Order> {
    let mut order = Order::new(&args.launch)?;
    order.spec.folder_in_doubt = Rerun::in_doubt(args.overwrite);
    order.spec.keeps_results = args.overwrite != Some(Rerun::All);
    let given = args.launch.slurm.request.spec();
    let mut written = document.spec();
    written.sbatch.extend(given.sbatch.clone());
    let mut slurm = order
        .settings
        .under_slurm(SlurmSpec { sbatch: written.sbatch.clone(), ..given.over(&written) });
    if is_copied {
        // Not in the folder with the code, which may not be there yet.
        slurm.folder = slurm.folder.map(std::path::absolute).transpose()?;
    }
    if let Some(output) = &slurm.output {
        let output = std::path::absolute(output)?;
        slurm.output = Some(output.display().to_string());
    }
    say_what_each_gets(&mut order.spec, &args.launch.pool(), document);
    let job = JobShape::of(&slurm);
    let fit = job.fit(&order.spec.defaults, &order.spec.pool)?;
    let is_cut_up = document.gpus_per_rep.is_some() || document.cpus_per_rep.is_some();
    warn_of_limits(experiments, fit, is_cut_up, SharedRoom::Job, &mut complain);
    order.spec.slurm = Some(slurm);
    Ok(order)
}

/// The places of the repetitions that run, those of a job next to each other: the documents
/// of an experiment may have others between them.
pub fn in_order_of_jobs(open: &OpenExperiments) -> Vec<(u32, u32)> {
    let places = open.spec.places.iter();
    let places = places.flat_map(|&(first, count)| first..first + count);
    let mut places: Vec<(u32, u32)> =
        places.map(|place| (open.experiments.at(place).job(), place)).collect();
    places.sort_unstable();
    let mut sorted = Vec::new();
    for (_, place) in places {
        add_place(&mut sorted, place);
    }
    sorted
}

/// An element for each job that has something to do.
fn elements(
    open: &OpenExperiments,
    order: &Order,
    document: &SlurmDocument,
    copy: Option<&CodeCopy>,
) -> Vec<GivenElement> {
    let slurm = order.spec.slurm.as_ref();
    let has_gpus = slurm.is_some_and(|slurm| JobShape::of(slurm).gpus > 0);
    let task = &order.spec.defaults;
    // Where nothing says how many fit, they go one after the other, as in the original.
    let is_cut_up = (has_gpus && task.gpus != Some(GpuRequest::None))
        || task.cores.is_some()
        || task.cpu.is_some()
        || document.cpus_per_rep.is_some();
    let mut elements: Vec<(u32, GivenElement)> = Vec::new();
    for &(first, count) in &open.spec.places {
        for place in first..first + count {
            let rep = open.experiments.at(place);
            let job = rep.job();
            if let Some((last, element)) = elements.last_mut()
                && *last == job
            {
                element.tasks += 1;
                continue;
            }
            let parallel = rep.limit().map(NonZeroU32::get);
            let element = GivenElement {
                tasks: 1,
                parallel: parallel.or((!is_cut_up).then_some(1)),
                folder: copy.and_then(|copy| copy.folder_of(job)),
            };
            elements.push((job, element));
        }
    }
    elements.into_iter().map(|(_, element)| element).collect()
}

fn door(mut order: Order, open: &OpenExperiments, copy: Option<CodeCopy>) -> DoorRun {
    order.spec.source = SourceSpec::Experiments(open.spec.clone());
    let experiments = Rc::clone(&open.experiments);
    let source = changed_source(&open.spec, experiments, 0, move |rep, task| {
        if let Some(copy) = copy.as_ref().filter(|copy| copy.how != CopyKind::Archive) {
            let own = copy.folder_of(rep.job());
            move_code(task, &copy.from, own.as_deref().unwrap_or(&copy.to));
        }
    });
    DoorRun { order, source, checks: TaskChecks::default() }
}

/// Lets a task use the copy of the code: where its command or `PYTHONPATH` names something in
/// the original, that in the copy.
fn move_code(task: &mut TaskSpec, from: &Path, to: &Path) {
    let moved = |path: &Path| Some(to.join(path.strip_prefix(from).ok()?));
    if let Command::Words(words) = &mut task.command {
        for word in words {
            let path = Path::new(std::ffi::OsStr::from_bytes(word));
            if let Some(moved) = moved(path) {
                *word = moved.into_os_string().into_vec();
            }
        }
    }
    let Some(python) = std::env::var_os("PYTHONPATH") else {
        return;
    };
    let folders: Vec<PathBuf> =
        std::env::split_paths(&python).map(|folder| moved(&folder).unwrap_or(folder)).collect();
    if let Ok(folders) = std::env::join_paths(folders) {
        let folders = ByteString::from(folders);
        task.env.entry("PYTHONPATH".to_owned()).or_insert(folders);
    }
}

/// What becomes of the code, if the document or the options say something about it.
fn code_copy(
    experiments: &Experiments,
    document: &SlurmDocument,
    args: &ExperimentArgs,
) -> anyhow::Result<Option<CodeCopy>> {
    let source = &document.experiment_copy_src;
    match (source, has_destination(document)) {
        (Some(_), true) => {}
        (_, false) if args.zip => {}
        (None, false) if args.multicopy => bail!(
            "--multicopy needs experiment_copy_src and experiment_copy_dst in the SLURM document"
        ),
        (None, false) => return Ok(None),
        (Some(_), false) => bail!(
            "the SLURM document has experiment_copy_src, and no experiment_copy_dst\n\
             hint: say where the code is copied to, or leave experiment_copy_src out"
        ),
        (None, true) => bail!(
            "the SLURM document says where the code is copied to, and not what: experiment_copy_src \
             is missing"
        ),
    }
    let from = match source {
        Some(source) => std::path::absolute(source)?,
        None => std::env::current_dir()?,
    };
    let to = match (&document.experiment_copy_dst, &document.experiment_copy_auto_dst) {
        (Some(to), _) => to.into(),
        (None, Some(parent)) => {
            let now = jiff::Zoned::now().strftime("%Y%m%d%H%M%S").to_string();
            Path::new(parent).join(now)
        }
        (None, None) => Path::new(experiments.basic_path()).join("code"),
    };
    Ok(Some(CodeCopy {
        from,
        to: std::path::absolute(to)?,
        how: if args.zip {
            CopyKind::Archive
        } else if args.multicopy {
            CopyKind::ForEach(experiments.jobs())
        } else {
            CopyKind::Once
        },
        is_skipped: args.nocodecopy,
        overwrite: args.overwrite == Some(Rerun::All),
        any_size: args.skipsizecheck,
    }))
}
