use serde_json::Map;

use super::*;

#[test]
fn the_docs_say_what_the_code_says() {
    for (path, wanted) in generated().unwrap() {
        let found = fs_err::read_to_string(&path).unwrap_or_default();
        assert!(
            found == wanted,
            "{} is out of date: run `cargo xtask docs`",
            path.display()
        );
    }
}

#[test]
fn a_page_keeps_all_but_its_generated_parts() {
    let page = format!("a\n{BEGIN}old\n{END}b\n{BEGIN}{END}c\n");
    let filled = fill(&page, &["1\n", "2\n"]).unwrap();
    assert_eq!(
        filled,
        format!("a\n{BEGIN}\n1\n\n{END}b\n{BEGIN}\n2\n\n{END}c\n")
    );
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
        "oneOf" => {
            rule.as_array()
                .unwrap()
                .iter()
                .filter(|rule| passes(rule))
                .count()
                == 1
        }
        "minimum" => value
            .as_f64()
            .is_none_or(|number| number >= rule.as_f64().unwrap()),
        "maximum" => value
            .as_f64()
            .is_none_or(|number| number <= rule.as_f64().unwrap()),
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
    fine.then_some(())
        .ok_or_else(|| format!("{value} against {rule}"))
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
