//! From an expired key to an order's id.

use std::sync::Arc;

use crate::{
    order::{NotAnId, OrderId},
    store::Store,
};

/// Why an expired key names no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAnOrder {
    /// Some other key of this Redis.
    #[error("does not begin with the prefix")]
    ForeignPrefix,
    /// What follows the prefix can't be an id.
    #[error("what follows the prefix {0}")]
    NotAnId(NotAnId),
}

/// Reads order keys: a prefix, then an id that fits the id column.
#[derive(Debug, Clone)]
pub struct KeyReader {
    prefix: String,
    store: Arc<dyn Store>,
}

impl KeyReader {
    /// A reader of keys that begin with `prefix`, of orders in `store`.
    #[must_use]
    pub fn new(prefix: &str, store: Arc<dyn Store>) -> Self {
        Self { prefix: prefix.to_owned(), store }
    }

    /// The id in a key.
    ///
    /// # Errors
    /// Says why the key names no order.
    pub fn read(&self, key: &[u8]) -> Result<OrderId, NotAnOrder> {
        let id = key.strip_prefix(self.prefix.as_bytes()).ok_or(NotAnOrder::ForeignPrefix)?;
        self.store.id_kind().parse(id).map_err(NotAnOrder::NotAnId)
    }

    /// The key of an order.
    #[must_use]
    pub fn key(&self, id: &OrderId) -> String {
        format!("{}{}", self.prefix, id.as_str())
    }
}
