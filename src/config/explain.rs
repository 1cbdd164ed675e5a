//! What is wrong with a setting, in words: what was found, and what would be right.
//!
//! Passwords stand in URLs, so no URL is ever quoted.

use figment::error::{Actual, Kind};

/// The sentence that follows the setting's name.
pub(super) fn explain(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => without_excerpt(message),
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            format!("has {}, and takes {}", shown(found), in_words(expected))
        }
        Kind::UnknownVariant(found, expected) => format!("has {}, and takes {}", quoted(found), expected.join(" or ")),
        Kind::UnknownField(_, expected) => format!("there is no such setting, but {}", expected.join(", ")),
        Kind::MissingField(name) => format!("{name} is missing"),
        Kind::ISizeOutOfRange(number) => format!("{number} is too large a number"),
        Kind::USizeOutOfRange(number) => format!("{number} is too large a number"),
        Kind::InvalidLength(..) | Kind::DuplicateField(_) | Kind::Unsupported(_) | Kind::UnsupportedKey(..) => kind.to_string(),
    }
}

/// A syntax error without the lines of the file that it shows.
fn without_excerpt(message: &str) -> String {
    let is_excerpt = |line: &str| line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').starts_with('|');
    message.lines().filter(|line| !is_excerpt(line)).collect::<Vec<_>>().join(": ")
}

fn quoted(text: &str) -> String {
    if text.contains("://") { "a URL".into() } else { format!("{text:?}") }
}

fn shown(found: &Actual) -> String {
    match found {
        Actual::Str(text) => quoted(text),
        Actual::Bool(value) => value.to_string(),
        Actual::Unsigned(number) => format!("the number {number}"),
        Actual::Signed(number) => format!("the number {number}"),
        Actual::Float(number) => format!("the number {number}"),
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
