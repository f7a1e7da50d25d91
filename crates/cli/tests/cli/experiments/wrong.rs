//! Mistakes in experiment files, and what is said about them.

use crate::support::World;

/// The first example of the original's manual, as it stands there.
const HALF_GPU: &str = r#"---
# Slurm config
name: "SLURM"
partition: "gpu"
job-name: "half_gpu_job"
time: 20
ntasks: 1
cpus-per-task: 8  # 4 CPUs per rep!
gpus_per_rep: 0.5
sbatch_args:
  gres: "gpu:1
"#;

const DEFAULT: &str = "\
--- 
# Default
name: DEFAULT
path: results
reps_per_job: 2
reps_in_parallel: 2
---
name: exp
repetitions: 4
";

/// What is said about a file that cannot be used.
fn refused(file: &str, words: &[&str]) -> String {
    let world = World::new();
    let done = world.exp(file, &[&["--list"], words].concat());
    assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
    done.stderr
}

/// What is remarked about a file that can.
fn remarked(file: &str) -> String {
    let world = World::new();
    let done = world.exp(file, &["--list"]);
    assert_eq!(done.code, 0, "{done:?}");
    done.stderr
}

#[test]
fn the_missing_quote_of_the_manual_is_found_where_it_was_opened() {
    let wanted = "\
error: the closing \" is missing
  --> config.yml:11:9
   |
11 |   gres: \"gpu:1
   |         ^^^^^^ this text is not closed
   |
   = hint: write a \" where the text ends, or leave out the one it begins with
";
    assert_eq!(refused(HALF_GPU, &[]), wanted);
    // The document after it is not what is wrong.
    assert_eq!(refused(&format!("{HALF_GPU}{DEFAULT}"), &[]), wanted);
    let single = HALF_GPU.replace("\"gpu:1", "'it''s gpu:1");
    assert!(
        refused(&format!("{single}{DEFAULT}"), &[]).starts_with("error: the closing ' is missing")
    );
    let second = HALF_GPU.replace("\"gpu:1", "\"gpu:4  # Note how we request 4 GPUs here!");
    let said = refused(&format!("{second}{DEFAULT}"), &[]);
    assert!(said.contains("config.yml:11:9"), "{said}");
    // In the middle of a document, the next quote only seems to close it.
    let middle = format!("{HALF_GPU}\"\n").replace("\"SLURM\"", "\"SLURM");
    let said = refused(&middle, &[]);
    assert!(said.contains("config.yml:3:7"), "{said}");
}

#[test]
fn other_mistakes_of_yaml_are_shown_where_they_are() {
    for (file, place, what) in [
        ("name: a\npath: [1, 2\n", "config.yml:2:7", "the closing ] is missing"),
        (
            "name: a\npath: [1, 2\nrepetitions: 3\n---\nname: b\n",
            "config.yml:2:7",
            "hint: write a ] where the list ends",
        ),
        (
            "name: a\ngrid: {lr: [1, 2]\npath: p\n",
            "config.yml:2:7",
            "hint: write a } where the dictionary ends",
        ),
        ("name: a\npath: p\nrepetitions:3\n", "config.yml:3:12", "hint: write `repetitions: 3`"),
        (
            "name: a\npath: p\nparams:\n  lr:0.1\n  b: 2\n",
            "config.yml:4:5",
            "in YAML, a blank follows the colon after a key",
        ),
        ("name: a\npath: p\nparams:\n  lr:0.1\n", "config.yml:4:5", "hint: write `lr: 0.1`"),
        // A blank would not help there.
        (
            "name: a\npath: p\ngrid: lr:[0.1, 0.01]\n",
            "config.yml:3:7",
            "`grid` must be a dictionary of parameters with lists of values",
        ),
        ("name:a\n", "config.yml:1:5", "hint: write `name: a`"),
        (
            "name: a\npath: p\nparams:\n\tlr: 1\n",
            "config.yml:4:2",
            "hint: YAML is indented with blanks: replace the tabs by them",
        ),
        (
            "name: a\npath: p\nnote: this: that\n",
            "config.yml:3:11",
            "text with `: ` in it needs quotes",
        ),
        (
            "name: a\npath: p\n  b: 1\n",
            "config.yml:3:4",
            "hint: is this line indented like its neighbours",
        ),
        (
            "name: a\npath: p\ncommand: echo x: y\n",
            "config.yml:3:16",
            "hint: put all of the text in quotes: command: '",
        ),
        ("name: a\npath: p\nparams: {? [1, 2] : 3}\n", "config.yml:3:12", "a list cannot be a key"),
        ("- a\n", "config.yml:1:1", "`each document` must be a dictionary, and this is a list"),
        ("path: p\n", "config.yml:1:1", "this document has no `name`"),
        ("name: [a]\n", "config.yml:1:7", "`name` must be text"),
        ("name: a\npath: p\nname: b\n", "config.yml:3:1", "`name` is there twice"),
        (
            "name: DEFAULT\npath: p\n\nname: a\n",
            "config.yml:4:1",
            "hint: leave one of them out, or begin a new document with a line `---`",
        ),
        (
            "name: a\npath: p\ngrid_size: 10\n",
            "config.yml:3:1",
            "every key that begins with `grid` says what to try, and `grid_size` is a whole number",
        ),
        (
            "name: a\npath: p\ngrid: {x: [1]}\ngrid: {y: [1]}\n",
            "config.yml:4:1",
            "hint: several of them have names that begin so: grid1, grid2",
        ),
    ] {
        let said = refused(file, &[]);
        assert!(said.contains(place) && said.contains(what), "{said}");
    }
}

#[test]
fn values_that_make_no_sense_are_shown_where_they_are() {
    let many = "a whole number, at least 1, and this is";
    for (line, what) in [
        ("repetitions: many", format!("`repetitions` must be {many} text")),
        ("reps_per_job: 0", format!("`reps_per_job` must be {many} less")),
        ("reps_in_parallel: 1.5", format!("`reps_in_parallel` must be {many} a number")),
        ("params: [1]", "`params` must be a dictionary, and this is a list".to_owned()),
        ("grid: [1]", "`grid` must be a dictionary of parameters with lists of values".to_owned()),
        ("list: {a: {b: []}}", "`list.a.b` has no values".to_owned()),
        ("import_path: [x]", "`import_path` must be text".to_owned()),
    ] {
        let said = refused(&format!("name: a\npath: p\n{line}\n"), &[]);
        assert!(said.contains("config.yml:3:") && said.contains(&what), "{said}");
    }
    for (line, what) in [
        ("gpus_per_rep: 1.5", "neither a part of one GPU nor a whole number"),
        ("cpus_per_rep: 0", "at least 1, and this is less"),
        ("scheduler: klaster", "hint: did you mean `kluster`?"),
        ("sbatch_args: [a]", "`sbatch_args` must be a dictionary"),
        ("sh_lines: {a: b}", "`sh_lines` must be a list of lines"),
    ] {
        let said = refused(&format!("name: a\npath: p\n---\nname: SLURM\n{line}\n"), &[]);
        assert!(said.contains("config.yml:5:") && said.contains(what), "{said}");
    }
}

#[test]
fn an_experiment_without_a_path_or_with_nothing_to_do_is_refused() {
    let said = refused("---\nname: a\nrepetitions: 2\n", &[]);
    assert!(said.contains("the experiment `a` has no `path`"), "{said}");
    assert!(said.contains("config.yml:2:7"), "{said}");
    let said = refused("{name: a, path: p, list: {x: 1}}", &[]);
    assert!(said.contains("`list` has no parameters with lists"), "{said}");
    let said = refused("{name: DEFAULT}\n---\n{name: SLURM}", &[]);
    assert!(said.contains("there is no experiment in the file"), "{said}");
    let said = refused("{name: DEFAULT}\n---\n{name: default}", &[]);
    assert!(said.contains("a second document called DEFAULT"), "{said}");
    let file = "{name: first, path: p}\n---\n{name: second, path: p}";
    let said = refused(file, &["-e", "first", "secnod"]);
    assert_eq!(
        said,
        "error: there is no experiment `secnod` in the file\nhint: did you mean `second`?\n"
    );
    let axes: Vec<String> = (0..20).map(|axis| format!("x{axis}: [1, 2, 3, 4]")).collect();
    let axes = axes.join(", ");
    let said = refused(&format!("{{name: a, path: p, grid: {{{axes}}}}}"), &[]);
    assert!(said.contains("more than 4 billion"), "{said}");
}

#[test]
fn imports_that_lead_nowhere_or_in_a_circle_are_refused() {
    let world = World::new();
    world.write("a.yml", "{name: x, path: p, import_path: b.yml, import_exp: y}\n");
    world.write("b.yml", "{name: y}\n---\n{name: DEFAULT, import_path: a.yml, import_exp: x}\n");
    let done = world.packhorse(["exp", "a.yml", "--list"]);
    assert_eq!(done.code, 2);
    assert!(
        done.stderr.starts_with(
            "error: this import goes in a circle: a.yml: x → b.yml: y → a.yml: x\n --> b.yml:3:30\n"
        ),
        "{}",
        done.stderr
    );
    let said = refused("{name: a, path: p, import_exp: b}\n---\n{name: bb}\n", &[]);
    assert!(said.contains("there is no experiment `b` in config.yml"), "{said}");
    assert!(said.contains("hint: did you mean `bb`?"), "{said}");
    let said = refused("{name: a, path: p, import_path: other.yml}", &[]);
    assert!(said.contains("`other.yml` cannot be imported: "), "{said}");
    assert!(said.contains("config.yml:1:33"), "{said}");
    // A mistake in an imported file is told of that file.
    let world = World::new();
    world.write("other.yml", "{name: DEFAULT, repetitions: x}\n");
    let done = world.exp("{name: a, path: p, import_path: other.yml}", &["--list"]);
    assert!(done.stderr.contains(" --> other.yml:1:30"), "{}", done.stderr);
}

#[test]
fn probable_slips_are_remarked_and_everything_else_is_kept() {
    let file = "name: DEFAULT\npath: p\nrepetition: 3\nreps_per_jobs: 2\nanything: 1\n---\nname: a\n\
        ---\nname: b\n---\nname: SLURM\ncpus_per_task: 4\n";
    let said = remarked(file);
    for (place, hint) in [
        ("config.yml:3:1", "did you mean `repetitions`?"),
        ("config.yml:4:1", "did you mean `reps_per_job`?"),
        ("config.yml:12:1", "did you mean `cpus-per-task`?"),
    ] {
        assert!(said.contains(place) && said.contains(hint), "{said}");
    }
    // Each once, though DEFAULT is part of two experiments.
    assert_eq!(said.matches("warning: nothing is known about").count(), 3, "{said}");
    let world = World::new();
    let config = world.exp(file, &["--list", "--json"]).events()[0]["config"].clone();
    assert_eq!((&config["anything"], &config["repetition"]), (&1.into(), &3.into()));

    let said = remarked("{name: a, path: p, grid: {x: [1], y: 2}, list: {a: [1, 2], b: [1]}}");
    assert!(said.contains("`grid.y` is no list of values, and is left out"), "{said}");
    assert!(said.contains("lists of `list` are of different lengths"), "{said}");
    let said = remarked("{name: my_slurm_test, path: p}");
    assert!(said.contains("here it is an experiment"), "{said}");
}

#[test]
fn what_is_found_wrong_when_all_is_merged_is_shown_where_it_stands() {
    for (file, place, what) in [
        (
            "name: a\npath: p\nlist:\n  lr: 0.1\n",
            "config.yml:3:1",
            "the experiment `a` would not run: `list` has no parameters with lists of values",
        ),
        (
            "name: a\npath: p\ncommand: 5\n",
            "config.yml:3:10",
            "in the command for the experiment `a`, `command` must be text, or a list of words",
        ),
        (
            "name: a\npath: p\ncommand: [echo, yes]\n",
            "config.yml:3:17",
            "hint: put it in quotes, if it is meant as text: 'yes'",
        ),
        (
            "name: DEFAULT\ncommand: echo {b}\n---\nname: a\npath: p\n",
            "config.yml:2:10",
            "in the command for the experiment `a`, there is no parameter `b`",
        ),
    ] {
        let said = refused(file, &[]);
        assert!(said.contains(place) && said.contains(what), "{said}");
    }
    let said = remarked("name: a\npath: p\nlist1:\n  a: [1, 2]\n  b: [1]\n");
    let what = "warning: in the experiment `a`, the lists of `list1` are of different lengths";
    assert!(said.starts_with(what), "{said}");
    assert!(said.contains("config.yml:3:1"), "{said}");
    // Of several documents, it is the one that counts; also if that is in another file.
    let world = World::new();
    world.write("other.yml", "---\nname: DEFAULT\npath: p\ncommand: echo {b}\n");
    for (file, place) in [
        ("{name: a, import_path: other.yml}", "other.yml:4:10"),
        ("name: a\nimport_path: other.yml\ncommand: echo {c}", "config.yml:3:10"),
    ] {
        let said = world.exp(file, &["--list"]).stderr;
        assert!(said.contains(place), "{said}");
    }
}

#[test]
fn a_command_without_two_dashes_before_it_is_told_to_have_some() {
    let world = World::new();
    let file = "{name: a, path: p}";
    let done = world.exp(file, &["python", "train.py", "--lr", "1"]);
    assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
    let tip = "tip: a command stands after '--', as in '-- python …'";
    assert!(done.stderr.contains(tip), "{}", done.stderr);
    let done = world.exp(file, &["--no-such"]);
    assert!(!done.stderr.contains("stands after"), "{}", done.stderr);
}

#[test]
fn keys_in_a_document_where_they_mean_nothing_are_remarked() {
    let said = remarked(
        "name: DEFAULT\npath: p\ngpus_per_rep: 0.5\nscheduler: cosine\n---\nname: a\n\
         scheduler: horeka\nsbatch_args: {gres: 'gpu:1'}\n---\nname: SLURM\nreps_in_parallel: 2\n\
         repetitions: 3\n",
    );
    let slurm = "hint: it belongs in the SLURM document";
    let experiments = "hint: it belongs in DEFAULT, or in an experiment";
    for (what, place, hint) in [
        ("`gpus_per_rep` means nothing in `DEFAULT`", "3:1", slurm),
        ("`scheduler` means nothing in `a`", "7:1", slurm),
        ("`sbatch_args` means nothing in `a`", "8:1", slurm),
        ("`reps_in_parallel` means nothing in `SLURM`", "11:1", experiments),
        ("`repetitions` means nothing in `SLURM`", "12:1", experiments),
    ] {
        let mut warnings = said.split("warning: ");
        let warning = warnings.find(|warning| warning.starts_with(what));
        let warning = warning.unwrap_or_else(|| panic!("{what}: {said}"));
        let place = format!("config.yml:{place}\n");
        assert!(warning.contains(&place) && warning.contains(hint), "{said}");
    }
    // What a program calls a scheduler is its own business.
    assert_eq!(said.matches("warning: ").count(), 5, "{said}");
}

#[test]
fn a_command_that_does_not_fit_is_refused_before_anything_runs() {
    let world = World::new();
    let file =
        "{name: a, path: p, params: {lr: 1}, ablative: {x: [1]}, grid: {in: [{a: 1}, {b: 1}]}}";
    for (word, what) in [
        ("{l}", "there is no parameter `l`\nhint: did you mean {lr}?"),
        (
            "{x}",
            "{x} is no parameter of every run\nhint: give `x` a value in params, for the runs without",
        ),
        ("{in.b}", "{in.b} is no parameter of every run"),
        ("{lr", "`{`"),
    ] {
        let done = world.exp(file, &["--", "echo", word]);
        assert_eq!(done.code, 2);
        let said = format!("error: in the command for the experiment `a`, {what}");
        assert!(done.stderr.starts_with(&said), "{}", done.stderr);
    }
    let done = world.exp(file, &[]);
    assert!(done.stderr.contains("does not say what the experiment `a` runs"), "{}", done.stderr);
    assert!(!world.work().join("p").exists());
}
