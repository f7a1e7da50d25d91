//! Figures as Markdown that is also readable on a terminal.

use std::fmt;

use anyhow::Result;

use super::machine;
use super::process::own_peak;
use super::statistics::{Measured, megabytes};

/// What one benchmark found: tables with a text before each, and the targets.
pub struct Section {
    title: &'static str,
    parts: Vec<(String, MarkdownTable)>,
    targets: Vec<Target>,
}

/// A target, and whether it was met.
struct Target {
    name: String,
    measured: String,
    met: bool,
}

impl Section {
    /// `title` is the benchmark's name and what it is about.
    pub fn new(title: &'static str) -> Self {
        Self { title, parts: Vec::new(), targets: Vec::new() }
    }

    /// Begins a table with these columns, and says what is in it.
    pub fn part<const N: usize>(&mut self, what: impl Into<String>, columns: [&str; N]) {
        let table = MarkdownTable(vec![columns.map(String::from).to_vec()]);
        self.parts.push((what.into(), table));
    }

    /// Adds a row to the last table.
    pub fn row<const N: usize>(&mut self, cells: [&dyn fmt::Display; N]) {
        if let Some((_, table)) = self.parts.last_mut() {
            table.0.push(cells.map(ToString::to_string).into());
        }
    }

    /// Adds a target, what was measured, and whether that meets it.
    pub fn target(&mut self, name: impl Into<String>, measured: impl fmt::Display, met: bool) {
        self.targets.push(Target { name: name.into(), measured: measured.to_string(), met });
    }

    /// Adds a target that a value less than `limit` meets.
    pub fn less_than(&mut self, name: impl Into<String>, measured: Measured, limit: f64) {
        self.target(name, measured, measured.0 < limit);
    }

    /// Adds a target that a value up to `limit` meets.
    pub fn at_most(&mut self, name: impl Into<String>, measured: Measured, limit: f64) {
        self.target(name, measured, measured.0 <= limit);
    }

    /// Adds a target that a value from `limit` on meets.
    pub fn at_least(&mut self, name: impl Into<String>, measured: Measured, limit: f64) {
        self.target(name, measured, measured.0 >= limit);
    }

    /// The targets that were missed.
    pub fn missed(&self) -> impl Iterator<Item = &str> {
        let missed = self.targets.iter().filter(|target| !target.met);
        missed.map(|target| target.name.as_str())
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## {}\n", self.title)?;
        for (what, table) in &self.parts {
            writeln!(f, "{what}\n")?;
            if table.0.len() > 1 {
                writeln!(f, "{table}")?;
            }
        }
        let mut targets = vec![["target", "measured", ""].map(String::from).to_vec()];
        for target in &self.targets {
            let verdict = if target.met { "met" } else { "**missed**" };
            targets.push(vec![target.name.clone(), target.measured.clone(), verdict.into()]);
        }
        write!(f, "{}", MarkdownTable(targets))
    }
}

/// The rows of a Markdown table, the first of which names the columns. They are padded to
/// line up.
struct MarkdownTable(Vec<Vec<String>>);

impl fmt::Display for MarkdownTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.0.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.0[0].len()).map(width).collect();
        for (number, row) in self.0.iter().enumerate() {
            for (cell, &width) in row.iter().zip(&widths) {
                write!(f, "| {cell:width$} ")?;
            }
            writeln!(f, "|")?;
            if number == 0 {
                for width in &widths {
                    write!(f, "|{:-<1$}", "", width + 2)?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

/// The whole of docs/performance.md.
pub fn document(sections: &[Section], quick: bool) -> Result<String> {
    let option = if quick { " --quick" } else { "" };
    let mut text = format!(
        "# Performance\n\n\
         Written by `cargo xtask bench{option}`, which replaces this file. {}\n\n\
         The programs run in turns, each once per round, in a different order every round. \
         A ratio is that of two runs of the same round; the tables show the median over the \
         rounds. *limit* is a program that does nothing but `posix_spawn` and `waitpid` with \
         the same number of processes at a time; packhorse starts processes by a cheaper \
         `clone` that it does not wait for, so this is a yardstick, not an upper bound. Peak \
         memory is the kernel's figure, which is never less than what the bench itself has: \
         {}.\n",
        machine::describe()?,
        megabytes(own_peak()?)
    );
    for section in sections {
        text.push('\n');
        text.push_str(&section.to_string());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_columns_line_up() {
        let rows = [["a", "long head"], ["wide µ cell", "1"]];
        let table = MarkdownTable(rows.map(|row| row.map(String::from).to_vec()).to_vec());
        let text = table.to_string();
        let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths, [27; 3], "{text}");
        assert_eq!(text.lines().nth(1), Some("|-------------|-----------|"));
    }

    #[test]
    fn every_part_has_its_table_and_the_targets_come_last() {
        let mut section = Section::new("t: a title");
        section.part("First.", ["a"]);
        section.row([&1]);
        section.part("Second.", []);
        section.at_most("few", Measured(2.0, 1, " s"), 2.0);
        let wanted = "## t: a title\n\nFirst.\n\n| a |\n|---|\n| 1 |\n\nSecond.\n\n\
                      | target | measured |     |\n|--------|----------|-----|\n\
                      | few    | 2.0 s    | met |\n";
        assert_eq!(section.to_string(), wanted);
    }

    #[test]
    fn missed_target_is_named() {
        let mut section = Section::new("t");
        section.target("kept", 1, true);
        section.less_than("broken", Measured(2.0, 0, ""), 2.0);
        section.at_least("unknown", Measured(f64::NAN, 0, ""), 2.0);
        let missed: Vec<&str> = section.missed().collect();
        assert_eq!(missed, ["broken", "unknown"]);
    }
}
