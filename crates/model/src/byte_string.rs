//! Text that need not be UTF-8, such as file names and arguments.
//!
//! In JSON it is a string. If it is not UTF-8, it is an object with its bytes
//! escaped as Rust and Python escape them: `{"bytes": "caf\\xe9"}`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Text that need not be UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteString(pub Vec<u8>);

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

/// The two written forms.
#[derive(Deserialize)]
#[serde(untagged, expecting = "this is not text")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
enum Written {
    Text(String),
    Escaped {
        /// The bytes, with `\xNN` for those that are not printable ASCII.
        bytes: String,
    },
}

#[derive(Serialize)]
struct EscapedBytes {
    bytes: String,
}

/// Writes bytes in one of the two forms.
pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => serializer.serialize_str(text),
        Err(_) => EscapedBytes {
            bytes: bytes.escape_ascii().to_string(),
        }
        .serialize(serializer),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    match Written::deserialize(deserializer)? {
        Written::Text(text) => Ok(text.into_bytes()),
        Written::Escaped { bytes } => {
            unescape(&bytes).ok_or_else(|| D::Error::custom("`bytes` has an escape that is none"))
        }
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
        serialize(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for ByteString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer).map(Self)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for ByteString {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ByteString".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Written::json_schema(generator)
    }
}

/// Paths of any bytes, for `#[serde(with = …)]`.
pub(crate) mod path {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::path::{Path, PathBuf};

    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        super::serialize(path.as_os_str().as_bytes(), serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PathBuf, D::Error> {
        let bytes = super::deserialize(deserializer)?;
        Ok(std::ffi::OsString::from_vec(bytes).into())
    }

    /// The same where there may be none.
    pub(crate) mod option {
        use std::path::{Path, PathBuf};

        use serde::{Deserialize as _, Deserializer, Serializer};

        use crate::ByteString;

        #[expect(clippy::ref_option, reason = "serde passes the field as it is")]
        pub(crate) fn serialize<S: Serializer>(
            path: &Option<impl AsRef<Path>>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            match path {
                Some(path) => super::serialize(path.as_ref(), serializer),
                None => serializer.serialize_none(),
            }
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
            assert!(
                serde_json::from_str::<ByteString>(&json).is_err(),
                "{wrong}"
            );
        }
    }
}
