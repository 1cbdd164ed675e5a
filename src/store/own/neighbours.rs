//! The orders tables of several shards whose rows stand in the same tables of ours.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use super::Outbox;

/// Tables beside each other in one database; more may come at any time.
#[derive(Debug, Clone, Default)]
pub struct Neighbours(Arc<RwLock<BTreeMap<String, Neighbour>>>);

#[derive(Debug)]
struct Neighbour {
    literal: String,
    shard: Option<String>,
}

impl Neighbours {
    /// One more.
    pub fn add(&self, outbox: &Outbox) {
        let neighbour = Neighbour { literal: outbox.words.orders_table.clone(), shard: outbox.rule.shard().map(str::to_owned) };
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(outbox.words.orders_table_name.clone(), neighbour);
    }

    /// Their names as literals.
    pub(super) fn literals(&self) -> Vec<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().map(|neighbour| neighbour.literal.clone()).collect()
    }

    /// The shard that a table is.
    pub(super) fn shard_of(&self, table: &str) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(table)?.shard.clone()
    }
}
