use serde_json::Map;

use super::*;
use crate::sources::{SourceFile, sources};

#[test]
fn the_docs_say_what_the_code_says() {
    for (path, wanted) in generated().unwrap() {
        let found = fs_err::read_to_string(&path).unwrap_or_default();
        assert!(found == wanted, "{} is out of date: run `cargo xtask docs`", path.display());
    }
}

#[test]
fn a_page_keeps_all_but_its_generated_parts() {
    let page = format!("a\n{BEGIN}old\n{END}b\n{BEGIN}{END}c\n");
    let filled = fill(&page, &["1\n", "2\n"]).unwrap();
    assert_eq!(filled, format!("a\n{BEGIN}\n1\n\n{END}b\n{BEGIN}\n2\n\n{END}c\n"));
    assert_eq!(fill(&filled, &["1\n", "2\n"]).unwrap(), filled);
    assert_eq!(fill(&page, &["1\n"]), None, "a part would be forgotten");
    assert_eq!(fill(&page, &["1\n", "2\n", "3\n"]), None);
}

#[test]
fn tasks_are_what_their_schema_says() {
    let schema = task_schema();
    for line in [
        r#"{"command": "echo a | cat"}"#,
        r#"{"command": ["python", "train.py", {"bytes": "caf\\xe9"}]}"#,
        r#"{"command": {"bytes": "cat caf\\xe9"}, "folder": {"bytes": "\\xff"}}"#,
        r#"{"command": "x", "name": "b", "after": ["a"], "env": {"A": "1"},
            "folder": "code", "params": {"lr": 0.1, "layers": [1]}, "results": "out",
            "log": "b.log", "gpus": 0.5, "vram": "auto", "gpu_model": "A100",
            "signature": "s", "probe": 2, "cores": 2, "cpu": "1/3", "ram": 1024,
            "priority": -1, "retries": 2, "timeout": "never", "grace": 3}"#,
        r#"{"command": "x", "model": "A100", "probe": "{} --epochs 1", "vram": null}"#,
    ] {
        let task: Value = serde_json::from_str(line).unwrap();
        assert_eq!(check(&schema, &schema, &task), Ok(()), "{line}");
        let spec: TaskSpec = serde_json::from_value(task).unwrap();
        let written = serde_json::to_value(spec).unwrap();
        assert_eq!(check(&schema, &schema, &written), Ok(()), "{written}");
    }
    for line in [
        r#"{"gpus": 1}"#,
        r#"{"command": "x", "gpu": 1}"#,
        r#"{"command": 7}"#,
        r#"{"command": "x", "after": "a"}"#,
        r#"{"command": "x", "cores": 1.5}"#,
        r#"{"command": "x", "retries": -1}"#,
        r#"{"command": "x", "gpus": [1]}"#,
        r#"{"command": "x", "env": {"A": 1}}"#,
        r#"["x"]"#,
    ] {
        let task: Value = serde_json::from_str(line).unwrap();
        assert!(check(&schema, &schema, &task).is_err(), "{line}");
    }
    assert_eq!(schema["additionalProperties"], false);
}

#[test]
fn events_are_what_their_schema_says() {
    let schema = event_schema();
    for line in EVENTS {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(check(&schema, &schema, &event), Ok(()), "{line}");
        let read: Event = serde_json::from_str(line).unwrap();
        let written = serde_json::to_value(read).unwrap();
        assert_eq!(check(&schema, &schema, &written), Ok(()), "{written}");
        // None of its members may be missing.
        for member in event.as_object().unwrap().keys() {
            let mut event = event.clone();
            event.as_object_mut().unwrap().remove(member);
            assert!(check(&schema, &schema, &event).is_err(), "{member}: {line}");
        }
    }
    let kinds = schema["oneOf"].as_array().unwrap().len();
    assert_eq!(kinds, EVENTS.len(), "each event has its example here");
    for line in [
        r#"{"time":1,"event":"exploded"}"#,
        r#"{"time":"now","event":"warning","task":null,"message":"x"}"#,
        r#"{"time":1,"event":"warning","task":"seven","message":"x"}"#,
        r#"{"time":1,"event":"stopping","run":1,"phase":"resting","running":1}"#,
    ] {
        let event: Value = serde_json::from_str(line).unwrap();
        assert!(check(&schema, &schema, &event).is_err(), "{line}");
    }
}

fn page(name: &str) -> String {
    fs_err::read_to_string(workspace().join("docs").join(name)).unwrap()
}

/// The lines of a page that are JSON objects, except what shows a mistake.
fn json_lines(page: &str) -> Vec<Value> {
    let lines = page.lines().filter(|line| line.starts_with('{'));
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
fn the_page_on_events_shows_each_of_them_as_it_is() {
    let schema = event_schema();
    let events = json_lines(&page("events.md"));
    for event in &events {
        assert_eq!(check(&schema, &schema, event), Ok(()), "{event}");
    }
    for kind in schema["oneOf"].as_array().unwrap() {
        let name = &kind["properties"]["event"]["const"];
        let shown = events.iter().any(|event| &event["event"] == name);
        assert!(shown, "docs/events.md has no example of {name}");
    }
}

#[test]
fn the_readme_names_every_crate() {
    let root = workspace();
    let readme = fs_err::read_to_string(root.join("README.md")).unwrap();
    for folder in fs_err::read_dir(root.join("crates")).unwrap() {
        let name = folder.unwrap().file_name().into_string().unwrap();
        let line = format!("\ncrates/{name} ");
        assert!(readme.contains(&line), "README.md lacks crates/{name}");
    }
}

#[test]
fn the_page_on_task_lines_explains_every_key() {
    let schema = task_schema();
    let page = page("task-lines.md");
    for task in json_lines(&page) {
        assert_eq!(check(&schema, &schema, &task), Ok(()), "{task}");
    }
    for key in schema["properties"].as_object().unwrap().keys() {
        let row = format!("\n| `{key}` |");
        let explained = page.contains(&row) || key == "model";
        assert!(explained, "docs/task-lines.md does not explain `{key}`");
    }
}

/// What looks like the name of a variable and is none that people could want to know of.
const NOT_FOR_PEOPLE: [&str; 24] = [
    // What drivers and libraries print.
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDA_ERROR_MPS_CONNECTION_FAILED",
    "CUDA_ERROR_MPS_RPC_FAILURE",
    "CUDA_ERROR_MPS_SERVER_NOT_READY",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUSPARSE_STATUS_ALLOC_FAILED",
    // States of Slurm's jobs.
    "OUT_OF_MEMORY",
    "BOOT_FAIL",
    "NODE_FAIL",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "RESV_DEL_HOLD",
    "SPECIAL_EXIT",
    // A value.
    "PCI_BUS_ID",
    // Read by the compiler.
    "CARGO_PKG_VERSION",
    "PACKHORSE_BUILT_FOR",
    // Set for programs that are no tasks: git, MPS's daemons.
    "CUDA_MPS_LOG_DIRECTORY",
    "GIT_OPTIONAL_LOCKS",
    "PACKHORSE_SERVICE",
    // Taken out of the environment of jobs on shared nodes.
    "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",
    // Told apart when tasks give them values of their own.
    "GLIBC_TUNABLES",
    "VIRTUAL_ENV",
];

/// The texts in quotes that are names of environment variables, and whether they are read
/// there: whatever the environment is asked for, and all in capitals with an underscore.
fn variable_names(code: &str) -> Vec<(&str, bool)> {
    let mut names = Vec::new();
    let mut rest = code;
    while let Some((before, after)) = rest.split_once('"') {
        let length = after.find(|it: char| !matches!(it, 'A'..='Z' | '0'..='9' | '_'));
        let (name, behind) = after.split_at(length.unwrap_or(after.len()));
        let mut reads = ["var(", "var_os(", "variable("].into_iter();
        let is_read = reads.any(|call| before.ends_with(call));
        let is_name = name.contains('_') && !name.ends_with('_');
        if behind.starts_with('"') && (is_read || is_name) {
            names.push((name, is_read));
        }
        rest = behind.strip_prefix('"').unwrap_or(behind);
    }
    names
}

#[test]
fn every_variable_in_the_code_is_on_the_page_of_the_environment() {
    let for_tests = ["fake-nvml", "slurm-lab", "test-parts", "xtask"];
    let is_product = |file: &SourceFile| !for_tests.contains(&file.package.as_str());
    let files: Vec<SourceFile> = sources().into_iter().filter(is_product).collect();
    let page = page("environment.md");
    let (read, _) = environment::tables();
    let mut found = Vec::new();
    for file in &files {
        // Neither lines of comments nor of documentation.
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        for line in file.text.lines().filter(is_code) {
            for (name, is_read) in variable_names(line) {
                let explained = if is_read { &read } else { &page };
                assert!(
                    explained.contains(&format!("`{name}`")) || NOT_FOR_PEOPLE.contains(&name),
                    "{}: docs/environment.md does not explain `{name}`: it is made of {}",
                    file.path.display(),
                    "crates/session/src/variables.rs and xtask/src/docs/environment.rs"
                );
                found.push(name);
            }
        }
    }
    for name in ["HOME", "NO_COLOR", "SLURM_CONF", "XDG_STATE_HOME"] {
        assert!(found.contains(&name), "{name} was not found in the code");
    }
    for name in NOT_FOR_PEOPLE {
        assert!(found.contains(&name), "{name} is in the code no longer");
    }
}

#[test]
fn names_of_variables_are_told_from_other_texts() {
    let code = r#"env::var("CI"), var_os("HOME"), "A_B", "A_B C", "MKL_", "READY", x = "a_b""#;
    let expected = [("CI", true), ("HOME", true), ("A_B", false)];
    assert_eq!(variable_names(code), expected);
}

const EVENTS: [&str; 11] = [
    r#"{"time":1.5,"event":"run-started","run":1,"gpus":["0"],"slots":null,"resumed":false}"#,
    r#"{"time":1.5,"event":"known","run":1,"tasks":2,"complete":true}"#,
    r#"{"time":1.5,"event":"started","task":"1.1","attempt":1,"command":["a"],"gpus":["0"]}"#,
    r#"{"time":1.5,"event":"output","task":"1.1","stream":"stderr","line":"loss 0.3"}"#,
    r#"{"time":1.5,"event":"metrics","task":"1.1","attempt":1,"values":{"loss":0.25},"step":3}"#,
    r#"{"time":1.5,"event":"retrying","task":"1.1","attempt":1,"outcome":"killed","detail":9,"note":null,"left":0}"#,
    r#"{"time":1.5,"event":"measured","task":"1.1","attempt":0,"peak":5,"error":0,"samples":3,"interval_seconds":0.05,"utilisation_percent":{"mean":40,"most":90}}"#,
    r#"{"time":1.5,"event":"finished","task":"1.1","attempts":2,"outcome":"timed-out","detail":null,"command":"a","message":null,"seconds":1.5,"log":null,"metrics":{"loss":{"last":0.5,"lowest":0.25,"highest":3,"count":12}}}"#,
    r#"{"time":1.5,"event":"warning","task":null,"message":"x"}"#,
    r#"{"time":1.5,"event":"stopping","run":1,"phase":"draining","running":2}"#,
    r#"{"time":1.5,"event":"run-ended","run":1,"succeeded":1,"failed":0,"left":0,"rejected":0,"seconds":2.0,"stored":true,"exit":130}"#,
];

/// Checks a value by the part of JSON Schema that our schemas use. A keyword that is not
/// known here fails, so that nothing is believed that was not looked at.
fn check(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let Some(schema) = schema.as_object() else {
        return (schema == &json!(true))
            .then_some(())
            .ok_or_else(|| format!("{value} is not allowed"));
    };
    for (keyword, rule) in schema {
        check_keyword(root, schema, keyword, rule, value)
            .map_err(|error| format!("{keyword}: {error}"))?;
    }
    Ok(())
}

fn check_keyword(
    root: &Value,
    schema: &Map<String, Value>,
    keyword: &str,
    rule: &Value,
    value: &Value,
) -> Result<(), String> {
    let passes = |rule: &Value| check(root, rule, value).is_ok();
    let fine = match keyword {
        "$schema" | "$defs" | "title" | "description" | "format" | "default" => true,
        "$ref" => {
            let path = rule.as_str().unwrap().strip_prefix('#').unwrap();
            return check(root, root.pointer(path).expect(path), value);
        }
        "type" => match rule {
            Value::Array(types) => types.iter().any(|name| is_of_type(value, name)),
            name => is_of_type(value, name),
        },
        "const" => value == rule,
        "enum" => rule.as_array().unwrap().contains(value),
        "anyOf" => rule.as_array().unwrap().iter().any(passes),
        "oneOf" => rule.as_array().unwrap().iter().filter(|rule| passes(rule)).count() == 1,
        "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
        // The only pattern there is: that of a task's number.
        "pattern" => {
            assert_eq!(rule, r"^[0-9]+\.[0-9]+$");
            let task = |text: &str| text.parse::<packhorse_model::TaskId>().is_ok();
            value.as_str().is_none_or(task)
        }
        "required" => {
            let mut names = rule.as_array().unwrap().iter();
            !value.is_object() || names.all(|name| value.get(name.as_str().unwrap()).is_some())
        }
        "items" => {
            for item in value.as_array().unwrap_or(&Vec::new()) {
                check(root, rule, item)?;
            }
            true
        }
        "properties" => {
            for (name, rule) in rule.as_object().unwrap() {
                if let Some(member) = value.get(name) {
                    check(root, rule, member).map_err(|error| format!("{name}: {error}"))?;
                }
            }
            true
        }
        "additionalProperties" => {
            let known = schema.get("properties").and_then(Value::as_object);
            for (name, member) in value.as_object().unwrap_or(&Map::new()) {
                if !known.is_some_and(|known| known.contains_key(name)) {
                    check(root, rule, member).map_err(|error| format!("{name}: {error}"))?;
                }
            }
            true
        }
        _ => return Err("this keyword is not known here".to_owned()),
    };
    fine.then_some(()).ok_or_else(|| format!("{value} against {rule}"))
}

fn is_of_type(value: &Value, name: &Value) -> bool {
    match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("there is no type `{other}`"),
    }
}
