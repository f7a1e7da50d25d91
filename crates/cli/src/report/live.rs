use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packhorse_model::{Command, Event, EventKind, RunId, TaskId, TaskResult};
use packhorse_session::{Observer, QueueView};
use unicode_width::UnicodeWidthStr as _;

use super::Sink;
use super::plain::{self, Weight};
use super::tally::Tally;
use crate::terminal::{Palette, paint, size};
use crate::wording;

/// A view at the bottom of the terminal that is drawn anew as things happen;
/// what went wrong scrolls away above it and stays.
///
/// ```text
/// 12.4 failed after 3.1s: exit status 1
///  GPU 0   12.7  python train.py --lr 0.1            1m12s
///  GPU 1   12.8  python train.py --lr 0.01              4s
///  next: 12.9 is first in line and waits for …
///  ━━━━━━━─────────────  30% 6/20 done, 1 failed, 2 running, 12 waiting · after 16s · 35s left
/// ```
pub struct Live {
    sink: Sink,
    palette: Palette,
    tally: Tally,
    run: Option<RunId>,
    /// Devices in the pool's order, as they are called; tasks without one are listed below
    /// them.
    devices: Vec<String>,
    running: BTreeMap<TaskId, Running>,
    /// Lines that go above the view.
    above: Vec<u8>,
    /// How wide each line of the last drawing was.
    drawn: Vec<usize>,
    last: Option<Instant>,
    changed: bool,
    stopping: bool,
    ended: bool,
}

struct Running {
    command: Arc<Command>,
    devices: Arc<[String]>,
    since: Instant,
    attempt: u32,
}

impl Running {
    /// What it is called in the view.
    fn title(&self, task: TaskId) -> String {
        format!("{task}{}", wording::attempt(self.attempt))
    }
}

/// How long most elapsed times are: `59m59s`.
const ELAPSED: usize = 6;
/// At most ten drawings a second.
const PAUSE: Duration = Duration::from_millis(100);
/// Elapsed times are kept right to the second.
const TICK: Duration = Duration::from_secs(1);

impl Live {
    /// Says nothing of `retry` and `resume`.
    #[must_use]
    pub fn of_calls(mut self) -> Self {
        self.tally.can_go_on = false;
        self
    }

    /// Draws on standard output.
    pub fn new() -> Self {
        Self {
            sink: Sink::drawing(),
            palette: Palette::from_env(),
            tally: Tally::new(Instant::now()),
            run: None,
            devices: Vec::new(),
            running: BTreeMap::new(),
            above: Vec::new(),
            drawn: Vec::new(),
            last: None,
            changed: true,
            stopping: false,
            ended: false,
        }
    }

    /// Moves to the start of the last drawing, and says how many rows it takes.
    fn go_back(&mut self, width: usize) -> usize {
        // The terminal may have become narrower: lines take several rows then.
        let drawn = self.drawn.drain(..);
        let rows = drawn.map(|columns| columns.div_ceil(width).max(1)).sum();
        if rows > 0 {
            let _ = write!(self.sink.buffer(), "\r\x1b[{rows}A");
        }
        rows
    }

    /// Draws over the last drawing, row by row.
    ///
    /// The screen is never erased from its very first column on: tmux takes that
    /// for `clear`, and keeps a copy of what was there in its history.
    fn draw(&mut self, now: Instant, queue: &dyn QueueView) {
        let (width, height) = size();
        let mut stale = self.go_back(width);
        if !self.above.is_empty() {
            // These may be longer than a row, so what is under them goes first.
            if stale > 0 {
                self.sink.buffer().extend_from_slice(b" \x1b[J\r");
                stale = 0;
            }
            let above = std::mem::take(&mut self.above);
            self.sink.buffer().extend_from_slice(&above);
        }
        if !self.ended {
            for line in self.frame(now, queue, width, height) {
                self.drawn.push(line.width);
                self.sink.line(format_args!("{}\x1b[K", line.text));
            }
        }
        if stale > self.drawn.len() {
            self.sink.buffer().extend_from_slice(b"\x1b[J");
        }
        self.sink.flush();
        self.last = Some(now);
        self.changed = false;
    }

    /// The lines of the view, each at most `width - 1` columns.
    fn frame(
        &self,
        now: Instant,
        queue: &dyn QueueView,
        width: usize,
        height: usize,
    ) -> Vec<Styled> {
        let room = width.saturating_sub(1);
        let mut lines = Vec::new();
        // One line is kept free for the shell's, two are for who is next and
        // the summary.
        let most = height.saturating_sub(4).max(1);
        let mut rows = self.rows();
        let hidden = rows.len().saturating_sub(most);
        if hidden > 0 {
            rows.truncate(most.saturating_sub(1));
        }
        let names = rows.iter().map(|row| row.0.width()).max().unwrap_or(0);
        let tasks = rows.iter().filter_map(|row| row.1);
        let tasks = tasks.map(|(task, running)| running.title(task).len());
        let tasks = tasks.max().unwrap_or(0);
        for (name, running) in &rows {
            lines.push(self.row(name, (names, tasks), *running, room));
        }
        if hidden > 0 {
            let text = format!("  … and {} more", hidden + 1);
            lines.push(Styled::new(&text, room, ""));
        }
        if !self.stopping
            && let Some(why) = queue.why_first_waits()
        {
            let text = format!(" next: {why}");
            lines.push(Styled::new(&text, room, self.palette.faint));
        }
        lines.push(self.summary(now, room));
        lines
    }

    /// A row for each device and each task on it.
    fn rows(&self) -> Vec<(String, Option<(TaskId, &Running)>)> {
        let mut rows = Vec::new();
        for device in &self.devices {
            let before = rows.len();
            for (task, running) in &self.running {
                if running.devices.contains(device) {
                    rows.push((device.clone(), Some((*task, running))));
                }
            }
            if rows.len() == before {
                rows.push((device.clone(), None));
            }
        }
        for (task, running) in &self.running {
            if running.devices.is_empty() {
                rows.push((String::new(), Some((*task, running))));
            }
        }
        rows
    }

    fn row(
        &self,
        name: &str,
        (names, tasks): (usize, usize),
        running: Option<(TaskId, &Running)>,
        room: usize,
    ) -> Styled {
        let Some((task, running)) = running else {
            let text = format!(" {name:<names$}  idle");
            return Styled::new(&text, room, self.palette.faint);
        };
        // No line is longer than it has to be: when a terminal becomes narrower, what it
        // breaks may go to where nobody can erase it.
        let elapsed = whole(running.since.elapsed());
        let task = running.title(task);
        let command = wording::command(&running.command);
        let text = if name.is_empty() {
            format!(" {task:<tasks$}  {elapsed:>ELAPSED$}  {command}")
        } else {
            format!(" {name:<names$}  {task:<tasks$}  {elapsed:>ELAPSED$}  {command}")
        };
        Styled::new(&text, room, "")
    }

    fn summary(&self, now: Instant, room: usize) -> Styled {
        let tally = &self.tally;
        let percent = (tally.complete && tally.known > 0)
            .then(|| tally.done().min(tally.known) * 100 / tally.known);
        let fits = |from: &SummaryPart| {
            let bar =
                if percent.is_some() && SummaryPart::Bar >= *from { *BAR.start() + 1 } else { 0 };
            bar + self.summary_text(now, percent, *from).width() <= room
        };
        let from = SummaryPart::ALL.into_iter().find(fits);
        let from = from.unwrap_or(SummaryPart::End);
        let mut text = self.summary_text(now, percent, from);
        let columns = room.saturating_sub(text.width() + 1).min(*BAR.end());
        if let Some(percent) = percent
            && SummaryPart::Bar >= from
        {
            let full = usize::try_from(percent).unwrap_or(0) * columns / 100;
            text = format!(" {}{}{text}", "━".repeat(full), "─".repeat(columns - full));
        }
        let colour = if tally.failed > 0 { self.palette.bad } else { self.palette.good };
        Styled::new(&text, room, colour)
    }

    /// How far the run is, in words, with the optional parts from this one on.
    fn summary_text(&self, now: Instant, percent: Option<u64>, from: SummaryPart) -> String {
        let tally = &self.tally;
        let mut text = percent.map_or_else(|| " ".to_owned(), |percent| format!(" {percent:>3}% "));
        if let Some(run) = self.run
            && SummaryPart::Run >= from
        {
            text += &format!("run {run}: ");
        }
        text += &if tally.complete {
            format!("{}/{} done", tally.done(), tally.known)
        } else {
            format!("{} done", tally.done())
        };
        if tally.failed > 0 {
            text += &format!(", {} failed", tally.failed);
        }
        text += &format!(", {} running", tally.running);
        // Otherwise the other numbers tell.
        if SummaryPart::Waiting >= from || !tally.complete {
            text += &format!(", {} waiting", tally.waiting());
        }
        if let Some(rate) = tally.rate(now)
            && SummaryPart::Rate >= from
        {
            text += &if rate >= 0.95 {
                format!(" · {rate:.0}/s")
            } else if rate * 60.0 >= 0.95 {
                format!(" · {:.0}/min", rate * 60.0)
            } else {
                format!(" · {:.1}/h", rate * 3600.0)
            };
        }
        if SummaryPart::Elapsed >= from {
            text += &format!(" · after {}", whole(now.duration_since(tally.started)));
        }
        match tally.remaining(now) {
            // The rest will not run.
            _ if self.stopping => {}
            Some(left) => text += &format!(" · {} left", wording::duration(left)),
            None if !tally.complete => text += " · input open",
            None => {}
        }
        text
    }
}

/// What the summary can do without where there is little room: the first goes first.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum SummaryPart {
    Rate,
    Bar,
    Waiting,
    Run,
    Elapsed,
    /// Everything else.
    End,
}

impl SummaryPart {
    const ALL: [Self; 6] =
        [Self::Rate, Self::Bar, Self::Waiting, Self::Run, Self::Elapsed, Self::End];
}

/// How many columns the bar may have.
const BAR: RangeInclusive<usize> = 6..=20;

/// A time that goes on: in whole seconds, so that nothing flickers.
fn whole(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        _ => wording::duration(time),
    }
}

impl Observer for Live {
    fn event(&mut self, event: &Event) {
        if let EventKind::Metrics { .. } = event.kind {
            // Nothing of it is shown.
            return;
        }
        self.tally.event(event);
        match &event.kind {
            EventKind::RunStarted { run, gpus, .. } => {
                self.run = Some(*run);
                self.devices = places(None, gpus).to_vec();
            }
            EventKind::Started { task, attempt, command, gpus, node } => {
                let places = places(node.as_deref(), gpus);
                for place in places.iter() {
                    // What a cluster has is known when something runs there.
                    if node.is_some() && !self.devices.contains(place) {
                        self.devices.push(place.clone());
                    }
                }
                self.running.insert(
                    *task,
                    Running {
                        command: Arc::clone(command),
                        devices: places,
                        since: Instant::now(),
                        attempt: *attempt,
                    },
                );
            }
            EventKind::Retrying { task, .. } | EventKind::Finished(TaskResult { task, .. }) => {
                self.running.remove(task);
            }
            EventKind::Stopping { .. } => self.stopping = true,
            EventKind::RunEnded(_) => {
                self.ended = true;
                self.running.clear();
            }
            _ => {}
        }
        for event in self.sink.pass(event, self.above.len()) {
            if let EventKind::Output { task, line, .. } = &event.kind {
                let text = wording::printable_output(line);
                // Writing to a Vec cannot fail.
                let _ = writeln!(self.above, "{task} | {text}");
            }
            // What everybody should see.
            if let Some((Weight::Important, line)) = plain::line_of(&event) {
                // That others are there is no trouble yet.
                let line = match event.kind {
                    EventKind::RunStarted { .. } => line,
                    _ => paint(&line, self.palette.bad),
                };
                let _ = writeln!(self.above, "{line}");
            }
        }
        for line in plain::closing_lines(event, &self.tally) {
            let _ = writeln!(self.above, "{line}");
        }
        self.changed = true;
    }

    fn show(&mut self, now: Instant, queue: &dyn QueueView) -> Option<Instant> {
        if self.ended {
            if self.changed {
                self.draw(now, queue);
            }
            return None;
        }
        let due = match self.last {
            None => now,
            Some(last) if self.changed => last + PAUSE,
            Some(last) => last + TICK,
        };
        if due > now {
            return Some(due);
        }
        // A terminal that is held, as with Ctrl-S, needs no second drawing
        // behind the first.
        if self.sink.unread() == 0 {
            self.draw(now, queue);
        }
        Some(now + TICK)
    }

    fn resized(&mut self) {
        self.changed = true;
    }

    fn suspended(&mut self) {
        let (width, _) = size();
        if self.go_back(width) > 0 {
            self.sink.buffer().extend_from_slice(b" \x1b[J\r");
        }
        self.sink.flush();
    }

    fn continued(&mut self) {
        self.drawn.clear();
        self.changed = true;
    }
}

/// What each of an attempt's devices is called; its node, if it has none.
fn places(node: Option<&str>, gpus: &[String]) -> Arc<[String]> {
    if gpus.is_empty() {
        return node.map(str::to_owned).into_iter().collect();
    }
    let gpus = gpus.iter().map(std::slice::from_ref);
    gpus.filter_map(|gpu| wording::place(node, gpu)).collect()
}

/// A line and how many columns it takes, which its colours do not count for.
struct Styled {
    text: String,
    width: usize,
}

impl Styled {
    /// At most so many columns of the text.
    fn new(text: &str, room: usize, colour: &str) -> Self {
        let text = wording::printable(text);
        let text = wording::clipped(&text, room);
        Self { text: paint(&text, colour), width: text.width() }
    }
}
