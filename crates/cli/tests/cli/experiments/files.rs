//! DEFAULT, imports, names that clash, and what is written back.

use std::collections::BTreeSet;

use crate::support::World;

/// The configuration of the first repetition.
fn config(world: &World, file: &str, words: &[&str]) -> serde_json::Value {
    let done = world.exp(file, &[&["--list", "--json"], words].concat());
    assert_eq!(done.code, 0, "{done:?}");
    done.events()[0]["config"].clone()
}

#[test]
fn an_experiment_lies_over_default_and_both_over_what_they_import() {
    let world = World::new();
    fs_err::create_dir(world.work().join("sub")).unwrap();
    world.write(
        "sub/base.yml",
        "{name: Default, path: base, params: {a: base, b: base, c: base}, import_path: ../deep.yml}\n\
         ---\n{name: parent, params: {b: parent, n: {x: parent, y: parent}}}\n",
    );
    world.write("deep.yml", "{name: DEFAULT, params: {a: deep, z: deep}, iterations: 7}\n");
    let file = "{name: default, path: p, params: {c: default, n: {y: default}}}\n---\n\
        {name: a, import_path: sub/base.yml, import_exp: parent, params: {n: [1]}}\n---\n\
        {name: b, import_path: ./sub/../sub/base.yml}\n---\n\
        {name: c, import_exp: b, params: {a: c}}\n";
    let of = |name| config(&world, file, &["-e", name]);
    let a = of("a");
    let wanted = serde_json::json!({
        "a": "base", "b": "parent", "c": "default", "n": [1], "z": "deep",
    });
    assert_eq!(a["params"], wanted);
    assert_eq!((&a["iterations"], &a["_basic_path"]), (&7.into(), &"p".into()));
    assert_eq!(a["_import_path_archive"], "sub/base.yml");
    assert_eq!(a["_import_exp_archive"], "parent");
    assert_eq!(a.get("import_path"), None);
    let wanted = serde_json::json!({
        "a": "base", "b": "base", "c": "default", "n": {"y": "default"}, "z": "deep",
    });
    assert_eq!(of("b")["params"], wanted);
    assert_eq!(of("c")["params"]["a"], "c");
    assert_eq!(of("c")["params"]["z"], "deep");
    // What DEFAULT tries can be turned off.
    let tried =
        "{name: DEFAULT, path: p, grid: {x: [1, 2]}}\n---\n{name: a}\n---\n{name: b, grid: ~}\n";
    assert_eq!(world.listed(tried, &["-e", "b"]), ["new p/b/log/rep_00"]);
    assert_eq!(world.listed(tried, &[]).len(), 3);
    // All of them at once, too: two may import the same.
    assert_eq!(world.listed(file, &[]).len(), 3);
}

#[test]
fn the_slurm_document_of_this_machine_wins_over_the_plain_one() {
    let host = rustix::system::uname();
    let host = host.nodename().to_str().unwrap().to_uppercase();
    let file = format!(
        "{{name: a, path: p, repetitions: 2}}\n---\n{{name: SLURM_{host}_x, scheduler: cpu_distribute, cpus_per_rep: 1}}\n\
         ---\n{{name: slurm, scheduler: wrong}}\n---\n{{name: SLURM_elsewhere, scheduler: wrong}}\n"
    );
    let world = World::new();
    assert_eq!(world.exp(&file, &["--", "true"]).code, 0);
    let written = world.read("p/relative_config.yml");
    assert!(written.starts_with("---\nname: slurm\nscheduler: cpu_distribute\n"), "{written}");
    let plain = file.replace(&format!("SLURM_{host}_x"), "SLURM_nowhere_x");
    let done = world.exp(&plain, &["--list"]);
    assert_eq!(done.code, 2);
    assert!(done.stderr.contains("config.yml:5:"), "{done:?}");
}

#[test]
fn runs_that_would_share_a_folder_get_one_each() {
    let world = World::new();
    let file = "{name: a, path: p, ablative: {lr: [1], lambda_: [1], x: ['1', 1, 1]}}";
    let done = world.exp(file, &["--list"]);
    let folders: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(folders.len(), 4, "{done:?}");
    let (shared, own): (Vec<&str>, Vec<&str>) = folders.iter().partition(|line| line.contains('#'));
    assert_eq!(own.len(), 0, "{folders:?}");
    let distinct: BTreeSet<&&str> = shared.iter().collect();
    assert_eq!(distinct.len(), 4);
    assert!(
        done.stderr.contains("4 runs would share a folder with another one, such as `p/a/a__l1`")
    );
    assert!(done.stderr.contains("1 run can be left out"), "{}", done.stderr);
    assert_eq!(world.exp(file, &["--", "true"]).code, 0);
    let states = world.listed(file, &[]);
    assert!(states.iter().all(|line| line.starts_with("succeeded")), "{states:?}");

    let long = "x".repeat(300);
    let file = format!("{{name: b, path: p, list: {{x: [{long}]}}}}");
    let done = world.exp(&file, &["--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("too long"), "{}", done.stderr);
}

#[test]
fn runs_that_only_json_takes_for_the_same_are_both_there() {
    let world = World::new();
    for values in ["[.inf, 'inf']", "[[1, 2], !!python/tuple [1, 2]]"] {
        let file = format!("{{name: a, path: p, grid: {{v: {values}}}}}");
        let listed = world.exp(&file, &["--list", "--json"]);
        assert_eq!(listed.stdout.lines().count(), 2, "{listed:?}");
    }
}

#[test]
fn a_hash_in_a_name_stays_as_long_as_the_run_is_the_same() {
    let world = World::new();
    let runs = |file: &str, words: &[&str]| {
        let done = world.exp(file, &[&["--list", "--json"], words].concat());
        assert_eq!(done.code, 0, "{done:?}");
        let runs = done.events().into_iter();
        let runs = runs.map(|rep| rep["run"].as_str().unwrap().to_owned());
        runs.collect::<BTreeSet<String>>()
    };
    let file = "{name: a, path: p, repetitions: 1, params: {x: 1, y: 2}, \
        ablative: {lr: [1], lam: [1]}}";
    let names = runs(file, &[]);
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.iter().all(|name| name.contains('#')), "{names:?}");
    for (from, to) in [
        ("repetitions: 1", "repetitions: 2, reps_in_parallel: 2"),
        ("path: p", "path: q, command: run, iterations: 5"),
        ("path: p", "path: p, note: of mine"),
        ("x: 1, y: 2", "y: 2, x: 1"),
    ] {
        let changed = file.replace(from, to);
        assert_eq!(runs(&changed, &[]), names, "{changed}");
    }
    assert_eq!(runs(file, &["--debugall"]), names);
    fs_err::create_dir(world.work().join("code")).unwrap();
    let copied = "{name: SLURM, experiment_copy_src: code, experiment_copy_dst: copy}";
    let copied = format!("{file}\n---\n{copied}\n");
    assert_eq!(runs(&copied, &["--slurm"]), names);
    assert_ne!(runs(&file.replace("x: 1", "x: 3"), &[]), names);

    // What is the same but for the rest is told apart by that.
    let twice = |one: &str, other: &str| {
        let document = |more: &str| file.replace("path: p", &format!("path: p, {more}"));
        format!("{}\n---\n{}\n", document(one), document(other))
    };
    let names = runs(&twice("note: 1", "note: 2"), &[]);
    assert_eq!(names.len(), 4, "{names:?}");
    let changed = twice("note: 1", "reps_per_job: 3, note: 2");
    assert_eq!(runs(&changed, &[]), names);
    assert_eq!(runs(&twice("command: a", "command: b"), &[]).len(), 4);
}

#[test]
fn what_was_read_is_written_back_and_can_be_read_again() {
    let world = World::new();
    let file = "{name: DEFAULT, path: p/, params: {z: 'yes', f: 1e-3}}\n---\n\
        {name: a, repetitions: 2, grid: {x: [[1, 2], {k: v}]}}\n---\n{name: b}\n\
        ---\n{name: SLURM, time: 20}\n";
    let before = world.listed(file, &[]);
    assert_eq!(world.exp(file, &["-e", "a", "--", "true"]).code, 0);
    assert!(world.work().join("p/a/relative_config_a.yml").is_file());
    assert!(world.work().join("p/relative_config_a.yml").is_file());
    assert_eq!(world.exp(file, &["--", "true"]).code, 0);
    let written = world.read("p/relative_config.yml");
    assert!(written.contains("\n  f: 1e-3\n"), "{written}");
    assert_eq!(written.matches("\n---\n").count() + 1, 6, "{written}");
    let of_a = world.read("p/a/relative_config_a.yml");
    assert_eq!(of_a.matches("name: a\n").count(), 4, "{of_a}");
    // It is about the same folders, from where it is.
    let done = {
        let mut command = world.command(["exp", "relative_config.yml", "--list"]);
        command.current_dir(world.work().join("p"));
        crate::support::finish(command)
    };
    let after: Vec<String> = done
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let before: Vec<String> =
        before.iter().map(|line| line.replace("new p/", "succeeded ./")).collect();
    assert_eq!(after, before, "{done:?}");
}
