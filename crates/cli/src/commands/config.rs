use std::io::Write as _;

use packhorse_model::Exit;
use serde_json::{Value, json};

use super::launch::find_settings;
use super::table::{print_json, table};
use crate::args::ConfigArgs;
use crate::stdout::stdout;
use crate::{complain, wording};

/// `packhorse config`
pub fn config(args: &ConfigArgs) -> anyhow::Result<Exit> {
    let settings = find_settings()?;
    let mut listed = settings.list();
    if !args.all {
        listed.retain(|_, (_, origin)| origin.is_some());
    }
    let listed = listed.into_iter().map(|(key, (value, origin))| {
        let from = origin.map_or_else(|| "default".to_owned(), |origin| origin.to_string());
        (key, value, from)
    });
    let left_out = settings.left_out();
    if args.json {
        let listed =
            listed.map(|(key, value, from)| json!({"setting": key, "value": value, "from": from}));
        let left_out = left_out.iter().map(|file| {
            let from = file.path.to_string_lossy();
            json!({"setting": null, "value": null, "from": from, "left_out": file.reason})
        });
        return print_json(&listed.chain(left_out).collect());
    }
    if listed.len() == 0 && left_out.is_empty() {
        complain(
            "nothing is set, so the defaults hold\n\
             hint: `packhorse config --all` shows what can be set",
        );
        return Ok(Exit::Success);
    }
    let mut shown = table("SETTING  VALUE  FROM", &[]);
    for (key, value, from) in listed {
        let value = match value {
            None => "-".to_owned(),
            Some(Value::String(text)) => text,
            // As it could be typed.
            Some(Value::Number(time)) if is_length_of_time(&key) => {
                format!("{}s", time.as_f64().unwrap_or_default())
            }
            Some(value) => value.to_string(),
        };
        shown.add_row([key, value, from]);
    }
    for file in left_out {
        let from = file.path.display().to_string();
        shown.add_row(["(left out)".to_owned(), file.reason.clone(), from]);
    }
    let mut out = stdout();
    for line in shown.lines() {
        writeln!(out, "{}", wording::printable(line.trim_end()))?;
    }
    Ok(Exit::Success)
}

fn is_length_of_time(key: &str) -> bool {
    matches!(key, "pool.ageing" | "pool.rest" | "slurm.task_time" | "task.grace" | "task.timeout")
}
