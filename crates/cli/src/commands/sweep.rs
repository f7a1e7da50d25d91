use std::io::Write as _;

use anyhow::bail;
use packhorse_gpu::looks_like_gpu_list;
use packhorse_intake::lines::Separator;
use packhorse_intake::sweep::{Sweep, SweepLanguage};
use packhorse_model::{Exit, SourceSpec, SweepSpec};
use packhorse_session::{TaskChecks, build_sweep, sweep_source};

use super::launch::{DoorRun, Order, observer};
use super::slurm::{ClusterLaunch, launch};
use crate::args::{SamplingMode, SweepArgs};
use crate::stdout::stdout;
use crate::{complain, terminal};

/// `packhorse sweep`
pub fn sweep(mut args: SweepArgs) -> anyhow::Result<Exit> {
    let (spec, sweep) = build(&mut args)?;
    if args.run {
        let door = open_sweep(&args, spec, sweep)?;
        if door.order.spec.slurm.is_some() {
            let how = ClusterLaunch::new(&args.launch, args.dry_run);
            return launch(door, how, Ok);
        }
        if args.dry_run {
            bail!(
                "--dry-run shows what --slurm would submit\nhint: without --run, commands are only printed"
            );
        }
        let mut observer =
            observer(&args.launch.output, &door.order.spec, door.order.spec.output, false);
        let prepared = door.order.prepare()?;
        let summary = prepared.start(door.source, &mut *observer, &mut complain)?;
        return Ok(summary.exit);
    }
    // It does nothing for commands that are only printed.
    if let Some(option) = args.about_running {
        bail!("{option} is about running, and needs --run");
    }
    print(&sweep, Separator::null_if(args.null))
}

/// The sweep that the arguments describe.
pub fn build(args: &mut SweepArgs) -> anyhow::Result<(SweepSpec, Sweep)> {
    let template = give_back_template(args)?;
    let names = |names: &String| {
        let names = names.split(',').map(|name| name.trim().to_owned());
        names.collect()
    };
    let spec = SweepSpec {
        template,
        parameters: parameters(&args.parameters),
        zips: args.zip.iter().map(names).collect(),
        seed: seed(args.sampling_mode, args.seed),
        limit: args.n_samples,
    };
    let sweep = build_sweep(&spec, SweepLanguage::Packhorse, terminal::colour())?;
    Ok((spec, sweep))
}

/// `--gpus 0,1 "echo {a}"`: what follows the ids and is none is the template.
fn give_back_template(args: &mut SweepArgs) -> anyhow::Result<String> {
    if let Some(template) = args.template.take() {
        return Ok(template);
    }
    let gpus = &mut args.launch.pool.gpus;
    match gpus.pop_if(|last| !looks_like_gpu_list(last)) {
        Some(template) if !gpus.is_empty() => Ok(template),
        _ => bail!(
            "there is no template\nhint: packhorse sweep \"python train.py --lr {{lr}}\" -p lr 0.1 0.01"
        ),
    }
}

/// Prints all commands.
pub fn print(sweep: &Sweep, separator: Separator) -> anyhow::Result<Exit> {
    let mut out = stdout();
    sweep.write_to(&mut out, separator)?;
    out.flush()?;
    Ok(Exit::Success)
}

/// What would be run.
pub fn open_sweep(args: &SweepArgs, spec: SweepSpec, sweep: Sweep) -> anyhow::Result<DoorRun> {
    let mut order = Order::new(&args.launch)?;
    if let Some(results) = order.spec.defaults.results.as_ref().filter(|_| sweep.len() > 1) {
        bail!(
            "all commands of this sweep would have the folder `{}` for their results, which \
             `task.results` sets\n\
             hint: `packhorse config` shows where; leave it out there",
            results.display()
        );
    }
    order.spec.source = SourceSpec::Sweep(spec);
    Ok(DoorRun { order, source: sweep_source(sweep, 0)?, checks: TaskChecks::default() })
}

/// `-p lr 0.1 0.01`: the name, then the values.
pub fn parameters(given: &[Vec<String>]) -> Vec<(String, Vec<String>)> {
    given
        .iter()
        .filter_map(|words| {
            let (name, values) = words.split_first()?;
            Some((name.clone(), values.to_vec()))
        })
        .collect()
}

/// The seed of the order: one that nobody has seen before, unless it was given.
pub fn seed(mode: SamplingMode, given: Option<u64>) -> Option<u64> {
    match mode {
        SamplingMode::Grid => None,
        SamplingMode::ShuffledGrid => Some(given.unwrap_or_else(random_seed)),
    }
}

fn random_seed() -> u64 {
    let mut bytes = [0; 8];
    // Early in a machine's boot there may be no randomness yet: any order does.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK);
    u64::from_ne_bytes(bytes)
}
