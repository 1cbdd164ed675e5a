//! An orders table that is only looked at: what the daemon would do to it is noted, and nothing is written.
//!
//! - A transaction of a [`Shadow`] has no connection, and so nothing that it could write with: it reads rows as last committed,
//!   notes what it is told to close, and remembers at the commit when that was.
//! - The connections with which it reads are read-only for the database, too, which refuses whatever would write. A user that
//!   may only SELECT is enough.
//! - Our own tables are left out, also where there are some: no event, no dead letter, no pause.
//! - An order that it would have closed looks closed from then on, as long as its row is unpaid with that deadline.
//!
//! What only a lock or a write would show it can't know: a row that a payment holds just then, a trigger that objects.

use std::{
    collections::HashMap,
    mem::take,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::{sync::watch, time::Instant};

use crate::{
    config::{Events, RuleName},
    order::{IdKind, OrderId, Row},
    store::{
        Carried, Catalogue, Census, Claim, ClockReading, Counted, DueQuery, HostSeen, Inspected, Limits, MappedColumn, NewEvent, Obstacle,
        OpenError, Outbox, Page, Pool, Settings, Store, StoreError, Transaction, Updated, Window, open,
    },
};

type Result<T, E = StoreError> = std::result::Result<T, E>;

/// That an order would have been closed. Microseconds since 1970 UTC, by the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// For which deadline.
    pub deadline: i64,
    /// When.
    pub at: i64,
}

/// An orders table that is only looked at.
#[derive(Debug)]
pub struct Shadow {
    table: Arc<dyn Store>,
    closed: String,
    decisions: Arc<Mutex<HashMap<OrderId, Decision>>>,
}

impl Shadow {
    /// Connects to the database of these settings, by sessions that only read.
    ///
    /// # Errors
    /// As [`open`] says.
    pub async fn open(settings: Settings) -> Result<Arc<Self>, OpenError> {
        let closed = settings.rule.closed.text();
        let table = open(Settings { read_only: true, ..settings }).await?;
        Ok(Arc::new(Self { table, closed, decisions: Arc::default() }))
    }

    /// The table as it is, without what would have been closed.
    #[must_use]
    pub fn table(&self) -> &dyn Store {
        self.table.as_ref()
    }

    /// The status of a closed order, as the status column prints it.
    #[must_use]
    pub fn closed(&self) -> &str {
        &self.closed
    }

    /// That this order would have been closed, if it would.
    #[must_use]
    pub fn decision(&self, id: &OrderId) -> Option<Decision> {
        self.decisions().get(id).copied()
    }

    /// Forgets an order that is unpaid no more.
    pub fn forget(&self, id: &OrderId) {
        self.decisions().remove(id);
    }

    fn decisions(&self) -> MutexGuard<'_, HashMap<OrderId, Decision>> {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the row would be closed by now.
    fn would_be_closed(&self, row: &Row) -> bool {
        let is_unpaid = row.status.as_ref().is_some_and(|status| self.unpaid().contains(status));
        is_unpaid && self.decision(&row.id).is_some_and(|decision| Some(decision.deadline) == row.deadline)
    }

    /// The row as it would be by now.
    fn imagined(&self, row: Row) -> Row {
        if self.would_be_closed(&row) { Row { status: Some(self.closed.clone()), ..row } } else { row }
    }

    fn all_imagined(&self, rows: Vec<Row>) -> Vec<Row> {
        rows.into_iter().map(|row| self.imagined(row)).collect()
    }
}

#[async_trait]
impl Store for Shadow {
    async fn begin(&self, _: Limits) -> Result<Box<dyn Transaction>> {
        let shadow = Self { table: Arc::clone(&self.table), closed: self.closed.clone(), decisions: Arc::clone(&self.decisions) };
        Ok(Box::new(Imagined { shadow, read: HashMap::new(), asked: Instant::now(), closing: Vec::new() }))
    }

    async fn reach(&self) -> Result<()> {
        self.table.clock().await.map(drop)
    }

    async fn due(&self, query: &DueQuery) -> Result<Page> {
        let mut page = self.table.due(query).await?;
        page.rows.retain(|row| !self.would_be_closed(row));
        Ok(page)
    }

    async fn look(&self, ids: &[OrderId]) -> Result<Vec<Row>> {
        Ok(self.all_imagined(self.table.look(ids).await?))
    }

    async fn asked_about(&self, ids: &[OrderId]) -> Result<Vec<(Row, String)>> {
        let found = self.table.asked_about(ids).await?;
        Ok(found.into_iter().map(|(row, columns)| (self.imagined(row), columns)).collect())
    }

    // Noted nowhere, so that nothing but this process is stopped by it.
    async fn zone_changed(&self) -> Result<Option<String>> {
        self.table.zone_differs().await
    }

    // All that follows only reads.

    fn rule(&self) -> &RuleName {
        self.table.rule()
    }

    fn id_kind(&self) -> IdKind {
        self.table.id_kind()
    }

    fn unpaid(&self) -> &[String] {
        self.table.unpaid()
    }

    async fn refresh(&self) -> Result<(), OpenError> {
        self.table.refresh().await
    }

    async fn identity(&self) -> Result<String> {
        self.table.identity().await
    }

    async fn is_another(&self) -> Result<bool> {
        self.table.is_another().await
    }

    async fn running_for(&self) -> Result<Option<Duration>> {
        self.table.running_for().await
    }

    fn turn(&self) -> u64 {
        self.table.turn()
    }

    async fn look_at_hosts(&self) -> Vec<HostSeen> {
        self.table.look_at_hosts().await
    }

    fn columns(&self) -> Vec<String> {
        self.table.columns()
    }

    fn obstacles(&self) -> Vec<Obstacle> {
        self.table.obstacles()
    }

    async fn count(&self, window: Window) -> Result<Counted> {
        self.table.count(window).await
    }

    async fn count_up_to(&self, window: Window, most: u32) -> Result<u64> {
        self.table.count_up_to(window, most).await
    }

    async fn claimed_twice(&self) -> Result<Option<Claim>> {
        self.table.claimed_twice().await
    }

    async fn count_untaken(&self) -> Result<u64> {
        self.table.count_untaken().await
    }

    async fn clock(&self) -> Result<ClockReading> {
        self.table.clock().await
    }

    async fn takes_writes(&self) -> Result<bool> {
        self.table.takes_writes().await
    }

    async fn catalogue(&self) -> Result<Catalogue> {
        self.table.catalogue().await
    }

    async fn census(&self) -> Result<Census> {
        self.table.census().await
    }

    async fn inspect(&self, id: &OrderId) -> Result<Vec<Inspected>> {
        self.table.inspect(id).await
    }

    fn mapped(&self) -> [MappedColumn; 3] {
        self.table.mapped()
    }

    fn time_zone(&self) -> String {
        self.table.time_zone()
    }

    fn zone_matters(&self) -> bool {
        self.table.zone_matters()
    }

    async fn zone_differs(&self) -> Result<Option<String>> {
        self.table.zone_differs().await
    }

    fn halted(&self) -> watch::Receiver<Option<String>> {
        self.table.halted()
    }

    async fn without_transactions(&self) -> Result<Option<String>> {
        self.table.without_transactions().await
    }

    /// Without our tables, whatever there is.
    fn outbox(&self) -> &Outbox {
        self.table.outbox()
    }

    fn outbox_apart(&self, connections: usize) -> Outbox {
        self.table.outbox_apart(connections)
    }

    fn pools(&self) -> Vec<Pool> {
        self.table.pools()
    }

    fn set_targets(&self, _: &Events) {}

    async fn close(&self) {
        self.table.close().await;
    }
}

/// A transaction that is imagined: it can read, and note what it would do.
struct Imagined {
    shadow: Shadow,
    /// The rows that were read, each by its deadline and the database's clock.
    read: HashMap<OrderId, (i64, i64)>,
    /// When they were asked for.
    asked: Instant,
    closing: Vec<OrderId>,
}

#[async_trait]
impl Transaction for Imagined {
    /// Locks nothing: a row that another transaction holds counts as it was last committed.
    async fn lock(&mut self, ids: &[OrderId]) -> Result<Vec<Row>> {
        self.asked = Instant::now();
        let rows = self.peek(ids).await?;
        self.read.extend(rows.iter().filter_map(|row| Some((row.id.clone(), (row.deadline?, row.now)))));
        Ok(rows.into_iter().map(|row| Row { locked: true, ..row }).collect())
    }

    async fn peek(&mut self, ids: &[OrderId]) -> Result<Vec<Row>> {
        Ok(self.shadow.asked_about(ids).await?.into_iter().map(|(row, _)| row).collect())
    }

    /// Nothing: it is for the three steps one by one, of which only the judgement is real.
    async fn close_due(&mut self, _: &[OrderId]) -> Result<Vec<Row>> {
        Ok(Vec::new())
    }

    async fn update(&mut self, ids: &[OrderId]) -> Result<Updated> {
        self.closing.extend_from_slice(ids);
        let count = ids.len() as u64;
        Ok(Updated { changed: count, closed: count })
    }

    async fn update_early(&mut self, ids: &[OrderId]) -> Result<Updated> {
        let count = ids.len() as u64;
        Ok(Updated { changed: count, closed: count })
    }

    async fn limit_statements(&mut self, _: Duration) -> Result<()> {
        Ok(())
    }

    async fn check_deferred(&mut self) -> Result<()> {
        Ok(())
    }

    async fn count_closed(&mut self, ids: &[OrderId]) -> Result<u64> {
        Ok(ids.len() as u64)
    }

    fn records(&self) -> bool {
        false
    }

    async fn included(&mut self, _: &[OrderId]) -> Result<HashMap<OrderId, Carried>> {
        Ok(HashMap::new())
    }

    async fn run_close_sql(&mut self, _: &[OrderId]) -> Result<()> {
        Ok(())
    }

    async fn record(&mut self, _: &[NewEvent]) -> Result<()> {
        Ok(())
    }

    async fn commit(mut self: Box<Self>) -> Result<()> {
        let since = i64::try_from(self.asked.elapsed().as_micros()).unwrap_or(i64::MAX);
        let closing = take(&mut self.closing);
        let decided = closing.into_iter().filter_map(|id| {
            let (deadline, now) = *self.read.get(&id)?;
            Some((id, Decision { deadline, at: now.saturating_add(since) }))
        });
        self.shadow.decisions().extend(decided);
        Ok(())
    }

    async fn rollback(self: Box<Self>) {}
}
