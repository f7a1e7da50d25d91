use std::io::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use packhorse_model::Exit;
use serde_json::Value;

/// A table without lines, one blank column between columns.
pub fn table<const N: usize>(header: [&str; N], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for &index in right {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for index in 0..N {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 2));
        }
    }
    table
}

/// The same for programs.
pub fn print_json(value: &Value) -> anyhow::Result<Exit> {
    writeln!(
        std::io::stdout(),
        "{}",
        serde_json::to_string_pretty(value)?
    )?;
    Ok(Exit::Success)
}
