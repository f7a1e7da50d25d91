//! Text that need not be UTF-8, such as file names and arguments.
//!
//! In JSON it is a string. If it is not UTF-8, it is an object with its bytes
//! escaped as Rust and Python escape them: `{"bytes": "caf\\xe9"}`.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use serde::{Deserialize, Serialize, Serializer};

/// Text that need not be UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "WrittenBytes")]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(!try_from, description = "Text, or bytes that are not UTF-8.")
)]
pub struct ByteString(#[cfg_attr(feature = "schema", schemars(with = "WrittenBytes"))] pub Vec<u8>);

impl ByteString {
    /// The same as the system's functions take it.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }
}

impl From<&str> for ByteString {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<OsString> for ByteString {
    fn from(text: OsString) -> Self {
        Self(text.into_vec())
    }
}

/// Text, or bytes that are not UTF-8.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected text, or an object such as {\"bytes\": \"caf\\\\xe9\"}")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub(crate) enum WrittenBytes<'a> {
    Text(Cow<'a, str>),
    /// Bytes that are not UTF-8.
    Escaped {
        /// The bytes, with `\xNN` for those that are not printable ASCII.
        bytes: String,
    },
}

impl<'a> From<&'a [u8]> for WrittenBytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.into()),
            Err(_) => Self::Escaped { bytes: bytes.escape_ascii().to_string() },
        }
    }
}

impl<'a> From<&'a Path> for WrittenBytes<'a> {
    fn from(path: &'a Path) -> Self {
        path.as_os_str().as_bytes().into()
    }
}

impl TryFrom<WrittenBytes<'_>> for ByteString {
    type Error = &'static str;

    fn try_from(written: WrittenBytes<'_>) -> Result<Self, Self::Error> {
        let bytes = match written {
            WrittenBytes::Text(text) => Some(text.into_owned().into_bytes()),
            WrittenBytes::Escaped { bytes } => unescape(&bytes),
        };
        bytes.map(Self).ok_or("`bytes` has an escape that is none")
    }
}

/// The inverse of [`slice::escape_ascii`].
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b't' => b'\t',
                b'r' => b'\r',
                b'n' => b'\n',
                b'x' => {
                    let digits = [rest.next()?, rest.next()?];
                    let digits = std::str::from_utf8(&digits).ok()?;
                    u8::from_str_radix(digits, 16).ok()?
                }
                quoted @ (b'\\' | b'\'' | b'"') => quoted,
                _ => return None,
            },
            plain => plain,
        });
    }
    Some(bytes)
}

impl Serialize for ByteString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WrittenBytes::from(&*self.0).serialize(serializer)
    }
}

/// Paths of any bytes, for `#[serde(with = …)]`.
pub(crate) mod path {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{ByteString, WrittenBytes};

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        WrittenBytes::from(path).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PathBuf, D::Error> {
        ByteString::deserialize(deserializer).map(|bytes| bytes.as_os_str().into())
    }

    /// The same where there may be none.
    pub(crate) mod option {
        use super::{ByteString, PathBuf, WrittenBytes};
        use super::{Deserialize, Deserializer, Serialize, Serializer};

        #[expect(clippy::ref_option, reason = "serde passes the field as it is")]
        pub(crate) fn serialize<S: Serializer>(
            path: &Option<PathBuf>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            path.as_deref().map(WrittenBytes::from).serialize(serializer)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<PathBuf>, D::Error> {
            let bytes = Option::<ByteString>::deserialize(deserializer)?;
            Ok(bytes.map(|bytes| bytes.as_os_str().into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_being_written() {
        for bytes in [
            &b"plain"[..],
            b"",
            "käse".as_bytes(),
            b"caf\xe9 \"q\" \\x41 \n\t\r'",
            &(0..=255).collect::<Vec<u8>>(),
        ] {
            let text = ByteString(bytes.to_vec());
            let json = serde_json::to_string(&text).unwrap();
            assert_eq!(serde_json::from_str::<ByteString>(&json).unwrap(), text);
        }
        let json = serde_json::to_string(&ByteString(b"caf\xe9".to_vec())).unwrap();
        assert_eq!(json, r#"{"bytes":"caf\\xe9"}"#);
    }

    #[test]
    fn an_escape_that_is_none_is_refused() {
        for wrong in [r"\", r"\q", r"\x4", r"\xgg"] {
            let json = serde_json::json!({ "bytes": wrong }).to_string();
            assert!(serde_json::from_str::<ByteString>(&json).is_err(), "{wrong}");
        }
    }
}
