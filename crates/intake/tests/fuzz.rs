//! A short run of what the fuzzer does for hours: bytes put together from
//! interesting pieces, then damaged. The seed is fixed, so that a failure here
//! is a failure everywhere.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

#[path = "../../../fuzz/src/lib.rs"]
mod fuzz;

const PIECES: &[&str] = &[
    "python train.py --lr {lr}",
    "{",
    "}",
    "{{",
    "}}",
    "{a}",
    "{b}",
    "{}",
    "{0}",
    "{a:",
    "{a!r}",
    "{a.b}",
    "{a[0]}",
    "${HOME}",
    "\n",
    "\n",
    "\r\n",
    "\0",
    "\\",
    "\\\n",
    "\\ ",
    " ",
    " ",
    "\t",
    "#",
    "#packhorse ",
    "#packhorse gpus=0.5 ",
    "#packhorse: x=1",
    "cores=2 ",
    "cores=99999999999",
    "priority=-3 ",
    "retries=",
    "timeout=2h ",
    "timeout=1e999",
    "vram=9G ",
    "vram=auto ",
    "ram=1",
    "cpu=1/3 ",
    "model=a,,b ",
    "signature=k ",
    "name=n ",
    "after=n,m ",
    "=",
    ",",
    "\na ",
    "\nb ",
    "\na 1 2",
    "\nb 1..3",
    "\n--zip a b",
    "1",
    "-",
    ".",
    "..",
    "1..",
    "..5",
    "1..5",
    "0.1..0.5:0.1",
    "5..1:-2",
    "1..5:0",
    ":",
    "log:",
    "log:1e-4..1e-1:4",
    "log:1..2:99999999999",
    "1e308",
    "1e-308",
    "e",
    "170141183460469231731687303715884105727",
    "1..1e30",
    "../data",
    "a..b",
    "é",
    "漢字",
    "\u{feff}",
    "\u{202e}",
    "\u{301}",
    "👩‍👩‍👧",
    "\x1b[31m",
];

const VALUES: &[&str] = &[
    "1",
    "",
    "x",
    "../data",
    "1..3",
    "0.1..0.5:0.1",
    "5..1:-2",
    "-3..3:2",
    "08..11",
    "1..1e30",
    "log:1e-4..1e-1:4",
    "log:9..2:3",
    "log:1e-300..1e300:7",
    "a..b",
    "é",
    "\0",
];

/// Rows that are right, so that not every file is refused at its first cell.
const ROWS: &[&str] = &[
    "Directory,Executable,Filename,Epochs,Priority\n",
    "tmp,-1,-m a,1,2\n",
    "\".\",-1,\"-m \"\"a,b\"\"\",1,2\r\n",
    ".,-1,-x,3.0,-4\r",
    "/, -1 ,-x 'y z',3,+4",
    "\n",
    ",,,,\n",
    "\u{feff}",
    "\"",
    ",",
];

const WORDS: &[&str] = &[
    "python train.py ",
    "--lr ",
    "--lr=",
    "lr=",
    "0.1 ",
    "1e-3",
    "-",
    "/",
    "run_17 ",
    "2024-05-01",
    "&& ",
    "| ",
    "2>&1",
    "bash -c ",
    "'",
    "\"",
    "\\",
    "$(",
    "`",
    "cd ../",
    "env ",
    "A=b ",
    "{",
    "}",
    "{}",
    "é",
    "\u{301}",
    "\x1b",
    "\n",
    "\0",
    " ",
];

/// Pieces of task lines, most of which fit together.
const JSON: &[&str] = &[
    "{\"command\": \"a\"}\n",
    "{\"command\": \"a\", ",
    "{\"command\": [\"a\", ",
    "{",
    "}",
    "}\n",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\u0000",
    "\\ud800",
    "null",
    "NaN",
    "1e999",
    "-1",
    "0.5",
    "{\"bytes\": \"\\\\xff\"}",
    "\"name\": \"n\"",
    "\"after\": [\"n\"]",
    "\"env\": {\"A\": \"1\"}",
    "\"params\": {\"a\": [1, 2.5, \"x\", null]}",
    "\"gpus\": 0.5",
    "\"vram\": \"9G\"",
    "\"timeout\": 1.5",
    "\"probe\": 2",
    "\"model\": \"a\"",
    "\"cores\": 2, \"cpu\": 1.5",
    "é",
    "\u{feff}",
    "\n",
    "\r\n",
    " ",
    "# ",
];

const GRID: &[&str] = &[
    "config = {",
    "'test_config': [{",
    "'a': [",
    "test_config:\n  - ",
    "a: [1e-3, b]\n    ",
    "[[test_config]]\na = [1]\n",
    "{\"test_config\": [{\"a\": [1, \"x/y\"]}]}",
    "scheduler_config: {gpu: ['0'], config_string_value_maxlen: 1}\n",
    "command: 'run {a}'\n",
    "global_config: &g {b: *g, <<: *g}\n",
    "env: {A: 1}\n",
    "request: {vram: 9G}\n",
    "'''",
    "\"\"\"",
    "r'",
    "u\"",
    "'\\u00e9\\x41\\101\\\n'",
    "'é'",
    "-",
    "1_0.5e-3",
    "0x1F",
    "True",
    "None",
    "(1,)",
    "]",
    "}",
    "[",
    "{",
    ",",
    ":",
    "#",
    "\n",
    " ",
    "*g",
    "&g ",
    "!!str ",
    "|\n  x",
];

const EXPERIMENTS: &[&str] = &[
    "---\n",
    "---\nname: a\npath: p\n",
    "---\nname: DEFAULT\npath: p\n",
    "---\nname: SLURM\n",
    "name: b\n",
    "path: ./x/\n",
    "repetitions: 2\n",
    "reps_per_job: 3\n",
    "params: {x: 1, n: {y: 2}}\n",
    "params: {x: {y: 1e-3}}\n",
    "grid: {x: [1, yes, 010], n: {y: [~, 'a/b']}}\n",
    "list1: {x: [[1], {k: v}], y: [1]}\n",
    "ablative: {x: [1, \"\\0\"], n: {y: {z: [2]}}}\n",
    "grid2: {x: {y: [1]}}\n",
    "import_exp: a\n",
    "import_path: config.yml\n",
    "command: 'run {x} {n.y} {rep} {config}'\n",
    "gpus_per_rep: 0.5\n",
    "time: 1:00:00\n",
    "sbatch_args: {gres: \"gpu:1}\n",
    "_rep_idx: 3\n",
    "_experiment_name: z__\n",
    "&a ",
    "*a",
    "<<: *a\n",
    "\"",
    "'",
    "[",
    "{",
    ": ",
    "- ",
    "#",
];

fn made_of(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(words), 0..12).prop_map(|pieces| pieces.concat())
}

/// Any pieces, one after the other.
fn pieces() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES), 0..12).prop_map(|pieces| pieces.concat())
}

/// What is nearly always a sweep, until it is damaged.
fn parameters() -> impl Strategy<Value = String> {
    let shown = prop::sample::select(&["{a}", "{b}", "{{", "}}", " ", "x", "\\", "é"][..]);
    let template = prop::collection::vec(shown, 0..6);
    let values = || prop::collection::vec(prop::sample::select(VALUES), 1..4);
    let zip = prop::sample::select(&["", "", "\n--zip a b", "\n--zip b a a"][..]);
    (template, values(), values(), zip).prop_map(|(template, a, b, zip)| {
        let (a, b) = (a.join(" "), b.join(" "));
        format!("{}\na {a}\nb {b}{zip}", template.concat())
    })
}

fn damaged(text: impl Strategy<Value = String>, most: usize) -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0..4_u8);
    let damage = prop::collection::vec(change, 0..most);
    (text, damage).prop_map(|(text, damage)| {
        let mut bytes = text.into_bytes();
        for (place, byte, kind) in damage {
            let at = place.index(bytes.len() + 1);
            match kind {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => bytes[at] = byte,
                2 if at < bytes.len() => drop(bytes.remove(at)),
                _ => {
                    let tail = bytes[at..].to_vec();
                    bytes.extend(tail.into_iter().take(20));
                }
            }
        }
        bytes
    })
}

fn config(cases: u32) -> Config {
    Config {
        cases,
        rng_seed: RngSeed::Fixed(0x7061_636b),
        failure_persistence: None,
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(config(10_000))]

    #[test]
    fn no_bytes_make_lines_panic(bytes in damaged(pieces(), 4)) {
        fuzz::lines(&bytes);
    }

    #[test]
    fn no_bytes_make_task_lines_panic(bytes in damaged(made_of(JSON), 3)) {
        fuzz::task_lines(&bytes);
    }

    #[test]
    fn no_bytes_make_a_sweep_panic(
        bytes in prop_oneof![damaged(pieces(), 4), damaged(parameters(), 3)]
    ) {
        fuzz::sweep(&bytes);
    }
}

proptest! {
    #![proptest_config(config(3_000))]

    #[test]
    fn no_bytes_make_a_table_panic(bytes in damaged(made_of(ROWS), 3)) {
        fuzz::csv(&bytes);
    }

    #[test]
    fn no_bytes_make_a_grid_panic(bytes in damaged(made_of(GRID), 3)) {
        fuzz::grid(&bytes);
    }

    #[test]
    fn no_bytes_make_experiments_panic(bytes in damaged(made_of(EXPERIMENTS), 3)) {
        fuzz::experiments(&bytes);
    }

    #[test]
    fn no_bytes_make_a_shape_or_a_probe_panic(bytes in damaged(made_of(WORDS), 3)) {
        fuzz::shape(&bytes);
        fuzz::probe(&bytes);
    }
}

proptest! {
    #![proptest_config(config(500))]

    #[test]
    fn nor_do_bytes_that_are_random_altogether(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz::lines(&bytes);
        fuzz::task_lines(&bytes);
        fuzz::sweep(&bytes);
        fuzz::csv(&bytes);
        fuzz::grid(&bytes);
        fuzz::experiments(&bytes);
        fuzz::shape(&bytes);
        fuzz::probe(&bytes);
    }
}
