//! Transactions that close orders.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use sqlx::SqlSafeStr;

use super::{Result, Schema};
use crate::{
    order::{OrderId, Row},
    store::{
        NewEvent, StoreError, Transaction, Updated,
        dialect::{Batch, Dialect, DriverRow, List, sorted},
        driver::Columns,
        own::Recorder,
        payload::Carried,
        session::Session,
        statements::{ById, Statements},
    },
};

/// Ids in lists that a statement takes; for no ids one empty list, so that the statement runs all the same.
fn lists<D: Dialect>(ids: &[OrderId]) -> impl Iterator<Item = &[OrderId]> {
    let none = ids.is_empty().then_some(ids);
    none.into_iter().chain(ids.chunks(D::List::LONGEST))
}

/// The number that is all that a statement answers.
pub(super) fn number<D: Dialect>(rows: &[DriverRow<D>]) -> Result<u64> {
    let number = rows.first().map_or(Ok(0), |row| Columns::<D::Driver>::of(row).number());
    number.map(i64::unsigned_abs).map_err(sorted::<D>)
}

/// Reads the rows of these orders.
pub(super) async fn rows<D: Dialect>(session: &mut Session<D>, statement: &D::List, ids: &[OrderId], locked: bool) -> Result<Batch> {
    let mut all = Batch::default();
    for ids in lists::<D>(ids) {
        let found = fetch(session, statement, ids).await?;
        let Batch { mut rows, has_triggers } = D::batch(&found, ids, locked)?;
        all.rows.append(&mut rows);
        all.has_triggers = has_triggers;
    }
    Ok(all)
}

/// Reads the rows of these orders as last committed: first where most of them are, then, of those not found, everywhere.
pub(super) async fn peek<D: Dialect>(session: &mut Session<D>, statements: &Statements<D::List>, ids: &[OrderId]) -> Result<Vec<Row>> {
    let Some(recent) = &statements.recent else { return Ok(rows(session, &statements.all.peek, ids, false).await?.rows) };
    let mut found = rows(session, &recent.peek, ids, false).await?.rows;
    let elsewhere = missing(ids, found.iter().map(|row| &row.id));
    if !elsewhere.is_empty() {
        found.append(&mut rows(session, &statements.all.peek, &elsewhere, false).await?.rows);
    }
    Ok(found)
}

/// Those of these orders that were not found.
fn missing<'i>(ids: &[OrderId], found: impl Iterator<Item = &'i OrderId>) -> Vec<OrderId> {
    let found: HashSet<&OrderId> = found.collect();
    ids.iter().filter(|id| !found.contains(id)).cloned().collect()
}

pub(super) async fn fetch<D: Dialect>(session: &mut Session<D>, statement: &D::List, ids: &[OrderId]) -> Result<Vec<DriverRow<D>>> {
    let (sql, arguments) = statement.bound(ids).map_err(sorted::<D>)?;
    session.fetch(sql, arguments, true).await
}

/// The id and the payload of an order.
fn payload<D: Dialect>(row: &DriverRow<D>) -> Result<(OrderId, Carried)> {
    let mut columns = Columns::<D::Driver>::of(row);
    let id = OrderId::from_database(&columns.text().map_err(sorted::<D>)?);
    let (object, traceparent) = (columns.bytes().map_err(sorted::<D>)?, columns.bytes().map_err(sorted::<D>)?);
    let carried = Carried::of(&id, object, traceparent.as_deref());
    Ok((id, carried))
}

/// What a question carries of these orders. Where the server can't render it, each order is asked for by itself, and only
/// those go without for which that fails.
pub(super) async fn asked<D: Dialect>(session: &mut Session<D>, statement: &D::List, ids: &[OrderId]) -> Result<HashMap<OrderId, Carried>> {
    let mut carried = HashMap::with_capacity(ids.len());
    for ids in lists::<D>(ids) {
        match fetch(session, statement, ids).await {
            Ok(found) => carried.extend(found.iter().map(payload::<D>).collect::<Result<Vec<_>>>()?),
            Err(StoreError::Rejected(_)) => {
                for id in ids {
                    match fetch(session, statement, std::slice::from_ref(id)).await {
                        Ok(found) => carried.extend(found.iter().map(payload::<D>).collect::<Result<Vec<_>>>()?),
                        Err(StoreError::Rejected(reason)) => drop(carried.insert(id.clone(), Carried::nothing(id, &reason))),
                        Err(error) => return Err(error),
                    }
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(carried)
}

/// A transaction on an orders table.
pub(super) struct Open<D: Dialect> {
    session: Session<D>,
    schema: Arc<Schema<D>>,
    recorder: Option<Arc<Recorder>>,
    /// Whether the table has triggers, as far as is known.
    has_triggers: bool,
    fails_on_payloads: Arc<AtomicBool>,
}

impl<D: Dialect> Open<D> {
    pub(super) fn new(
        session: Session<D>,
        schema: Arc<Schema<D>>,
        recorder: Option<Arc<Recorder>>,
        fails_on_payloads: Arc<AtomicBool>,
    ) -> Self {
        Self { session, schema, recorder, has_triggers: true, fails_on_payloads }
    }

    /// What events carry of these orders, by a statement on them. Where the server can't render it, each order is asked for by
    /// itself, and only those go without for which that fails.
    async fn payloads(&mut self, statement: &D::List, ids: &[OrderId]) -> Result<Vec<(OrderId, Carried)>> {
        match self.try_payloads(statement, ids).await {
            Err(StoreError::Rejected(_)) if self.payload_can_fail() => {}
            answered => return answered,
        }
        let mut payloads = Vec::with_capacity(ids.len());
        for id in ids {
            match self.try_payloads(statement, std::slice::from_ref(id)).await {
                Ok(mut found) => payloads.append(&mut found),
                Err(StoreError::Rejected(reason)) => payloads.push((id.clone(), Carried::nothing(id, &reason))),
                Err(error) => return Err(error),
            }
        }
        Ok(payloads)
    }

    /// Whether the transaction goes on after a payload that the server can't render.
    fn payload_can_fail(&self) -> bool {
        !D::FAILS_WHOLE || self.fails_on_payloads.load(Ordering::Relaxed)
    }

    /// Behind a savepoint where one has failed before: it costs a round trip, and few columns ever need it.
    async fn try_payloads(&mut self, statement: &D::List, ids: &[OrderId]) -> Result<Vec<(OrderId, Carried)>> {
        let saved = D::FAILS_WHOLE && self.payload_can_fail();
        if saved {
            self.session.execute("SAVEPOINT order_closer_payload".into_sql_str()).await?;
        }
        match fetch(&mut self.session, statement, ids).await {
            Ok(rows) => rows.iter().map(payload::<D>).collect(),
            Err(error) => {
                if saved {
                    self.session.execute("ROLLBACK TO SAVEPOINT order_closer_payload".into_sql_str()).await?;
                } else if matches!(error, StoreError::Rejected(_)) {
                    // This transaction is lost, and the one that tries again has a savepoint.
                    self.fails_on_payloads.store(true, Ordering::Relaxed);
                }
                Err(error)
            }
        }
    }

    /// Locks and reads the rows of these orders, of which each must have one.
    async fn lock_by(&mut self, statements: &ById<D::List>, ids: &[OrderId]) -> Result<Vec<Row>> {
        let Batch { rows, has_triggers } = rows(&mut self.session, &statements.lock, ids, true).await?;
        self.has_triggers = has_triggers;
        if let Some(repeated) = &statements.repeated {
            let locked: Vec<OrderId> = rows.iter().map(|row| row.id.clone()).collect();
            for ids in lists::<D>(&locked) {
                if let Some(twin) = fetch(&mut self.session, repeated, ids).await?.first() {
                    return Err(StoreError::several_rows(&Columns::<D::Driver>::of(twin).text().map_err(sorted::<D>)?));
                }
            }
        }
        Ok(rows)
    }

    async fn count(&mut self, statement: &D::List, ids: &[OrderId]) -> Result<u64> {
        let mut count = 0;
        for ids in lists::<D>(ids) {
            count += number::<D>(&fetch(&mut self.session, statement, ids).await?)?;
        }
        Ok(count)
    }

    /// Returns how many rows were changed.
    async fn change(&mut self, statement: &D::List, ids: &[OrderId]) -> Result<u64> {
        let mut changed = 0;
        for ids in lists::<D>(ids) {
            let (sql, arguments) = statement.bound(ids).map_err(sorted::<D>)?;
            changed += self.session.change(sql, arguments, true).await?;
        }
        Ok(changed)
    }
}

#[async_trait]
impl<D: Dialect> Transaction for Open<D> {
    async fn lock(&mut self, ids: &[OrderId]) -> Result<Vec<Row>> {
        let schema = Arc::clone(&self.schema);
        let Statements { recent, all, .. } = &schema.statements;
        let Some(recent) = recent else { return self.lock_by(all, ids).await };
        let mut found = self.lock_by(recent, ids).await?;
        let elsewhere = missing(ids, found.iter().map(|row| &row.id));
        if !elsewhere.is_empty() {
            found.append(&mut self.lock_by(all, &elsewhere).await?);
        }
        Ok(found)
    }

    async fn peek(&mut self, ids: &[OrderId]) -> Result<Vec<Row>> {
        peek(&mut self.session, &self.schema.statements, ids).await
    }

    async fn close_due(&mut self, ids: &[OrderId]) -> Result<Vec<Row>> {
        match &self.schema.statements.close_due {
            Some(statement) => Ok(rows(&mut self.session, statement, ids, true).await?.rows),
            None => Ok(Vec::new()),
        }
    }

    async fn update(&mut self, ids: &[OrderId]) -> Result<Updated> {
        let schema = Arc::clone(&self.schema);
        let Statements { recent, all, .. } = &schema.statements;
        let (expected, mut changed) = (ids.len() as u64, 0);
        if let Some(recent) = recent {
            changed = self.change(&recent.update, ids).await?;
        }
        // What is closed by now is not unpaid any more.
        if recent.is_none() || changed < expected {
            changed += self.change(&all.update, ids).await?;
        }
        if !self.has_triggers {
            return Ok(Updated { changed, closed: changed });
        }
        Ok(Updated { changed, closed: self.count_closed(ids).await? })
    }

    async fn update_early(&mut self, ids: &[OrderId]) -> Result<Updated> {
        let schema = Arc::clone(&self.schema);
        let changed = self.change(&schema.statements.update_early, ids).await?;
        Ok(Updated { changed, closed: self.count_closed(ids).await? })
    }

    async fn limit_statements(&mut self, limit: Duration) -> Result<()> {
        match D::limit_statements(limit) {
            Some(statement) => self.session.execute(statement).await.map(drop),
            None => Ok(()),
        }
    }

    async fn check_deferred(&mut self) -> Result<()> {
        match D::CHECK_DEFERRED {
            Some(statement) => self.session.execute(statement.into_sql_str()).await.map(drop),
            None => Ok(()),
        }
    }

    async fn count_closed(&mut self, ids: &[OrderId]) -> Result<u64> {
        let schema = Arc::clone(&self.schema);
        let Statements { recent, all, .. } = &schema.statements;
        if let Some(recent) = recent {
            let closed = self.count(&recent.count_closed, ids).await?;
            if closed >= ids.len() as u64 {
                return Ok(closed);
            }
        }
        self.count(&all.count_closed, ids).await
    }

    fn records(&self) -> bool {
        self.recorder.is_some()
    }

    async fn included(&mut self, ids: &[OrderId]) -> Result<HashMap<OrderId, Carried>> {
        let schema = Arc::clone(&self.schema);
        let Statements { recent, all, .. } = &schema.statements;
        let mut data = HashMap::with_capacity(ids.len());
        let mut ids = ids.to_vec();
        for statement in recent.iter().chain([all]).filter_map(|by_id| by_id.included.as_ref()) {
            for ids in lists::<D>(&ids) {
                data.extend(self.payloads(statement, ids).await?);
            }
            ids.retain(|id| !data.contains_key(id));
            if ids.is_empty() {
                break;
            }
        }
        Ok(data)
    }

    async fn run_close_sql(&mut self, ids: &[OrderId]) -> Result<()> {
        let schema = Arc::clone(&self.schema);
        for statement in &schema.statements.close_sql {
            for ids in statement.runs(ids) {
                let changed = self.change(&statement.sql, ids).await?;
                statement.check(ids, changed)?;
            }
        }
        Ok(())
    }

    async fn record(&mut self, events: &[NewEvent]) -> Result<()> {
        let Some(recorder) = &self.recorder else { return Ok(()) };
        recorder.record(&mut self.session, events).await
    }

    async fn commit(self: Box<Self>) -> Result<()> {
        self.session.commit().await
    }

    async fn rollback(self: Box<Self>) {
        self.session.rollback().await;
    }
}
