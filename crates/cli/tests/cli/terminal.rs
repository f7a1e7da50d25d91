//! A real pseudo-terminal, and a small model of what a person would see on it.

use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// A program on a terminal of its own.
pub struct Terminal {
    child: Child,
    master: OwnedFd,
    columns: u16,
    rows: u16,
    seen: Vec<u8>,
}

impl Terminal {
    /// Starts a program on a terminal of this size.
    pub fn start(command: Command, columns: u16, rows: u16) -> Self {
        Self::open(command, columns, rows, false)
    }

    /// The same with keys that can be pressed: the terminal is the one that controls it,
    /// and its standard input.
    pub fn start_with_keys(command: &Command, columns: u16, rows: u16) -> Self {
        let mut session = Command::new("setsid");
        session.arg("--ctty").arg(command.get_program());
        session.args(command.get_args()).env_clear();
        let set = command.get_envs();
        session.envs(set.filter_map(|(name, value)| Some((name, value?))));
        if let Some(folder) = command.get_current_dir() {
            session.current_dir(folder);
        }
        Self::open(session, columns, rows, true)
    }

    fn open(mut command: Command, columns: u16, rows: u16, keys: bool) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        let master = master.unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        tcsetwinsize(&slave, size(columns, rows)).unwrap();
        if keys {
            command.stdin(Stdio::from(slave.try_clone().unwrap()));
        }
        let child = command
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .stderr(Stdio::from(slave))
            .spawn()
            .unwrap();
        Self { child, master, columns, rows, seen: Vec::new() }
    }

    /// Presses keys, such as Ctrl-C.
    pub fn press(&self, keys: &[u8]) {
        rustix::io::write(&self.master, keys).unwrap();
    }

    /// Sends the program a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Makes it narrower or wider, as a person does with the mouse.
    pub fn resize(&mut self, columns: u16) {
        self.columns = columns;
        tcsetwinsize(&self.master, size(columns, self.rows)).unwrap();
        self.signal(Signal::WINCH);
    }

    /// Reads a bit more; false when the program is gone.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        // A terminal that nobody writes to any longer is an I/O error.
        let length = rustix::io::read(&self.master, &mut buffer).unwrap_or(0);
        self.seen.extend_from_slice(&buffer[..length]);
        length > 0
    }

    /// All that has been written so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Reads until this text has come.
    pub fn wait_for(&mut self, text: &str) {
        while !self.text().contains(text) {
            assert!(self.read(), "it ended without `{text}`:\n{}", self.text());
        }
    }

    /// Reads what comes next.
    pub fn wait_for_more(&mut self) {
        assert!(self.read(), "it ended:\n{}", self.text());
    }

    /// What a person sees now, and could see by scrolling back.
    pub fn screen(&self) -> Vec<String> {
        screen(&self.text(), self.columns.into(), self.rows.into())
    }

    /// Reads to the end, and gives the exit status.
    pub fn finish(&mut self) -> i32 {
        while self.read() {}
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// The lines on a terminal of this size after this text, with those that have
/// scrolled away. Knows what the view needs, and refuses anything else.
pub fn screen(text: &str, width: usize, height: usize) -> Vec<String> {
    let mut lines: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0_usize, 0);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\r' => column = 0,
            '\n' => row += 1,
            '\x1b' => {
                let end = rest.find(|c: char| c.is_ascii_alphabetic());
                // What has come so far may end within a sequence.
                let Some(end) = end else { break };
                let (parameter, last) = (&rest[1..end], &rest[end..=end]);
                rest = &rest[end + 1..];
                match (last, parameter) {
                    ("A", rows) => {
                        let top = lines.len().saturating_sub(height);
                        row = top.max(row.saturating_sub(rows.parse().unwrap()));
                    }
                    ("J", "") => {
                        lines.truncate(row + 1);
                        lines[row].truncate(column);
                    }
                    ("K", "") => lines[row].truncate(column),
                    ("m", _) => {}
                    other => panic!("an unknown sequence: {other:?}"),
                }
            }
            c if c.is_control() => panic!("an unknown control character: {c:?}"),
            c => {
                if column == width {
                    (row, column) = (row + 1, 0);
                }
                if lines.len() == row {
                    lines.push(Vec::new());
                }
                if lines[row].len() <= column {
                    lines[row].resize(column + 1, ' ');
                }
                lines[row][column] = c;
                column += 1;
            }
        }
        if lines.len() == row {
            lines.push(Vec::new());
        }
    }
    let mut lines: Vec<String> = lines.iter().map(|line| line.iter().collect()).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}
