//! The one implementation of [`Store`] and [`Transaction`], for whatever a [`Dialect`] says differently.

mod transaction;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sqlx::SqlSafeStr;
use tokio::sync::watch;

use crate::{
    config::{Events, RuleName},
    order::{IdKind, OrderId, Row},
    store::{
        Between, Catalogue, Census, Claim, ClockReading, Counted, Cursor, DueQuery, HostSeen, Inspected, Limits, MappedColumn, Obstacle,
        OpenError, Outbox, Page, Pool, SampleDeadline, Settings, Store, StoreError, Transaction, Window,
        connections::Connections,
        dialect::{Dialect, Fragments, order_row, sorted, text},
        driver::{Columns, Driver, Value},
        halt::Halt,
        hosts::Hosts,
        own::{OwnTables, Recorder},
        paging::Paging,
        session::Session,
        statements::Statements,
        together::{Reader, Together},
        zone::ServersZone,
    },
};
use transaction::{Open, asked, fetch, number, peek, rows};

/// Where the deadline's own text stands, after the columns of an order.
const PLACE: usize = 4;

/// The fact that is the server's own zone.
const ZONE: &str = "time zone";

type Result<T, E = StoreError> = std::result::Result<T, E>;

/// An orders table.
#[derive(Debug)]
pub(super) struct Table<D: Dialect> {
    dialect: Arc<D>,
    connections: Arc<Connections<D>>,
    /// As the table was when it was last looked at; what has begun goes on with what it began with.
    schema: watch::Sender<Arc<Schema<D>>>,
    settings: Settings,
    unpaid: Vec<String>,
    outbox: Outbox,
    /// Who records events in transactions to come.
    recorder: watch::Sender<Option<Arc<Recorder>>>,
    /// Which database it was when that was asked last, where that can be known.
    identity: Mutex<Option<String>>,
    halt: Halt,
    /// With whom what falls due is read, where this is one of several shards in a database.
    reader: Option<Reader<D>>,
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
}

impl<D: Dialect> Schema<D> {
    /// `own` are our own tables, if they were found before.
    async fn read(dialect: &D, session: &mut Session<D>, settings: &Settings, own: Option<&OwnTables>) -> Result<Self, OpenError> {
        let (table, fragments) = dialect.describe(session, &settings.rule).await?;
        let own = match own {
            Some(own) => own.clone(),
            None if settings.read_only => OwnTables::left_out(fragments.words.clone(), &settings.rule.name),
            None => OwnTables::find(session, fragments.words.clone(), &settings.rule.name).await?,
        };
        let statements = Statements::new::<D>(&table, &fragments, &settings.rule, &own)?;
        Ok(Self { table, fragments, statements, own })
    }
}

impl<D: Dialect> Table<D> {
    pub(super) async fn open(settings: Settings) -> Result<Self, OpenError> {
        let (dialect, connections, together) = connect::<D>(&settings).await?;
        let mut session = connections.read().await?;
        let schema = Schema::read(dialect.as_ref(), &mut session, &settings, None).await?;
        let identity = Mutex::new(dialect.identity(&mut session).await.ok());
        drop(session);
        if schema.fragments.described.zone_matters {
            connections.change_options(|options| dialect.keeping_zone(options));
        }
        let outbox = Outbox::new(Arc::clone(&connections), &schema.own);
        let recorder = watch::Sender::new(schema.own.recorder(&settings.events));
        let unpaid = settings.rule.unpaid_texts();
        let schema = watch::Sender::new(Arc::new(schema));
        let reader = settings.sharing.is_of_shards.then(|| Reader::of(&together));
        Ok(Self {
            dialect,
            connections,
            schema,
            settings,
            unpaid,
            outbox,
            recorder,
            identity,
            halt: Halt::default(),
            reader,
            fails_on_payloads: Arc::default(),
        })
    }

    fn schema(&self) -> Arc<Schema<D>> {
        Arc::clone(&self.schema.borrow())
    }

    /// The server's zone when the store was opened, where a deadline depends on it.
    fn zone_before(&self) -> Option<&ServersZone> {
        self.dialect.servers_zone().filter(|_| self.schema().fragments.described.zone_matters)
    }

    async fn zone_now(&self) -> Result<Option<ServersZone>> {
        let hosts = self.connections.hosts();
        self.dialect.servers_zone_now(hosts.host(&hosts.turn())).await
    }

    /// Nothing closes over a connection that was just made before this was asked: its server may have been started since the others
    /// were, in another zone.
    async fn ask_for_the_zone_anew(&self) -> Result<()> {
        if let Some(before) = self.zone_before()
            && let Some(change) = self.zone_now().await?.and_then(|now| before.change_to(&now))
        {
            self.stop_for(Some(&change));
        }
        self.halt.pass()
    }

    fn stop_for(&self, change: Option<&String>) {
        self.halt.set(change.map(|change| format!("{change}; set database.time_zone")));
    }

    /// What has changed of the zone by which the server reads times, since the store was opened or since it was first noted in
    /// our tables; `notes` what is not noted yet.
    async fn zones_change(&self, notes: bool) -> Result<Option<String>> {
        let noted = self.outbox.fact(ZONE).await?;
        let Some(before) = self.zone_before() else {
            if notes && noted.is_some() {
                self.outbox.forget_fact(ZONE).await.ok();
            }
            return Ok(None);
        };
        let Some(now) = self.zone_now().await? else { return Ok(None) };
        if let Some(change) = before.change_to(&now) {
            return Ok(Some(change));
        }
        match noted.as_deref().and_then(ServersZone::parse) {
            Some(noted) => Ok(noted.change_to(&now)),
            None if !notes => Ok(None),
            None => {
                // Who may not write here closes nothing either.
                self.outbox.note_fact(ZONE, &now.to_text()).await.ok();
                Ok(None)
            }
        }
    }
}

/// The way to a database that several stores share.
type Way<D> = (Arc<D>, Arc<Connections<D>>, Arc<Together<D>>);

/// Connects, or goes the way that was found for another rule.
pub(super) async fn connect<D: Dialect>(settings: &Settings) -> Result<Way<D>, OpenError> {
    let asked = Instant::now();
    let mut found = settings.sharing.found.lock().await;
    if let Some((dialect, connections, together)) = found.way.as_ref().and_then(|way| way.downcast_ref::<Way<D>>()) {
        return Ok((Arc::clone(dialect), Arc::new(connections.beside()), Arc::clone(together)));
    }
    // Others have waited for the same attempt: the database is away for all of them.
    if let Some((_, error)) = found.failed.as_ref().filter(|(at, _)| *at >= asked) {
        return Err(error.clone());
    }
    match first_way::<D>(settings).await {
        Ok(way) => {
            found.way = Some(Box::new(way.clone()));
            Ok(way)
        }
        Err(error) => {
            found.failed = Some((Instant::now(), error.clone()));
            Err(error)
        }
    }
}

async fn first_way<D: Dialect>(settings: &Settings) -> Result<Way<D>, OpenError> {
    let (dialect, connections) = way::<D>(settings).await?;
    let connections = Arc::new(connections);
    let together = Arc::new(Together::over(Arc::new(connections.beside())));
    connections.first().await.map_err(|error| D::refused(&settings.database, error))?;
    Ok((Arc::new(dialect), connections, together))
}

/// Finds the host that takes writes, and asks it what is to be known before.
pub(super) async fn way<D: Dialect>(settings: &Settings) -> Result<(D, Connections<D>), OpenError> {
    let hosts = Hosts::<D>::find(settings).await?;
    let (dialect, plan) = D::plan(settings, hosts.host(&hosts.turn())).await?;
    Ok((dialect, Connections::new(&hosts, plan, settings)))
}

/// The GRANTs of all rights to tables that this user lacks for closing.
pub(super) async fn lacking_rights<D: Dialect>(settings: &Settings) -> Result<Vec<String>, OpenError> {
    let (_, connections) = way::<D>(settings).await?;
    let lacking = D::lacking_rights(&mut connections.read().await?, &settings.rule, &settings.events).await;
    connections.close().await;
    Ok(lacking?)
}

/// The schema in which a bare name is looked for first.
pub(super) async fn home<D: Dialect>(session: &mut Session<D>) -> Result<String> {
    text::<D>(&session.execute(D::HOME.into_sql_str()).await?)
}

/// Our own tables beside a table that need not be there, in the schema in which its name is looked for first.
pub(super) async fn own_tables<D: Dialect>(settings: &Settings) -> Result<Outbox, OpenError> {
    let (_, connections, _) = connect::<D>(settings).await?;
    let mut session = connections.read().await?;
    let table = &settings.rule.table;
    let schema = match &table.schema {
        Some(schema) => schema.clone(),
        None => home(&mut session).await?,
    };
    let own = OwnTables::find(&mut session, D::words(&schema, &table.name), &settings.rule.name).await?;
    drop(session);
    Ok(Outbox::new(connections, &own))
}

#[async_trait]
impl<D: Dialect> Store for Table<D> {
    fn rule(&self) -> &RuleName {
        &self.settings.rule.name
    }

    fn id_kind(&self) -> IdKind {
        self.schema().fragments.id_kind.clone()
    }

    fn unpaid(&self) -> &[String] {
        &self.unpaid
    }

    async fn refresh(&self) -> Result<(), OpenError> {
        let mut session = self.connections.read().await?;
        let schema = Schema::read(self.dialect.as_ref(), &mut session, &self.settings, Some(&self.schema().own)).await?;
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

    async fn running_for(&self) -> Result<Option<Duration>> {
        self.dialect.running_for(&mut self.connections.read().await?).await
    }

    fn turn(&self) -> u64 {
        self.connections.hosts().turn().number
    }

    async fn look_at_hosts(&self) -> Vec<HostSeen> {
        self.connections.look_at_hosts().await
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
        let made = self.connections.made();
        let session = self.connections.begin(limits).await?;
        if self.connections.made() != made {
            self.ask_for_the_zone_anew().await?;
        }
        let recorder = self.recorder.borrow().clone();
        Ok(Box::new(Open::new(session, self.schema(), recorder, Arc::clone(&self.fails_on_payloads))))
    }

    async fn due(&self, query: &DueQuery) -> Result<Page> {
        let (schema, Window { from, until }) = (self.schema(), query.window);
        let due = &schema.statements.due;
        let is_of = schema.fragments.is_of::<D>(query.shares);
        let mut paging = Paging::new(query, due.len());
        let mut own: Option<Session<D>> = None;
        let mut asked = None;
        while let Some(read) = paging.next_read() {
            let statement = match &is_of {
                Some(is_of) => &due[read.status].and(is_of),
                None => &due[read.status],
            };
            let rows = match (&self.reader, read.after) {
                (Some(reader), None) => {
                    let first = reader.read(&statement.first, statement.selected, [until, from, read.limit]).await?;
                    asked = asked.or(Some(first.asked));
                    first.rows
                }
                (_, after) => {
                    let session = match &mut own {
                        Some(session) => session,
                        None => own.insert(self.connections.read().await?),
                    };
                    let [until, from, limit] = [until, from, read.limit].map(Value::from);
                    match after {
                        Some(Cursor { deadline, id, .. }) => {
                            session.read(&statement.next, &[until, from, limit, deadline.into(), id.as_str().into()]).await?
                        }
                        None => session.read(&statement.first, &[until, from, limit]).await?,
                    }
                }
            };
            let row = |row| order_row(&mut Columns::<D::Driver>::of(row), false);
            let last = rows.last().map_or(Ok(None), |row| D::Driver::text(row, PLACE)).map_err(sorted::<D>)?;
            paging.add(rows.iter().map(row).collect::<Result<_, _>>().map_err(sorted::<D>)?, last);
        }
        Ok(Page { asked, ..paging.finish() })
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

    async fn claimed_twice(&self) -> Result<Option<Claim>> {
        let schema = self.schema();
        if schema.statements.claims.is_empty() {
            return Ok(None);
        }
        let mut session = self.connections.read().await?;
        for (rule, statement) in &schema.statements.claims {
            if let Some(row) = session.execute(statement.clone()).await?.first() {
                let id = Columns::<D::Driver>::of(row).text().map_err(sorted::<D>)?;
                return Ok(Some(Claim { id: OrderId::from_database(&id), rule: rule.clone() }));
            }
        }
        Ok(None)
    }

    async fn count_untaken(&self) -> Result<u64> {
        match &self.schema().statements.untaken {
            Some(statement) => number::<D>(&self.connections.read().await?.execute(statement.clone()).await?),
            None => Ok(0),
        }
    }

    async fn count_up_to(&self, Window { from, until }: Window, most: u32) -> Result<u64> {
        let mut session = self.connections.read().await?;
        let (mut counted, most) = (0, u64::from(most));
        for statement in &self.schema().statements.count_some {
            let left = i64::try_from(most.saturating_sub(counted)).unwrap_or(i64::MAX);
            if left == 0 {
                break;
            }
            counted += number::<D>(&session.read(statement, &[until, from, left].map(Value::from)).await?)?;
        }
        Ok(counted)
    }

    async fn clock(&self) -> Result<ClockReading> {
        clock(&mut self.connections.read().await?, &self.schema().statements).await
    }

    async fn takes_writes(&self) -> Result<bool> {
        let rows = self.connections.read().await?.execute(D::IS_STANDBY.into_sql_str()).await?;
        Ok(number::<D>(&rows)? == 0)
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

    async fn between(&self) -> Result<Option<Between>> {
        Ok(D::between(self.connections.read().await?).await?.filter(Between::is_seen))
    }

    async fn census(&self) -> Result<Census> {
        census(&mut self.connections.read().await?, &self.schema().statements).await
    }

    async fn look(&self, ids: &[OrderId]) -> Result<Vec<Row>> {
        let schema = self.schema();
        Ok(rows(&mut self.connections.read().await?, &schema.statements.look, ids, false).await?.rows)
    }

    async fn inspect(&self, id: &OrderId) -> Result<Vec<Inspected>> {
        let schema = self.schema();
        let found = fetch(&mut self.connections.read().await?, &schema.statements.inspect, std::slice::from_ref(id)).await?;
        let inspected = |row| {
            let mut columns = Columns::<D::Driver>::of(row);
            let row = order_row(&mut columns, false)?;
            let (stored, taken) = (columns.optional_text()?, columns.text()?);
            Ok(Inspected { row, stored, passes_filter: taken != "no", is_claimed_twice: taken == "both" })
        };
        found.iter().map(inspected).collect::<Result<_, _>>().map_err(sorted::<D>)
    }

    fn mapped(&self) -> [MappedColumn; 3] {
        self.schema().fragments.described.columns.clone()
    }

    fn time_zone(&self) -> String {
        self.schema().fragments.described.time_zone.clone()
    }

    async fn asked_about(&self, ids: &[OrderId]) -> Result<Vec<(Row, String)>> {
        let schema = self.schema();
        let mut session = self.connections.read().await?;
        let rows = peek(&mut session, &schema.statements, ids).await?;
        let mut carried = match &schema.statements.asked {
            Some(statement) => asked(&mut session, statement, ids).await?,
            None => HashMap::new(),
        };
        let with_columns = |row: Row| {
            let columns = carried.remove(&row.id).unwrap_or_default().data;
            (row, columns)
        };
        Ok(rows.into_iter().map(with_columns).collect())
    }

    fn zone_matters(&self) -> bool {
        self.schema().fragments.described.zone_matters
    }

    async fn zone_changed(&self) -> Result<Option<String>> {
        let changed = self.zones_change(true).await?;
        self.stop_for(changed.as_ref());
        Ok(changed)
    }

    async fn zone_differs(&self) -> Result<Option<String>> {
        self.zones_change(false).await
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

    fn pools(&self) -> Vec<Pool> {
        self.connections.pools()
    }

    fn set_targets(&self, events: &Events) {
        self.recorder.send_replace(self.schema().own.recorder(events));
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
