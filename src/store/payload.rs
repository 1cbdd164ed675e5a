//! What an event carries of its order: strict JSON, whatever stands in the columns. It never keeps an order open: what can't be
//! rendered is left out of the event, and said.

use serde_json::Value;
use tracing::warn;

use crate::order::OrderId;

/// An object without columns.
pub(super) const NONE: &str = "{}";

/// The most bytes that an event carries: escaped as part of a statement, still less than the least that a server takes at once
/// (a megabyte, where `max_allowed_packet` is small).
const LONGEST: usize = 1 << 18;

/// The JSON object that a server has made of an order's columns. A text that is no UTF-8 has U+FFFD for what could not be read,
/// and a number that no reader holds becomes a text.
pub(super) fn of(id: &OrderId, object: Option<Vec<u8>>) -> String {
    let Some(object) = object else { return nothing(id, "the server has made NULL of them") };
    if object.len() > LONGEST {
        return nothing(id, &format!("they are longer than {LONGEST} bytes"));
    }
    let text = String::from_utf8(object).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    let strict = |text: &str| serde_json::from_str::<Value>(text).map(drop);
    if strict(&text).is_ok() {
        return text;
    }
    let mended = mended(&text);
    match strict(&mended) {
        Ok(()) => mended,
        Err(error) => nothing(id, &format!("the server has made no JSON of them: {error}")),
    }
}

/// JSON without what its grammar allows and readers refuse: numbers beyond a double's range, and halves of characters.
fn mended(json: &str) -> String {
    let mut mended = String::with_capacity(json.len());
    let mut rest = json;
    let mut in_text = false;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\\' if in_text => {
                let (escape, length) = escape(rest);
                mended += escape;
                rest = &rest[length..];
                continue;
            }
            '-' | '0'..='9' if !in_text => {
                let length = rest.find(|c: char| !c.is_ascii_digit() && !"+-.eE".contains(c)).unwrap_or(rest.len());
                let number = &rest[..length];
                let quote = if number.parse::<f64>().is_ok_and(f64::is_infinite) { "\"" } else { "" };
                mended.extend([quote, number, quote]);
                rest = &rest[length..];
                continue;
            }
            '"' => {
                in_text = !in_text;
                1
            }
            other => other.len_utf8(),
        };
        mended += &rest[..length];
        rest = &rest[length..];
    }
    mended
}

/// An escape at the beginning of this text, as it is to be written, and its length.
fn escape(text: &str) -> (&str, usize) {
    let unit = |text: &str| text.strip_prefix("\\u").and_then(|digits| u16::from_str_radix(digits.get(..4)?, 16).ok());
    match unit(text) {
        // Two halves are one character.
        Some(0xd800..0xdc00) if text.get(6..).and_then(unit).is_some_and(|low| (0xdc00..0xe000).contains(&low)) => (&text[..12], 12),
        Some(0xd800..0xe000) => ("\\ufffd", 6),
        _ => {
            let length = text.char_indices().nth(2).map_or(text.len(), |(at, _)| at);
            (&text[..length], length)
        }
    }
}

/// An event without them.
pub(super) fn nothing(id: &OrderId, reason: &str) -> String {
    warn!(order_no = %id, reason, "an order is closed, but its event can't carry the columns of events.include");
    NONE.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_readers_refuse_is_mended_and_nothing_else() {
        for (json, expected) in [
            (r#"{"a":1e1000,"b":[-1e400, 2],"c":"1e999"}"#, r#"{"a":"1e1000","b":["-1e400", 2],"c":"1e999"}"#),
            (r#"{"a":"\ud83d\ude00 \ud83d \ude00\ud83d\\ud83d\""}"#, r#"{"a":"\ud83d\ude00 \ufffd \ufffd\ufffd\\ud83d\""}"#),
            (r#"{"ü1e999":1.5e-999,"n":0.1}"#, r#"{"ü1e999":1.5e-999,"n":0.1}"#),
            (r#"{"a":"\"#, r#"{"a":"\"#),
        ] {
            assert_eq!(mended(json), expected);
        }
    }
}
