//! What tasks write and what things are called does not control the terminal.

use crate::support::World;
use crate::terminal::{Terminal, screen};

/// The clipboard, the title, C1 as a character and as a byte, text that runs backwards, and
/// a colour, which may pass.
const HOSTILE: &str =
    r"\033]52;c;ZXZpbA==\007\033]0;title\007\302\23331m\23332m\342\200\256\033[31mred\033[0m";

/// As a terminal shows it.
const VISIBLE: &str = "␛]52;c;ZXZpbA==␇␛]0;title␇\u{fffd}31m\u{fffd}32m\u{fffd}";

/// A task whose command, parameters, output and metrics have all of that, and one that cannot
/// be called so.
fn hostile() -> World {
    let world = World::new();
    let name = r"\u001b]52;c;ZXZpbA==\u0007\u009b31m\u202eevil";
    let print = format!(r"printf '{HOSTILE}\n' | tee /dev/stderr # QUOTED");
    let metrics = format!(r#"printf 'packhorse: {{"loss{}": 1}}\n'"#, r"\u009b31m\u202e");
    let line = serde_json::json!({ "command": format!("{metrics}; {print}\nexit 1") }).to_string();
    let line = line.replace("QUOTED", name);
    let line = line.replacen('{', &format!(r#"{{"params":{{"{name}":"{name}"}},"#), 1);
    world.write("tasks", line + "\n");
    world.write("named", format!("{{\"name\":\"{name}\",\"command\":\"true\"}}\n"));
    world
}

/// Fails if a terminal would obey anything of it but colours.
fn assert_harmless(words: &[&str], text: &str) {
    let mut pieces = text.split('\x1b');
    let controls = |c: char| c.is_control() && !matches!(c, '\r' | '\n');
    let bad = |piece: &str| piece.contains(controls) || piece.contains('\u{202e}');
    assert!(!bad(pieces.next().unwrap()), "{words:?}: {text:?}");
    for piece in pieces {
        let numbers = piece.strip_prefix('[').unwrap_or_else(|| panic!("{words:?}: {text:?}"));
        let end = numbers.find(|c: char| !matches!(c, '0'..='9' | ';'));
        assert_eq!(end.map(|end| &numbers[end..=end]), Some("m"), "{words:?}: {text:?}");
        assert!(!bad(piece), "{words:?}: {text:?}");
    }
}

fn on_terminal(world: &World, words: &[&str]) -> String {
    let mut command = world.command(words);
    command.env("TERM", "xterm-256color");
    let mut terminal = Terminal::start(command, 250, 24);
    terminal.finish();
    terminal.text()
}

#[test]
fn a_terminal_gets_nothing_but_colours_from_any_command_that_quotes_a_task() {
    let world = hostile();
    let done = world.packhorse(["run", "--slots", "1", "--tasks", "tasks"]);
    assert_eq!(done.code, 1, "{done:?}");
    for words in [
        &["logs", "1"][..],
        &["logs", "-f", "1"],
        &["logs", "1", "--stderr"],
        &["ls"],
        &["show"],
        &["show", "1.1"],
        &["show", "--json"],
        &["show", "1.1", "--json"],
        &["results", "1"],
        &["results", "1", "--csv"],
        &["results", "1", "--json"],
        &["export"],
        &["peaks"],
        &["run", "--slots", "1", "--tasks", "tasks", "-q"],
        &["run", "--slots", "1", "--tasks", "tasks", "--output", "lines", "-q"],
        &["run", "--slots", "1", "--tasks", "tasks", "--json", "--output", "lines"],
        &["run", "--slots", "1", "--tasks", "tasks", "--dry-run"],
        &["run", "--slots", "1", "--tasks", "named"],
        &["plan", "--slots", "1", "--tasks", "tasks"],
    ] {
        let text = on_terminal(&world, words);
        assert_harmless(words, &text);
    }
    for words in [&["logs", "1"][..], &["logs", "-f", "1"]] {
        let text = on_terminal(&world, words);
        assert!(text.contains(&format!("{VISIBLE}\x1b[31mred\x1b[0m\r\n")), "{text:?}");
    }
}

#[test]
fn the_view_of_a_run_shows_output_with_its_colours_and_nothing_to_obey() {
    let world = hostile();
    let words = ["run", "--slots", "1", "--tasks", "tasks", "--output", "lines"];
    let text = on_terminal(&world, &words);
    assert!(text.contains(&format!("1.1 | {VISIBLE}\x1b[31mred\x1b[0m\r\n")), "{text:?}");
    assert!(!text.contains('\u{202e}'), "{text:?}");
    // Refuses what the view does not need.
    screen(&text, 250, 24);
}

#[test]
fn raw_output_and_output_that_goes_elsewhere_are_as_they_were_written() {
    let world = World::new();
    world.write("commands", format!("printf '{HOSTILE}'\n"));
    world.packhorse(["run", "--slots", "1", "commands"]);
    let wanted =
        b"\x1b]52;c;ZXZpbA==\x07\x1b]0;title\x07\xc2\x9b31m\x9b32m\xe2\x80\xae\x1b[31mred\x1b[0m";
    let piped = world.command(["logs", "1"]).output().unwrap();
    assert_eq!(piped.stdout, wanted);
    let raw = on_terminal(&world, &["logs", "1", "--raw"]);
    assert_eq!(raw, String::from_utf8_lossy(wanted));
}

#[test]
fn a_progress_bar_stays_one_on_a_terminal() {
    let world = World::new();
    world.write("commands", "printf '10%%\\r50%%\\r100%%\\n'\n");
    let done = world.packhorse(["run", "--slots", "1", "commands"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(on_terminal(&world, &["logs", "1"]), "10%\r50%\r100%\r\n");
    let text = on_terminal(&world, &["run", "--slots", "1", "commands", "--output", "lines"]);
    assert!(text.contains("2.1 | 100%\r\n"), "{text:?}");
}
