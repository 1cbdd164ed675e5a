//! Values of the status column: numbers, words, bytes. Their errors are sentences without a
//! subject, as those of `values`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A value of the status column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Status {
    /// A number.
    Integer(i64),
    /// Bytes, as `0x` and two small hex digits for each.
    Bytes(String),
    /// A word, or a label of an enumeration.
    Text(String),
}

impl Status {
    /// The status as the database prints it.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Integer(number) => number.to_string(),
            Self::Bytes(text) | Self::Text(text) => text.clone(),
        }
    }

    /// The status as SQL has it.
    #[must_use]
    pub fn literal(&self) -> String {
        match self {
            Self::Integer(number) => number.to_string(),
            Self::Bytes(hex) => hex.clone(),
            Self::Text(text) => format!("'{text}'"),
        }
    }
}

/// The status that `0x…` means; `None` for a word.
fn bytes(text: &str) -> Option<Result<Status, String>> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    Some(if digits.len().is_multiple_of(2) {
        Ok(Status::Bytes(format!("0x{}", digits.to_ascii_lowercase())))
    } else {
        Err(format!("has {} hex digits after 0x; two are a byte, so their number is even", digits.len()))
    })
}

/// A status as it is written.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a status is a whole number or a string, such as 0 or \"pending\"")]
enum Written {
    Integer(i64),
    Text(String),
}

impl TryFrom<Written> for Status {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Integer(number) => Ok(Self::Integer(number)),
            // Statuses become literals in the SQL, so that partial indexes on them can be used.
            Written::Text(text) if text.is_empty() || text.contains(['\'', '"', '\\']) || text.contains(char::is_control) => {
                Err("is empty or has quotes, backslashes or control characters".into())
            }
            Written::Text(text) => bytes(&text).unwrap_or(Ok(Self::Text(text))),
        }
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Written::deserialize(deserializer)?.try_into().map_err(serde::de::Error::custom)
    }
}

/// One status, or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Statuses(Vec<Status>);

impl Statuses {
    /// The statuses, at least one.
    #[must_use]
    pub fn get(&self) -> &[Status] {
        &self.0
    }
}

impl From<Vec<Status>> for Statuses {
    /// Each status counts once: what the sweep reads for it would be read, and counted, again.
    fn from(statuses: Vec<Status>) -> Self {
        let mut distinct = Vec::with_capacity(statuses.len());
        for status in statuses {
            if !distinct.contains(&status) {
                distinct.push(status);
            }
        }
        Self(distinct)
    }
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // What is wrong with one of them is found after the shape, or the shape's own message would take its place.
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "statuses are whole numbers or strings, one or several: 0, [0, 1] or [\"pending\"]")]
        enum Shape {
            One(Written),
            Many(Vec<Written>),
        }
        let written = match Shape::deserialize(deserializer)? {
            Shape::One(status) => vec![status],
            Shape::Many(statuses) => statuses,
        };
        if written.is_empty() {
            return Err(serde::de::Error::custom("at least one status is needed"));
        }
        let statuses: Result<Vec<Status>, String> = written.into_iter().map(Status::try_from).collect();
        Ok(statuses.map_err(serde::de::Error::custom)?.into())
    }
}
