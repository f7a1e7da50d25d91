//! Figures as Markdown that is also readable on a terminal.

use std::fmt;

use anyhow::Result;

use super::machine;
use super::process::own_peak;
use super::statistics::megabytes;

/// What one benchmark found.
pub struct Section {
    pub title: &'static str,
    pub what: String,
    pub table: MarkdownTable,
    pub targets: Vec<Target>,
}

/// A target, and whether it was met.
pub struct Target {
    name: String,
    measured: String,
    met: bool,
}

impl Target {
    pub fn new(name: impl Into<String>, measured: impl Into<String>, met: bool) -> Self {
        Self {
            name: name.into(),
            measured: measured.into(),
            met,
        }
    }
}

impl Section {
    /// The targets that were missed.
    pub fn missed(&self) -> impl Iterator<Item = &str> {
        let missed = self.targets.iter().filter(|target| !target.met);
        missed.map(|target| target.name.as_str())
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut targets = MarkdownTable::new(["target", "measured", ""]);
        for target in &self.targets {
            let verdict = if target.met { "met" } else { "**missed**" };
            targets.row([target.name.clone(), target.measured.clone(), verdict.into()]);
        }
        writeln!(f, "## {}\n\n{}\n", self.title, self.what)?;
        if !self.table.is_empty() {
            writeln!(f, "{}", self.table)?;
        }
        write!(f, "{targets}")
    }
}

/// A Markdown table, its columns padded to line up.
pub struct MarkdownTable {
    rows: Vec<Vec<String>>,
}

impl MarkdownTable {
    pub fn new<const N: usize>(head: [&str; N]) -> Self {
        Self {
            rows: vec![head.map(String::from).to_vec()],
        }
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }
}

impl fmt::Display for MarkdownTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
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
        let mut table = MarkdownTable::new(["a", "long head"]);
        table.row(["wide µ cell".into(), "1".into()]);
        let text = table.to_string();
        let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths, [27; 3], "{text}");
        assert_eq!(text.lines().nth(1), Some("|-------------|-----------|"));
    }

    #[test]
    fn missed_target_is_named() {
        let section = Section {
            title: "t",
            what: String::new(),
            table: MarkdownTable::new(["a"]),
            targets: vec![
                Target::new("kept", "1", true),
                Target::new("broken", "2", false),
            ],
        };
        assert_eq!(section.missed().collect::<Vec<_>>(), ["broken"]);
    }
}
