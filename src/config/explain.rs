//! What is wrong with a setting, in words: what was found, and what would be right.
//!
//! This is the one place that quotes what it found. Nothing is quoted that stands where a secret may stand, below such a
//! setting or in place of a table around it; nor, wherever it stands, what looks like a secret.

use figment::{
    error::{Actual, Kind},
    value::Value,
};

use super::{rules, secret};
use crate::order::did_you_mean;

/// The settings that can hold a secret.
const SECRET: [&str; 8] =
    ["redis.url", "database.url", "databases", "events.webhooks", "timers.webhooks", "close.ask", "hints", "http.token"];

/// Whether a setting can hold a secret, or is a table around one that can, or below one.
fn can_hold_a_secret(path: &str) -> bool {
    let path = rules::within_rule(path);
    let is_within = |inner: &str, outer: &str| {
        outer.is_empty() || inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    rules::is_whole(path) || SECRET.iter().any(|secret| is_within(path, secret) || is_within(secret, path))
}

/// A text that was found at a setting, as an error may show it.
pub(crate) fn quoted(path: &str, text: &str) -> String {
    match secret::is_a(text) {
        Some(what) => what.into(),
        None if can_hold_a_secret(path) => "a text".into(),
        None => format!("{text:?}"),
    }
}

/// The sentence that follows the setting's name. Of what is no text at all `value` is nothing.
pub(super) fn explain(path: &str, kind: &Kind, value: Option<&Value>) -> String {
    match kind {
        Kind::Message(message) => match value.and_then(Value::as_str) {
            // What the types of our own say of a text.
            Some(text) if ["is ", "has "].iter().any(|verb| message.starts_with(verb)) => format!("{} {message}", quoted(path, text)),
            _ => without_excerpt(message),
        },
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            format!("has {}, and takes {}", shown(path, found), in_words(expected))
        }
        Kind::UnknownVariant(found, expected) => format!("has {}, and takes {}", quoted(path, found), expected.join(" or ")),
        Kind::UnknownField(name, expected) => {
            let known: Vec<&str> = rules::name_beside(path).into_iter().chain(expected.iter().copied()).collect();
            format!("there is no such setting, but {}{}", known.join(", "), did_you_mean(name, known.iter().copied()))
        }
        Kind::MissingField(name) => format!("{name} is missing"),
        Kind::ISizeOutOfRange(_) | Kind::USizeOutOfRange(_) => "has too large a number".into(),
        Kind::InvalidLength(..) => "has the wrong number of entries".into(),
        Kind::DuplicateField(name) => format!("{name} is there twice"),
        Kind::Unsupported(_) | Kind::UnsupportedKey(..) => "has what no setting takes".into(),
    }
}

/// A syntax error without the lines of the file that it shows.
fn without_excerpt(message: &str) -> String {
    let is_excerpt = |line: &str| line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').starts_with('|');
    message.lines().filter(|line| !is_excerpt(line)).collect::<Vec<_>>().join(": ")
}

fn shown(path: &str, found: &Actual) -> String {
    let number = |number: String| if can_hold_a_secret(path) { "a number".into() } else { format!("the number {number}") };
    match found {
        Actual::Str(text) => quoted(path, text),
        Actual::Bool(value) => value.to_string(),
        Actual::Unsigned(found) => number(found.to_string()),
        Actual::Signed(found) => number(found.to_string()),
        Actual::Float(found) => number(found.to_string()),
        Actual::Seq => "a list".into(),
        Actual::Map => "a table".into(),
        Actual::Char(_)
        | Actual::Bytes(_)
        | Actual::Unit
        | Actual::Option
        | Actual::NewtypeStruct
        | Actual::Enum
        | Actual::UnitVariant
        | Actual::NewtypeVariant
        | Actual::TupleVariant
        | Actual::StructVariant
        | Actual::Other(_) => "something else".into(),
    }
}

/// The library names its own types.
fn in_words(expected: &str) -> &str {
    match expected {
        "a string" | "string" => "a text in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        "usize" | "u64" | "u32" => "a whole number that is not negative",
        "struct Deadline" => "a table such as { column = \"expires_at\" }",
        name if name.starts_with("struct ") => "a table",
        other => other,
    }
}
