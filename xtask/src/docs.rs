//! `cargo xtask docs`: the parts of `docs/` that are made from the code.

mod environment;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use packhorse_model::{Event, TaskSpec};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::folders::workspace;

/// Stands before each generated part of a page.
const BEGIN: &str = "<!-- generated: cargo xtask docs -->\n";
/// Stands behind it.
const END: &str = "<!-- end of the generated part -->\n";

/// Writes every file that differs from what the code says.
pub fn run() -> Result<ExitCode> {
    for (path, text) in generated()? {
        if fs_err::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        if let Some(folder) = path.parent() {
            fs_err::create_dir_all(folder)?;
        }
        fs_err::write(&path, text)?;
        println!("wrote {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// The files, and what should be in them.
fn generated() -> Result<Vec<(PathBuf, String)>> {
    let docs = workspace().join("docs");
    let environment = docs.join("environment.md");
    let page = fs_err::read_to_string(&environment)?;
    let (read, for_tasks) = environment::tables();
    let page = fill(&page, &[&read, &for_tasks])
        .with_context(|| format!("{} must have two generated parts", environment.display()))?;
    Ok(vec![
        (docs.join("schema/task.json"), pretty(&task_schema())?),
        (docs.join("schema/event.json"), pretty(&event_schema())?),
        (environment, page),
    ])
}

/// What a task line may be.
fn task_schema() -> Value {
    let mut schema = schema_of::<TaskSpec>(SchemaSettings::draft2020_12(), "Packhorse task");
    // In the type it may be missing, because the defaults of a run are a task without one.
    schema["required"] = json!(["command"]);
    schema
}

fn event_schema() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    schema_of::<Event>(settings, "Packhorse event")
}

fn schema_of<T: JsonSchema>(settings: SchemaSettings, title: &str) -> Value {
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    let mut schema = schema.to_value();
    join_lines(&mut schema);
    schema
}

/// Joins the lines of each paragraph of a description, which end where those of the
/// source code do.
fn join_lines(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(text)) = members.get_mut("description") {
                let paragraphs = text.split("\n\n").map(|text| text.replace('\n', " "));
                *text = paragraphs.collect::<Vec<_>>().join("\n\n");
            }
            members.values_mut().for_each(join_lines);
        }
        Value::Array(items) => items.iter_mut().for_each(join_lines),
        _ => {}
    }
}

fn pretty(schema: &Value) -> Result<String> {
    Ok(serde_json::to_string_pretty(schema)? + "\n")
}

/// Puts `parts` between the marks of a page, in their order. Nothing if it has more or
/// fewer places for them.
fn fill(page: &str, parts: &[&str]) -> Option<String> {
    let mut filled = String::with_capacity(page.len());
    let mut rest = page;
    for part in parts {
        let (before, after) = rest.split_once(BEGIN)?;
        let (_, after) = after.split_once(END)?;
        filled.extend([before, BEGIN, "\n", part, "\n", END]);
        rest = after;
    }
    filled.push_str(rest);
    (!rest.contains(BEGIN)).then_some(filled)
}

#[cfg(test)]
mod tests;
