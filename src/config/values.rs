//! Names and time zones, parsed as they are read.
//!
//! Their errors are sentences without a subject, "is not …": whoever reports one says which setting it is about, and quotes
//! the text where that may be quoted.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::optional::NONE;

/// A column's name, taken as written: neither folded nor split.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct ColumnName(String);

impl ColumnName {
    pub(super) fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The column of our own table in which a timer has the time at which it fired.
    pub(crate) fn fired_at() -> Self {
        Self::new("fired_at")
    }

    /// The name, unquoted.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ColumnName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut parts = identifiers(&text)?;
        match (parts.pop(), parts.pop()) {
            (Some(name), None) => Ok(Self(name)),
            _ => Err("is not the name of one column".into()),
        }
    }
}

impl From<ColumnName> for String {
    fn from(name: ColumnName) -> Self {
        name.0
    }
}

impl fmt::Display for ColumnName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A table's name, with its schema if one is given; taken as written, not folded.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct TableName {
    /// The name of one of several databases, as written before a schema: of a configuration that is yet to be read.
    pub(super) database: Option<String>,
    /// The schema (MySQL: the database), if one is given.
    pub schema: Option<String>,
    /// The table.
    pub name: String,
}

impl TableName {
    pub(super) fn new(name: &str) -> Self {
        Self::of(None, name)
    }

    /// A table of this schema, if one is given.
    pub(crate) fn of(schema: Option<String>, name: impl Into<String>) -> Self {
        Self { database: None, schema, name: name.into() }
    }

    /// Whether it says that there is none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.schema.is_none() && self.name == NONE
    }
}

impl TryFrom<String> for TableName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut parts = identifiers(&text)?;
        match (parts.pop(), parts.pop(), parts.pop(), parts.pop()) {
            (Some(name), schema, database, None) => Ok(Self { database, schema, name }),
            _ => Err("is not a table name such as orders, shop.orders or shop.\"order\"".into()),
        }
    }
}

impl From<TableName> for String {
    fn from(name: TableName) -> Self {
        name.to_string()
    }
}

/// As the first edition printed it: its daemons are known by a hash of that.
impl fmt::Debug for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableName").field("schema", &self.schema).field("name", &self.name).finish()
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |part: &str| if end_of_part(part) < part.len() { format!("\"{part}\"") } else { part.to_owned() };
        for outer in [&self.database, &self.schema].into_iter().flatten() {
            write!(f, "{}.", part(outer))?;
        }
        f.write_str(&part(&self.name))
    }
}

/// Where the next dot is, but none of a range.
fn end_of_part(text: &str) -> usize {
    let mut within = false;
    let is_end = |&(_, c): &(usize, char)| {
        within = if within { c != '}' } else { c == '{' };
        c == '.' && !within
    };
    text.char_indices().find(is_end).map_or(text.len(), |(at, _)| at)
}

/// Splits a dotted name; a part may stand in double quotes or backticks, and then contain dots.
fn identifiers(text: &str) -> Result<Vec<String>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let (part, after) = match rest.chars().next() {
            Some(quote @ ('"' | '`')) => rest[1..].split_once(quote).ok_or("has a quote that does not close")?,
            _ => rest.split_at(end_of_part(rest)),
        };
        if part.is_empty() || part.contains(['"', '`', '\'', ';']) || part.contains(char::is_control) {
            return Err("is not a name: a part is empty or has quotes, semicolons or control characters".into());
        }
        parts.push(part.to_owned());
        match after.strip_prefix('.') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(parts),
            None => return Err("is not a name: something follows a closing quote".into()),
        }
    }
}

/// A time zone: an offset from UTC, or a name of the tz database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum TimeZone {
    /// East of UTC, in minutes.
    Offset(i32),
    /// A name such as `Asia/Shanghai`.
    Named(String),
}

impl TryFrom<String> for TimeZone {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || "is not a time zone such as \"+08:00\", \"UTC\" or \"Asia/Shanghai\"".to_owned();
        if let Some(sign @ ('+' | '-')) = text.chars().next() {
            let (hours, minutes) = text[1..].split_once(':').ok_or_else(wrong)?;
            let digits = |part: &str, max: i32| match part.parse::<i32>() {
                Ok(number) if part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit()) && number <= max => Ok(number),
                _ => Err(wrong()),
            };
            let offset = digits(hours, 14)? * 60 + digits(minutes, 59)?;
            return Ok(Self::Offset(if sign == '-' { -offset } else { offset }));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '+');
        // PostgreSQL reads "UTC+8" as POSIX does, eight hours *west*; MySQL does not know it at all.
        let posix = !text.contains('/') && text.contains(['+', '-']);
        if !text.starts_with(|c: char| c.is_ascii_alphabetic()) || !text.chars().all(plain) || posix {
            return Err(wrong());
        }
        Ok(Self::Named(text))
    }
}

impl From<TimeZone> for String {
    fn from(zone: TimeZone) -> Self {
        zone.to_string()
    }
}

impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offset(minutes) => {
                let sign = if *minutes < 0 { '-' } else { '+' };
                write!(f, "{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
            }
            Self::Named(name) => f.write_str(name),
        }
    }
}
