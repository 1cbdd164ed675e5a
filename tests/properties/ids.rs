//! Reading ids: nothing panics, and whatever is accepted has one spelling.

use order_closer::order::{Charset, IdKind, MAX_ID_BYTES, NotAnId};
use proptest::prelude::*;

fn integer(min: impl Into<i128>, max: impl Into<i128>) -> IdKind {
    IdKind::Integer { min: min.into(), max: max.into() }
}

fn integers() -> impl Strategy<Value = IdKind> {
    prop_oneof![
        Just(integer(i16::MIN, i16::MAX)),
        Just(integer(i32::MIN, i32::MAX)),
        Just(integer(i64::MIN, i64::MAX)),
        Just(integer(0, u64::MAX)),
        (any::<i64>(), any::<i64>()).prop_map(|(a, b)| integer(a.min(b), a.max(b))),
    ]
}

fn charsets() -> impl Strategy<Value = Charset> {
    prop_oneof![Just(Charset::Unicode), Just(Charset::Bmp), Just(Charset::Ascii)]
}

fn kinds() -> impl Strategy<Value = IdKind> {
    let texts = (proptest::option::of(0_usize..300), charsets()).prop_map(|(max_chars, charset)| IdKind::Text { max_chars, charset });
    prop_oneof![integers(), texts, Just(IdKind::Uuid)]
}

/// Bytes that are nearly ids, and bytes that are anything.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300),
        "[-+ ]?0{0,3}[0-9]{0,45}[ .e]?[0-9]?".prop_map(String::into_bytes),
        "\\{?(urn:uuid:)?[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\\}?".prop_map(String::into_bytes),
        "\\PC{0,200}".prop_map(String::into_bytes),
        "[a-zA-Z0-9_\u{0}'ü🛒-]{0,30}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_accepted_is_canonical(kind in kinds(), bytes in bytes()) {
        let Ok(id) = kind.parse(&bytes) else { return Ok(()) };
        let text = id.as_str();
        prop_assert!(!text.is_empty() && text.len() <= MAX_ID_BYTES);
        prop_assert_eq!(kind.parse(text.as_bytes()), Ok(id.clone()), "accepted again, unchanged");
        // People see what has nothing to be escaped as it is, and the rest without its effects.
        prop_assert!(!id.to_string().contains(char::is_control));
        prop_assert!(text.contains(|c: char| c.is_control() || !c.is_ascii()) || id.to_string() == text);
        match kind {
            IdKind::Integer { min, max } => {
                prop_assert_eq!(text.as_bytes(), &bytes);
                let number: i128 = text.parse().map_err(|_| TestCaseError::fail("no number"))?;
                prop_assert_eq!(number.to_string(), text);
                prop_assert!((min..=max).contains(&number));
            }
            IdKind::Text { max_chars, charset } => {
                prop_assert_eq!(text.as_bytes(), &bytes);
                prop_assert!(!text.contains('\0'));
                prop_assert!(max_chars.is_none_or(|max| text.chars().count() <= max));
                let widest = match charset {
                    Charset::Unicode => char::MAX,
                    Charset::Bmp => '\u{ffff}',
                    Charset::Ascii => '\u{7f}',
                };
                prop_assert!(text.chars().all(|c| c <= widest));
            }
            IdKind::Uuid => {
                prop_assert_eq!(text.as_bytes(), bytes.to_ascii_lowercase());
                let shape: String = text.chars().map(|c| if c == '-' { '-' } else { 'x' }).collect();
                prop_assert_eq!(shape, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx");
                prop_assert!(text.chars().all(|c| c == '-' || c.is_ascii_digit() || ('a'..='f').contains(&c)));
            }
        }
    }

    #[test]
    fn every_number_within_the_range_is_accepted(kind in integers(), number in any::<i64>()) {
        let IdKind::Integer { min, max } = kind else { return Ok(()) };
        let text = number.to_string();
        let expected = if (min..=max).contains(&number.into()) { Ok(text.clone()) } else { Err(NotAnId::OutOfRange) };
        prop_assert_eq!(kind.parse(text.as_bytes()).map(|id| id.as_str().to_owned()), expected);
        for spelling in [format!("0{text}"), format!("+{text}"), format!(" {text}"), format!("{text} "), format!("{text}.0")] {
            prop_assert_eq!(kind.parse(spelling.as_bytes()), Err(NotAnId::NotInteger));
        }
    }

    #[test]
    fn every_text_that_the_column_holds_is_accepted(text in "[a-zA-Z0-9 '\"\\\\%_ü🛒-]{1,60}") {
        let kind = |max_chars, charset| IdKind::Text { max_chars, charset };
        let chars = text.chars().count();
        let accepted = |kind: IdKind| kind.parse(text.as_bytes()).map(|id| id.as_str().to_owned());
        prop_assert_eq!(accepted(kind(None, Charset::Unicode)), Ok(text.clone()));
        prop_assert_eq!(accepted(kind(Some(chars), Charset::Unicode)), Ok(text.clone()));
        prop_assert_eq!(accepted(kind(Some(chars - 1), Charset::Unicode)), Err(NotAnId::TooLong));
        prop_assert_eq!(accepted(kind(None, Charset::Ascii)).is_ok(), text.is_ascii());
        prop_assert_eq!(accepted(kind(None, Charset::Bmp)).is_ok(), !text.contains('🛒'));
    }

    #[test]
    fn every_uuid_is_accepted_in_its_one_form(number in any::<u128>()) {
        let id = uuid::Uuid::from_u128(number);
        let text = id.hyphenated().to_string();
        prop_assert_eq!(IdKind::Uuid.parse(text.as_bytes()).map(|id| id.as_str().to_owned()), Ok(text.clone()));
        prop_assert_eq!(IdKind::Uuid.parse(text.to_uppercase().as_bytes()).map(|id| id.as_str().to_owned()), Ok(text));
        for other in [id.simple().to_string(), id.braced().to_string(), id.urn().to_string()] {
            prop_assert_eq!(IdKind::Uuid.parse(other.as_bytes()), Err(NotAnId::NotUuid));
        }
    }
}

#[test]
fn the_longest_id_and_one_more() {
    let text = IdKind::Text { max_chars: None, charset: Charset::Unicode };
    assert!(text.parse("x".repeat(MAX_ID_BYTES).as_bytes()).is_ok());
    assert_eq!(text.parse("x".repeat(MAX_ID_BYTES + 1).as_bytes()), Err(NotAnId::TooLong));
    for kind in [text, IdKind::Uuid, integer(i64::MIN, i64::MAX)] {
        assert_eq!(kind.parse(b""), Err(NotAnId::Empty));
        assert_eq!(kind.parse(b"\xff\xfe"), Err(NotAnId::Encoding));
    }
}
