//! What an event carries of its order: strict JSON, whatever stands in the columns. It never keeps an order open: what can't be
//! rendered is left out of the event, and said.

use serde_json::Value;
use tracing::warn;

use crate::order::OrderId;

/// The most bytes that an event carries: escaped as part of a statement, still less than the least that a server takes at once
/// (a megabyte, where `max_allowed_packet` is small).
const LONGEST: usize = 1 << 18;

/// What an event carries of its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// The order's columns that the configuration names, as a JSON object.
    pub data: String,
    /// The trace in which the order was placed.
    pub traceparent: Option<String>,
}

impl Default for Carried {
    fn default() -> Self {
        Self { data: "{}".into(), traceparent: None }
    }
}

impl Carried {
    /// What a server has made of an order's columns. A text that is no UTF-8 has U+FFFD for what could not be read, and a number
    /// that no reader holds becomes a text.
    pub(super) fn of(id: &OrderId, object: Option<Vec<u8>>, traceparent: Option<&[u8]>) -> Self {
        let data = object.ok_or_else(|| "the server has made NULL of them".to_owned()).and_then(strict_json);
        let carried = data.map_or_else(|reason| Self::nothing(id, &reason), |data| Self { data, traceparent: None });
        Self { traceparent: traceparent.and_then(valid_traceparent), ..carried }
    }

    /// No columns.
    pub(super) fn nothing(id: &OrderId, reason: &str) -> Self {
        warn!(order = %id, reason, "the columns of an order can't be carried by its event (events.include), or by the question about it (close.ask.include)");
        Self::default()
    }
}

fn strict_json(object: Vec<u8>) -> Result<String, String> {
    if object.len() > LONGEST {
        return Err(format!("they are longer than {LONGEST} bytes"));
    }
    let text = String::from_utf8(object).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    let parse = |text: &str| serde_json::from_str::<Value>(text).map(drop);
    if parse(&text).is_ok() {
        // White space between its parts; whoever reads a line of JSON reads all of it.
        return Ok(if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ") } else { text });
    }
    let mended = mended(&text);
    parse(&mended).map(|()| mended).map_err(|error| format!("the server has made no JSON of them: {error}"))
}

/// A trace's parent as W3C's Trace Context has it (<https://www.w3.org/TR/trace-context/#traceparent-header>): version, trace,
/// parent and flags. Anything else is none.
fn valid_traceparent(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?.trim_end();
    let is_hex = |part: &str, length| part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_id = |part: &str, length| is_hex(part, length) && part.bytes().any(|byte| byte != b'0');
    let mut parts = text.split('-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    // Only versions to come may go on after the flags, and what they say there is theirs.
    let ends = parts.next().is_none() || version != "00";
    let valid = is_hex(version, 2) && version != "ff" && is_id(trace, 32) && is_id(parent, 16) && is_hex(flags, 2) && ends;
    valid.then(|| format!("{version}-{trace}-{parent}-{flags}"))
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

    #[test]
    fn a_traceparent_is_valid_or_none() {
        let valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let read = |text: &str| valid_traceparent(text.as_bytes());
        assert_eq!(read(valid).as_deref(), Some(valid));
        assert_eq!(read(&format!("{valid}  ")).as_deref(), Some(valid), "as CHAR(60) pads it");
        assert_eq!(read(&format!("cc{}-what-will-be", &valid[2..])), Some(format!("cc{}", &valid[2..])));
        for wrong in [
            "",
            "00",
            &valid[..54],
            &valid.to_uppercase(),
            &valid.replace("00-", "ff-"),
            &valid.replace("00-", "0-"),
            &valid.replace("-01", "-1"),
            &valid.replace("-01", "-01-"),
            &valid.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &valid.replace("b7ad6b7169203331", &"0".repeat(16)),
            &valid.replace('-', "_"),
            &format!(" {valid}"),
            &format!("{valid}\r\nx-forged: 1"),
            &valid.replace('a', "á"),
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
        assert_eq!(valid_traceparent(b"\xff"), None);
    }
}
