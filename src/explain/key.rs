//! An order's key in Redis: whether it is there, and when it expires.

use serde::Serialize;

use super::{Explainer, Unknown};
use crate::{
    order::{OrderId, rfc3339},
    redis::Expiry,
};

/// What is known of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// It is there, and expires.
    Expires,
    /// There is none.
    None,
    /// It is there, and does not expire.
    NoTtl,
    /// Redis does not say.
    Unknown,
}

/// An order's key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Key {
    /// Its name, if orders have keys.
    pub name: Option<String>,
    /// Whether it is there.
    pub state: KeyState,
    /// When it expires.
    pub expires: Option<String>,
    /// The same in microseconds since 1970 UTC, by the clock of Redis.
    #[serde(skip)]
    pub at: Option<i64>,
}

impl Explainer {
    /// Asks Redis for the key of an order.
    pub(super) async fn key(&self, id: &OrderId) -> (Key, Option<Unknown>) {
        let Some(name) = self.rule.key_prefix.key(id.as_str()) else {
            return (Key { name: None, state: KeyState::None, expires: None, at: None }, None);
        };
        if let Ok((commands, _)) = &self.redis
            && commands.is_absent()
        {
            return (Key { name: None, state: KeyState::None, expires: None, at: None }, None);
        }
        let asked = match &self.redis {
            Ok((commands, limit)) => commands.expiries(std::slice::from_ref(&name), *limit).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.clone()),
        };
        let (state, at, unknown) = match asked.map(|expiries| expiries.keys.first().copied()) {
            Ok(Some(Expiry::At(at))) => (KeyState::Expires, Some(at), None),
            Ok(Some(Expiry::Never)) => (KeyState::NoTtl, None, None),
            Ok(Some(Expiry::NoKey) | None) => (KeyState::None, None, None),
            Ok(Some(Expiry::Unknown)) => {
                let why = "the part of the cluster that has it does not answer".into();
                (KeyState::Unknown, None, Some(Unknown { what: "its key, and when that expires", why }))
            }
            Err(why) => (KeyState::Unknown, None, Some(Unknown { what: "its key, and when that expires", why })),
        };
        (Key { name: Some(name), state, expires: at.map(rfc3339), at }, unknown)
    }
}
