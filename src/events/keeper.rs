//! Keeps our own tables small: prunes old events in small pieces, and forgets dead letters of orders that
//! somebody has settled meanwhile.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    order::{OrderId, Verdict, judge},
    store::{DeadLetter, Store, StoreError},
};

/// How often it looks.
const EVERY: Duration = Duration::from_mins(1);

/// The most events that one transaction deletes, and the pause after it: closures come first.
const PIECE: u32 = 500;
const PAUSE: Duration = Duration::from_millis(200);

/// Tidies up until it is told to stop.
#[derive(Debug)]
pub struct Keeper {
    /// The orders, and our own tables beside them.
    pub store: Arc<dyn Store>,
    /// For how long events are kept.
    pub keep: Duration,
    /// When to stop.
    pub stop: CancellationToken,
}

impl Keeper {
    /// Tidies up every minute.
    pub async fn run(self) {
        while !self.stop.is_cancelled() {
            let tidying = async {
                if let Err(error) = self.run_once().await {
                    warn!(%error, "old events could not be pruned; trying again");
                }
                tokio::time::sleep(EVERY).await;
            };
            tokio::select! {
                () = tidying => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    /// Prunes all that is old, and forgets what is settled.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn run_once(&self) -> Result<(), StoreError> {
        loop {
            let pruned = self.store.outbox().prune(self.keep, PIECE).await?;
            if pruned > 0 {
                debug!(events = pruned, "old events pruned");
            }
            if pruned < u64::from(PIECE) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.forget_settled().await
    }

    async fn forget_settled(&self) -> Result<(), StoreError> {
        let letters = self.store.outbox().dead_orders().await?;
        let ids: Vec<OrderId> = letters
            .iter()
            .filter_map(|letter| match letter {
                DeadLetter::Order { id, .. } => Some(OrderId::from_database(id)),
                DeadLetter::Event { .. } => None,
            })
            .collect();
        if ids.is_empty() {
            return Ok(());
        }
        let mut transaction = self.store.begin().await?;
        let rows = transaction.peek(&ids).await;
        transaction.rollback().await;
        let rows = rows?;
        let is_settled = |id: &&OrderId| {
            let verdict = judge(self.store.unpaid(), rows.iter().find(|row| row.id == **id));
            matches!(verdict, Verdict::Settled { .. } | Verdict::NotFound)
        };
        let settled: Vec<OrderId> = ids.iter().filter(is_settled).cloned().collect();
        if settled.is_empty() { Ok(()) } else { self.store.outbox().forget_dead_orders(&settled).await }
    }
}
