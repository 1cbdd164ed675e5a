//! The one implementation of [`Store`] and [`Transaction`], for whatever a [`Dialect`] says differently.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sqlx::SqlSafeStr;
use tokio::sync::watch;

use crate::{
    order::{IdKind, OrderId, Row},
    store::{
        Catalogue, Census, ClockReading, Counted, Cursor, DueQuery, Limits, NewEvent, Obstacle, OpenError, Outbox, Page, SampleDeadline,
        Settings, Store, StoreError, Transaction, Updated, Window,
        connections::Connections,
        dialect::{Batch, Dialect, DriverRow, Fragments, List, order_row, sorted},
        driver::{Columns, Value},
        halt::Halt,
        own::{OwnTables, Recorder},
        paging::Paging,
        payload::Carried,
        session::Session,
        statements::{ById, Statements},
        zone::ServersZone,
    },
};

/// The fact that is the server's own zone.
const ZONE: &str = "time zone";

type Result<T, E = StoreError> = std::result::Result<T, E>;

/// An orders table.
#[derive(Debug)]
pub(super) struct Table<D: Dialect> {
    dialect: D,
    connections: Arc<Connections<D>>,
    /// As the table was when it was last looked at; what has begun goes on with what it began with.
    schema: watch::Sender<Arc<Schema<D>>>,
    settings: Settings,
    unpaid: Vec<String>,
    outbox: Outbox,
    /// Which database it was when that was asked last, where that can be known.
    identity: Mutex<Option<String>>,
    halt: Halt,
    /// A statement failed that reads what events carry, where that ends its transaction.
    fails_on_payloads: Arc<AtomicBool>,
}

/// The table as its catalogue describes it, and the statements made from that.
#[derive(Debug)]
struct Schema<D: Dialect> {
    table: D::Table,
    fragments: Fragments,
    statements: Statements<D::List>,
    own: OwnTables,
    recorder: Option<Arc<Recorder>>,
}

impl<D: Dialect> Schema<D> {
    /// `own` are our own tables, if they were found before.
    async fn read(dialect: &D, session: &mut Session<D>, settings: &Settings, own: Option<&OwnTables>) -> Result<Self, OpenError> {
        let (table, fragments) = dialect.describe(session, &settings.rule).await?;
        let own = match own {
            Some(own) => own.clone(),
            None => OwnTables::find(session, fragments.words.clone()).await?,
        };
        let statements = Statements::new::<D>(&table, &fragments, &settings.rule, &own)?;
        Ok(Self { table, fragments, statements, recorder: own.recorder(&settings.events), own })
    }
}

impl<D: Dialect> Table<D> {
    pub(super) async fn open(settings: Settings) -> Result<Self, OpenError> {
        let (dialect, plan) = D::plan(&settings).await?;
        let connections = Arc::new(Connections::new(plan, &settings));
        connections.first().await.map_err(|error| D::refused(&settings.database, error))?;
        let mut session = connections.read().await?;
        let schema = Schema::read(&dialect, &mut session, &settings, None).await?;
        let identity = Mutex::new(dialect.identity(&mut session).await.ok());
        drop(session);
        if schema.fragments.described.zone_matters {
            connections.change_options(|options| dialect.keeping_zone(options));
        }
        let outbox = Outbox::new(Arc::clone(&connections), &schema.own);
        let unpaid = settings.rule.unpaid_texts();
        let schema = watch::Sender::new(Arc::new(schema));
        Ok(Self {
            dialect,
            connections,
            schema,
            settings,
            unpaid,
            outbox,
            identity,
            halt: Halt::default(),
            fails_on_payloads: Arc::default(),
        })
    }

    fn schema(&self) -> Arc<Schema<D>> {
        Arc::clone(&self.schema.borrow())
    }

    /// What has changed of the zone by which the server reads times, since the store was opened or since it was first noted in
    /// our tables.
    async fn zones_change(&self) -> Result<Option<String>> {
        let matters = self.schema().fragments.described.zone_matters;
        let noted = self.outbox.fact(ZONE).await?;
        let Some(before) = self.dialect.servers_zone().filter(|_| matters) else {
            if noted.is_some() {
                self.outbox.forget_fact(ZONE).await.ok();
            }
            return Ok(None);
        };
        let Some(now) = self.dialect.servers_zone_now().await? else { return Ok(None) };
        if let Some(change) = before.change_to(&now) {
            return Ok(Some(change));
        }
        match noted.as_deref().and_then(ServersZone::parse) {
            Some(noted) => Ok(noted.change_to(&now)),
            None => {
                // Who may not write here closes nothing either.
                self.outbox.note_fact(ZONE, &now.to_text()).await.ok();
                Ok(None)
            }
        }
    }
}

/// The GRANTs of all rights to tables that this user lacks for closing.
pub(super) async fn lacking_rights<D: Dialect>(settings: &Settings) -> Result<Vec<String>, OpenError> {
    let (_, plan) = D::plan(settings).await?;
    let connections = Connections::<D>::new(plan, settings);
    let lacking = D::lacking_rights(&mut connections.read().await?, &settings.rule, &settings.events).await;
    connections.close().await;
    Ok(lacking?)
}

#[async_trait]
impl<D: Dialect> Store for Table<D> {
    fn id_kind(&self) -> IdKind {
        self.schema().fragments.id_kind.clone()
    }

    fn unpaid(&self) -> &[String] {
        &self.unpaid
    }

    async fn refresh(&self) -> Result<(), OpenError> {
        let mut session = self.connections.read().await?;
        let schema = Schema::read(&self.dialect, &mut session, &self.settings, Some(&self.schema().own)).await?;
        self.schema.send_replace(Arc::new(schema));
        Ok(())
    }

    async fn identity(&self) -> Result<String> {
        self.dialect.identity(&mut self.connections.read().await?).await
    }

    async fn is_another(&self) -> Result<bool> {
        let identity = self.dialect.identity(&mut self.connections.read().await?).await.ok();
        let mut known = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::replace(&mut *known, identity.clone()) != identity)
    }

    fn columns(&self) -> Vec<String> {
        self.schema().fragments.described.names.clone()
    }

    fn obstacles(&self) -> Vec<Obstacle> {
        self.schema().fragments.described.obstacles.clone()
    }

    async fn reach(&self) -> Result<()> {
        self.halt.pass()?;
        self.connections.reach().await?;
        // It may have come back with another zone.
        self.zone_changed().await?;
        self.halt.pass()
    }

    async fn begin(&self, limits: Limits) -> Result<Box<dyn Transaction>> {
        self.halt.pass()?;
        Ok(Box::new(Open {
            session: self.connections.begin(limits).await?,
            schema: self.schema(),
            has_triggers: true,
            fails_on_payloads: Arc::clone(&self.fails_on_payloads),
        }))
    }

    async fn due(&self, query: &DueQuery) -> Result<Page> {
        let mut session = self.connections.read().await?;
        let (schema, Window { from, until }) = (self.schema(), query.window);
        let due = &schema.statements.due;
        let mut paging = Paging::new(query, due.len());
        while let Some(read) = paging.next_read() {
            let statement = &due[read.status];
            let [until, from, limit] = [until, from, read.limit].map(Value::from);
            let rows = match read.after {
                Some(Cursor { deadline, id, .. }) => {
                    session.read(&statement.next, &[until, from, limit, deadline.into(), id.as_str().into()]).await?
                }
                None => session.read(&statement.first, &[until, from, limit]).await?,
            };
            let row = |row| {
                let mut columns = Columns::<D::Driver>::of(row);
                Ok((order_row(&mut columns, false)?, columns.text()?))
            };
            paging.add(rows.iter().map(row).collect::<Result<_, _>>().map_err(sorted::<D>)?);
        }
        Ok(paging.finish())
    }

    async fn count(&self, window: Window) -> Result<Counted> {
        let mut session = self.connections.read().await?;
        let mut counted = Counted::default();
        for statement in &self.schema().statements.count_due {
            let rows = session.read(statement, &[window.until, window.from].map(Value::from)).await?;
            let Some(row) = rows.first() else { continue };
            let mut columns = Columns::<D::Driver>::of(row);
            let (orders, since) = (columns.number().map_err(sorted::<D>)?, columns.optional_number().map_err(sorted::<D>)?);
            counted.orders += orders.unsigned_abs();
            counted.since = counted.since.into_iter().chain(since).min();
        }
        Ok(counted)
    }

    async fn clock(&self) -> Result<ClockReading> {
        clock(&mut self.connections.read().await?, &self.schema().statements).await
    }

    async fn catalogue(&self) -> Result<Catalogue> {
        let mut session = self.connections.read().await?;
        let Schema { table, fragments, statements, .. } = &*self.schema();
        let described = &fragments.described;
        let clock = clock(&mut session, statements).await?;
        let samples = session.execute(statements.samples.clone()).await?;
        let samples = samples.iter().map(SampleDeadline::read::<D::Driver>).collect::<Result<_, _>>().map_err(sorted::<D>)?;
        let findings = self.dialect.findings(&mut session, table, fragments).await;
        Ok(described.catalogue(clock, samples, findings.map_err(|error| error.about(&described.names))?))
    }

    async fn census(&self) -> Result<Census> {
        census(&mut self.connections.read().await?, &self.schema().statements).await
    }

    async fn look(&self, ids: &[OrderId]) -> Result<Vec<Row>> {
        let schema = self.schema();
        Ok(rows(&mut self.connections.read().await?, &schema.statements.look, ids, false).await?.rows)
    }

    fn zone_matters(&self) -> bool {
        self.schema().fragments.described.zone_matters
    }

    async fn zone_changed(&self) -> Result<Option<String>> {
        let changed = self.zones_change().await?;
        self.halt.set(changed.as_ref().map(|reason| format!("{reason}; set database.time_zone")));
        Ok(changed)
    }

    fn halted(&self) -> watch::Receiver<Option<String>> {
        self.halt.watch()
    }

    async fn without_transactions(&self) -> Result<Option<String>> {
        self.dialect.without_transactions(&mut self.connections.read().await?, &self.schema().table, &self.settings.rule).await
    }

    fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    fn outbox_apart(&self, connections: usize) -> Outbox {
        self.outbox.over(self.connections.apart(connections))
    }

    async fn close(&self) {
        self.connections.close().await;
    }
}

/// Counts orders of each kind.
async fn census<D: Dialect>(session: &mut Session<D>, statements: &Statements<D::List>) -> Result<Census> {
    let rows = session.execute(statements.statuses.clone()).await?;
    let count = |row| {
        let mut columns = Columns::<D::Driver>::of(row);
        Ok((columns.optional_text()?, columns.number()?))
    };
    let statuses = rows.iter().map(count).collect::<Result<_, sqlx::Error>>().map_err(sorted::<D>)?;
    let rows = session.execute(statements.unpaid.clone()).await?;
    let mut columns = rows.first().map(Columns::<D::Driver>::of).ok_or(sqlx::Error::RowNotFound).map_err(sorted::<D>)?;
    let (unpaid, with_deadline) = (columns.number().map_err(sorted::<D>)?, columns.number().map_err(sorted::<D>)?);
    let passes_filter = number::<D>(&session.execute(statements.passes_filter.clone()).await?)? > 0;
    Ok(Census { statuses, unpaid, with_deadline, passes_filter })
}

/// Reads the database's clock.
async fn clock<D: Dialect>(session: &mut Session<D>, statements: &Statements<D::List>) -> Result<ClockReading> {
    let asked = Instant::now();
    let rows = session.execute(statements.clock.clone()).await?;
    let round_trip = asked.elapsed();
    let micros = rows.first().map_or(Err(sqlx::Error::RowNotFound), |row| Columns::<D::Driver>::of(row).number());
    Ok(ClockReading { micros: micros.map_err(sorted::<D>)?, round_trip })
}

/// Ids in lists that a statement takes; for no ids one empty list, so that the statement runs all the same.
fn lists<D: Dialect>(ids: &[OrderId]) -> impl Iterator<Item = &[OrderId]> {
    let none = ids.is_empty().then_some(ids);
    none.into_iter().chain(ids.chunks(D::List::LONGEST))
}

/// The number that is all that a statement answers.
fn number<D: Dialect>(rows: &[DriverRow<D>]) -> Result<u64> {
    let number = rows.first().map_or(Ok(0), |row| Columns::<D::Driver>::of(row).number());
    number.map(i64::unsigned_abs).map_err(sorted::<D>)
}

/// Reads the rows of these orders.
async fn rows<D: Dialect>(session: &mut Session<D>, statement: &D::List, ids: &[OrderId], locked: bool) -> Result<Batch> {
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
async fn peek<D: Dialect>(session: &mut Session<D>, statements: &Statements<D::List>, ids: &[OrderId]) -> Result<Vec<Row>> {
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

async fn fetch<D: Dialect>(session: &mut Session<D>, statement: &D::List, ids: &[OrderId]) -> Result<Vec<DriverRow<D>>> {
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

struct Open<D: Dialect> {
    session: Session<D>,
    schema: Arc<Schema<D>>,
    /// Whether the table has triggers, as far as is known.
    has_triggers: bool,
    fails_on_payloads: Arc<AtomicBool>,
}

impl<D: Dialect> Open<D> {
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
        self.schema.recorder.is_some()
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
        let Some(recorder) = &self.schema.recorder else { return Ok(()) };
        recorder.record(&mut self.session, events).await
    }

    async fn commit(self: Box<Self>) -> Result<()> {
        self.session.commit().await
    }

    async fn rollback(self: Box<Self>) {
        self.session.rollback().await;
    }
}
