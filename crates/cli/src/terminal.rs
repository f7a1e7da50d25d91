//! What the terminal is like.

use packhorse_intake::Colour;

/// The terminal's columns and rows; 80 by 24 where nobody knows.
pub fn size() -> (usize, usize) {
    let (columns, rows) = rustix::termios::tcgetwinsize(rustix::stdio::stdout())
        .map_or((0, 0), |size| (size.ws_col.into(), size.ws_row.into()));
    (if columns == 0 { 80 } else { columns }, if rows == 0 { 24 } else { rows })
}

/// Whether standard output is a terminal, even one that cannot be drawn on.
pub fn is_stdout() -> bool {
    rustix::termios::isatty(rustix::stdio::stdout())
}

/// Whether standard output is a terminal that can be drawn on.
pub fn can_draw() -> bool {
    is_stdout() && has_capable_name()
}

/// The same of standard error.
pub fn can_draw_stderr() -> bool {
    rustix::termios::isatty(rustix::stdio::stderr()) && has_capable_name()
}

fn has_capable_name() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// How long a line for people may be: as long as it likes where it is not seen on a
/// terminal.
pub fn line_width() -> usize {
    if can_draw() { size().0 } else { usize::MAX }
}

/// Whether the locale has more than ASCII.
pub fn has_unicode() -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter();
    let mut set = names.filter_map(|name| std::env::var(name).ok());
    set.find(|value| !value.is_empty()).is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// The colours in use: none if `NO_COLOR` is set or standard output is no
/// terminal.
#[derive(Clone, Copy, Default)]
pub struct Palette {
    /// Something went well.
    pub good: &'static str,
    /// Something went wrong.
    pub bad: &'static str,
    /// Something of little interest.
    pub faint: &'static str,
}

impl Palette {
    /// What the environment wants.
    pub fn from_env() -> Self {
        if wants_colours() && can_draw() {
            Self { good: "\x1b[32m", bad: "\x1b[31m", faint: "\x1b[2m" }
        } else {
            Self::default()
        }
    }
}

/// The text in a colour of a palette.
pub fn paint(text: &str, colour: &str) -> String {
    if colour.is_empty() { text.to_owned() } else { format!("{colour}{text}\x1b[0m") }
}

fn wants_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether messages on standard error may have colours.
pub fn colour() -> Colour {
    if wants_colours() && rustix::termios::isatty(rustix::stdio::stderr()) {
        Colour::On
    } else {
        Colour::Off
    }
}

/// Whether commands would be typed by hand.
pub fn stdin_is_terminal() -> bool {
    rustix::termios::isatty(rustix::stdio::stdin())
}
