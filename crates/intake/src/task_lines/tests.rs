use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use packhorse_model::{
    ByteString, Bytes, Command, GpuRequest, Grace, Milli, Priority, ProbeSpec, TaskSpec, TimeLimit,
    VramRequest,
};
use proptest::prelude::*;
use serde_json::Value;

use super::members::{MEMBERS, Member};
use crate::lines::LineError;
use crate::{Colour, Entry, TaskLanguage, TaskReader};

fn read(input: impl AsRef<[u8]>) -> Vec<Result<Entry, LineError>> {
    let mut tasks = TaskReader::new(TaskLanguage::TaskLines);
    tasks.push(input.as_ref());
    tasks.finish();
    tasks.collect()
}

/// What is wrong, each with its line and column.
fn problems(input: impl AsRef<[u8]>) -> Vec<(u64, u64, String)> {
    let errors = read(input).into_iter().filter_map(Result::err);
    errors
        .map(|error| {
            assert!(!error.hint().is_empty());
            (error.line(), error.column(), error.problem().to_string())
        })
        .collect()
}

#[test]
fn a_line_is_a_task() {
    let input = "\u{feff}{\"command\": \"a b\"}\r\n\n \t\r\n\
        {\"command\": [\"a\", \"b c\"], \"model\": \"A100\", \"gpus\": 0.5, \"cores\": null}";
    let found: Vec<Entry> = read(input).into_iter().map(Result::unwrap).collect();
    let first = TaskSpec::new(Command::Line(b"a b".to_vec()));
    let second = TaskSpec {
        gpu_model: Some("A100".into()),
        gpus: Some(GpuRequest::Share(Milli(500))),
        ..TaskSpec::new(Command::Words(vec![b"a".to_vec(), b"b c".to_vec()]))
    };
    assert_eq!(found, [Entry { line: 1, spec: first }, Entry { line: 4, spec: second }]);
}

#[test]
fn a_task_is_there_as_soon_as_its_newline_is() {
    let mut tasks = TaskReader::new(TaskLanguage::TaskLines);
    tasks.push(br#"{"command": "a"}"#);
    assert!(tasks.next().is_none());
    assert_eq!(tasks.buffered(), 16);
    tasks.push(b"\n{");
    assert!(tasks.next().unwrap().is_ok());
    assert!(tasks.next().is_none());
    assert_eq!(tasks.buffered(), 1);
}

/// Whoever adds a field to a task is told here that this door does not know it.
#[test]
fn every_field_of_a_task_is_a_member_with_an_example() {
    let error = serde_json::from_str::<TaskSpec>(r#"{"?": 1}"#).unwrap_err();
    let error = error.to_string();
    let (_, fields) = error.split_once("expected one of ").unwrap();
    let fields: BTreeSet<&str> = fields.split('`').skip(1).step_by(2).collect();
    let members: BTreeSet<&str> = Member::keys().collect();
    assert_eq!(members, fields);

    for Member { key, example, .. } in MEMBERS {
        let json = format!("{{\"{key}\": {example}}}");
        let spec: TaskSpec = serde_json::from_str(&json).unwrap();
        assert_ne!(spec, TaskSpec::default(), "{json}");
        // A list is wrong for all but those that take one.
        let wrong = format!("{{\"{key}\": [[1]]}}");
        let (_, _, message) = problems(wrong).remove(0);
        assert!(message.starts_with(&format!("`{key}` must be ")), "{message}");
    }
}

/// Each input is one line with one mistake at a column.
fn check_mistakes(mistakes: &[(&str, u64, &str)]) {
    for &(input, column, wanted) in mistakes {
        let found = problems(input);
        assert_eq!(found.len(), 1, "{input}: {found:?}");
        assert_eq!((found[0].0, found[0].1), (1, column), "{input}: {found:?}");
        assert!(found[0].2.contains(wanted), "{input}: {found:?}");
    }
}

#[test]
fn what_is_no_object_with_a_command_is_named_by_line_and_column() {
    check_mistakes(&[
        ("# a", 1, "no comments"),
        ("  #packhorse gpus=1", 3, "no comments"),
        ("python train.py", 1, "a task line is a JSON object"),
        (r#"["a"]"#, 1, "a task line is a JSON object"),
        ("{", 1, "the line ends within an object"),
        (r#"{"command": "a"#, 14, "the line ends within a string"),
        (r#"{"command": "a"} x"#, 18, "trailing characters"),
        (r#"{"command": "a",}"#, 17, "trailing comma"),
        (r#"{'command': "a"}"#, 2, "key must be a string"),
        (r#"{"command": 'a'}"#, 13, "expected value"),
        (r#"{"command": "a", "gpus": NaN}"#, 26, "expected value"),
        (r#"{"command": "a", "params": {"a": 1e999}}"#, 28, "number out of range"),
        ("{}", 1, "this task has no command"),
        (r#"{"command": "  "}"#, 13, "this task has no command"),
        (r#"{"command": []}"#, 13, "this task has no command"),
        (r#"{"command": [""]}"#, 13, "this task has no command"),
        (r#"{"command": 7}"#, 13, "`command` must be text (a line"),
        (r#"{"command": "a\u0000"}"#, 13, "`command` contains a NUL"),
        (r#"{"comand": "a"}"#, 2, "there is no key `comand`"),
        (r#"{"command": "a", "command": "b"}"#, 18, "`command` is given twice"),
        (r#"{"command": "a", "gpu_model": "a", "model": "b"}"#, 36, "`gpu_model` is given twice"),
    ]);
}

#[test]
fn wrong_values_are_named_by_line_and_column() {
    check_mistakes(&[
        (
            r#"{"command": "é", "cores":  "2"}"#,
            28,
            "`cores` must be a whole number from 0 to 4294967295",
        ),
        (r#"{"command": "a", "cores": -1}"#, 27, "`cores` must be"),
        (r#"{"command": "a", "gpus": 1.5}"#, 26, "`gpus`: `1.5` is not a part of one GPU"),
        (r#"{"command": "a", "gpus": true}"#, 26, "`gpus` must be a whole number, or a part"),
        (
            r#"{"command": "a", "cpu": "two"}"#,
            25,
            "`cpu`: `two` is not a number of cores, such as 4, 1.5 or 1/3",
        ),
        (r#"{"command": "a", "ram": "much"}"#, 25, "`ram`: `much` is not an amount of memory"),
        (r#"{"command": "a", "timeout": "soon"}"#, 29, "`timeout`: `soon` is not a length of time"),
        (
            r#"{"command": "a", "env": {"A": 1}}"#,
            25,
            "`env` must be an object whose values are text",
        ),
        (
            r#"{"command": "a", "env": {"A=": ""}}"#,
            25,
            "`A=` cannot be the name of an environment variable",
        ),
        (
            r#"{"command": "a", "env": {"": ""}}"#,
            25,
            "`` cannot be the name of an environment variable",
        ),
        (r#"{"command": "a", "env": {"A": "\u0000"}}"#, 25, "`env` contains a NUL"),
        (r#"{"command": "a", "log": ""}"#, 25, "`log` is empty"),
        (
            r#"{"command": "a", "preload": ["a b"]}"#,
            29,
            "`a b` cannot be the name of a Python module",
        ),
        (r#"{"command": "a", "model": "A100,"}"#, 27, "missing a name"),
        (r#"{"command": "a", "signature": ""}"#, 31, "cannot be a signature"),
        (r#"{"command": "a", "probe": "b"}"#, 27, "does not run the task's command"),
        (r#"{"command": "a", "name": "b c"}"#, 26, "`b c` cannot be the name of a task"),
        (r#"{"command": "a", "after": ["ghost"]}"#, 27, "no earlier task is called `ghost`"),
    ]);
}

#[test]
fn bytes_that_are_not_utf_8_are_pointed_out() {
    let found = problems(b"{\"command\": \"caf\xe9\"}");
    assert_eq!(found, [(1, 17, "a task line must be UTF-8".to_owned())]);
}

#[test]
fn every_mistake_of_a_line_is_named_and_the_others_go_on() {
    let input =
        "{\"comand\": \"a\", \"cores\": \"x\"}\n{\"command\": \"b\"}\n{\n{\"command\": \"c\"}";
    let lines: Vec<u64> = problems(input).iter().map(|problem| problem.0).collect();
    assert_eq!(lines, [1, 1, 3]);
    assert_eq!(read(input).iter().filter(|found| found.is_ok()).count(), 2);
    let many: Vec<String> = (0..1000).map(|n| format!("\"x{n}\": 1")).collect();
    assert_eq!(problems(format!("{{{}}}", many.join(","))).len(), 8);
}

#[test]
fn deep_nesting_is_refused() {
    let input = format!(
        "{{\"command\": \"a\", \"params\": {{\"a\": {}{}}}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let found = problems(input);
    assert_eq!(found.len(), 1);
    assert!(found[0].2.contains("recursion limit"), "{found:?}");
}

#[test]
fn names_are_checked_against_those_of_earlier_tasks() {
    let mut tasks = TaskReader::new(TaskLanguage::TaskLines);
    tasks.push(b"{\"command\": \"a\", \"name\": \"prepare\"}\n");
    assert!(tasks.next().unwrap().is_ok());
    tasks.next_source();
    tasks.push(b"\n{\"command\": \"b\", \"after\": [\"prepare\"]}\n");
    assert_eq!(tasks.next().unwrap().unwrap().line, 2);
    tasks.push(b"{\"command\": \"b\", \"after\": [\"prepar\"]}\n");
    let error = tasks.next().unwrap().unwrap_err();
    assert_eq!(error.hint(), "did you mean `prepare`?");
    tasks.push(b"{\"command\": \"b\", \"name\": \"prepare\"}\n");
    let error = tasks.next().unwrap().unwrap_err();
    assert!(error.to_string().contains("already called `prepare`"));
}

#[test]
fn an_error_quotes_its_line_and_says_what_to_do() {
    let mut found = read("\n{\"command\": \"a\", \"retrys\": 3}");
    let error = found.remove(0).unwrap_err();
    let wanted = "\
error: there is no key `retrys`
 --> tasks.jsonl:2:18
  |
2 | {\"command\": \"a\", \"retrys\": 3}
  |                  ^^^^^^^^ unknown key
  |
  = hint: did you mean `retries`?";
    assert_eq!(error.render("tasks.jsonl", Colour::Off), wanted);
}

#[test]
fn what_json_lacks_is_said_in_the_hint() {
    for (input, wanted) in [
        (r#"{"params": {"a": NaN}}"#, "neither NaN nor infinity"),
        (r#"{"params": {"a": -Infinity}}"#, "neither NaN nor infinity"),
        ("{'command': 1}", "double quotes"),
        ("{", "a task is one line"),
    ] {
        let error = read(input).remove(0).unwrap_err();
        assert!(error.hint().contains(wanted), "{input}: {error}");
    }
}

fn text() -> impl Strategy<Value = String> {
    "[a-z =\"\\\\{}é#\n]{1,8}"
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let any_bytes = prop::collection::vec(1..=u8::MAX, 1..8);
    prop_oneof![text().prop_map(String::into_bytes), any_bytes]
        .prop_map(|bytes| [b"x", &bytes[..]].concat())
}

fn path() -> impl Strategy<Value = std::path::PathBuf> {
    bytes().prop_map(|bytes| ByteString(bytes).as_os_str().into())
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        bytes().prop_map(Command::Line),
        prop::collection::vec(bytes(), 1..4).prop_map(Command::Words)
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        text().prop_map(Value::from),
        prop::collection::vec(any::<f32>().prop_map(Value::from), 0..3).prop_map(Value::from),
    ]
}

fn time() -> impl Strategy<Value = Duration> {
    (1..1_000_000_000_000_u64).prop_map(Duration::from_micros)
}

prop_compose! {
    fn needs()(
        gpus in prop::option::of(prop_oneof![
            Just(GpuRequest::None),
            (1..1000_u32).prop_map(|share| GpuRequest::Share(Milli(share))),
            (1..99_u32).prop_map(GpuRequest::Whole),
        ]),
        vram in prop::option::of(prop_oneof![
            any::<u64>().prop_map(|bytes| VramRequest::Bytes(Bytes(bytes))),
            Just(VramRequest::Auto),
            Just(VramRequest::Measure),
        ]),
        gpu_model in prop::option::of("[A-Z0-9]{1,4}(,[A-Z0-9]{1,4})?"),
        cores: Option<u32>,
        cpu in prop::option::of((0..4_000_000_u32).prop_map(Milli)),
        ram in prop::option::of(any::<u64>().prop_map(Bytes)),
        priority in prop::option::of(any::<i32>().prop_map(Priority)),
        retries: Option<u32>,
        timeout in prop::option::of(prop_oneof![
            Just(TimeLimit::Never), time().prop_map(TimeLimit::After)
        ]),
        grace in prop::option::of(time().prop_map(Grace)),
    ) -> TaskSpec {
        TaskSpec {
            gpus, vram, gpu_model, cores, cpu, ram, priority, retries, timeout, grace,
            ..TaskSpec::default()
        }
    }
}

prop_compose! {
    fn task()(
        needs in needs(),
        command in command(),
        is_named: bool,
        env in prop::collection::btree_map("[^=\0]{1,5}", bytes().prop_map(ByteString), 0..3),
        folder in prop::option::of(path()),
        results in prop::option::of(path()),
        log in prop::option::of(path()),
        params in prop::collection::btree_map(text(), value(), 0..3),
        signature in prop::option::of("[a-zé:/ ]{1,9}"),
        probe in prop::option::of(prop_oneof![
            any::<u32>().prop_map(ProbeSpec::Epochs),
            text().prop_map(|text| {
                let braces = text.replace('{', "{{").replace('}', "}}");
                ProbeSpec::Template(format!("{{}} {braces}"))
            }),
        ]),
    ) -> TaskSpec {
        TaskSpec {
            command,
            name: is_named.then(String::new),
            env, folder, results, log, params, signature, probe,
            ..needs
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_task_that_serde_writes_is_read_as_the_same(
        mut tasks in prop::collection::vec(task(), 1..4), cut in 1..200_usize
    ) {
        let mut names: BTreeMap<usize, String> = BTreeMap::new();
        for (index, task) in tasks.iter_mut().enumerate() {
            task.after = names.values().cloned().collect();
            task.name = task.name.as_ref().map(|_| format!("task-{index}"));
            names.extend(task.name.clone().map(|name| (index, name)));
        }
        let mut input = Vec::new();
        for task in &tasks {
            serde_json::to_writer(&mut input, task).unwrap();
            input.push(b'\n');
        }
        let mut lines = TaskReader::new(TaskLanguage::TaskLines);
        let mut found = Vec::new();
        for piece in input.chunks(cut) {
            lines.push(piece);
            found.extend(lines.by_ref().map(|entry| entry.unwrap().spec));
        }
        prop_assert_eq!(found, tasks);
    }
}
