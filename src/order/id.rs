//! Order ids, as they follow the prefix in a Redis key.
//!
//! An id from outside is accepted only in the one spelling that the column itself would print, so
//! that no two keys ever mean one order and no id can make a statement fail for its neighbours.

use std::{cmp::Ordering, fmt, sync::Arc};

use uuid::Uuid;

use super::Printable;

/// The longest id that is looked up, in bytes, whatever the column allows.
pub const MAX_ID_BYTES: usize = 255;

/// An order's id in its canonical spelling, checked against the type of the id column.
///
/// Cheap to clone. Shorter ids come before longer ones, so that whole numbers stand in the order of their values.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct OrderId(Arc<str>);

impl OrderId {
    /// An id that the database itself returned, and that therefore needs no check.
    #[must_use]
    pub fn from_database(text: &str) -> Self {
        Self(text.into())
    }

    /// The id's text, for machines. People read its [`Display`](fmt::Display), which hides no character.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Ord for OrderId {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.0.len(), &self.0).cmp(&(other.0.len(), &other.0))
    }
}

impl PartialOrd for OrderId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printable(&self.0).fmt(f)
    }
}

impl fmt::Debug for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The characters that a text column can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charset {
    /// All of Unicode.
    Unicode,
    /// Unicode's first plane only (MySQL's `utf8mb3`).
    Bmp,
    /// A national character set, of which only the ASCII part is used.
    Ascii,
}

impl Charset {
    fn holds(self, text: &str) -> bool {
        match self {
            Self::Unicode => true,
            Self::Bmp => text.chars().all(|c| u32::from(c) < 0x1_0000),
            Self::Ascii => text.is_ascii(),
        }
    }
}

/// The type of the id column: which ids it can hold, and how they are spelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdKind {
    /// A whole number within the column's range.
    Integer {
        /// The smallest number that the column holds.
        min: i128,
        /// The largest.
        max: i128,
    },
    /// Text.
    Text {
        /// The longest value that the column holds, in characters.
        max_chars: Option<usize>,
        /// The characters it can hold.
        charset: Charset,
    },
    /// A UUID, hyphenated; upper case is read and lower case is what the column prints.
    Uuid,
}

/// Why a text can't be an id of this table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAnId {
    /// Nothing follows the prefix.
    #[error("is empty")]
    Empty,
    /// More bytes than [`MAX_ID_BYTES`], or more characters than the column holds.
    #[error("is too long for the id column")]
    TooLong,
    /// Not UTF-8, or with characters that the column can't hold.
    #[error("has characters that the id column can't hold")]
    Encoding,
    /// Not a whole number in plain digits.
    #[error("is not a whole number in plain digits, as the id column wants")]
    NotInteger,
    /// A whole number, but outside the column's range.
    #[error("is outside the id column's range")]
    OutOfRange,
    /// Not a hyphenated UUID.
    #[error("is not a hyphenated UUID, as the id column wants")]
    NotUuid,
}

impl IdKind {
    /// Reads what follows the prefix of a key.
    ///
    /// # Errors
    /// Says why the bytes can't be an id of this column.
    pub fn parse(&self, bytes: &[u8]) -> Result<OrderId, NotAnId> {
        if bytes.is_empty() {
            return Err(NotAnId::Empty);
        }
        if bytes.len() > MAX_ID_BYTES {
            return Err(NotAnId::TooLong);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| NotAnId::Encoding)?;
        match *self {
            Self::Integer { min, max } => integer(text, min, max),
            Self::Text { max_chars, charset } => plain_text(text, max_chars, charset),
            Self::Uuid => hyphenated_uuid(text),
        }
    }
}

fn integer(text: &str, min: i128, max: i128) -> Result<OrderId, NotAnId> {
    let number: i128 = text.parse().map_err(|_| NotAnId::NotInteger)?;
    // "007", "+7" and "-0" parse as well, and a database would take them for order 7 or 0.
    if number.to_string() != text {
        return Err(NotAnId::NotInteger);
    }
    if number < min || number > max {
        return Err(NotAnId::OutOfRange);
    }
    Ok(OrderId(text.into()))
}

fn plain_text(text: &str, max_chars: Option<usize>, charset: Charset) -> Result<OrderId, NotAnId> {
    // PostgreSQL refuses a NUL in text, and with it the whole statement.
    if text.contains('\0') || !charset.holds(text) {
        return Err(NotAnId::Encoding);
    }
    if max_chars.is_some_and(|max| text.chars().count() > max) {
        return Err(NotAnId::TooLong);
    }
    Ok(OrderId(text.into()))
}

fn hyphenated_uuid(text: &str) -> Result<OrderId, NotAnId> {
    // The parser also takes braces, urn:uuid: and the form without hyphens.
    if text.len() != uuid::fmt::Hyphenated::LENGTH {
        return Err(NotAnId::NotUuid);
    }
    let id = Uuid::try_parse(text).map_err(|_| NotAnId::NotUuid)?;
    Ok(OrderId(id.hyphenated().to_string().into()))
}
