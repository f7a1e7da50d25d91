//! What a task line may say.

/// A member of a task.
#[derive(Debug)]
pub(super) struct Member {
    pub key: &'static str,
    /// What its value must be.
    pub expected: &'static str,
    /// How it may be written.
    pub example: &'static str,
}

const fn member(key: &'static str, expected: &'static str, example: &'static str) -> Member {
    Member { key, expected, example }
}

const COUNT: &str = "a whole number from 0 to 4294967295";
const MEMORY: &str = "a number of bytes, or text such as \"9G\"";
const PATH: &str = "a path in double quotes";
const TEXT: &str = "text in double quotes";
const TIME: &str = "a number of seconds, or text such as \"2h30m\"";

/// Every member of a `TaskSpec`; a test compares the two.
pub(super) const MEMBERS: &[Member] = &[
    member(
        "command",
        "text (a line for the shell) or a list of texts (a program and its arguments)",
        "\"python train.py\"",
    ),
    member("name", TEXT, "\"prep\""),
    member("after", "a list of names", "[\"prep\"]"),
    member("env", "an object whose values are text", "{\"SEED\": \"1\"}"),
    member("folder", PATH, "\"code\""),
    member("params", "an object", "{\"lr\": 0.1}"),
    member("results", PATH, "\"results/1\""),
    member("log", PATH, "\"train.log\""),
    member("preload", "a list of Python modules", "[\"torch\", \"numpy\"]"),
    member("gpus", "a whole number, or a part of one GPU such as 0.5 or \"1/3\"", "0.5"),
    member("vram", MEMORY, "\"9G\""),
    member("gpu_model", TEXT, "\"A100,H100\""),
    member("signature", TEXT, "\"resnet\""),
    member(
        "probe",
        "text with {} where the command goes, or a number of epochs",
        "\"{} --epochs 1\"",
    ),
    member("cores", COUNT, "2"),
    member("cpu", "a number of cores, such as 4, 1.5 or \"1/3\"", "1.5"),
    member("ram", MEMORY, "\"16G\""),
    member("priority", "a whole number from -2147483648 to 2147483647", "-1"),
    member("group", TEXT, "\"small\""),
    member("group_limit", "a whole number from 1 to 4294967295", "2"),
    member("retries", COUNT, "2"),
    member("timeout", TIME, "\"2h30m\""),
    member("grace", TIME, "\"30s\""),
];

/// How the value of a key may be written.
pub(crate) fn example(key: &str) -> &'static str {
    Member::named(key).map_or("…", |member| member.example)
}

/// Another way to write `gpu_model`, as directives do.
const ALIAS: (&str, &str) = ("model", "gpu_model");

impl Member {
    /// The member of this name.
    pub fn named(key: &str) -> Option<&'static Self> {
        let key = if key == ALIAS.0 { ALIAS.1 } else { key };
        MEMBERS.iter().find(|member| member.key == key)
    }

    /// Every key that is understood.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        MEMBERS.iter().map(|member| member.key).chain([ALIAS.0])
    }
}
