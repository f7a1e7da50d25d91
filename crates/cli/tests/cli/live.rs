//! The view on a terminal.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use packhorse_test_parts::needs;

use crate::support::{World, finish, wait_until_some};
use crate::terminal::{Terminal, screen};

/// `packhorse run` with a file of these commands, on a capable terminal.
fn run(world: &World, commands: &str, words: &[&str]) -> Command {
    world.write("commands", commands);
    let mut command = world.command([&["run", "commands"], words].concat());
    command.env("TERM", "xterm-256color");
    command
}

const WAIT: &str = "read x < gate\n";

#[test]
fn gpus_are_shown_with_what_runs_on_them() {
    let world = World::new();
    let gate = world.gate("gate");
    let command = run(&world, &WAIT.repeat(2), &["--gpus", "0,1,GPU-5c2f"]);
    let mut terminal = Terminal::start(command, 80, 24);
    terminal.wait_for("0/2 done, 2 running, 0 waiting");
    let screen = terminal.screen();
    for (line, begin) in screen.iter().zip([" GPU 0     1.1  ", " GPU 1     1.2  "]) {
        let rest = line.strip_prefix(begin).map(str::trim_start);
        let rest = rest.unwrap_or_else(|| panic!("{screen:#?}"));
        // Nothing stands behind it: a line that is short is not broken where the terminal
        // becomes narrower.
        assert!(rest.ends_with("s  read x < gate"), "{screen:#?}");
    }
    assert_eq!(screen[2], " GPU-5c2f  idle");
    gate.pass(2);
    assert_eq!(terminal.finish(), 0);
    let screen = terminal.screen();
    assert_eq!(screen.len(), 1, "{screen:#?}");
    assert!(screen[0].starts_with("run 1 ended: 2 succeeded in "), "{screen:#?}");
}

#[test]
fn how_far_it_is_and_the_time_left_fit_into_80_columns() {
    let world = World::new();
    let gate = world.gate("gate");
    let commands = "true\n".repeat(30) + &WAIT.repeat(10);
    let mut terminal = Terminal::start(run(&world, &commands, &["--slots", "2"]), 80, 24);
    terminal.wait_for("75% run 1: 30/40 done, 2 running, 8 waiting");
    terminal.wait_for(" left");
    let screen = terminal.screen();
    let line = screen.iter().find(|line| line.contains("30/40 done"));
    let line = line.unwrap_or_else(|| panic!("{screen:#?}"));
    assert!(line.contains("━") && line.contains(" · after "), "{line}");
    assert!(line.ends_with(" left"), "{line}");
    gate.pass(10);
    assert_eq!(terminal.finish(), 0);
}

#[test]
fn a_large_run_has_its_percentage_and_times_in_80_columns_too() {
    let world = World::new();
    let gate = world.gate("gate");
    let commands = "exit 1\n".repeat(12) + &"true\n".repeat(1222) + &WAIT.repeat(8766);
    let mut terminal = Terminal::start(run(&world, &commands, &["--slots", "8"]), 80, 24);
    terminal.wait_for("  12% run 1: 1234/10000 done, 12 failed, 8 running · after ");
    let screen = terminal.screen();
    let line = screen.iter().find(|line| line.contains("1234/10000 done"));
    let line = line.unwrap_or_else(|| panic!("{screen:#?}"));
    assert!(line.ends_with(" left"), "{line}");
    // Where there is room again, so is what was left out.
    terminal.resize(120);
    terminal.wait_for("─  12% run 1: 1234/10000 done, 12 failed, 8 running, 8758 waiting · ");
    terminal.resize(70);
    terminal.wait_for("  12% 1234/10000 done, 12 failed, 8 running · after ");
    terminal.signal(Signal::INT);
    terminal.wait_for("stopping: ");
    gate.pass(8);
    assert_eq!(terminal.finish(), 130);
}

#[test]
fn tasks_that_share_a_gpu_and_tasks_without_one_have_lines_too() {
    for (words, begin) in [
        (&["--gpus", "0", "-g", "0.5"][..], [" GPU 0  1.1  ", " GPU 0  1.2  "]),
        (&["--slots", "2"], [" 1.1  ", " 1.2  "]),
    ] {
        let world = World::new();
        let gate = world.gate("gate");
        let mut terminal = Terminal::start(run(&world, &WAIT.repeat(5), words), 80, 24);
        terminal.wait_for("0/5 done, 2 running, 3 waiting");
        for (line, begin) in terminal.screen().iter().zip(begin) {
            assert!(line.starts_with(begin), "{line}");
        }
        gate.pass(5);
        assert_eq!(terminal.finish(), 0);
    }
}

#[test]
fn failures_scroll_away_above_the_view_and_stay() {
    let world = World::new();
    let gate = world.gate("gate");
    let command = run(&world, &format!("exit 3\n{WAIT}"), &["--gpus", "0"]);
    let mut terminal = Terminal::start(command, 120, 24);
    terminal.wait_for("1/2 done, 1 failed, 1 running");
    let screen = terminal.screen();
    assert!(screen[0].starts_with("1.1 failed after "), "{screen:#?}");
    assert!(screen[0].ends_with(": exit status 3: exit 3"), "{screen:#?}");
    assert!(screen[1].starts_with(" GPU 0  1.2  "), "{screen:#?}");
    gate.pass(1);
    assert_eq!(terminal.finish(), 1);
    let screen = terminal.screen();
    assert!(screen[0].starts_with("1.1 failed after "), "{screen:#?}");
    assert_eq!(screen[1..3], ["1 failure:", "  1.1  exit status 3: exit 3"]);
    let summary = "run 1 ended: 1 succeeded, 1 failed in ";
    assert!(screen[3].starts_with(summary), "{screen:#?}");
    assert!(screen[4].starts_with("hint: "), "{screen:#?}");
    assert_eq!(screen.len(), 5);
}

#[test]
fn what_tasks_write_stays_above_the_view_and_cannot_spoil_it() {
    let world = World::new();
    let commands = "echo hello\nprintf 'a\\033[2Jb\\n\\007'\n";
    let command = run(&world, commands, &["--slots", "1", "--output", "lines"]);
    let mut terminal = Terminal::start(command, 80, 24);
    assert_eq!(terminal.finish(), 0);
    let screen = terminal.screen();
    let wanted = ["1.1 | hello", "1.2 | a␛[2Jb", "1.2 | ␇"];
    assert_eq!(screen[..3], wanted);
    assert!(screen[3].starts_with("run 1 ended: 2 succeeded"), "{screen:#?}");
}

#[test]
fn the_view_is_drawn_at_most_ten_times_a_second() {
    let world = World::new();
    let command = run(&world, &"true\n".repeat(1500), &["--slots", "2"]);
    let began = Instant::now();
    let mut terminal = Terminal::start(command, 80, 24);
    assert_eq!(terminal.finish(), 0);
    let allowed = began.elapsed().as_millis() / Duration::from_millis(100).as_millis();
    let drawn = terminal.text().matches(" waiting").count() as u128;
    // One more for the drawing at the very start.
    assert!((1..=allowed + 1).contains(&drawn), "{drawn} of {allowed}");
    assert_eq!(terminal.screen().len(), 1, "{:#?}", terminal.screen());
}

#[test]
fn there_are_colours_unless_they_are_not_wanted() {
    for (value, coloured) in [(None, true), (Some(""), true), (Some("1"), false)] {
        let world = World::new();
        let mut command = run(&world, "false\ntrue\n", &["--slots", "1"]);
        command.envs(value.map(|value| ("NO_COLOR", value)));
        let mut terminal = Terminal::start(command, 80, 24);
        assert_eq!(terminal.finish(), 1);
        let text = terminal.text();
        let colours = text.split("\x1b[").filter(|part| {
            part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m')
        });
        assert_eq!(colours.count() > 0, coloured, "{text:?}");
        assert!(terminal.screen()[0].starts_with("1.1 failed"), "{text:?}");
    }
}

/// The lines of the view as they were written, without colours.
fn view_lines(text: &str) -> Vec<String> {
    let (view, _) = text.split_once("run 1 ended").unwrap();
    view.split('\n')
        .map(|line| screen(line, usize::MAX, 1).concat())
        .filter(|line| !line.is_empty())
        .collect()
}

#[test]
fn a_narrow_terminal_does_not_break_lines() {
    let world = World::new();
    let gate = world.gate("gate");
    let long = format!("read x < gate; : {}\n", "long ".repeat(40));
    let gpus = ["--gpus", "GPU-5c2f0000-0000-4000-8000-00000000fa4e,1"];
    let mut terminal = Terminal::start(run(&world, &long.repeat(3), &gpus), 20, 24);
    terminal.wait_for("0% 0/3 done");
    gate.pass(3);
    assert_eq!(terminal.finish(), 0);
    for line in view_lines(&terminal.text()) {
        assert!(line.chars().count() <= 20, "{line}");
    }
    let screen = terminal.screen().concat();
    assert!(screen.starts_with("run 1 ended: 3 succeeded in "), "{screen}");
}

#[test]
fn a_terminal_that_becomes_narrower_is_drawn_anew() {
    let world = World::new();
    let gate = world.gate("gate");
    let command = run(&world, &WAIT.repeat(2), &["--gpus", "0"]);
    let mut terminal = Terminal::start(command, 100, 24);
    terminal.wait_for("0/2 done, 1 running, 1 waiting");
    terminal.resize(45);
    gate.pass(1);
    terminal.wait_for("1/2 done");
    gate.pass(1);
    assert_eq!(terminal.finish(), 0);
    let lines = view_lines(&terminal.text());
    assert!(lines.iter().any(|line| line.chars().count() > 45), "{lines:#?}");
    let later = lines.iter().position(|line| line.contains("1/2 done"));
    for line in &lines[later.unwrap()..] {
        assert!(line.chars().count() <= 45, "{line}");
    }
}

/// A terminal that breaks lines anew when its width changes, as most do: tmux.
struct Tmux<'w>(&'w World);

impl Tmux<'_> {
    fn says(&self, words: &[&str]) -> String {
        let mut tmux = self.0.program("tmux", ["-f", "/dev/null", "-S"]);
        tmux.arg(self.0.work().join("tmux")).args(words);
        // What it starts has this world's environment.
        let done = finish(tmux);
        assert_eq!(done.code, 0, "{words:?}: {done:?}");
        done.stdout
    }

    /// Starts what a person looks at in it.
    fn start(&self, script: &str) {
        let size = ["-x", "160", "-y", "24"];
        self.says(&[&["new-session", "-d"], &size[..], &[script]].concat());
        // All that is written to it from now on.
        fs_err::create_dir(self.0.work().join("pane")).unwrap();
        let copy = format!("cat > {}", self.0.work().join("pane/written").display());
        self.says(&["pipe-pane", &copy]);
    }

    /// All that can be seen, and what has scrolled away, once it has this in it.
    fn shows(&self, wanted: &str) -> String {
        wait_until_some(&[&self.0.work().join("pane")], || {
            let shown = self.says(&["capture-pane", "-p", "-S", "-"]);
            shown.contains(wanted).then_some(shown)
        })
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let mut tmux = self.0.program("tmux", ["-f", "/dev/null", "-S"]);
        tmux.arg(self.0.work().join("tmux")).arg("kill-server");
        // It may have ended by itself, with what it ran.
        finish(tmux);
    }
}

#[test]
fn what_a_terminal_breaks_anew_is_drawn_over() {
    needs!(Programs);
    let world = World::new();
    let gate = world.gate("gate");
    let line = format!("read x < gate; : {}\n", "long ".repeat(60));
    world.write("commands", line.repeat(5));
    let packhorse = env!("CARGO_BIN_EXE_packhorse");
    // On a screen that is full, as it mostly is. On an empty one, tmux moves the rows that
    // become more out of everybody's reach.
    let script = format!("seq 30; echo above; exec {packhorse} run --gpus 0,1,2,3 commands");
    let tmux = Tmux(&world);
    tmux.start(&script);
    let shown = tmux.shows("0/5 done, 4 running, 1 waiting");
    let is_long = |line: &str| line.chars().count() > 150;
    assert!(shown.lines().any(is_long), "{shown}");
    // Each of its lines takes three rows then.
    tmux.says(&["resize-window", "-x", "60", "-y", "24"]);
    gate.pass(1);
    let shown = tmux.shows("1/5 done, 4 running");
    let (before, view) = shown.split_once("above\n").unwrap();
    assert_eq!(before.lines().count(), 30, "{shown}");
    let view: Vec<&str> = view.trim_end().lines().collect();
    for (line, gpu) in view.iter().zip(0..4) {
        assert!(line.starts_with(&format!(" GPU {gpu} ")), "{shown}");
    }
    assert_eq!(view.len(), 5, "{shown}");
    gate.pass(4);
}

#[test]
fn whoever_suspends_it_finds_the_terminal_in_order_then_and_later() {
    let world = World::new();
    let gate = world.gate("gate");
    let command = run(&world, WAIT, &["--gpus", "0"]);
    // A shell with job control, as the one that people type into. When it lets the run go
    // on, a drawing has long been due.
    let script = "\"$@\"; echo; echo suspended; sleep 1; fg > /dev/null; echo over $?";
    let mut shell = world.program("sh", ["-m", "-c", script, "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    shell.env("TERM", "xterm");
    let mut terminal = Terminal::start_with_keys(&shell, 80, 24);
    terminal.wait_for("0/1 done, 1 running");
    terminal.press(b"\x1a");
    terminal.wait_for("suspended");
    let view = |screen: &[String]| screen.iter().filter(|it| it.contains("GPU 0")).count();
    let screen = terminal.screen();
    assert_eq!(view(&screen), 0, "{screen:#?}");
    let text = terminal.text().len();
    while !terminal.text()[text..].contains("0/1 done, 1 running") {
        terminal.wait_for_more();
    }
    // It is drawn every second, over the last drawing.
    terminal.wait_for(" · after 3s");
    let screen = terminal.screen();
    assert_eq!(view(&screen), 1, "{screen:#?}");
    assert!(screen.contains(&"suspended".to_owned()), "{screen:#?}");
    gate.pass(1);
    terminal.wait_for("over 0");
    let screen = terminal.screen();
    assert_eq!(view(&screen), 0, "{screen:#?}");
    assert_eq!(terminal.finish(), 0);
}

#[test]
fn what_was_stopped_without_being_asked_does_not_draw_over_what_came_since() {
    let world = World::new();
    let gate = world.gate("gate");
    let command = run(&world, &WAIT.repeat(2), &["--gpus", "0"]);
    let mut terminal = Terminal::start(command, 80, 24);
    terminal.wait_for("0/2 done, 1 running");
    terminal.signal(Signal::STOP);
    terminal.signal(Signal::CONT);
    gate.pass(1);
    terminal.wait_for("1/2 done");
    let screen = terminal.screen();
    let views = screen.iter().filter(|line| line.starts_with(" GPU 0 "));
    assert_eq!(views.count(), 2, "{screen:#?}");
    gate.pass(1);
    assert_eq!(terminal.finish(), 0);
}

#[test]
fn more_gpus_than_lines_do_not_run_over_the_top() {
    let world = World::new();
    let gate = world.gate("gate");
    let gpus: Vec<String> = (0..30).map(|number| number.to_string()).collect();
    let command = run(&world, &WAIT.repeat(2), &["--gpus", &gpus.join(",")]);
    let mut terminal = Terminal::start(command, 80, 8);
    terminal.wait_for("0/2 done, 2 running");
    let screen = terminal.screen();
    assert!(screen.len() < 8, "{screen:#?}");
    assert!(screen.iter().any(|line| line.contains(" more")), "{screen:#?}");
    gate.pass(2);
    assert_eq!(terminal.finish(), 0);
    assert_eq!(terminal.screen().len(), 1, "{:#?}", terminal.screen());
}

#[test]
fn where_nothing_can_be_drawn_there_are_plain_lines() {
    for term in [Some("dumb"), None] {
        let world = World::new();
        let mut command = run(&world, "true\n", &["--gpus", "0"]);
        command.env_remove("TERM");
        command.envs(term.map(|term| ("TERM", term)));
        let mut terminal = Terminal::start(command, 80, 24);
        assert_eq!(terminal.finish(), 0);
        assert!(!terminal.text().contains('\x1b'), "{:?}", terminal.text());
        assert_eq!(terminal.screen()[1], "1.1 started on GPU 0: true");
    }
    // A capable terminal, but our output goes elsewhere.
    let world = World::new();
    let done = finish(run(&world, "true\n", &["--gpus", "0"]));
    assert!(!done.stdout.contains('\x1b'), "{done:?}");
    assert!(done.stdout.contains("1.1 started on GPU 0: true\n"), "{done:?}");
}

#[test]
fn a_quiet_run_draws_nothing() {
    let world = World::new();
    let mut terminal = Terminal::start(run(&world, "true\n", &["--gpus", "0", "-q"]), 80, 24);
    assert_eq!(terminal.finish(), 0);
    let screen = terminal.screen();
    assert!(!terminal.text().contains('\x1b'), "{screen:#?}");
    assert!(screen[0].starts_with("run 1 ended: 1 succeeded"), "{screen:#?}");
}

#[test]
fn nothing_is_left_of_rows_that_become_shorter_or_fewer() {
    let world = World::new();
    let [gate, other] = ["gate", "other"].map(|name| world.gate(name));
    let commands = format!("{WAIT}read x < other\n{WAIT}");
    let mut terminal = Terminal::start(run(&world, &commands, &["--gpus", "0,1"]), 100, 24);
    terminal.wait_for("0/3 done, 2 running, 1 waiting");
    assert_eq!(terminal.screen().len(), 4, "{:#?}", terminal.screen());
    gate.pass(1);
    terminal.wait_for("1/3 done, 2 running, 0 waiting");
    gate.pass(1);
    terminal.wait_for("2/3 done, 1 running, 0 waiting");
    let screen = terminal.screen();
    assert_eq!(screen[0], " GPU 0  idle");
    assert!(screen[1].starts_with(" GPU 1  1.2  "), "{screen:#?}");
    assert_eq!(screen.len(), 3, "{screen:#?}");
    other.pass(1);
    assert_eq!(terminal.finish(), 0);
}

#[test]
fn the_screen_is_never_erased_from_its_first_column_on() {
    let world = World::new();
    let gate = world.gate("gate");
    let commands = format!("exit 3\n{}", WAIT.repeat(3));
    let mut terminal = Terminal::start(run(&world, &commands, &["--gpus", "0"]), 100, 24);
    for (done, wide) in [(1, 80), (2, 30), (3, 90)] {
        terminal.wait_for(&format!("{done}/4"));
        terminal.resize(wide);
        gate.pass(1);
    }
    assert_eq!(terminal.finish(), 1);
    let text = terminal.text();
    let erased: Vec<_> = text.match_indices("\x1b[J").collect();
    assert!(!erased.is_empty(), "{text:?}");
    for (place, _) in erased {
        // After a character, or below the rows just drawn.
        let before = &text[..place];
        assert!(before.ends_with(' ') || before.ends_with("\x1b[K\r\n"), "{before:?}");
    }
}

#[test]
fn a_run_that_is_stopping_promises_nothing() {
    let world = World::new();
    let gate = world.gate("gate");
    let commands = format!("true\n{}", WAIT.repeat(3));
    let mut terminal = Terminal::start(run(&world, &commands, &["--gpus", "0"]), 120, 24);
    terminal.wait_for("1/4 done, 1 running, 2 waiting");
    terminal.wait_for(" left");
    terminal.wait_for(" next: 1.3 ");
    terminal.signal(Signal::INT);
    terminal.wait_for("stopping: ");
    gate.pass(1);
    terminal.finish();
    let text = terminal.text();
    let (_, stopping) = text.split_once("stopping: ").unwrap();
    let (view, _) = stopping.split_once("run 1 ended").unwrap();
    assert!(view.contains("1/4 done, 1 running, 2 waiting"), "{view:?}");
    for promise in [" left", " next: "] {
        assert!(!view.contains(promise), "{view:?}");
    }
}

#[test]
fn a_terminal_that_was_held_shows_the_rest_when_it_is_let_go() {
    let world = World::new();
    let flooded = world.fifo("flooded");
    let commands = "yes $PACKHORSE_TASK_ID with a line of some length | head -n 1000000; \
                    echo > flooded\nexit 3\n";
    let command = run(&world, commands, &["--slots", "1", "--output", "lines"]);
    let mut terminal = Terminal::start(command, 120, 24);
    // Nobody reads until here, as after Ctrl-S.
    crate::support::receive(&flooded);
    assert_eq!(terminal.finish(), 1);
    let text = terminal.text();
    for line in
        ["lines of its output left out", "1.2 failed after", "run 1 ended: 1 succeeded, 1 failed"]
    {
        assert_eq!(text.matches(line).count(), 1, "{line}");
    }
}
