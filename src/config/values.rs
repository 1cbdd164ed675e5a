//! Values with a meaning, parsed as they are read.
//!
//! Their errors are sentences without a subject, "is not …": whoever reports one says which setting it is about, and quotes
//! the text where that may be quoted.

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest length of time that is taken, 100 years: with it every clock and every database can still reckon.
const LONGEST: Duration = Duration::from_hours(100 * 8_766);

/// A length of time with its unit: `"30s"`, `"5m"`, `"1500ms"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub struct Span(Duration);

impl Span {
    /// A span of whole seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// The span as a [`Duration`].
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

/// In nanoseconds.
const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl From<Duration> for Span {
    fn from(time: Duration) -> Self {
        Self(time)
    }
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let span = humantime::parse_duration(text).map_err(|_| "is not a length of time such as \"30s\", \"5m\" or \"500ms\"")?;
        if span > LONGEST {
            return Err("is longer than 100 years".into());
        }
        Ok(Self(span))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl serde::de::Visitor<'_> for Visitor {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length of time with its unit, such as \"5s\", \"30m\" or \"500ms\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Visitor)
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        span.to_string()
    }
}

/// As it is written in settings: "90d", "1h 30m". humantime counts months of 30.44 days.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_nanos();
        if rest == 0 {
            return f.write_str("0s");
        }
        let mut gap = "";
        for (unit, length) in UNITS {
            if rest >= length {
                write!(f, "{gap}{}{unit}", rest / length)?;
                gap = " ";
            }
            rest %= length;
        }
        Ok(())
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// For how long an order may have been overdue, or `none`: for however long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Oldest(Option<Span>);

impl Oldest {
    /// The longest, if there is one.
    #[must_use]
    pub fn get(self) -> Option<Duration> {
        self.0.map(Span::get)
    }
}

impl Default for Oldest {
    fn default() -> Self {
        Self(Some(Span::from_secs(30 * 86_400)))
    }
}

impl std::str::FromStr for Oldest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        text.parse().map(|span| Self(Some(span))).map_err(|error: String| format!("{error}; \"none\" sets no limit"))
    }
}

impl<'de> Deserialize<'de> for Oldest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl serde::de::Visitor<'_> for Visitor {
            type Value = Oldest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length of time with its unit, such as \"30d\", or \"none\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Oldest, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Visitor)
    }
}

impl From<Oldest> for String {
    fn from(oldest: Oldest) -> Self {
        oldest.to_string()
    }
}

impl fmt::Display for Oldest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(span) => span.fmt(f),
            None => f.write_str("none"),
        }
    }
}

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

/// A column's name, taken as written: neither folded nor split.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct ColumnName(String);

impl ColumnName {
    pub(super) fn new(name: &str) -> Self {
        Self(name.into())
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
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct TableName {
    /// The schema (MySQL: the database), if one is given.
    pub schema: Option<String>,
    /// The table.
    pub name: String,
}

impl TableName {
    pub(super) fn new(name: &str) -> Self {
        Self { schema: None, name: name.into() }
    }
}

impl TryFrom<String> for TableName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut parts = identifiers(&text)?;
        match (parts.pop(), parts.pop(), parts.pop()) {
            (Some(name), schema, None) => Ok(Self { schema, name }),
            _ => Err("is not a table name such as orders, shop.orders or shop.\"order\"".into()),
        }
    }
}

impl From<TableName> for String {
    fn from(name: TableName) -> Self {
        name.to_string()
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |part: &str| if part.contains('.') { format!("\"{part}\"") } else { part.to_owned() };
        if let Some(schema) = &self.schema {
            write!(f, "{}.", part(schema))?;
        }
        f.write_str(&part(&self.name))
    }
}

/// Splits a dotted name; a part may stand in double quotes or backticks, and then contain dots.
fn identifiers(text: &str) -> Result<Vec<String>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let (part, after) = match rest.chars().next() {
            Some(quote @ ('"' | '`')) => rest[1..].split_once(quote).ok_or("has a quote that does not close")?,
            _ => rest.split_at(rest.find('.').unwrap_or(rest.len())),
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
