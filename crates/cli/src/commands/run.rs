use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use packhorse_gpu::looks_like_gpu_list;
use packhorse_intake::TaskLanguage;
use packhorse_intake::lines::Separator;
use packhorse_model::{Command, Exit, InputFile, SourceSpec, TaskSpec};
use packhorse_session::{
    InputStream, Launch, MadeTasks, NamedProcess, ReadTasks, TaskChecks, TaskSource, input_file,
    is_on_path, open_inputs,
};

use super::launch::{DoorRun, Order, observer};
use super::mistakes::Mistakes;
use super::slurm::{ClusterLaunch, launch};
use crate::args::RunArgs;
use crate::{complain, terminal, wording};

/// `packhorse run`
pub fn run(mut args: RunArgs) -> anyhow::Result<Exit> {
    let end_with = args.end_with.map(NamedProcess::open).transpose()?;
    let (door, typed) = open_run(&mut args, "nothing was started")?;
    if door.order.spec.slurm.is_some() {
        let how = ClusterLaunch::new(&args.launch, args.dry_run).ending_with(end_with)?;
        return launch(door, how, Ok);
    }
    if args.dry_run {
        bail!(
            "--dry-run shows what --slurm would submit\n\
             hint: `packhorse plan` shows what would run where and when on this machine"
        );
    }
    let spec = &door.order.spec;
    let mut observer = observer(&args.launch.output, spec, spec.output, typed);
    let prepared = door.order.prepare()?.ending_with(end_with);
    refuse_impossible(&door.checks, &prepared)?;
    let summary = prepared.start(door.source, &mut *observer, &mut complain)?;
    drop(observer);
    let tasks = summary.succeeded + summary.failed + summary.left;
    if tasks == 0 && summary.rejected == 0 && summary.exit == Exit::Success {
        complain("warning: there were no commands in the input");
    }
    Ok(summary.exit)
}

/// What would be run, and whether it is typed into a terminal. `consequence` is what is
/// not done if something is wrong with it.
pub fn open_run(args: &mut RunArgs, consequence: &str) -> anyhow::Result<(DoorRun, bool)> {
    if !args.launch.pool.as_written {
        give_back_files(&mut args.launch.pool.gpus, &mut args.files)?;
    }
    if !args.command.is_empty() && !args.files.is_empty() {
        bail!(
            "`{}` stands before the command\n\
             hint: give a file with commands, or one command after --",
            args.files[0].display()
        );
    }
    if !args.command.is_empty() && args.launch.task.probe.is_some() {
        bail!(
            "--probe is for commands from files or standard input\n\
             hint: `packhorse probe -- COMMAND` measures one command"
        );
    }
    let mut order = Order::new(&args.launch)?;
    order.spec.calls = args.calls;
    let mut checks = TaskChecks::new(&order.spec.defaults);
    let mut typed = false;
    let source: Box<dyn TaskSource> = if args.command.is_empty() {
        let separator = Separator::null_if(args.null);
        let (files, language) = match args.tasks.as_slice() {
            [] => (&args.files, TaskLanguage::Lines(separator)),
            _ => (&args.tasks, TaskLanguage::TaskLines),
        };
        let mut streams = open(files)?;
        // A live view would be drawn over what is typed into a terminal.
        let mut files = streams.iter().map(|stream| stream.file.file());
        typed = files.any(rustix::termios::isatty);
        let mut mistakes = Mistakes::default();
        let count = checks.look_through(&mut streams, language, terminal::colour(), |mistake| {
            mistakes.tell(|| mistake);
        })?;
        mistakes.refuse(consequence)?;
        let (files, null) = (remember(&streams), args.null);
        order.spec.source = match language {
            TaskLanguage::Lines(_) => SourceSpec::Lines { files, null },
            TaskLanguage::TaskLines => SourceSpec::TaskLines { files },
        };
        let tasks = ReadTasks::new(streams, language, 0);
        Box::new(match count {
            Some(count) => tasks.with_count(count),
            None => tasks.checking_paths(&order.spec.defaults),
        })
    } else {
        Box::new(one_command(std::mem::take(&mut args.command)))
    };
    let door = DoorRun { order, source, checks };
    Ok((door, typed))
}

/// `--gpus 0,1 commands.txt`: what follows the ids and is none is a file.
pub fn give_back_files(gpus: &mut Vec<String>, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if let Some(first) = gpus.first()
        && !looks_like_gpu_list(first)
        && is_file(first)
    {
        bail!(
            "`{first}` is a file, not a GPU\nhint: name the GPUs after --gpus, and the file before it"
        );
    }
    let ids = gpus.iter().skip(1);
    if let Some(first) = ids
        .into_iter()
        .position(|value| !looks_like_gpu_list(value) || (value.contains('-') && is_file(value)))
    {
        let named = gpus.split_off(first + 1);
        files.splice(0..0, named.into_iter().map(PathBuf::from));
    }
    Ok(())
}

/// `2024-01` may be a file of commands as well as a range of GPUs.
fn is_file(name: &str) -> bool {
    Path::new(name).is_file()
}

/// A command that stands on the command line.
pub fn one_command(words: Vec<OsString>) -> MadeTasks {
    let words = words.into_iter().map(OsStringExt::into_vec);
    MadeTasks::new(vec![TaskSpec::new(Command::Words(words.collect()))])
}

/// Opens everything before anything starts.
pub fn open(files: &[PathBuf]) -> anyhow::Result<VecDeque<InputStream>> {
    // `run python train.py`: what was meant as a command came as files.
    if let Some(program) = files.first()
        && !program.exists()
        && is_on_path(program)
    {
        let program = program.display();
        bail!(
            "there is no file `{program}`\n\
             hint: put one command after --, as in `packhorse run -- {program} …`"
        );
    }
    let stdin = files.is_empty() || files.iter().any(|file| file.as_os_str() == "-");
    if stdin && terminal::stdin_is_terminal() {
        complain("reading commands from the terminal, one per line; Ctrl-D ends");
    }
    Ok(open_inputs(files)?)
}

/// Says which tasks of files could never run.
pub fn refuse_impossible(checks: &TaskChecks, launch: &Launch) -> anyhow::Result<()> {
    let mut mistakes = Mistakes::default();
    for (source, line, reason) in checks.refused(launch) {
        mistakes.tell(|| {
            let text = format!("error: {source}:{line}: this task could never run: {reason}");
            wording::message(text)
        });
    }
    mistakes.refuse("nothing was started")
}

/// What is read, if all of it can be read again.
fn remember(streams: &VecDeque<InputStream>) -> Vec<InputFile> {
    let files = streams.iter().map(|stream| input_file(&stream.file));
    files.collect::<Option<Vec<_>>>().unwrap_or_default()
}
