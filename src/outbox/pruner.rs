//! Keeps our own tables small: deletes old events in small pieces, and forgets dead letters of orders that
//! somebody has settled meanwhile.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    order::{OrderId, Row, Verdict, judge},
    store::{Store, StoreError},
};

/// How often it looks.
const EVERY: Duration = Duration::from_mins(1);

/// The most events that one transaction deletes, and the most dead letters that one looks at. After each it rests as
/// long as that took, for closures come first.
const PIECE: u32 = 500;

/// Prunes until it is told to stop.
#[derive(Debug)]
pub struct Pruner {
    /// The orders, and our own tables beside them.
    pub store: Arc<dyn Store>,
    /// For how long events are kept.
    pub keep: Duration,
    /// When to stop.
    pub stop: CancellationToken,
}

impl Pruner {
    /// Prunes every minute.
    pub async fn run(self) {
        while !self.stop.is_cancelled() {
            let pruning = async {
                if let Err(error) = self.run_once().await {
                    warn!(%error, "old events could not be pruned; trying again");
                }
                tokio::time::sleep(EVERY).await;
            };
            tokio::select! {
                () = pruning => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    /// Prunes all that is old, and forgets what is settled.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn run_once(&self) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let began = Instant::now();
            let pruned = self.store.outbox().prune(self.keep, after, PIECE).await?;
            if !pruned.is_empty() {
                debug!(events = pruned.len(), "old events pruned");
            }
            if pruned.len() < PIECE as usize {
                break;
            }
            after = pruned.last().copied();
            tokio::time::sleep(began.elapsed()).await;
        }
        self.forget_settled().await
    }

    async fn forget_settled(&self) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let began = Instant::now();
            let dead = self.store.outbox().dead_orders(after.as_ref(), PIECE).await?;
            let settled = self.settled(&dead).await?;
            if !settled.is_empty() {
                self.store.outbox().forget_dead_orders(&settled).await?;
            }
            if dead.len() < PIECE as usize {
                return Ok(());
            }
            after = dead.into_iter().next_back();
            tokio::time::sleep(began.elapsed()).await;
        }
    }

    /// Those of these orders that are to be closed no more: they are gone, or none of their rows is unpaid. What the filter
    /// hides may come back, and what was given up is not to close then.
    async fn settled(&self, dead: &[OrderId]) -> Result<Vec<OrderId>, StoreError> {
        if dead.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.store.look(dead).await?;
        let is_open = |row: &&Row| !matches!(judge(self.store.unpaid(), Some(*row)), Verdict::Settled { .. });
        let open: HashSet<&OrderId> = rows.iter().filter(is_open).map(|row| &row.id).collect();
        Ok(dead.iter().filter(|id| !open.contains(id)).cloned().collect())
    }
}
