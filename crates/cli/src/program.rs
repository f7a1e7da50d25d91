//! From the words of a command line to an exit status.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use packhorse_model::{Exit, TerminalFilter};
use packhorse_session::{SessionError, end_on_signals, survive_file_size_limit};
use packhorse_store::Home;

use crate::{args, commands, dropin, limits, wording};

/// The names of links that slurm.conf can name as Prolog and Epilog, which take no arguments.
const PROLOG: &str = "packhorse-prolog";
const EPILOG: &str = "packhorse-epilog";

/// The configuration beside such a link, or the usual one.
fn node_config(words: &[OsString]) -> PathBuf {
    let link = words.first().map_or(Path::new(""), Path::new);
    packhorse_node::config_beside(link)
}

/// Does what the command line says.
pub fn main() -> Exit {
    end_on_signals();
    survive_file_size_limit();
    if let Err(limit) = limits::check() {
        complain(&format!("error: {limit}"));
        return Exit::Usage;
    }
    run()
}

/// Not inlined: it takes more stack than there may be.
#[inline(never)]
fn run() -> Exit {
    let words: Vec<OsString> = std::env::args_os().collect();
    let name = words.first().map(Path::new).and_then(Path::file_name);
    let result = match name.and_then(|name| name.to_str()) {
        Some(name) if name.ends_with(PROLOG) => return commands::prolog(&node_config(&words)),
        Some(name) if name.ends_with(EPILOG) => return commands::epilog(&node_config(&words)),
        Some(dropin::SCHEDULER) => make_home_private().and_then(|()| dropin::scheduler(words)),
        Some(dropin::HYPERSEARCH) => make_home_private().and_then(|()| dropin::hypersearch(words)),
        _ => match args::Cli::read(&words) {
            Ok(cli) => make_home_private().and_then(|()| commands::dispatch(cli)),
            Err(error) => return usage(&error),
        },
    };
    result.unwrap_or_else(|error| {
        if is_closed_pipe(&error) {
            return Exit::Success;
        }
        let mut text = in_full(&error);
        if !text.contains("\nhint: ") {
            text.extend(limits::file_size_hint());
        }
        // An excerpt of what somebody wrote comes with a heading of its own.
        if !text.contains("error: ") {
            text.insert_str(0, "error: ");
        }
        match error.downcast_ref() {
            Some(SessionError::Rendered(_)) => complain_as_it_is(&text),
            _ => complain(&text),
        }
        Exit::Usage
    })
}

/// Makes the state folder private again if it was opened from outside, before anything in it is
/// believed.
fn make_home_private() -> anyhow::Result<()> {
    if let Some(reopened) = Home::make_private_again()? {
        complain(&reopened.to_string());
    }
    Ok(())
}

/// Help and versions are printed, mistakes are complained about.
pub(crate) fn usage(error: &clap::Error) -> Exit {
    let text = error.render().to_string();
    let shown = wording::message(text.clone());
    if shown == text {
        // If there is nobody to print to, nobody misses it.
        let _ = error.print();
    } else {
        complain(shown.trim_end());
    }
    if error.use_stderr() { Exit::Usage } else { Exit::Success }
}

/// An error with its causes, as far as it does not name them itself. Its hint
/// stays last.
fn in_full(error: &anyhow::Error) -> String {
    let text = error.to_string();
    let (what, hint) = text.split_at(text.find("\nhint: ").unwrap_or(text.len()));
    let mut what = what.to_owned();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // SQLite says the same once more, with a number before it.
        let last = cause.rsplit(": ").next().unwrap_or(&cause);
        if !what.contains(last) {
            what = format!("{what}: {cause}");
        }
    }
    what + hint
}

/// Whoever read our output has seen enough: `packhorse sweep … | head`.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

/// Says something on standard error, whatever is in it.
pub(crate) fn complain(text: &str) {
    complain_as_it_is(&wording::message(text.to_owned()));
}

/// Says something on standard error that may have colours, and nothing else to obey.
pub(crate) fn complain_as_it_is(text: &str) {
    let mut bytes = Vec::new();
    let mut filter = TerminalFilter::default();
    filter.push(text.as_bytes(), &mut bytes);
    filter.finish(&mut bytes);
    bytes.push(b'\n');
    // If standard error is gone there is nobody to tell.
    let _ = std::io::stderr().write_all(&bytes);
}
