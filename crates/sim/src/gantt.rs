//! A plan as a chart for the terminal.
//!
//! A row is a device; where tasks share it, as many rows as run at once. If
//! there are too many to draw each, a device is one row that shows how many run
//! at a time.

use std::fmt;
use std::time::Duration;

use packhorse_model::{DeviceId, TaskId};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::axis::{Axis, Unit, short};
use crate::plan::{Bar, Guess, Plan};

/// A device with more rows than this is shown by how busy it is.
const MOST_ROWS: usize = 6;
/// A bar narrower than this could not be told from its neighbour.
const LEAST_BAR: usize = 2;
const LEAST_CHART: usize = 10;
const LONGEST_NAME: usize = 20;

/// What to draw with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glyphs {
    /// Lines and blocks.
    Unicode,
    /// What every terminal and file can show.
    Ascii,
}

/// What things are called.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    /// A device's name.
    pub device: &'a dyn Fn(DeviceId) -> String,
    /// A task's name.
    pub task: &'a dyn Fn(TaskId) -> String,
}

/// The chart of a plan, and below it what was assumed; shown with [`fmt::Display`].
pub struct Gantt<'a> {
    /// What is shown.
    pub plan: &'a Plan,
    /// How many columns there are.
    pub width: usize,
    /// What it is drawn with.
    pub glyphs: Glyphs,
    /// What things are called.
    pub names: Names<'a>,
}

impl Glyphs {
    fn ends(self) -> [char; 2] {
        match self {
            Self::Unicode => ['┣', '┫'],
            Self::Ascii => ['[', ']'],
        }
    }

    fn line(self, known: bool) -> char {
        match (self, known) {
            (Self::Unicode, true) => '━',
            (Self::Unicode, false) => '┅',
            (Self::Ascii, true) => '=',
            (Self::Ascii, false) => '~',
        }
    }

    /// From nothing to all.
    fn levels(self) -> [char; 9] {
        match self {
            Self::Unicode => [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
            Self::Ascii => [' ', '.', ':', '-', '=', '+', '*', '#', '@'],
        }
    }
}

/// As much of `text` as fits into `width` columns.
fn cut(text: &str, width: usize) -> String {
    let mut used = 0;
    let fitting = text.chars().take_while(|char| {
        used += char.width().unwrap_or(0);
        used <= width
    });
    // A name is anything that somebody typed.
    fitting.filter(|char| !char.is_control()).collect()
}

/// Shares `bars`, which are in the order of their starts, out to as few rows as
/// possible.
fn rows<'a>(bars: &[&'a Bar]) -> Vec<Vec<&'a Bar>> {
    let mut rows: Vec<Vec<&Bar>> = Vec::new();
    for &bar in bars {
        let is_free = |row: &&mut Vec<&Bar>| row.last().is_none_or(|last| last.end <= bar.start);
        match rows.iter_mut().find(is_free) {
            Some(row) => row.push(bar),
            None => rows.push(vec![bar]),
        }
    }
    rows
}

impl Gantt<'_> {
    fn bars_on(&self, device: Option<DeviceId>) -> Vec<&Bar> {
        let bars = self.plan.bars.iter();
        bars.filter(|bar| match device {
            Some(device) => bar.devices.contains(&device),
            None => bar.devices.is_empty(),
        })
        .collect()
    }

    /// One row with every bar drawn.
    fn drawn(&self, axis: Axis, row: &[&Bar]) -> String {
        let mut line = String::new();
        let mut used = 0;
        for bar in row {
            let (start, end) = (axis.column(bar.start), axis.column(bar.end));
            let room = (end - start).saturating_sub(2);
            let name = cut(&(self.names.task)(bar.task), room);
            let fill = self.glyphs.line(bar.known).to_string();
            let [open, close] = self.glyphs.ends();
            line.push_str(&" ".repeat(start - used));
            line.push(open);
            line.push_str(&name);
            line.push_str(&fill.repeat(room - name.width()));
            line.push(close);
            used = end;
        }
        line
    }

    /// One row that shows how many of at most `most` run at a time.
    fn levelled(&self, axis: Axis, bars: &[&Bar], most: usize) -> String {
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
        let line: String = busy
            .into_iter()
            .map(|busy| self.level(busy, full))
            .collect();
        line.trim_end().to_owned()
    }

    /// The glyph for a part of `full`. What is not nothing is shown.
    fn level(&self, part: u128, full: u128) -> char {
        let levels = self.glyphs.levels();
        let highest = levels.len() - 1;
        let place = (2 * part * highest as u128 / full).div_ceil(2);
        let place = usize::try_from(place).unwrap_or(highest).min(highest);
        levels[place.max(usize::from(part > 0))]
    }

    fn unit(&self) -> Unit {
        if self.plan.guess == Guess::Rounds {
            Unit::Rounds
        } else {
            Unit::Time
        }
    }

    /// What a reader has to know about the chart.
    fn remarks(&self, most: Option<usize>) -> Vec<String> {
        let plan = self.plan;
        let (all, unknown) = (plan.bars.len(), plan.unknown);
        let line: String = [self.glyphs.line(false); 3].iter().collect();
        let mut remarks = Vec::new();
        if let Some(most) = most {
            let more = match self.glyphs {
                Glyphs::Unicode => "higher",
                Glyphs::Ascii => "denser",
            };
            remarks.push(format!(
                "the {more} a column, the more tasks run there at once; at most {most}"
            ));
        }
        match plan.guess {
            Guess::AllKnown => {}
            Guess::Median(median) => remarks.push(format!(
                "how long {unknown} of {all} will take is not known ({line}): {} each is assumed, \
                 the median of the others",
                short(median)
            )),
            Guess::Rounds => remarks.push(format!(
                "how long they will take is not known ({line}): all are assumed to be equally \
                 long, which makes a round"
            )),
        }
        let names = |tasks: &mut dyn Iterator<Item = TaskId>| {
            let names: Vec<String> = tasks.map(|task| (self.names.task)(task)).collect();
            let shown = names[..names.len().min(5)].join(", ");
            match names.len() {
                0..=5 => shown,
                more => format!("{shown} and {} more", more - 5),
            }
        };
        if !plan.refused.is_empty() {
            let tasks = &mut plan.refused.iter().map(|&(task, _)| task);
            remarks.push(format!("would be refused: {}", names(tasks)));
        }
        if !plan.waiting.is_empty() {
            let tasks = &mut plan.waiting.iter().copied();
            remarks.push(format!(
                "would wait for others to leave the GPUs: {}",
                names(tasks)
            ));
        }
        remarks.push(match (plan.expected_end(), plan.length().as_secs()) {
            _ if plan.bars.is_empty() => "nothing would run".to_owned(),
            (Some(end), _) => format!("expected end: in {}", short(end)),
            (None, 1) => "expected end: after 1 round".to_owned(),
            (None, rounds) => format!("expected end: after {rounds} rounds"),
        });
        remarks
    }
}

impl fmt::Display for Gantt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut places: Vec<(String, Vec<&Bar>)> = Vec::new();
        for &device in &self.plan.devices {
            let name = cut(&(self.names.device)(device), LONGEST_NAME);
            places.push((name, self.bars_on(Some(device))));
        }
        let without = self.bars_on(None);
        if !without.is_empty() {
            places.push(("no GPU".to_owned(), without));
        }
        let names = places.iter().map(|(name, _)| name.width());
        let margin = names.max().unwrap_or(0) + 2;
        let axis = Axis {
            end: self.plan.length().max(Duration::from_nanos(1)),
            columns: self.width.saturating_sub(margin).max(LEAST_CHART),
            unit: self.unit(),
        };
        let is_narrow = |bar: &&Bar| axis.column(bar.end) - axis.column(bar.start) < LEAST_BAR;
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
