//! Tasks that run out of memory, and who is to blame for it.

use super::GIB;
use crate::machine::{Machine, holding, taking};

#[test]
fn one_that_runs_out_of_memory_gets_more_then_a_gpu_to_itself_then_a_larger_one() {
    let machine = Machine::new(2);
    machine.state.change(1, |device| {
        device.memory_total = 80 * GIB;
        device.name = "NVIDIA Fake 80GB".to_owned();
    });
    let task = taking("--peak 40G --steps 5 --step-looks 3 --hold-looks 6");
    machine.world.write("tasks", &task);
    let words = ["run", "--gpus", "0,1", "--vram", "10G", "--retries", "0", "tasks"];
    let done = machine.packhorse(&words);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("out of GPU memory (PyTorch: CUDA out of memory)"));
    assert!(done.stdout.contains("1.1 succeeded"), "{done:?}");
    let show = machine.packhorse(&["show", "1.1"]).stdout;
    assert!(show.contains("note     out of GPU memory"), "{show}");
    assert!(show.contains("memory   40.0 GiB at most"), "{show}");
}

#[test]
fn one_that_fits_nowhere_fails_with_the_reason() {
    let machine = Machine::new(1);
    for (oom, sign) in [
        ("pytorch", "CUDA out of memory"),
        ("tensorflow", "OOM when allocating tensor"),
        ("jax", "RESOURCE_EXHAUSTED"),
        ("cublas", "CUBLAS_STATUS_ALLOC_FAILED"),
    ] {
        let task = taking(&format!("--peak 30G --steps 3 --oom {oom}"));
        machine.world.write("tasks", &task);
        let done = machine.packhorse(&["run", "--vram", "10G", "tasks"]);
        assert_eq!(done.code, 1, "{done:?}");
        assert!(done.stdout.contains(sign), "{oom}: {}", done.stdout);
        assert!(done.stdout.contains("a GPU to itself"), "{oom}: {}", done.stdout);
    }
}

#[test]
fn one_that_filled_a_gpu_alone_is_not_tried_there_again() {
    let machine = Machine::new(1);
    let task = taking("--peak 30G --steps 3 --step-looks 3");
    machine.world.write("tasks", task);
    let done = machine.packhorse(&["run", "--vram", "10G", "tasks"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(done.stdout.matches(" started on ").count(), 1, "{done:?}");
    let failed = done.stdout.lines().find(|line| line.contains("1.1 failed"));
    assert!(failed.unwrap().contains(", with a GPU to itself"), "{done:?}");
}

#[test]
fn what_says_so_is_found_in_a_log_that_the_task_wrote_itself() {
    let machine = Machine::new(1);
    machine.world.write("tasks", taking("--peak 30G --steps 3"));
    let done = machine.packhorse(&["run", "--vram", "10G", "--output", "file", "tasks"]);
    assert_eq!(done.code, 1, "{done:?}");
    let sign = "out of GPU memory (PyTorch: CUDA out of memory)";
    assert!(done.stdout.contains(sign), "{done:?}");
}

#[test]
fn an_error_that_was_caught_long_before_is_not_why_a_task_failed() {
    let machine = Machine::new(1);
    let script = |lines: u32| {
        format!(
            "echo 'caught: CUDA out of memory. Tried to allocate 2.50 GiB'\n\
             seq {lines}\necho \"KeyError: 'lr'\"\nexit 1\n"
        )
    };
    machine.world.write("far.sh", script(300));
    let run = |file: &str| {
        let words = ["run", "--vram", "10G", "--retries", "0", "--", "sh", file];
        machine.packhorse(&words)
    };
    let done = run("far.sh");
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(done.stdout.matches(" started on ").count(), 1, "{done:?}");
    assert!(!done.stdout.contains("out of GPU memory"), "{done:?}");
    let failed = done.stdout.lines().find(|line| line.contains("1.1 failed"));
    let said = "exit status 1; its last error is `KeyError: 'lr'`";
    assert!(failed.unwrap().contains(said), "{done:?}");
    // Near the end it may be why, and the other one is shown as well.
    machine.world.write("near.sh", script(30));
    let done = run("near.sh");
    let failed = done.stdout.lines().find(|line| line.contains("2.1 failed"));
    assert!(failed.unwrap().contains("out of GPU memory"), "{done:?}");
    let said = "later it wrote `KeyError: 'lr'`";
    assert!(failed.unwrap().contains(said), "{done:?}");
}

#[test]
fn what_a_task_could_not_get_is_the_least_it_is_given_next() {
    let machine = Machine::new(1);
    let mut running = machine.start(&["run", "--retries", "0"]);
    running.send(format!("#packhorse vram=16G\n{}\n", holding("16G", "end")));
    machine.await_memory(0, 16 * GIB);
    // Half as much again would be 3 GiB.
    running.send(format!("#packhorse vram=2G\n{}\n", taking("--peak 10G")));
    let line = running.wait_for("1.2 attempt 1");
    assert!(line.contains("when it asked for 10.0 GiB more"), "{line}");
    assert!(line.contains("it runs again with 12.5 GiB"), "{line}");
    machine.world.write("end", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("1.2 attempt 2"), "{done:?}");
}

#[test]
fn a_crash_is_a_crash_however_full_its_gpu_is() {
    let machine = Machine::new(1);
    for (number, (end, said)) in (1..).zip([
        ("kill -SEGV $$", "killed by SIGSEGV"),
        ("exit 1", "exit status 1"),
        ("echo Bus error; exit 135", "exit status 135"),
        ("echo Killed; exit 137", "exit status 137"),
        ("echo terminate called without an active exception; kill -ABRT $$", "killed by SIGABRT"),
    ]) {
        // 7.5 GiB are free, and then 0.3.
        let tell = if number % 2 == 0 { "; GPU 0 had 320 MiB free when last seen" } else { "" };
        let peak = if tell.is_empty() { "16G" } else { "23744M" };
        let task = taking(&format!("--peak {peak} --hold-looks 4"));
        machine.world.write("task.sh", format!("{task}\n{end}\n"));
        let words = ["run", "--vram", "auto", "--retries", "2", "--", "sh", "task.sh"];
        let done = machine.packhorse(&words);
        assert_ne!(done.code, 0, "{done:?}");
        assert!(!done.stdout.contains("out of GPU memory"), "{done:?}");
        for attempt in 1..=2 {
            let start = match tell {
                "" => format!("{number}.1 attempt {attempt} failed: {said}; trying "),
                _ => format!("{number}.1 attempt {attempt}: {said}{tell}"),
            };
            let line = done.stdout.lines().find(|line| line.starts_with(&start));
            let is_retried = |line: &str| tell.is_empty() || line.ends_with("a retry is used up");
            assert!(line.is_some_and(is_retried), "{}", done.stdout);
        }
        assert!(done.stdout.contains(&format!("{said}{tell}")), "{}", done.stdout);
        assert_eq!(done.stdout.matches(" started on ").count(), 3, "{}", done.stdout);
    }
    let peaks = machine.packhorse(&["peaks"]);
    assert!(peaks.stderr.contains("nothing was learned yet"), "{peaks:?}");
}

#[test]
fn an_error_of_the_program_that_the_driver_reports_is_told() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    let task = taking("--peak 16G --hold-looks 4");
    machine.world.write("task.sh", format!("{task}\nread x < gate\nkill -SEGV $$\n"));
    let mut running = machine.start(&["run", "--vram", "auto", "--", "sh", "task.sh"]);
    running.wait_for("1.1 started");
    machine.state.xid(0, 31);
    machine.await_looks(0, 4);
    gate.pass(1);
    let done = running.finish();
    let said = "killed by SIGSEGV; the driver reported Xid 31 on GPU 0";
    assert!(done.stdout.contains(said), "{}", done.stdout);
}

#[test]
fn one_that_fails_long_after_it_took_its_memory_did_not_run_out_of_it() {
    let machine = Machine::new(1);
    let task = taking("--peak 13G --hold-looks 10");
    machine.world.write("tasks", format!("{task}; exit 3"));
    let done = machine.packhorse(&["run", "--vram", "15G", "tasks"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(!done.stdout.contains("out of GPU memory"), "{done:?}");
    let failed = done.stdout.lines().find(|line| line.contains("1.1 failed"));
    assert!(failed.unwrap().contains("exit status 3"), "{done:?}");
}

#[test]
fn a_person_can_add_signs_of_running_out() {
    let machine = Machine::new(1);
    machine.world.write("signs", "# ours\nall is lost\nexit 77\n");
    for task in ["echo all is lost; exit 3", "exit 77"] {
        machine.world.write("tasks", task);
        let mut command = machine.command(&["run", "--vram", "10G", "tasks"]);
        command.env("PACKHORSE_OOM_TEXTS", machine.world.work().join("signs"));
        let done = crate::support::finish(command);
        assert!(done.stdout.contains("out of GPU memory"), "{task}: {done:?}");
    }
    machine.world.write("signs", "exit never\n");
    let mut command = machine.command(&["run", "--vram", "10G", "tasks"]);
    command.env("PACKHORSE_OOM_TEXTS", machine.world.work().join("signs"));
    let done = crate::support::finish(command);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("signs:1: `exit never`"), "{done:?}");
}

#[test]
fn the_victim_of_a_neighbour_runs_again_without_using_up_its_retries() {
    let machine = Machine::new(1);
    // It is promised 4 GiB and takes 18, one step at a time.
    let greedy = taking("--peak 18G --steps 2 --step-gate step --hold-until-exists end");
    // It keeps to its 8 GiB, but takes the second half late.
    let victim = taking("--peak 8G --steps 2 --step-gate half");
    machine
        .world
        .write("tasks", format!("#packhorse vram=4G\n{greedy}\n#packhorse vram=8G\n{victim}\n"));
    let mut running = machine.start(&["run", "--json", "tasks"]);
    running.wait_for("\"1.2\"");
    machine.world.write("step.1", "");
    machine.world.write("half.1", "");
    machine.world.write("step.2", "");
    // Until the greedy one is seen to have outgrown its promise.
    machine.await_told(20 * GIB + 1);
    machine.world.write("half.2", "");
    let line = running.wait_for("\"retrying\"");
    assert!(line.contains("because 1.1 outgrew"), "{line}");
    machine.world.write("end", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_victim_waits_for_the_end_of_the_task_that_took_its_memory() {
    let machine = Machine::new(1);
    let greedy = taking("--peak 18G --steps 2 --step-gate step --hold-until-exists end");
    // It says nothing of how much it asked for.
    let victim = taking("--peak 4G --oom cuda");
    machine.world.write("victim.sh", format!("echo x >> tries\nread x < gate\n{victim}\n"));
    let gate = machine.world.gate("gate");
    let tasks = format!("#packhorse vram=5G\n{greedy}\n#packhorse vram=5G\nsh victim.sh\n");
    machine.world.write("tasks", tasks);
    let mut running = machine.start(&["run", "tasks"]);
    running.wait_for("1.2 started");
    machine.world.write("step.2", "");
    machine.await_memory(0, 18 * GIB);
    let stranger = machine.state.stranger(0, 4 * GIB);
    gate.pass(1);
    let line = running.wait_for("1.2 attempt 1");
    assert!(line.contains("because 1.1 outgrew what it was promised"), "{line}");
    machine.state.stranger_leaves(0, stranger);
    // 5.5 GiB are free, but the other one may take them as well.
    machine.await_looks(0, 6);
    assert!(machine.world.why("1.2").contains("5.0 GiB"));
    machine.world.write("end", "");
    gate.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(machine.world.read("tries").lines().count(), 2);
}

/// The lines that tell of a task that runs again.
fn reruns(output: &str) -> usize {
    output.matches(" attempt 1: ").count()
}

#[test]
fn a_kind_that_outgrew_what_was_learned_is_restarted_once_for_each_task_at_most() {
    let machine = Machine::new(1);
    let task = taking("--peak $peak --oom cuda --hold-looks $looks --hold-until-exists end");
    machine.world.write("train.sh", format!("read peak looks < need\n{task}\n"));
    let write_tasks = |count: usize| {
        let tasks = (0..count).map(|number| format!("sh train.sh --lr 0.{number}\n"));
        machine.world.write("tasks", tasks.collect::<String>());
    };
    let end = machine.world.work().join("end");
    machine.world.write("need", "4G 8\n");
    machine.world.write("end", "");
    write_tasks(5);
    assert_eq!(machine.packhorse(&["run", "--vram", "auto", "tasks"]).code, 0);
    fs_err::remove_file(&end).unwrap();
    machine.world.write("need", "9G 0\n");
    write_tasks(8);
    let mut running = machine.start(&["run", "--vram", "auto", "tasks"]);
    let mut raised = 0;
    for _ in 0..3 {
        let line = running.wait_for(" attempt 1: ");
        assert!(line.contains("outgrew what it was promised on GPU 0"), "{line}");
        raised += line.matches("tasks of its kind are promised 9.9 GiB from now on").count();
    }
    assert_eq!(raised, 1);
    machine.await_looks(0, 6);
    machine.world.write("end", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(
        (reruns(&done.stdout), done.stdout.matches(" attempt ").count()),
        (3, 3),
        "{done:?}"
    );
}

#[test]
fn an_amount_that_was_given_too_small_costs_each_task_one_restart() {
    let machine = Machine::new(1);
    let task = taking("--peak 17G --oom cuda --hold-until-exists end");
    machine.world.write("tasks", format!("{task}\n").repeat(3));
    let mut running = machine.start(&["run", "--vram", "4G", "tasks"]);
    for _ in 0..2 {
        running.wait_for(" attempt 1: ");
    }
    machine.await_looks(0, 6);
    machine.world.write("end", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(
        (reruns(&done.stdout), done.stdout.matches(" attempt ").count()),
        (2, 2),
        "{done:?}"
    );
}

#[test]
fn one_that_asked_for_no_memory_and_ran_out_waits_for_strangers_and_then_runs() {
    let machine = Machine::new(1);
    let stranger = machine.state.stranger(0, 20 * GIB);
    machine.world.write("tasks", taking("--peak 9G"));
    let mut running = machine.start(&["run", "tasks"]);
    let line = running.wait_for("1.1 attempt 1");
    assert!(line.contains("a GPU to itself"), "{line}");
    running.wait_for("nothing runs: 1.1 waits");
    machine.state.stranger_leaves(0, stranger);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn one_that_strangers_left_no_room_runs_again_when_they_are_gone() {
    let machine = Machine::new(1);
    let task = taking("--peak 9G --steps 2 --step-gate step");
    machine.world.write("tasks", &task);
    let mut running = machine.start(&["run", "--vram", "9G", "tasks"]);
    running.wait_for("1.1 started");
    // They come while it is half-way.
    let stranger = machine.state.stranger(0, 18 * GIB);
    machine.world.write("step.2", "");
    let line = running.wait_for("1.1 attempt 1");
    assert!(line.contains("because others hold"), "{line}");
    assert!(line.contains("no retry is used up"), "{line}");
    machine.state.stranger_leaves(0, stranger);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("it runs again with"), "{done:?}");
}

#[test]
fn the_ladder_is_not_undone_by_what_others_teach() {
    let machine = Machine::new(1);
    let mut running = machine.start(&["run", "--json"]);
    // All of one shape: most take little, one takes much.
    let one_shape = |task: &str| format!("#packhorse signature=one vram=auto\n{task}\n");
    let small = one_shape(&taking("--peak 1G --hold-looks 6"));
    // It does not say how much it asked for.
    let large = one_shape(&taking("--peak 14G --oom cuda"));
    running.send(&small);
    running.wait_for("\"finished\"");
    let neighbour = holding("12G", "gate");
    running.send(format!("#packhorse vram=12G\n{neighbour}\n"));
    machine.await_memory(0, 12 * GIB);
    // It runs out of memory until it gets so much that it has to wait.
    running.send(&large);
    machine.world.why("1.3");
    running.send(small.repeat(3));
    for _ in 0..3 {
        running.wait_for("\"finished\"");
    }
    machine.world.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    let events = done.events();
    let retries =
        events.iter().filter(|event| event["event"] == "retrying" && event["task"] == "1.3");
    let given: Vec<f64> = retries
        .filter_map(|event| {
            let given = event["note"].as_str()?.split_once("it runs again with ")?.1;
            given.strip_suffix(" GiB")?.parse().ok()
        })
        .collect();
    assert!(given.len() > 3, "{given:?}");
    assert!(given.is_sorted_by(|one, next| one < next), "{given:?}");
}
