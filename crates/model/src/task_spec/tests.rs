use super::*;

fn full() -> TaskSpec {
    let json = r#"{
        "command": ["python", "train.py"], "name": "b", "after": ["a"],
        "env": {"A": "1", "B": {"bytes": "\\xff"}}, "folder": "/tmp/x",
        "params": {"lr": 0.1, "layers": [1, 2]}, "results": "out", "log": "b.log",
        "preload": ["torch"],
        "gpus": 0.5, "vram": "9G", "gpu_model": "A100,H100", "signature": "s",
        "probe": "{} --epochs 1", "cores": 2, "cpu": 1.5, "ram": "16G",
        "priority": -1, "retries": 2, "timeout": "2h", "grace": 3
    }"#;
    serde_json::from_str(json).unwrap()
}

#[test]
fn a_task_is_read_as_it_was_written() {
    let spec = full();
    let json = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<TaskSpec>(&json).unwrap(), spec);
    // Nothing that has no value is written.
    let plain = TaskSpec::new(Command::Line(b"true".to_vec()));
    assert_eq!(serde_json::to_string(&plain).unwrap(), r#"{"command":"true"}"#);
}

/// Whoever adds a field and forgets it somewhere is told here.
#[test]
fn every_field_is_written_laid_over_and_not_plain() {
    let spec = full();
    let Value::Object(members) = serde_json::to_value(&spec).unwrap() else {
        panic!("no object");
    };
    let plain = TaskSpec::new(spec.command.clone());
    assert_eq!(plain.clone().over(&spec), spec, "defaults are taken over");
    assert_eq!(spec.clone().over(&plain), spec, "and what is said itself stays");
    assert!(plain.is_plain());
    for (name, value) in members {
        if name == "command" {
            continue;
        }
        let json = serde_json::json!({ "command": "x", name.as_str(): value });
        let only: TaskSpec = serde_json::from_value(json).unwrap();
        assert!(!only.is_plain(), "{name}");
    }
}

#[test]
fn a_tasks_own_variables_win() {
    let task: TaskSpec = serde_json::from_str(r#"{"env": {"A": "1"}}"#).unwrap();
    let run: TaskSpec = serde_json::from_str(r#"{"env": {"A": "2", "B": "3"}}"#).unwrap();
    let both = task.over(&run).env;
    assert_eq!(both["A"], "1".into());
    assert_eq!(both["B"], "3".into());
}

#[test]
fn unknown_members_are_refused() {
    let error = serde_json::from_str::<TaskSpec>(r#"{"comand": "x"}"#).unwrap_err();
    assert!(error.to_string().contains("unknown field `comand`"), "{error}");
}
