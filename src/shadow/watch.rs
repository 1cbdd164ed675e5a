//! Reads what becomes of the orders that a shadow would close.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    Past,
    ledger::{Ledger, Told},
    lines::Report,
};
use crate::{
    close::Inbox,
    config::{Live, Sweep},
    order::OrderId,
    store::{DueQuery, Shadow, Store, StoreError, Window},
};

/// How often the rows of what is due are read.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How often all rows are read that are unpaid.
const PASS_EVERY: Duration = Duration::from_secs(10);

/// What is due so soon is found by each look: it may have been taken after the last pass, and be closed before the next.
const NEAR: Duration = Duration::from_secs(12);
const NEAR_MICROS: i64 = 12_000_000;

/// How far ahead orders are watched: a deadline that is understood eight hours too late is among them.
const HORIZON: Duration = Duration::from_hours(24);

/// How many rows are read by one statement, and by all of one look.
const AT_ONCE: usize = 1_000;
const IN_ONE_LOOK: usize = 5_000;

/// After reading, so many times as long is rested.
const REST: u32 = 9;

/// Watches one rule's orders.
#[derive(Debug)]
pub struct Watch {
    /// The orders, and what would have been closed.
    pub shadow: Arc<Shadow>,
    /// The same table by the column with the time of the last change, in the place of the deadline.
    pub changes: Option<Arc<dyn Store>>,
    /// The orders that were closed before, where there is such a column.
    pub past: Option<Past>,
    /// What keeps orders from being closed.
    pub inbox: Arc<Inbox>,
    /// How far back, and by which pages.
    pub settings: Live<Sweep>,
    /// What was seen.
    pub ledger: Arc<Mutex<Ledger>>,
    /// Who is told.
    pub report: Report,
    /// Ends it.
    pub stop: CancellationToken,
}

impl Watch {
    /// Watches until it is told to stop; then it looks once more, and tells of what is unpaid to the end.
    pub async fn run(self) {
        self.stop.run_until_cancelled(async { tokio::join!(self.look_again_and_again(), self.look_back()) }).await;
        if let Err(error) = self.end().await {
            warn!(%error, "the last look at the orders failed; what was unpaid to the end is not told of");
        }
    }

    async fn look_again_and_again(&self) {
        let mut next_pass = Instant::now();
        let (mut away, mut has_begun) = (false, false);
        loop {
            let began = Instant::now();
            let is_pass = began >= next_pass;
            let ended = if is_pass { self.pass().await } else { Ok(()) };
            let passed = began.elapsed();
            if is_pass && ended.is_ok() && !std::mem::replace(&mut has_begun, true) {
                info!(orders = self.ledger().watched(), "watching what becomes of unpaid orders");
            }
            if is_pass {
                next_pass = Instant::now() + PASS_EVERY.max(passed * REST);
            }
            let ended = match ended {
                Ok(()) => self.look().await.map(drop),
                failed => failed,
            };
            match ended {
                Ok(()) if std::mem::take(&mut away) => info!("watching orders again"),
                Ok(()) => {}
                Err(error) if !std::mem::replace(&mut away, true) => warn!(%error, "orders can't be watched; trying again"),
                Err(error) => debug!(%error, "orders can't be watched"),
            }
            tokio::time::sleep(LOOK_EVERY.max((began.elapsed() - passed) * REST)).await;
        }
    }

    /// Tells how late orders were closed before.
    async fn look_back(&self) {
        let Some(past) = &self.past else { return };
        match past.read().await {
            Ok(before) => self.report.tell_of_before(self.shadow.rule(), &before),
            Err(error) => warn!(%error, "how late orders were closed before can't be read; it is not told"),
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all orders that are unpaid, from those that are overdue to those that will be due within a day.
    async fn pass(&self) -> Result<(), StoreError> {
        self.ledger().begin_pass();
        let oldest = self.settings.get().oldest.get();
        for window in [Window::overdue(oldest), Window::ahead(HORIZON)] {
            self.find(window).await?;
        }
        self.ledger().end_pass(i64::MAX);
        Ok(())
    }

    /// Reads those alone that will be due in a moment.
    async fn pass_nearby(&self, now: i64) -> Result<(), StoreError> {
        self.ledger().begin_pass();
        self.find(Window::ahead(NEAR)).await?;
        self.ledger().end_pass(now);
        Ok(())
    }

    /// Takes note of the unpaid orders whose deadlines are in a window.
    async fn find(&self, window: Window) -> Result<(), StoreError> {
        let mut query = DueQuery::of(window, self.settings.get().page);
        loop {
            let page = self.shadow.table().due(&query).await?;
            let told: Vec<Told> = {
                let mut ledger = self.ledger();
                page.rows.iter().filter_map(|row| ledger.found(row, self.shadow.decision(&row.id))).collect()
            };
            self.tell(&told);
            query.after = page.next;
            if query.after.is_none() {
                return Ok(());
            }
        }
    }

    /// Reads the rows of what is due or was missed by the last pass, and tells of what has left the unpaid status by the look before:
    /// so that a judgement that was on its way then is known.
    async fn look(&self) -> Result<i64, StoreError> {
        let now = self.shadow.table().clock().await?.micros;
        let left = self.ledger().to_tell();
        let changes = self.changes(&left).await;
        let mut told: Vec<Told> = {
            let mut ledger = self.ledger();
            let tell = |id: &OrderId| {
                let changed = changes.iter().find(|(changed, _)| changed == id).map(|(_, at)| *at);
                ledger.tell(id, self.shadow.decision(id), changed)
            };
            left.iter().filter_map(tell).collect()
        };
        told.sort_by_key(|told| told.left);
        left.iter().for_each(|id| self.shadow.forget(id));
        self.tell(&told);
        // Whatever falls due after this moment and is unpaid has been read by then.
        self.pass_nearby(now + NEAR_MICROS).await?;
        let ids = self.ledger().to_look_at(now, IN_ONE_LOOK);
        for ids in ids.chunks(AT_ONCE) {
            self.look_at(ids).await?;
        }
        Ok(now)
    }

    async fn look_at(&self, ids: &[OrderId]) -> Result<(), StoreError> {
        let table = self.shadow.table();
        let unpaid = table.unpaid();
        let rows = table.asked_about(ids).await?;
        let found: HashSet<&OrderId> = rows.iter().map(|(row, _)| &row.id).collect();
        // Those that the filter hides now have a status all the same.
        let others: Vec<OrderId> = ids.iter().filter(|id| !found.contains(id)).cloned().collect();
        let hidden = if others.is_empty() { Vec::new() } else { table.look(&others).await? };
        let now = match rows.first().map(|(row, _)| row.now).or_else(|| hidden.first().map(|row| row.now)) {
            Some(now) => now,
            None => table.clock().await?.micros,
        };
        let kept = self.inbox.kept(&ids.iter().collect());
        let mut told = Vec::new();
        let mut ledger = self.ledger();
        for (id, kept) in &kept {
            ledger.is_kept(id, Some(kept.text()));
        }
        for (row, _) in &rows {
            if row.status.as_ref().is_some_and(|status| unpaid.contains(status)) {
                told.extend(ledger.found(row, self.shadow.decision(&row.id)));
                if !kept.contains_key(&row.id) {
                    ledger.is_kept(&row.id, None);
                }
            } else {
                ledger.has_left(&row.id, Some(row.status.clone().unwrap_or_default()), row.now);
            }
        }
        for id in &others {
            let status = hidden.iter().find(|row| row.id == *id).and_then(|row| row.status.clone());
            ledger.has_left(id, status.filter(|status| !unpaid.contains(status)), now);
        }
        drop(ledger);
        self.tell(&told);
        Ok(())
    }

    /// When these rows were changed, as far as a column has it.
    async fn changes(&self, ids: &[OrderId]) -> Vec<(OrderId, i64)> {
        let Some(changes) = self.changes.as_ref().filter(|_| !ids.is_empty()) else { return Vec::new() };
        let mut found = Vec::with_capacity(ids.len());
        for ids in ids.chunks(AT_ONCE) {
            match changes.look(ids).await {
                Ok(rows) => found.extend(rows.into_iter().filter_map(|row| Some((row.id, row.deadline?)))),
                Err(error) => debug!(%error, "the times of changes can't be read; they count as seen"),
            }
        }
        found
    }

    async fn end(&self) -> Result<(), StoreError> {
        // Of more orders than one look reads, a pass finds those that have left the unpaid status.
        self.pass().await?;
        let missing = self.ledger().missing();
        for _ in 0..=missing / IN_ONE_LOOK {
            self.look().await?;
        }
        // What a look sees, the next one tells.
        let now = self.look().await?;
        let rest = self.ledger().tell_the_rest(now, |id| self.shadow.decision(id));
        self.tell(&rest);
        Ok(())
    }

    fn tell(&self, told: &[Told]) {
        told.iter().for_each(|told| self.report.tell(self.shadow.rule(), told));
    }
}
