/// What stands between two commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Separator {
    /// The end of a line.
    #[default]
    Newline,
    /// A NUL byte, so that a command may have several lines.
    Null,
}

impl Separator {
    /// The one that `--null` asks for, or that it is without.
    pub const fn null_if(null: bool) -> Self {
        if null { Self::Null } else { Self::Newline }
    }

    /// The byte itself.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Newline => b'\n',
            Self::Null => 0,
        }
    }
}
