use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use packhorse_model::Exit;
use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

use crate::stdout::stdout;
use crate::{terminal, wording};

/// A table without lines, two blanks between columns, as they are in the header.
pub fn table(header: &str, right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.split("  "));
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Prints a table: what does not fit on the terminal is cut at the end of its lines.
pub fn print_table(out: &mut impl Write, table: &Table) -> io::Result<()> {
    let width = terminal::line_width();
    for line in table.lines() {
        let line = wording::printable(line.trim_end());
        writeln!(out, "{}", wording::clipped(&line, width))?;
    }
    Ok(())
}

/// Whether all of a table fits on the terminal.
pub fn fits(table: &Table) -> bool {
    let width = terminal::line_width();
    table.lines().all(|line| line.trim_end().width() <= width)
}

/// The same for programs.
pub fn print_json(value: &Value) -> anyhow::Result<Exit> {
    writeln!(stdout(), "{}", serde_json::to_string_pretty(value)?)?;
    Ok(Exit::Success)
}
