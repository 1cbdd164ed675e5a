//! PostgreSQL: `FOR UPDATE SKIP LOCKED`, ids as one array parameter.

mod catalogue;
mod moment;
mod outbox;
mod pooler;
mod schema;
mod zone;

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::{
    AssertSqlSafe, Executor, PgPool, Postgres as Driver, SqlStr,
    error::DatabaseError,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::sync::watch;
use tracing::warn;

use crate::{
    config::Config,
    order::{IdKind, OrderId, Row},
    store::{
        Catalogue, ClockReading, Cursor, DueQuery, LockWait, NewEvent, OpenError, Outbox, Page, Store, StoreError, Transaction, Updated,
        error::{Class, sort},
        mapping::horizon_micros,
        paging::Paging,
        session::Session,
    },
};
use outbox::Connections;
use schema::Schema;
use zone::SessionZone;

/// The beginning of a transaction. An UPDATE can't skip locked rows: it waits for a payment that is just committing, and for
/// a longer one it gives up, so that the others can close. Zero would mean to wait for ever.
const fn begin_sql(wait: LockWait) -> &'static str {
    match wait {
        LockWait::Briefly => "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '20ms'",
        LockWait::Never => "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '1ms'",
        LockWait::Patiently => "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '1s'",
    }
}

type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Orders in PostgreSQL.
#[derive(Debug)]
pub(super) struct Postgres {
    pool: PgPool,
    /// As the table was when it was last looked at; what has begun goes on with what it began with.
    schema: watch::Sender<Arc<Schema>>,
    unpaid: Vec<String>,
    config: Config,
    zone: SessionZone,
    timeout: Duration,
    outbox: Outbox,
}

impl Postgres {
    pub(super) async fn open(config: &Config) -> Result<Self, OpenError> {
        let timeout = config.database.timeout.get();
        let options: PgConnectOptions = config.database.url.secret().parse().map_err(super::unusable_url)?;
        let options = options.application_name("order-closer");
        pooler::refuse_shared_sessions(&options, super::acquire_timeout(config)).await?;
        let zone = zone::session_zone(config).await?;
        let setup = format!(
            // A payment waits for a lock of ours no longer than this, should this process hang or a statement not end.
            "SET idle_in_transaction_session_timeout = '5s'; SET statement_timeout = {}; SET lock_timeout = {}; {}",
            timeout.as_millis(),
            super::LOCK_WAIT.as_millis(),
            zone.set_sql()
        );
        let pool = PgPoolOptions::new()
            .max_connections(super::connections(config))
            .acquire_timeout(super::acquire_timeout(config))
            .after_connect(move |connection, _| {
                let setup = setup.clone();
                Box::pin(async move { connection.execute(sqlx::raw_sql(AssertSqlSafe(setup))).await.map(drop) })
            })
            .connect_lazy_with(options);
        let mut session = Session::take(&pool, timeout, sorted).await?;
        let schema = Schema::read(&mut session, config, &zone, None).await?;
        drop(session);
        if let SessionZone::Unknown(reason) = &zone {
            warn!(
                reason,
                "the server's time zone could not be learned, and sessions stay in UTC, also for orders.set and close.sql; set database.time_zone"
            );
        }
        let outbox = Outbox::new(Connections { pool: pool.clone(), timeout }, &schema.own);
        let (unpaid, config) = (schema.unpaid.clone(), config.clone());
        Ok(Self { pool, schema: watch::Sender::new(Arc::new(schema)), unpaid, config, zone, timeout, outbox })
    }

    fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema.borrow())
    }

    async fn session(&self) -> Result<Session<Driver>> {
        Session::take(&self.pool, self.timeout, sorted).await
    }
}

/// A row of any of the reads: id, status, deadline, now.
type Tuple = (String, Option<String>, Option<i64>, i64);

fn row((id, status, deadline, now): Tuple, locked: bool) -> Row {
    Row { id: OrderId::from_database(&id), status, deadline, now, locked }
}

async fn rows(session: &mut Session<Driver>, sql: SqlStr, ids: &[OrderId], locked: bool) -> Result<Vec<Row>> {
    let select = sqlx::query_as::<_, Tuple>(sql).bind(texts(ids));
    let tuples = session.run(|connection| select.fetch_all(connection)).await?;
    Ok(tuples.into_iter().map(|tuple| row(tuple, locked)).collect())
}

fn texts(ids: &[OrderId]) -> Vec<&str> {
    ids.iter().map(OrderId::as_str).collect()
}

#[async_trait]
impl Store for Postgres {
    fn id_kind(&self) -> IdKind {
        self.schema().id_kind.clone()
    }

    fn unpaid(&self) -> &[String] {
        &self.unpaid
    }

    async fn refresh(&self) -> Result<(), OpenError> {
        let mut session = self.session().await?;
        let schema = Schema::read(&mut session, &self.config, &self.zone, Some(&self.schema().own)).await?;
        self.schema.send_replace(Arc::new(schema));
        Ok(())
    }

    async fn begin(&self, wait: LockWait) -> Result<Box<dyn Transaction>> {
        let mut session = self.session().await?;
        session.begin(begin_sql(wait)).await?;
        Ok(Box::new(Open { session, schema: self.schema() }))
    }

    async fn due(&self, query: &DueQuery) -> Result<Page> {
        let mut session = self.session().await?;
        let (schema, ahead) = (self.schema(), horizon_micros(query.ahead));
        let mut paging = Paging::new(query, schema.due.len());
        while let Some(read) = paging.next_read() {
            let statement = &schema.due[read.status];
            let sql = if read.after.is_some() { &statement.next } else { &statement.first };
            let mut select =
                sqlx::query_as::<_, (String, Option<String>, Option<i64>, i64, String)>(sql.clone()).bind(ahead).bind(read.limit);
            if let Some(Cursor { deadline, id, .. }) = read.after {
                select = select.bind(deadline).bind(id.as_str().to_owned());
            }
            let rows = session.run(|connection| select.fetch_all(connection)).await?;
            paging.add(rows.into_iter().map(|(id, status, deadline, now, text)| (row((id, status, deadline, now), false), text)).collect());
        }
        Ok(paging.finish())
    }

    async fn count_overdue(&self) -> Result<u64> {
        let mut session = self.session().await?;
        let select = sqlx::query_scalar::<_, i64>(self.schema().count_overdue.clone()).bind(0_i64);
        let count = session.run(|connection| select.fetch_one(connection)).await?;
        Ok(count.unsigned_abs())
    }

    async fn clock(&self) -> Result<ClockReading> {
        schema::clock(&mut self.session().await?).await
    }

    async fn catalogue(&self) -> Result<Catalogue> {
        self.schema().catalogue(&mut self.session().await?).await
    }

    async fn look(&self, ids: &[OrderId]) -> Result<Vec<Row>> {
        rows(&mut self.session().await?, self.schema().peek.clone(), ids, false).await
    }

    fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}

struct Open {
    session: Session<Driver>,
    schema: Arc<Schema>,
}

impl Open {
    async fn change(&mut self, sql: SqlStr, ids: &[OrderId]) -> Result<u64> {
        let statement = sqlx::query(sql).bind(texts(ids));
        Ok(self.session.run(|connection| statement.execute(connection)).await?.rows_affected())
    }
}

#[async_trait]
impl Transaction for Open {
    async fn lock(&mut self, ids: &[OrderId]) -> Result<Vec<Row>> {
        rows(&mut self.session, self.schema.lock.clone(), ids, true).await
    }

    async fn peek(&mut self, ids: &[OrderId]) -> Result<Vec<Row>> {
        rows(&mut self.session, self.schema.peek.clone(), ids, false).await
    }

    async fn close_due(&mut self, ids: &[OrderId]) -> Result<Vec<Row>> {
        match self.schema.close_due.clone() {
            Some(sql) => rows(&mut self.session, sql, ids, true).await,
            None => Ok(Vec::new()),
        }
    }

    async fn update(&mut self, ids: &[OrderId]) -> Result<Updated> {
        let changed = self.change(self.schema.update.clone(), ids).await?;
        let select = sqlx::query_scalar::<_, i64>(self.schema.count_closed.clone()).bind(texts(ids));
        let closed = self.session.run(|connection| select.fetch_one(connection)).await?.unsigned_abs();
        Ok(Updated { changed, closed })
    }

    fn records(&self) -> bool {
        self.schema.recorder.is_some()
    }

    async fn included(&mut self, ids: &[OrderId]) -> Result<HashMap<OrderId, String>> {
        let Some(sql) = self.schema.included.clone() else { return Ok(HashMap::new()) };
        let select = sqlx::query_as::<_, (String, String)>(sql).bind(texts(ids));
        let rows = self.session.run(|connection| select.fetch_all(connection)).await?;
        Ok(rows.into_iter().map(|(id, data)| (OrderId::from_database(&id), data)).collect())
    }

    async fn run_close_sql(&mut self, ids: &[OrderId]) -> Result<()> {
        let schema = Arc::clone(&self.schema);
        for statement in &schema.close_sql {
            for ids in statement.runs(ids) {
                let changed = self.change(statement.sql.clone(), ids).await?;
                statement.check(ids, changed)?;
            }
        }
        Ok(())
    }

    async fn record(&mut self, events: &[NewEvent]) -> Result<()> {
        let Some(recorder) = self.schema.recorder.clone() else { return Ok(()) };
        recorder.record(&mut self.session, events).await
    }

    async fn commit(self: Box<Self>) -> Result<()> {
        self.session.commit().await
    }

    async fn rollback(self: Box<Self>) {
        self.session.rollback().await;
    }
}

fn sorted(error: sqlx::Error) -> StoreError {
    sort(&error, classify)
}

/// By SQLSTATE: <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
fn classify(error: &dyn DatabaseError) -> Class {
    let code = error.code().unwrap_or_default();
    match code.as_ref() {
        // Serialization failure, deadlock.
        "40001" | "40P01" => Class::Conflict,
        // Lock not available.
        "55P03" => Class::Locked,
        // Cancelled, mostly by a limit on its time.
        "57014" => Class::TimedOut,
        // A standby, or a primary that became one; limits on transactions.
        "25006" | "25P03" | "25P04" => Class::Unavailable,
        // Connection, authorization, no such database, resources, shutdown, internal and system errors.
        _ if ["08", "28", "3D", "53", "57P", "58", "XX"].iter().any(|class| code.starts_with(class)) => Class::Unavailable,
        _ => Class::Rejected,
    }
}
