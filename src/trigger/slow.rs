//! Readers of the table whose reads are slow, so that the database has time for others.
//!
//! Each that is slow takes turns with the others: a turn is a read and the rest after it, so that all of them together take a
//! tenth of the database's time. What keeps everybody from reading is no slowness of a read, and is not waited out.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tracing::warn;

use crate::store::{Store, StoreError};

/// The turns of those that are slow.
#[derive(Debug, Default)]
pub struct Turns(Mutex<()>);

impl Turns {
    /// Waits for a turn, which lasts until it is dropped.
    pub(super) async fn take(&self) -> MutexGuard<'_, ()> {
        self.0.lock().await
    }
}

/// Whether a read that failed so was slow by itself. While the database answers nobody, or another transaction holds the whole
/// table, that ends without our doing.
pub(super) async fn is_slow(store: &dyn Store, error: &StoreError) -> bool {
    matches!(error, StoreError::TimedOut(_)) && store.look(&[]).await.is_ok()
}

/// Says what is slow, and which index it lacks, if it does.
pub(super) async fn say(store: &dyn Store, what: &'static str, rest: Duration) {
    let (next_in_s, advice) = (rest.as_secs_f64(), store.catalogue().await.map(|catalogue| catalogue.sweep_index));
    match advice {
        Ok(advice) if advice.found.is_none() => {
            warn!(what, next_in_s, fix = advice.create, "the query is slow for want of an index, and runs less often");
        }
        Ok(advice) => warn!(
            what,
            next_in_s,
            index = advice.found,
            "the query is slow though its index is there, and runs less often: the database is busy, its statistics are old, or the \
             filter costs much"
        ),
        Err(error) => {
            warn!(what, next_in_s, %error, "the query is slow, and runs less often; `order-closer check` shows the index that it needs");
        }
    }
}
