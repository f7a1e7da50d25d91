//! What the terminal is like.

/// The terminal's columns and rows; 80 by 24 where nobody knows.
pub fn size() -> (usize, usize) {
    let (columns, rows) = rustix::termios::tcgetwinsize(rustix::stdio::stdout())
        .map_or((0, 0), |size| (size.ws_col.into(), size.ws_row.into()));
    (
        if columns == 0 { 80 } else { columns },
        if rows == 0 { 24 } else { rows },
    )
}

/// Whether standard output is a terminal that can be drawn on.
pub fn can_draw() -> bool {
    rustix::termios::isatty(rustix::stdio::stdout())
        && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// How long a line for people may be: as long as it likes where it is not seen on a
/// terminal.
pub fn line_width() -> usize {
    if can_draw() { size().0 } else { usize::MAX }
}

/// Whether the locale has more than ASCII.
pub fn has_unicode() -> bool {
    let set = |name| {
        std::env::var(name)
            .ok()
            .filter(|value: &String| !value.is_empty())
    };
    let locale = set("LC_ALL")
        .or_else(|| set("LC_CTYPE"))
        .or_else(|| set("LANG"));
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// The colours in use: none if `NO_COLOR` is set or standard output is no
/// terminal.
#[derive(Clone, Copy)]
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
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        if wanted && can_draw() {
            Self {
                good: "\x1b[32m",
                bad: "\x1b[31m",
                faint: "\x1b[2m",
            }
        } else {
            Self {
                good: "",
                bad: "",
                faint: "",
            }
        }
    }

    /// The text in that colour.
    #[expect(clippy::unused_self, reason = "the paint is one of this palette's")]
    pub fn paint(&self, text: &str, paint: &'static str) -> String {
        if paint.is_empty() {
            text.to_owned()
        } else {
            format!("{paint}{text}\x1b[0m")
        }
    }
}

/// Whether messages on standard error may have colours.
pub fn colour() -> packhorse_intake::Colour {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if wanted && rustix::termios::isatty(rustix::stdio::stderr()) {
        packhorse_intake::Colour::On
    } else {
        packhorse_intake::Colour::Off
    }
}

/// Whether commands would be typed by hand.
pub fn stdin_is_terminal() -> bool {
    rustix::termios::isatty(rustix::stdio::stdin())
}
