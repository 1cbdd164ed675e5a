//! From an expired key to an order's id.

use std::sync::Arc;

use crate::{
    config::{KeyPrefix, RuleName},
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
    prefix: KeyPrefix,
    store: Arc<dyn Store>,
}

impl KeyReader {
    /// A reader of keys that begin with `prefix`, of orders in `store`.
    #[must_use]
    pub fn new(prefix: KeyPrefix, store: Arc<dyn Store>) -> Self {
        Self { prefix, store }
    }

    /// The rule whose orders they are.
    #[must_use]
    pub fn rule(&self) -> &RuleName {
        self.store.rule()
    }

    /// The id in a key.
    ///
    /// # Errors
    /// Says why the key names no order.
    pub fn read(&self, key: &[u8]) -> Result<OrderId, NotAnOrder> {
        let prefix = self.prefix.get().ok_or(NotAnOrder::ForeignPrefix)?;
        let id = key.strip_prefix(prefix.as_bytes()).ok_or(NotAnOrder::ForeignPrefix)?;
        self.store.id_kind().parse(id).map_err(NotAnOrder::NotAnId)
    }

    /// The id that stands by itself.
    ///
    /// # Errors
    /// Says why it can't be one.
    pub fn id(&self, id: &[u8]) -> Result<OrderId, NotAnId> {
        self.store.id_kind().parse(id)
    }

    /// The key of an order, where orders have keys.
    #[must_use]
    pub fn key(&self, id: &OrderId) -> Option<String> {
        self.prefix.key(id.as_str())
    }
}
