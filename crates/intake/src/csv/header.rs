use std::str::FromStr;

/// Which row names the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// This one, counted from 0 without blank lines. Rows above it are skipped.
    Row(u32),
    /// None: the columns come in their usual order.
    None,
}

/// Text that is neither a number of a row nor `None`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not the number of a row\n\
     hint: write 0 if the first row is the header, or None if there is no header"
)]
pub struct ParseHeaderError(String);

impl FromStr for Header {
    type Err = ParseHeaderError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.eq_ignore_ascii_case("none") {
            return Ok(Self::None);
        }
        let row = text.parse().map(Self::Row);
        row.map_err(|_| ParseHeaderError(text.to_owned()))
    }
}
