//! Figures as Markdown that also reads well on a terminal.

use std::fmt;

use anyhow::Result;

use super::figures::megabytes;
use super::machine;
use super::process::own_peak;

/// What one benchmark found.
pub struct Section {
    pub title: &'static str,
    pub what: String,
    pub table: Table,
    pub targets: Vec<Target>,
}

/// A promise, and whether it was kept.
pub struct Target {
    promise: String,
    measured: String,
    met: bool,
}

impl Target {
    pub fn new(promise: impl Into<String>, measured: impl Into<String>, met: bool) -> Self {
        Self {
            promise: promise.into(),
            measured: measured.into(),
            met,
        }
    }
}

impl Section {
    /// The promises that were not kept.
    pub fn missed(&self) -> impl Iterator<Item = &str> {
        let missed = self.targets.iter().filter(|target| !target.met);
        missed.map(|target| target.promise.as_str())
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut targets = Table::new(["target", "measured", ""]);
        for target in &self.targets {
            let verdict = if target.met { "met" } else { "**missed**" };
            targets.row([
                target.promise.clone(),
                target.measured.clone(),
                verdict.into(),
            ]);
        }
        writeln!(f, "## {}\n\n{}\n", self.title, self.what)?;
        if !self.table.is_empty() {
            writeln!(f, "{}", self.table)?;
        }
        write!(f, "{targets}")
    }
}

/// A Markdown table, its columns padded to line up.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
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

impl fmt::Display for Table {
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
         Made by `cargo xtask bench{option}`, which replaces this file. {}\n\n\
         Contestants run in turns, each once a round and in another order every round. \
         A ratio is that of two runs of the same round; what is shown is the median over \
         the rounds. *limit* is a program that does nothing but `posix_spawn` and \
         `waitpid` with the same number in flight; packhorse starts processes by a cheaper \
         `clone` that it does not wait for, so this is a yardstick and no upper bound. Peak memory is the kernel's figure, which \
         never falls below what the bench itself has: {}.\n",
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
        let mut table = Table::new(["a", "long head"]);
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
            table: Table::new(["a"]),
            targets: vec![
                Target::new("kept", "1", true),
                Target::new("broken", "2", false),
            ],
        };
        assert_eq!(section.missed().collect::<Vec<_>>(), ["broken"]);
    }
}
