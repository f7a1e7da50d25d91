//! A plan as a chart for the terminal.
//!
//! Each device is a row, or as many rows as tasks run on it at once. If there are too
//! many tasks to draw each, a device is one row that shows how many run at a time.

use std::fmt;
use std::iter::repeat_n;
use std::time::Duration;

use packhorse_model::{DeviceId, TaskId};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::axis::{TimeAxis, short};
use crate::plan::{DurationGuess, Plan, PlanBar};

/// If a device needs more rows than this, the chart shows how busy devices are.
const MOST_ROWS: usize = 6;
/// A narrower bar could not be told from its neighbour.
const LEAST_BAR: usize = 2;
const LEAST_CHART: usize = 10;
const LONGEST_NAME: usize = 20;
/// So many tasks of a list are named.
const LISTED: usize = 5;

/// The characters to draw with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glyphs {
    /// The ends of a bar.
    ends: [char; 2],
    /// What a bar is filled with if its duration is known.
    known: char,
    /// The same if it is not.
    unknown: char,
    /// From idle to fully busy.
    levels: [char; 9],
    /// What a column is if more run there.
    more: &'static str,
}

/// The chart of a plan, and below it what was assumed; shown with [`fmt::Display`].
pub struct Gantt<'a> {
    /// What to draw.
    pub plan: &'a Plan,
    /// How many columns to use.
    pub width: usize,
    /// The characters to draw with.
    pub glyphs: Glyphs,
    /// A device's name.
    pub device_name: &'a dyn Fn(DeviceId) -> String,
    /// A task's name.
    pub task_name: &'a dyn Fn(TaskId) -> String,
}

impl Glyphs {
    /// Lines and blocks.
    pub const UNICODE: Self = Self {
        ends: ['┣', '┫'],
        known: '━',
        unknown: '┅',
        levels: [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
        more: "higher",
    };
    /// Characters that every terminal and file can show.
    pub const ASCII: Self = Self {
        ends: ['[', ']'],
        known: '=',
        unknown: '~',
        levels: [' ', '.', ':', '-', '=', '+', '*', '#', '@'],
        more: "denser",
    };
}

/// As much of `text` as fits into `width` columns.
fn cut(text: &str, width: usize) -> String {
    let mut used = 0;
    let fitting = text.chars().take_while(|char| {
        used += char.width().unwrap_or(0);
        used <= width
    });
    // A name may contain anything.
    let mut fitting: String = fitting.filter(|char| !char.is_control()).collect();
    // A character may be wider together with the next one, as emoji are.
    while fitting.width() > width {
        fitting.pop();
    }
    fitting
}

/// Distributes `bars`, which are in the order of start, over as few rows as possible.
fn rows<'a>(bars: &[&'a PlanBar]) -> Vec<Vec<&'a PlanBar>> {
    let mut rows: Vec<Vec<&PlanBar>> = Vec::new();
    for &bar in bars {
        let is_free =
            |row: &&mut Vec<&PlanBar>| row.last().is_none_or(|last| last.end <= bar.start);
        match rows.iter_mut().find(is_free) {
            Some(row) => row.push(bar),
            None => rows.push(vec![bar]),
        }
    }
    rows
}

impl Gantt<'_> {
    fn bars_on(&self, device: Option<DeviceId>) -> Vec<&PlanBar> {
        let bars = self.plan.bars.iter();
        bars.filter(|bar| match device {
            Some(device) => bar.devices.contains(&device),
            None => bar.devices.is_empty(),
        })
        .collect()
    }

    /// One row with every bar drawn.
    fn drawn(&self, axis: TimeAxis, row: &[&PlanBar]) -> String {
        let mut line = String::new();
        let mut used = 0;
        for bar in row {
            let (start, end) = (axis.column(bar.start), axis.column(bar.end));
            let room = (end - start).saturating_sub(2);
            let name = cut(&(self.task_name)(bar.task), room);
            let Glyphs { known, unknown, .. } = self.glyphs;
            let fill = if bar.known { known } else { unknown };
            let [open, close] = self.glyphs.ends;
            line.extend(repeat_n(' ', start - used).chain([open]));
            line.push_str(&name);
            line.extend(repeat_n(fill, room - name.width()).chain([close]));
            used = end;
        }
        line
    }

    /// One row that shows how many of at most `most` run at a time.
    fn levelled(&self, axis: TimeAxis, bars: &[&PlanBar], most: usize) -> String {
        let mut busy = vec![0; axis.columns];
        let edge = |column: usize| axis.end.as_nanos() * column as u128 / axis.columns as u128;
        for bar in bars {
            let (start, end) = (bar.start.as_nanos(), bar.end.as_nanos());
            let columns = axis.column(bar.start)..=axis.column(bar.end);
            for (column, busy) in columns.zip(busy.iter_mut().skip(axis.column(bar.start))) {
                let (from, to) = (edge(column).max(start), edge(column + 1).min(end));
                *busy += to.saturating_sub(from);
            }
        }
        let full = (edge(1) * most as u128).max(1);
        let line: String = busy.into_iter().map(|busy| self.level(busy, full)).collect();
        line.trim_end().to_owned()
    }

    /// The glyph for a part of `full`. Any part that is not zero is visible.
    fn level(&self, part: u128, full: u128) -> char {
        let levels = self.glyphs.levels;
        let highest = levels.len() - 1;
        let place = (2 * part * highest as u128 / full).div_ceil(2);
        let place = usize::try_from(place).unwrap_or(highest).min(highest);
        levels[place.max(usize::from(part > 0))]
    }

    /// What the reader has to know about the chart.
    fn remarks(&self, most: Option<usize>) -> Vec<String> {
        let plan = self.plan;
        let (all, unknown) = (plan.bars.len(), plan.unknown);
        let line: String = [self.glyphs.unknown; 3].iter().collect();
        let mut remarks = Vec::new();
        if let Some(most) = most {
            remarks.push(format!(
                "the {} a column, the more tasks run there at once; at most {most}",
                self.glyphs.more
            ));
        }
        match plan.guess {
            DurationGuess::AllKnown => {}
            DurationGuess::Assumed(time) => remarks.push(format!(
                "how long {unknown} of {all} will take is not known ({line}): {} each is assumed",
                short(time)
            )),
            DurationGuess::Median(median) => remarks.push(format!(
                "how long {unknown} of {all} will take is not known ({line}): {} each is assumed, \
                 the median of the others",
                short(median)
            )),
            DurationGuess::Rounds => remarks.push(format!(
                "how long they will take is not known ({line}): all are assumed to be equally \
                 long, which makes a round"
            )),
        }
        let refused: Vec<TaskId> = plan.refused.iter().map(|&(task, _)| task).collect();
        remarks.extend(self.list("would be refused", &refused));
        remarks.extend(self.list("would wait", &plan.waiting));
        remarks.push(match (plan.expected_end(), plan.length().as_secs()) {
            _ if plan.bars.is_empty() => "nothing would run".to_owned(),
            _ if !plan.waiting.is_empty() => "expected end: not known".to_owned(),
            (Some(end), _) if plan.is_bound() => format!("expected end: in at most {}", short(end)),
            (Some(end), _) => format!("expected end: in about {}", short(end)),
            (None, rounds) => format!(
                "expected end: after {}{rounds} round{}",
                if plan.measured_alone { "at most " } else { "" },
                if rounds == 1 { "" } else { "s" }
            ),
        });
        remarks
    }

    /// The first of these tasks, and how many more there are.
    fn list(&self, what: &str, tasks: &[TaskId]) -> Option<String> {
        let shown = tasks.iter().take(LISTED).map(|&task| (self.task_name)(task));
        let shown = shown.collect::<Vec<_>>().join(", ");
        Some(match tasks.len() {
            0 => return None,
            1..=LISTED => format!("{what}: {shown}"),
            more => format!("{what}: {shown} and {} more", more - LISTED),
        })
    }
}

impl fmt::Display for Gantt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut places: Vec<(String, Vec<&PlanBar>)> = Vec::new();
        for &device in &self.plan.devices {
            let name = cut(&(self.device_name)(device), LONGEST_NAME);
            places.push((name, self.bars_on(Some(device))));
        }
        let without = self.bars_on(None);
        if !without.is_empty() {
            places.push(("no GPU".to_owned(), without));
        }
        let names = places.iter().map(|(name, _)| name.width());
        let margin = names.max().unwrap_or(0) + 2;
        let axis = TimeAxis {
            end: self.plan.length().max(Duration::from_nanos(1)),
            columns: self.width.saturating_sub(margin).max(LEAST_CHART),
            guess: self.plan.guess,
        };
        let is_narrow = |bar: &&PlanBar| axis.column(bar.end) - axis.column(bar.start) < LEAST_BAR;
        let tables: Vec<_> = places.iter().map(|(_, bars)| rows(bars)).collect();
        let too_many = tables.iter().any(|rows| rows.len() > MOST_ROWS);
        let levelled = too_many || self.plan.bars.iter().any(|bar| is_narrow(&bar));
        let most = tables.iter().map(Vec::len).max().unwrap_or(0);

        writeln!(f, "{:margin$}{}", "", axis.labels())?;
        for ((name, bars), rows) in places.iter().zip(tables) {
            let mut lines: Vec<String> = if levelled {
                vec![self.levelled(axis, bars, most)]
            } else {
                rows.iter().map(|row| self.drawn(axis, row)).collect()
            };
            if lines.is_empty() {
                lines.push(String::new());
            }
            for (number, line) in lines.iter().enumerate() {
                let name = if number == 0 { name.as_str() } else { "" };
                let gap = " ".repeat(margin - name.width());
                writeln!(f, "{}", format!("{name}{gap}{line}").trim_end())?;
            }
        }
        for remark in self.remarks(levelled.then_some(most)) {
            writeln!(f, "{remark}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
