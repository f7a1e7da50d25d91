use std::collections::VecDeque;
use std::io::{Read as _, Seek as _};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use fs_err::File;
use packhorse_gpu::looks_like_gpu_list;
use packhorse_intake::lines::{Lines, Separator};
use packhorse_model::{Command, Exit};
use packhorse_runner::{Input, Source};

use super::Order;
use super::launch::{output, reporter};
use super::mistakes::Mistakes;
use super::wishes::Wishes;
use crate::args::RunArgs;
use crate::saved::{Saved, SavedFile};
use crate::{complain, terminal};

/// `packhorse run`
pub fn run(mut args: RunArgs) -> anyhow::Result<Exit> {
    give_back_files(&mut args.pool.gpus, &mut args.files);
    let mut wishes = Wishes::default();
    let mut saved = Saved::new(&args.pool, &args.task, None);
    saved.null = args.null;
    if !args.command.is_empty() && args.task.probe.is_some() {
        bail!(
            "--probe is for commands from files or standard input\n\
             hint: `packhorse probe -- COMMAND` measures one command"
        );
    }
    let input = if args.command.is_empty() {
        let separator = if args.null {
            Separator::Null
        } else {
            Separator::Newline
        };
        let mut sources = open(&args.files)?;
        check(&mut sources, separator, &mut wishes)?;
        saved.files = remember(&sources);
        Input::Lines {
            sources,
            separator,
            skip: 0,
        }
    } else {
        let words = args.command.into_iter().map(OsStringExt::into_vec);
        Input::One(Command::Words(words.collect()))
    };
    let order = Order::new(&args.pool, &args.task, output(&args.output), input)?;
    wishes.check(&order.places, &order.defaults)?;
    let mut reporter = reporter(&args.output, &order.input);
    let summary = order.launch(&saved, &mut *reporter)?;
    let tasks = u128::from(summary.succeeded) + u128::from(summary.failed) + summary.left;
    if tasks == 0 && summary.rejected == 0 && summary.exit == Exit::Success {
        complain("warning: there were no commands in the input");
    }
    Ok(summary.exit)
}

/// `--gpus 0,1 commands.txt`: what follows the ids and is none is a file.
pub fn give_back_files(gpus: &mut Vec<String>, files: &mut Vec<PathBuf>) {
    let ids = gpus.iter().skip(1);
    if let Some(first) = ids
        .into_iter()
        .position(|value| !looks_like_gpu_list(value))
    {
        let named = gpus.split_off(first + 1);
        files.splice(0..0, named.into_iter().map(PathBuf::from));
    }
}

/// Opens everything before anything starts.
pub fn open(files: &[PathBuf]) -> anyhow::Result<VecDeque<Source>> {
    let mut sources = VecDeque::new();
    let stdin = [PathBuf::from("-")];
    let files = if files.is_empty() { &stdin } else { files };
    for path in files {
        let source = if path == Path::new("-") {
            if terminal::stdin_is_terminal() {
                complain("reading commands from the terminal, one a line; Ctrl-D ends");
            }
            let file = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 0)
                .map_err(|error| anyhow::anyhow!("standard input is closed: {error}"))?;
            Source {
                name: "standard input".to_owned(),
                file: File::from_parts(file.into(), "standard input"),
            }
        } else {
            let file = File::open(path)?;
            if file.metadata()?.is_dir() {
                bail!("{} is a folder, not a file with commands", path.display());
            }
            Source {
                name: path.display().to_string(),
                file,
            }
        };
        sources.push_back(source);
    }
    Ok(sources)
}

/// Looks through files for what is wrong with them. A pipe can be read only once
/// and is looked at as it comes; what follows it is too, for it may need names
/// from it.
fn check(
    sources: &mut VecDeque<Source>,
    separator: Separator,
    wishes: &mut Wishes,
) -> anyhow::Result<()> {
    let mut lines = Lines::new(separator);
    let mut buffer = vec![0; 64 * 1024];
    let mut mistakes = Mistakes::default();
    for source in sources {
        if !source.file.metadata()?.is_file() {
            break;
        }
        let start = source.file.stream_position()?;
        loop {
            let length = source.file.read(&mut buffer)?;
            if length == 0 {
                lines.finish();
            } else {
                lines.push(&buffer[..length]);
            }
            for entry in &mut lines {
                match entry {
                    Ok(entry) => wishes.note(&source.name, entry.line, &entry.options),
                    Err(error) => {
                        mistakes.tell(|| error.render(&source.name, terminal::colour()));
                    }
                }
            }
            if length == 0 {
                break;
            }
        }
        lines.next_source();
        source.file.seek(std::io::SeekFrom::Start(start))?;
    }
    mistakes.refuse("nothing was started")
}

/// What is read, if all of it can be read again.
fn remember(sources: &VecDeque<Source>) -> Vec<SavedFile> {
    let files = sources.iter().map(|source| SavedFile::of(&source.file));
    files.collect::<Option<Vec<_>>>().unwrap_or_default()
}
