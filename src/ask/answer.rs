//! Reading answers. Pure: bytes in, a word for each order out.
//!
//! `{"orders": {"1001": "close", "1002": "paid", "1003": {"answer": "later", "retry_after": 30}}}`
//!
//! Only what is beyond doubt is an answer. An order that is missing, that is there twice, or of which something else is said
//! has none; where the whole is no such object, nobody has.

use std::{collections::HashMap, fmt, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// How soon an order is asked about again: without a word on that, at the least, and at the most.
const LATER: f64 = 30.0;
const SOONEST: f64 = 0.1;
const LATEST: f64 = 86_400.0;

/// What is said of an order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Answer {
    /// It may be closed.
    Close,
    /// It is paid, whatever its row says so far.
    Paid,
    /// That is not known yet: to be asked again after so long.
    Later(Duration),
}

impl Answer {
    /// Its name in metrics, logs and events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Close => "close",
            Self::Paid => "paid",
            Self::Later(_) => "later",
        }
    }
}

/// The answers in the body of a response, by the orders' ids.
///
/// # Errors
/// Says why the whole is none.
pub fn read(body: &[u8]) -> Result<HashMap<String, Answer>, String> {
    let whole: Entries = serde_json::from_slice(body).map_err(|error| format!("the answer is no JSON object: {error}"))?;
    let orders = whole.only("orders").ok_or("the answer has no \"orders\", or several")?;
    let orders: Entries = serde_json::from_str(orders.get()).map_err(|_| "\"orders\" in the answer is no object")?;
    let mut answers: HashMap<String, Option<Answer>> = HashMap::with_capacity(orders.0.len());
    for (id, said) in orders.0 {
        // Of an order that is there twice either may be meant.
        answers.entry(id).and_modify(|answer| *answer = None).or_insert_with(|| one(&said));
    }
    Ok(answers.into_iter().filter_map(|(id, answer)| Some((id, answer?))).collect())
}

fn one(said: &RawValue) -> Option<Answer> {
    if let Ok(word) = serde_json::from_str::<String>(said.get()) {
        return answer(&word, None);
    }
    let object: Entries = serde_json::from_str(said.get()).ok()?;
    let word: String = serde_json::from_str(object.only("answer")?.get()).ok()?;
    let retry_after = match object.0.iter().filter(|(name, _)| name == "retry_after").count() {
        0 => None,
        _ => Some(object.only("retry_after").and_then(|number| serde_json::from_str(number.get()).ok()).unwrap_or(f64::NAN)),
    };
    answer(&word, retry_after)
}

fn answer(word: &str, retry_after: Option<f64>) -> Option<Answer> {
    match word {
        "close" => Some(Answer::Close),
        "paid" => Some(Answer::Paid),
        "later" => {
            let seconds = retry_after.unwrap_or(LATER);
            (seconds >= 0.0).then(|| Answer::Later(Duration::from_secs_f64(seconds.clamp(SOONEST, LATEST))))
        }
        _ => None,
    }
}

/// The members of a JSON object, as they stand there.
struct Entries(Vec<(String, Box<RawValue>)>);

impl Entries {
    /// The member of this name, if there is one.
    fn only(&self, name: &str) -> Option<&RawValue> {
        let mut named = self.0.iter().filter(|(key, _)| key == name);
        let found = named.next()?;
        named.next().is_none().then_some(&*found.1)
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = members.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn of(order: &str) -> Option<Answer> {
        read(format!(r#"{{"orders": {{"1": {order}}}}}"#).as_bytes()).ok()?.remove("1")
    }

    fn later(seconds: f64) -> Option<Answer> {
        Some(Answer::Later(Duration::from_secs_f64(seconds)))
    }

    #[test]
    fn a_word_or_an_object_with_it() {
        for (said, answer) in [
            (r#""close""#, Some(Answer::Close)),
            (r#""paid""#, Some(Answer::Paid)),
            (r#""later""#, later(30.0)),
            (r#"{"answer": "close"}"#, Some(Answer::Close)),
            (r#"{"answer": "close", "retry_after": "x", "note": [1]}"#, Some(Answer::Close)),
            (r#"{"note": {}, "answer": "paid"}"#, Some(Answer::Paid)),
            (r#"{"answer": "later", "retry_after": 0.25}"#, later(0.25)),
            (r#"{"answer": "later", "retry_after": 0}"#, later(0.1)),
            (r#"{"answer": "later", "retry_after": 1e300}"#, later(86_400.0)),
            (r#"{"answer": "later"}"#, later(30.0)),
            (r#""cl\u006fse""#, Some(Answer::Close)),
        ] {
            assert_eq!(of(said), answer, "{said}");
        }
    }

    #[test]
    fn what_is_in_doubt_is_no_answer() {
        for said in [
            r#""Close""#,
            r#""close ""#,
            r#""""#,
            "null",
            "true",
            "1",
            r#"["close"]"#,
            r#"{"answer": null}"#,
            r#"{"answer": ["close"]}"#,
            r#"{"answer": "close", "answer": "paid"}"#,
            r#"{"answer": "close", "answer": "close"}"#,
            r#"{"Answer": "close"}"#,
            r#"{"answer": "later", "retry_after": -1}"#,
            r#"{"answer": "later", "retry_after": "30"}"#,
            r#"{"answer": "later", "retry_after": null}"#,
            r#"{"answer": "later", "retry_after": 1, "retry_after": 2}"#,
            r#"{"answer": "later", "retry_after": 1e999}"#,
            r#"{"answer": "later", "retry_after": NaN}"#,
            "{}",
        ] {
            assert_eq!(of(said), None, "{said}");
        }
        for body in [
            "",
            "close",
            r#""close""#,
            "[]",
            "{}",
            r#"{"orders": []}"#,
            r#"{"orders": "close"}"#,
            r#"{"orders": null}"#,
            r#"{"orders": {"1": "close"}} {}"#,
            r#"{"orders": {"1": "close"}"#,
            r#"{"orders": {"1": "close"}, "orders": {"1": "paid"}}"#,
            r#"{"orders": {"1": "close"}, "x": }"#,
        ] {
            assert!(read(body.as_bytes()).is_err(), "{body}");
        }
        assert!(read(b"{\"orders\": {\"1\": \"close\xff\"}}").is_err());
        let deep = format!(r#"{{"orders": {{"1": {}1{}}}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert!(read(deep.as_bytes()).is_ok_and(|answers| answers.is_empty()), "and no panic");
    }

    #[test]
    fn an_order_that_is_there_twice_has_no_answer_and_the_others_do() {
        let answers = read(br#"{"orders": {"1": "paid", "2": "close", "1": "close", "3": 7}}"#).expect("an object");
        assert_eq!(answers, HashMap::from([("2".to_owned(), Answer::Close)]));
    }

    proptest! {
        /// Whatever comes, there is no panic; and what is no text has no answer in it.
        #[test]
        fn no_bytes_are_too_bad(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            read(&bytes).ok();
        }

        /// Something like an answer, with pieces missing, twice, or elsewhere: an order closes only where just that was said.
        #[test]
        fn no_order_closes_by_accident(pieces in proptest::collection::vec(proptest::sample::select(vec![
            "{", "}", "[", "]", ":", ",", " ", "\"orders\"", "\"1\"", "\"2\"", "\"close\"", "\"paid\"", "\"later\"", "\"answer\"",
            "\"retry_after\"", "-1", "1e400", "0.5", "null", "{\"orders\":{", "\"1\":\"close\"", "}}",
        ]), 0..12)) {
            let body = pieces.concat();
            let Ok(answers) = read(body.as_bytes()) else { return Ok(()) };
            let whole: serde_json::Value = serde_json::from_str(&body).expect("it was read");
            for (id, answer) in answers {
                let said = &whole["orders"][&id];
                let word = said.as_str().or_else(|| said["answer"].as_str());
                prop_assert_eq!(word, Some(answer.name()), "{}", body);
                prop_assert_eq!(body.matches(&format!("\"{id}\":")).count(), 1, "{}", body);
            }
        }

        #[test]
        fn no_rest_is_too_long(seconds in any::<f64>()) {
            let said = json!({ "orders": { "1": { "answer": "later", "retry_after": seconds } } }).to_string();
            let answer = read(said.as_bytes()).expect("an object").remove("1");
            match answer {
                Some(Answer::Later(rest)) => prop_assert!(seconds >= 0.0 && rest <= Duration::from_hours(24) && !rest.is_zero()),
                other => prop_assert!(other.is_none() && (seconds < 0.0 || !seconds.is_finite()), "{seconds}: {other:?}"),
            }
        }
    }
}
