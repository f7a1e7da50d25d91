//! Which command a verb is.

use packhorse_model::Exit;
use packhorse_session::WhichTasks;

use super::launch::name_settings;
use super::{
    again, config, csv, docs, experiments, export, gpus, grid, logs, ls, mps, node, peaks, plan,
    probe, results, run, show, slurm, stop, sweep, why,
};
use crate::args::{Cli, Verb};

/// Does it.
pub fn dispatch(cli: Cli) -> anyhow::Result<Exit> {
    match (cli.config, &cli.command) {
        // The configuration of a shared node is no file of settings.
        (None, _) | (_, Verb::Node(_)) => {}
        (Some(file), _) => name_settings(file),
    }
    match cli.command {
        Verb::Run(args) => run::run(args),
        Verb::Sweep(args) => sweep::sweep(args),
        Verb::Plan(args) => plan::plan(*args),
        Verb::Csv(args) => csv::csv(args),
        Verb::Grid(args) => grid::grid(args),
        Verb::Exp(args) => experiments::experiments(*args),
        Verb::Probe(args) => probe::probe(args),
        Verb::Peaks(args) => peaks::peaks(&args),
        Verb::Why { task } => why::why(&task),
        Verb::Mps(args) => mps::mps(&args.verb),
        Verb::Node(args) => node::node(args.verb),
        Verb::Gpus(args) => gpus::gpus(&args),
        Verb::Ls(args) => ls::ls(&args),
        Verb::Results(args) => results::results(&args),
        Verb::Show(args) => show::show(&args),
        Verb::Logs(args) => logs::logs(&args),
        Verb::Retry(args) => again::again(&args.again, WhichTasks::Failed),
        Verb::Resume(args) => again::again(&args.again, WhichTasks::Unfinished),
        Verb::Stop(args) => stop::stop(&args),
        Verb::Slurm(args) => slurm::slurm(args.verb),
        Verb::Export(args) => export::export(&args),
        Verb::Config(args) => config::config(&args),
        Verb::Completions { shell } => docs::completions(shell),
        Verb::Man { folder } => docs::man(&folder),
    }
}
