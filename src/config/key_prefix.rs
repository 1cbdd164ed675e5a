//! What tells the keys of orders from all others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What stands before the id in an order's key, if orders have keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct KeyPrefix(Option<String>);

impl KeyPrefix {
    /// That of orders without keys.
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// The prefix; nothing where there are no keys.
    #[must_use]
    pub fn get(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// The key of an order, where orders have keys.
    #[must_use]
    pub fn key(&self, id: &str) -> Option<String> {
        self.0.as_ref().map(|prefix| format!("{prefix}{id}"))
    }
}

impl Default for KeyPrefix {
    fn default() -> Self {
        Self(Some("order_".into()))
    }
}

impl TryFrom<String> for KeyPrefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "" => Err("is empty; every expired key would be taken for an order".into()),
            "none" => Ok(Self(None)),
            _ => Ok(Self(Some(text))),
        }
    }
}

impl From<KeyPrefix> for String {
    fn from(prefix: KeyPrefix) -> Self {
        prefix.0.unwrap_or_else(|| "none".into())
    }
}
