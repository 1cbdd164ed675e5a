//! Keeps our own tables small: deletes old events in small pieces, and forgets dead letters of orders that
//! somebody has settled meanwhile, or whose closure was undone and that have another deadline now.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use uuid::Uuid;

use super::{Pruned, dead_letters::is_undone_of_another};
use crate::{
    order::{OrderId, Row, Verdict, judge},
    store::{Outbox, Store, StoreError},
};

/// How often it looks.
const EVERY: Duration = Duration::from_mins(1);

/// How often all old events are looked at, and not only those that have become old since. What is delivered, dropped or given
/// up later than that stays until then.
const EVERYTHING: Duration = Duration::from_hours(1);

/// The most events, or dead letters, that one transaction looks at. After each it rests as long as that took, for closures
/// come first.
const PIECE: u32 = 500;

/// Prunes until it is told to stop.
#[derive(Debug)]
pub struct Pruner {
    store: Arc<dyn Store>,
    /// Whose events, if this one prunes any.
    events: Option<Outbox>,
    keep: Duration,
    stop: CancellationToken,
    /// The last event that was looked at: what is older and still there waits for a target, perhaps in its millions.
    last: Uuid,
    /// When all were looked at.
    everything: Option<Instant>,
}

impl Pruner {
    /// Keeps the tables of this store small; events are kept for so long.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, keep: Duration, stop: CancellationToken) -> Self {
        let events = Some(store.outbox().clone());
        Self { store, events, keep, stop, last: Uuid::nil(), everything: None }
    }

    /// Prunes these events instead of the store's own, or none.
    #[must_use]
    pub fn pruning(self, events: Option<Outbox>) -> Self {
        Self { events, ..self }
    }

    /// Prunes every minute.
    pub async fn run(mut self) {
        let stop = self.stop.clone();
        while !stop.is_cancelled() {
            let pruning = async {
                if let Err(error) = self.run_once().await {
                    warn!(%error, "old events could not be pruned; trying again");
                }
                tokio::time::sleep(EVERY).await;
            };
            tokio::select! {
                () = pruning => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Prunes all that is old, and forgets what is over.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn run_once(&mut self) -> Result<(), StoreError> {
        if self.everything.is_none_or(|at| at.elapsed() >= EVERYTHING) {
            (self.last, self.everything) = (Uuid::nil(), Some(Instant::now()));
        }
        while let Some(outbox) = &self.events {
            let began = Instant::now();
            let Pruned { events, last, more } = outbox.prune(self.keep, self.last, PIECE).await?;
            self.last = last;
            if !events.is_empty() {
                debug!(events = events.len(), "old events pruned");
            }
            if !more {
                break;
            }
            tokio::time::sleep(began.elapsed()).await;
        }
        if self.store.rule().is_timers() {
            self.prune_timers().await?;
        }
        self.forget_what_is_over().await
    }

    async fn prune_timers(&self) -> Result<(), StoreError> {
        loop {
            let began = Instant::now();
            let pruned = self.store.outbox().prune_timers(self.keep, PIECE).await?;
            if pruned == 0 {
                return Ok(());
            }
            debug!(timers = pruned, "old timers pruned");
            tokio::time::sleep(began.elapsed()).await;
        }
    }

    async fn forget_what_is_over(&self) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let began = Instant::now();
            let dead = self.store.outbox().dead_orders(after.as_ref(), PIECE).await?;
            let over = self.over(&dead).await?;
            if !over.is_empty() {
                self.store.outbox().forget_dead_orders(&over).await?;
            }
            if dead.len() < PIECE as usize {
                return Ok(());
            }
            after = dead.into_iter().next_back().map(|(id, _)| id);
            tokio::time::sleep(began.elapsed()).await;
        }
    }

    /// Those of these orders that are dead letters no more. They are to be closed no more: they are gone, or none of their rows is
    /// unpaid; what the filter hides may come back, and what was given up is not to close then. Or they are to be closed for
    /// another deadline than the one for which that was undone.
    async fn over(&self, dead: &[(OrderId, Option<String>)]) -> Result<Vec<OrderId>, StoreError> {
        if dead.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<OrderId> = dead.iter().map(|(id, _)| id.clone()).collect();
        let rows = self.store.look(&ids).await?;
        let is_open = |row: &&Row| !matches!(judge(self.store.unpaid(), Some(*row)), Verdict::Settled { .. });
        let open: HashMap<&OrderId, &Row> = rows.iter().filter(is_open).map(|row| (&row.id, row)).collect();
        let is_over = |(id, reason): &&(OrderId, Option<String>)| {
            open.get(id).is_none_or(|row| reason.as_ref().is_some_and(|reason| is_undone_of_another(reason, row.deadline)))
        };
        Ok(dead.iter().filter(is_over).map(|(id, _)| id.clone()).collect())
    }
}
