//! Pages of lists: how many, and the place after which the next one begins, as a text that means nothing to whoever keeps it.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Serialize, de::DeserializeOwned};

use super::Refusal;

/// How many are listed unless somebody asks for another number, and at the most.
const USUAL: u32 = 100;
const MOST: u32 = 1_000;

/// How many to list.
pub(super) fn limit(asked: Option<u32>) -> Result<u32, Refusal> {
    match asked.unwrap_or(USUAL) {
        limit @ 1..=MOST => Ok(limit),
        _ => Err(Refusal::bad(format!("limit is a number from 1 to {MOST}"))),
    }
}

/// A place as a text.
pub(super) fn written(place: &impl Serialize) -> String {
    // Only what is no text could fail to be written as JSON, and a place is made of texts and numbers.
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(place).unwrap_or_default())
}

/// The place that a text stands for.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Refusal> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok();
    bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).ok_or_else(unknown)
}

/// There is no such place.
pub(super) fn unknown() -> Refusal {
    Refusal::bad("after is none of the places that were given as next")
}
