//! Packhorse as the first process of a container.

use packhorse_fake_nvml::library_path;
use packhorse_test_parts::needs;

use super::podman::Podman;
use crate::machine::Machine;
use crate::support::{World, receive, release};

/// Says its number, and stays.
const STRAY: &str = "echo $$ > $1; exec cat never";

#[test]
fn what_others_start_in_the_container_outlives_its_shell_and_the_tasks() {
    needs!(Podman, Root);
    let world = World::new();
    let podman = Podman::new(&world);
    let [of_others, of_task, over, next] =
        ["of_others", "of_task", "over", "next"].map(|name| world.fifo(name));
    world.fifo("never");
    world.write("stray", STRAY);
    world.write("tasks", "setsid sh stray of_task & cat over\ncat next\n");
    let mut pod = podman.start("pod", &[], &["run", "--slots", "1", "tasks"]);
    pod.wait_for("1.1 started");
    let marked = receive(&of_task);
    // As `tmux` and `nohup` do: a session of its own, and the shell ends.
    let leave = "setsid sh stray of_others > /dev/null 2>&1 < /dev/null &";
    let done = pod.exec(&["sh", "-c", leave]);
    assert_eq!(done.code, 0, "{done:?}");
    let pid = receive(&of_others);
    let parent = format!("grep '^PPid:.1$' /proc/{}/status", pid.trim());
    assert_eq!(pod.exec(&["sh", "-c", &parent]).code, 0, "it is a child of packhorse");
    release(&over);
    let ended = pod.wait_for("left behind");
    assert!(ended.starts_with("1.1 warning: a process it left behind was ended"), "{ended}");
    pod.wait_for("1.2 started");
    let is_alive = |pid: &str| pod.exec(&["sh", "-c", &format!("kill -0 {pid}")]).code == 0;
    assert!(is_alive(&pid));
    assert!(!is_alive(&marked));
    release(&next);
    let done = pod.finish();
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_signal_ends_it_while_the_driver_hangs() {
    needs!(Podman, Root);
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let machine = Machine::new(1);
        let podman = Podman::new(&machine.world);
        let mut options = Vec::new();
        for (key, value) in machine.command(&[]).get_envs() {
            let value = value.unwrap_or_default();
            options.push(format!("--env={}={}", key.display(), value.display()));
        }
        let library = library_path().display().to_string();
        options.push(format!("--volume={library}:{library}:ro"));
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        machine.state.hang(0);
        let pod = podman.start("pod", &options, &["run", "--", "true"]);
        machine.state.await_hung_call(0);
        pod.signal(signal);
        assert_eq!(pod.finish().code, code);
    }
}

#[test]
fn a_thread_that_cannot_be_started_is_told_with_the_limit() {
    needs!(Podman, Root);
    let world = World::new();
    let podman = Podman::new(&world);
    let options = ["--pids-limit", "1"];
    let done = podman.packhorse("pod", &options, &["run", "--slots", "1", "--", "true"]);
    assert_ne!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("cannot start a thread"), "{done:?}");
    assert!(done.stderr.contains("all 1 processes and threads that `/sys/fs/cgroup"), "{done:?}");
    assert!(done.stderr.contains("pids.max` allows are there\nhint: allow more: "), "{done:?}");
}
