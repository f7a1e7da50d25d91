//! What grid files say, in their four languages.

use packhorse_model::{GpuRequest, GridLanguage, Priority};

use super::super::Grid;
use super::{command, folders, refused, words, yaml};

const SEED_PYTHON: &str = r#"
config = {
    "scheduler_config": {
        "gpu": ["0", "1", ["2", "3"]]
    },

    "global_config": {
        "num_run": 5,
        "num_epoch": 200,
    },

    "test_config": [
        {
            "method": ["GAN", "ALI"],
            "num_packing": [1],
            "num_zmode": [1]
        },
        {
            "method": ["WGAN"],
            "num_packing": [3],
            "num_zmode": [1, 2]
        }
    ]
}
"#;

const SEED_YAML: &str = "
scheduler_config:
  gpu: ['0', '1', ['2', '3']]
global_config: {num_run: 5, num_epoch: 200}
test_config:
  - {method: [GAN, ALI], num_packing: [1], num_zmode: [1]}
  - method: [WGAN]
    num_packing: [3]
    num_zmode: [1, 2]
";

const SEED_TOML: &str = "
global_config = {num_run = 5, num_epoch = 200}
[scheduler_config]
gpu = ['0', '1', ['2', '3']]
[[test_config]]
method = ['GAN', 'ALI']
num_packing = [1]
num_zmode = [1]
[[test_config]]
method = ['WGAN']
num_packing = [3]
num_zmode = [1, 2]
";

#[test]
fn the_sample_of_the_original_is_the_same_in_every_language() {
    let json = SEED_PYTHON.trim().strip_prefix("config = ").unwrap();
    // Python allows commas that JSON does not.
    let json = json.replace("200,\n", "200\n");
    for (text, language) in [
        (SEED_PYTHON, GridLanguage::Python),
        (SEED_YAML, GridLanguage::Yaml),
        (SEED_TOML, GridLanguage::Toml),
        (&json, GridLanguage::Json),
        (&json, GridLanguage::Yaml),
    ] {
        let grid = Grid::read(text, language, Some(&words(&["train"]))).unwrap();
        assert_eq!(grid.scheduler().gpus, ["0", "1", "2+3"], "{language:?}");
        assert_eq!(
            folders(&grid),
            [
                "method-GAN,num_packing-1,num_zmode-1,",
                "method-ALI,num_packing-1,num_zmode-1,",
                "method-WGAN,num_packing-3,num_zmode-1,",
                "method-WGAN,num_packing-3,num_zmode-2,",
            ],
            "{language:?}"
        );
        let test = grid.test(3);
        assert_eq!(
            serde_json::to_string(&test.params).unwrap(),
            r#"{"method":"WGAN","num_epoch":200,"num_packing":3,"num_run":5,"num_zmode":2}"#
        );
        assert_eq!(
            test.command.to_text(),
            "train --num_run 5 --num_epoch 200 --method WGAN --num_packing 3 --num_zmode 2"
        );
        let folder = "results/method-WGAN,num_packing-3,num_zmode-2,";
        assert_eq!(test.results.unwrap().to_str(), Some(folder));
        let log = format!("{folder}/worker.log");
        assert_eq!(test.log.unwrap().to_str(), Some(log.as_str()));
    }
}

#[test]
fn commands_get_what_is_written_and_folders_what_python_prints() {
    for (language, written, told, printed, json) in [
        (GridLanguage::Yaml, "1e-3", "1e-3", "0.001", "0.001"),
        (GridLanguage::Yaml, "010", "010", "010", r#""010""#),
        (GridLanguage::Yaml, "yes", "yes", "yes", r#""yes""#),
        (GridLanguage::Yaml, "true", "true", "True", "true"),
        (GridLanguage::Yaml, "1_000", "1_000", "1000", "1000"),
        (GridLanguage::Yaml, "0x10", "0x10", "16", "16"),
        (GridLanguage::Yaml, ".inf", ".inf", "inf", r#""inf""#),
        (GridLanguage::Yaml, "'1e-3'", "1e-3", "1e-3", r#""1e-3""#),
        (GridLanguage::Yaml, "!!str 7", "7", "7", r#""7""#),
        (GridLanguage::Yaml, "2020-01-01", "2020-01-01", "2020-01-01", r#""2020-01-01""#),
        (GridLanguage::Yaml, "12:30", "12:30", "12:30", r#""12:30""#),
        (
            GridLanguage::Yaml,
            "[1, 'a b', 1e-3]",
            "1 'a b' 1e-3",
            "1,'ab',0.001",
            r#"[1,"a b",0.001]"#,
        ),
        (GridLanguage::Yaml, "{a: [1]}", r#"'{"a":[1]}'"#, "{'a':1}", r#"{"a":[1]}"#),
        (GridLanguage::Yaml, "!!python/tuple [1]", "1", "(1,)", "[1]"),
        (GridLanguage::Toml, "1e-5", "1e-5", "1e-05", "0.00001"),
        (GridLanguage::Toml, "0xff", "0xff", "255", "255"),
        (GridLanguage::Toml, "true", "true", "True", "true"),
        (GridLanguage::Toml, "-inf", "-inf", "-inf", r#""-inf""#),
        (GridLanguage::Json, "1E3", "1E3", "1000.0", "1000.0"),
        (GridLanguage::Json, r#""\ud83d\ude00\/""#, "'😀/'", "😀_#", r#""😀/""#),
        (GridLanguage::Python, "True", "True", "True", "true"),
        (GridLanguage::Python, "1e-3", "1e-3", "0.001", "0.001"),
        (GridLanguage::Python, "10**30", "", "", ""),
        (GridLanguage::Python, "-1_0", "-1_0", "-10", "-10"),
        (
            GridLanguage::Python,
            "99999999999999999999",
            "99999999999999999999",
            "99999999999999999999",
            r#""99999999999999999999""#,
        ),
        (GridLanguage::Python, "(1, (2,))", "1 '[2]'", "(1,(2,))", "[1,[2]]"),
    ] {
        let text = match language {
            GridLanguage::Yaml => format!("test_config:\n- v: [{written}]"),
            GridLanguage::Toml => format!("[[test_config]]\nv = [{written}]"),
            GridLanguage::Json => format!(r#"{{"test_config": [{{"v": [{written}]}}]}}"#),
            GridLanguage::Python => format!("config = {{'test_config': [{{'v': [{written}]}}]}}"),
        };
        let grid = Grid::read(&text, language, Some(&words(&["run"])));
        if told.is_empty() {
            assert!(grid.is_err(), "{text}");
            continue;
        }
        let grid = grid.unwrap_or_else(|error| panic!("{text}\n{error}"));
        assert_eq!(command(&grid), format!("run --v {told}"), "{text}");
        let name = grid.folder_name(0);
        // A name with a `/` has a hash at its end.
        match printed.strip_suffix('#') {
            Some(printed) => assert!(name.starts_with(&format!("v-{printed},#")), "{name}"),
            None => assert_eq!(name, format!("v-{printed},"), "{text}"),
        }
        let params = grid.test(0).params;
        assert_eq!(serde_json::to_string(&params["v"]).unwrap(), json, "{text}");
    }
}

#[test]
fn parameters_stand_where_they_are_written_or_are_appended() {
    let grid = |command: &str| {
        yaml(&format!(
            "{command}\nglobal_config: {{n: 5, nothing: null}}\ntest_config: [{{name: [\"it's $1\"], list: [[1, 2 3]]}}]"
        ))
    };
    for (written, wanted) in [
        ("command: run", r"run --n 5 --name 'it'\''s $1' --list 1 '2 3'"),
        ("command: [run, -x]", r"run -x --n 5 --name 'it'\''s $1' --list 1 '2 3'"),
        ("command: 'run {n}{{}}'", "run 5{}"),
        (
            "command: 'run {name} \"{name}\" ''{name}'''",
            r#"run 'it'\''s $1' "it's \$1" 'it'\''s $1'"#,
        ),
        ("command: [run, 'a={list}', '{list}', '{name}']", r"run 'a=1 2 3' 1 '2 3' 'it'\''s $1'"),
        ("command: 'run {nothing}.'", "run null."),
    ] {
        assert_eq!(command(&grid(written)), wanted, "{written}");
    }
}

#[test]
fn what_is_ours_is_that_of_task_lines() {
    let grid = yaml(
        "command: x\nenv: {A: 1e-3, B: yes}\npriority: -2\n\
         request: {gpus: 1/2, vram: 9G, cores: 2, time_limit: 2h, retries: 3}",
    );
    let task = grid.task();
    assert_eq!(task.env["A"].0, b"1e-3");
    assert_eq!(task.env["B"].0, b"yes");
    assert_eq!(task.priority, Some(Priority(-2)));
    assert_eq!(task.gpus, "1/2".parse::<GpuRequest>().ok());
    assert_eq!((task.cores, task.retries), (Some(2), Some(3)));
    assert_eq!(task.timeout, "2h".parse().ok());
    assert!(task.vram.is_some());
}

#[test]
fn anchors_and_merges_are_followed_and_cannot_explode() {
    let grid = yaml("global_config: &g {a: 1, b: 2}\ncommand: x\nenv:\n  <<: *g\n  b: 3");
    assert_eq!(grid.task().env["a"].0, b"1");
    assert_eq!(grid.task().env["b"].0, b"3");
    let mut bomb = String::from("global_config:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let below = format!("*a{}", level - 1);
        let row = vec![below; 10].join(", ");
        bomb.push_str(&format!("  a{level}: &a{level} [{row}]\n"));
    }
    let message = refused(&bomb, GridLanguage::Yaml);
    assert!(message.contains("more than 100,000 values"), "{message}");
    let message = refused("global_config: &a {b: *a}", GridLanguage::Yaml);
    assert!(message.contains("part of what it stands for"), "{message}");
}

#[test]
fn mistakes_are_shown_with_their_line_and_what_to_do() {
    use GridLanguage::{Json, Toml, Yaml};
    for (language, text, wanted) in [
        (Yaml, "test_confg: []", "did you mean `test_config`?"),
        (Yaml, "\nscheduler_config:\n  gpus: ['0']", "tests:3:3"),
        (Yaml, "scheduler_config: {gpus: ['0']}", "did you mean `gpu`?"),
        (Yaml, "request: {retrys: 1}", "did you mean `retries`?"),
        (Yaml, "request: {vram: lots}", "`vram`:"),
        (Yaml, "scheduler_config: {gpu: []}", "`gpu` names no GPUs"),
        (Yaml, "scheduler_config: {gpu: 3}", "`gpu` must be a list"),
        (Yaml, "scheduler_config: {gpu: [1.5]}", "this is a number"),
        (Yaml, "scheduler_config: {force_rerun: 1}", "must be true or false"),
        (Yaml, "test_config: {a: [1]}", "`test_config` must be a list of dictionaries"),
        (Yaml, "test_config: [{a: 1}]", "`a` must be a list of the values to test"),
        (Yaml, "test_config: [{a: abc}]", "and this is text"),
        (Yaml, "test_config: [{a: []}]", "`a` has no values"),
        (Yaml, "a: 1\na: 2", "`a` is there twice"),
        (Yaml, "a: @", "this is not YAML"),
        (Yaml, "a: [1\nb: 2", "the closing ] is missing"),
        (Yaml, "a:1\nb: 2", "write `a: 1`"),
        (
            Yaml,
            "command: train --note: {a}\ntest_config: [{a: [1]}]",
            "hint: put all of the text in quotes",
        ),
        (Yaml, "a: 1\n---\nb: 1", "second document"),
        (Yaml, "a: !foo 1", "the tag `!foo` is not understood"),
        (Yaml, "", "`the file` must be a dictionary"),
        (Yaml, "command: 'run {lr}'\ntest_config: [{lrs: [1]}]", "did you mean {lrs}?"),
        (Yaml, "command: 'run {b}'\ntest_config: [{a: [1], b: [1]}, {a: [2]}]", "in global_config"),
        (Yaml, "command: 'run {}'", "for literal braces"),
        (Yaml, "preload: [1]", "preload"),
        (
            Yaml,
            "command: 'run \"$(basename \"{a}\")\"'\ntest_config: [{a: [1]}]",
            "{a} stands inside of $(…)",
        ),
        (Yaml, "command: 'run `echo {a}`'\ntest_config: [{a: [1]}]", "{a} stands inside of $(…)"),
        (Toml, "a = ", "this is not TOML"),
        (Toml, "[scheduler_config]\ngpu = []", "tests:2:7"),
        (Json, "{\"a\": 1,\n}", "this is not JSON"),
        (Json, "{\"test_config\": [],\n \"test_config\": []}", "tests:2:2"),
    ] {
        let message = refused(text, language);
        assert!(message.contains(wanted), "{text}\n{message}");
        assert!(message.contains("hint: "), "{message}");
    }
    let deep = format!("a: {}{}", "[".repeat(5000), "]".repeat(5000));
    refused(&deep, Yaml);
}

#[test]
fn a_python_file_that_would_have_to_be_run_is_refused() {
    for (text, wanted) in [
        ("import os\nconfig = {}", "tests:1:1"),
        ("import os\nconfig = {}", "use the Python package"),
        ("config = {'a': range(3)}", "`range` is a name or a call"),
        ("config = {\n 'global_config': {'a': 1024 * 8}}", "tests:2:30"),
        ("config = {'a': [x for x in y]}", "`x` is a name"),
        ("config = {'a': f'{x}'}", "an f-string is an expression"),
        ("config = {'a': 'b'.upper()}", "this is an expression"),
        ("config = {'a'}", "a set"),
        ("config = {**a}", "takes in another dictionary"),
        ("config = {'a': 1", "never closed"),
        ("config = {'a': 'b", "never closed"),
        ("config = {'a': true}", "capital letter"),
        ("config = dict(a=1)", "`dict` is a name or a call"),
        ("config = {}\nconfig['a'] = 1", "tests:2:1"),
        ("config = {}\nconfig = {}", "`config` is there twice"),
        ("x = 1", "is not `config = {…}`"),
        ("", "there is no `config = {…}`"),
        ("config = {'a': 1j}", "complex"),
        ("config = {'a': 010}", "`010` is no number"),
        ("config = {'a': '\\N{BULLET}'}", "by its name"),
    ] {
        let message = refused(text, GridLanguage::Python);
        assert!(message.contains(wanted), "{text}\n{message}");
        assert!(message.contains("hint: "), "{message}");
    }
    let deep = format!("config = {}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(refused(&deep, GridLanguage::Python).contains("64 deep"));
}
