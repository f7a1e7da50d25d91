//! The table of tests for people.

use std::collections::BTreeSet;
use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use packhorse_session::TestResult;

use super::diverged;
use super::keys::{MetricValue, param_text};
use crate::commands::table::{fits, print_table};
use crate::{complain, terminal, wording};

/// A column: its title, and a cell for each test.
struct TableColumn {
    title: String,
    kind: ColumnKind,
    cells: Vec<String>,
}

/// Where there is little room, the later ones are left out first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ColumnKind {
    /// Text of any length, which may be cut.
    Text,
    /// What there must be.
    Needed,
    /// Time and memory.
    Secondary,
    /// The last value of a metric, beside its best.
    LastValue,
}

/// Where the tests were found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ResultsOrigin {
    Run,
    Folder,
}

/// All parameters that the tests have.
pub fn param_names(tests: &[TestResult]) -> BTreeSet<&str> {
    let names = tests.iter().flat_map(|test| test.params.keys());
    names.map(String::as_str).collect()
}

/// All metrics that the tests have.
pub fn metric_names(tests: &[TestResult]) -> BTreeSet<&str> {
    let names = tests.iter().flat_map(|test| test.metrics.keys());
    names.map(String::as_str).collect()
}

/// Prints the tests: what is the same in all of them once, the rest as a table.
pub fn print(out: &mut impl Write, tests: &[TestResult], place: ResultsOrigin) -> io::Result<()> {
    let with_params = || tests.iter().filter(|test| !test.params.is_empty());
    let is_constant = |name: &&str| {
        let mut values = with_params().map(|test| test.params.get(*name));
        let first = values.next().flatten();
        let mut rest = values.peekable();
        rest.peek().is_some() && first.is_some() && rest.all(|value| value == first)
    };
    let (constant, differing): (Vec<&str>, Vec<&str>) =
        param_names(tests).into_iter().partition(is_constant);
    if let Some(test) = with_params().next().filter(|_| !constant.is_empty()) {
        let values = constant.iter().filter_map(|name| {
            let value = test.params.get(*name)?;
            Some(format!("{name} = {}", param_text(value)))
        });
        let values: Vec<String> = values.collect();
        let line = wording::name(format!("all with {}", values.join(", ")));
        writeln!(out, "{}", wording::clipped(&line, terminal::line_width()))?;
    }
    let columns = columns(tests, place, &differing);
    let shown = fitting(&columns);
    print_table(out, &shown)?;
    let shown_columns = shown.column_iter().count();
    if !fits(&shown) || shown_columns < columns.len() {
        out.flush()?;
        complain("hint: not everything fits here; --csv has it all");
    }
    Ok(())
}

fn columns(tests: &[TestResult], place: ResultsOrigin, differing: &[&str]) -> Vec<TableColumn> {
    let mut columns = Vec::new();
    let mut add = |title: &str, kind, of: &dyn Fn(&TestResult) -> Option<String>| {
        let cells: Vec<Option<String>> = tests.iter().map(of).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter();
            columns.push(TableColumn {
                title: wording::name(title.to_owned()),
                kind,
                cells: cells.map(|cell| wording::name(wording::or_dash(cell))).collect(),
            });
        }
    };
    let (text, needed, secondary) = (ColumnKind::Text, ColumnKind::Needed, ColumnKind::Secondary);
    // Folders come with parameters, which say more, and often are their names.
    let by_params = tests.iter().map(|test| &test.params);
    let distinct: BTreeSet<String> = by_params.map(|params| format!("{params:?}")).collect();
    let all_have_some = tests.iter().all(|test| !test.params.is_empty());
    let is_told_by_params = all_have_some && distinct.len() == tests.len() && !differing.is_empty();
    if place == ResultsOrigin::Run {
        add("TASK", needed, &|test| test.task.map(|task| task.to_string()));
    } else if !is_told_by_params {
        add("FOLDER", text, &|test| {
            let folder = test.folder.as_ref()?;
            Some(folder.display().to_string())
        });
    }
    for name in differing {
        add(name, text, &|test| test.params.get(*name).map(param_text));
    }
    add("OUTCOME", needed, &|test| {
        let mark = if diverged(test).next().is_some() { ", diverged" } else { "" };
        Some(format!("{}{mark}", test.outcome.word()))
    });
    add("TIME", secondary, &|test| test.took.map(wording::duration));
    add("PEAK", secondary, &|test| test.peak.map(|peak| peak.to_string()));
    for name in metric_names(tests) {
        let value = |test: &TestResult, which: MetricValue| {
            let summary = test.metrics.get(name)?;
            Some(wording::number(which.of(name, summary)))
        };
        let best = |test: &TestResult| value(test, MetricValue::Best);
        let last = |test: &TestResult| value(test, MetricValue::Last);
        add(name, needed, &best);
        if tests.iter().any(|test| last(test) != best(test)) {
            add(&format!("{name}.last"), ColumnKind::LastValue, &last);
        }
    }
    if differing.is_empty() && place == ResultsOrigin::Run {
        add("COMMAND", text, &|test| Some(wording::command(test.command.as_ref()?).into_owned()));
    }
    columns
}

/// As many of the columns as fit on the terminal, and as much of them.
fn fitting(columns: &[TableColumn]) -> Table {
    let mut shown = table(columns.iter(), usize::MAX);
    for longest in [24, 16, 12, 8] {
        if fits(&shown) {
            return shown;
        }
        shown = table(columns.iter(), longest);
    }
    // Metrics are what people look for.
    for most in [ColumnKind::Secondary, ColumnKind::Needed] {
        if fits(&shown) {
            break;
        }
        shown = table(columns.iter().filter(|column| column.kind <= most), 8);
    }
    shown
}

fn table<'c>(columns: impl Iterator<Item = &'c TableColumn> + Clone, longest: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(columns.clone().map(|column| &column.title));
    let rows = columns.clone().map(|column| column.cells.len()).max();
    for row in 0..rows.unwrap_or(0) {
        table.add_row(columns.clone().map(|column| match column.kind {
            ColumnKind::Text => wording::clipped(&column.cells[row], longest).into_owned(),
            _ => column.cells[row].clone(),
        }));
    }
    for (column, shown) in columns.zip(table.column_iter_mut()) {
        shown.set_padding((0, 2));
        if column.is_of_numbers() {
            shown.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

impl TableColumn {
    /// Whether it is read from the right, as numbers are.
    fn is_of_numbers(&self) -> bool {
        let begins = |cell: &String| {
            cell.starts_with(|c: char| c.is_ascii_digit() || "-.".contains(c))
                || matches!(cell.as_str(), "NaN" | "inf")
        };
        self.title != "TASK" && self.title != "FOLDER" && self.cells.iter().all(begins)
    }
}
