use std::io::Write as _;
use std::path::Path;

use jiff::tz::TimeZone;
use packhorse_model::{ByteString, Command, Exit, Timestamp};
use packhorse_slurm::refresh_all;
use packhorse_store::{Home, Reader, RunState, StoredRun};
use serde_json::{Value, json};

use super::table::{print_json, print_table, table};
use crate::args::LsArgs;
use crate::stdout::stdout;
use crate::{complain, dropin, wording};

/// How many are listed for people, if nobody says.
const LIMIT: u32 = 20;

/// `packhorse ls`
pub fn ls(args: &LsArgs) -> anyhow::Result<Exit> {
    let home = Home::locate()?;
    refresh_all(&home);
    let reader = Reader::open(&home)?;
    if args.json {
        let runs = reader.runs(args.limit.unwrap_or(u32::MAX))?;
        return print_json(&runs.iter().map(as_json).collect());
    }
    let mut out = stdout();
    let limit = match args.limit {
        _ if args.all => u32::MAX,
        limit => limit.unwrap_or(LIMIT),
    };
    let runs = reader.runs(limit)?;
    let all = reader.how_many_runs()?;
    if all == 0 {
        writeln!(out, "no runs yet")?;
        return Ok(Exit::Success);
    }
    let header = "RUN  STATE  STARTED  TOOK  TASKS  OK  FAILED  LEFT  COMMAND";
    let mut table = table(header, &[0, 3, 4, 5, 6, 7]);
    for run in &runs {
        table.add_row([
            run.id.to_string(),
            state(run.state).to_owned(),
            clock(run.started),
            took(run).map(wording::duration).unwrap_or_default(),
            run.counts.total().to_string(),
            run.counts.succeeded.to_string(),
            run.counts.failed.to_string(),
            left(run),
            wording::name(command_line(run)),
        ]);
    }
    // The command is last, so it is what is cut.
    print_table(&mut out, &table)?;
    let more = all.saturating_sub(runs.len() as u64);
    if more > 0 {
        complain(&format!("and {more} more (packhorse ls --all)"));
    }
    Ok(Exit::Success)
}

/// How many tasks are left: at least so many, if not all were read.
fn left(run: &StoredRun) -> String {
    let more = if run.input_complete { "" } else { "+" };
    format!("{}{more}", run.counts.unfinished())
}

/// What has become of a run, in a word.
pub fn state(state: RunState) -> &'static str {
    match state {
        RunState::Running => "running",
        RunState::OnCluster => "on-slurm",
        RunState::Finished => "finished",
        RunState::Interrupted => "interrupted",
        RunState::Died => "died",
    }
}

/// A moment by this machine's clock, to the second.
pub fn clock(at: Timestamp) -> String {
    let time = jiff::Timestamp::from_microsecond(at.0).ok();
    let time = time.map(|time| time.to_zoned(TimeZone::system()));
    wording::or_dash(time.map(|time| time.strftime("%Y-%m-%d %H:%M:%S").to_string()))
}

/// Whether a run was started by the name of the original.
pub fn is_original(run: &StoredRun) -> bool {
    let name = run.argv.first().map(Path::new).and_then(Path::file_name);
    name.is_some_and(|name| name == dropin::SCHEDULER)
}

/// The words a run was started with. Our own name goes without saying.
pub fn command_line(run: &StoredRun) -> String {
    let name = is_original(run).then_some(dropin::SCHEDULER.as_bytes());
    let words = run.argv.iter().skip(1).map(|word| word.as_encoded_bytes());
    let words = name.into_iter().chain(words).map(<[u8]>::to_vec);
    Command::Words(words.collect()).to_text().into_owned()
}

/// How long it took, or has taken so far.
pub fn took(run: &StoredRun) -> Option<std::time::Duration> {
    match (run.ended, run.state) {
        (Some(ended), _) => Some(ended.since(run.started)),
        (None, RunState::Running | RunState::OnCluster) => {
            Some(Timestamp::now().since(run.started))
        }
        (None, _) => None,
    }
}

/// A run for programs.
pub fn as_json(run: &StoredRun) -> Value {
    json!({
        "run": run.id.0,
        "uuid": run.uuid.to_string(),
        "state": state(run.state),
        "started": run.started,
        "ended": run.ended,
        "exit": run.exit,
        "folder": ByteString::from(run.cwd.clone().into_os_string()),
        "command": command_line(run),
        "host": run.host,
        "pid": run.pid,
        "input_complete": run.input_complete,
        "tasks": run.counts.total(),
        "waiting": run.counts.waiting,
        "running": run.counts.running,
        "interrupted": run.counts.interrupted,
        "succeeded": run.counts.succeeded,
        "failed": run.counts.failed,
    })
}
