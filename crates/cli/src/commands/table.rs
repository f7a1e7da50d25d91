use std::io::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use packhorse_model::Exit;
use serde_json::Value;

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

/// The same for programs.
pub fn print_json(value: &Value) -> anyhow::Result<Exit> {
    writeln!(
        std::io::stdout(),
        "{}",
        serde_json::to_string_pretty(value)?
    )?;
    Ok(Exit::Success)
}
