//! MySQL and MariaDB: `FOR UPDATE SKIP LOCKED`, ids as IN lists of a few fixed sizes.
//!
//! What these servers do otherwise than one would think, and what is done about it: a comparison of text
//! finds other spellings ([`ids`]), a time without a zone may be ambiguous ([`moment`]), and a statement that
//! scans locks whatever it scans, so locking statements are told which index to use ([`schema`]).

mod catalogue;
mod ids;
mod moment;
mod outbox;
mod schema;

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::{
    AssertSqlSafe, Executor, MySql as Driver, MySqlPool, SqlSafeStr, SqlStr,
    error::DatabaseError,
    mysql::{MySqlArguments, MySqlConnectOptions, MySqlDatabaseError, MySqlPoolOptions},
};
use tokio::sync::watch;

use crate::{
    config::{Config, TimeZone},
    order::{IdKind, OrderId, Row},
    store::{
        Catalogue, ClockReading, DueQuery, LockWait, Misfit, NewEvent, OpenError, Outbox, Page, Store, StoreError, Transaction, Updated,
        error::{Class, sort},
        mapping::horizon_micros,
        paging::Paging,
        session::{Session, acquire},
    },
};
use ids::{ListStatement, batches};
use outbox::Connections;
use schema::Schema;

type Result<T, E = StoreError> = std::result::Result<T, E>;

/// A row's lock is waited for as long as the first of these says, a table's as the second. A payment waits behind a
/// transaction of ours no longer than the others say, should this process hang or a statement not end: MySQL
/// can only give up idle sessions as a whole; MariaDB reads what stands in its comment.
fn limits(timeout: Duration) -> SqlStr {
    let statement = timeout.as_secs_f64();
    AssertSqlSafe(format!(
        "SET SESSION innodb_lock_wait_timeout = 1, SESSION lock_wait_timeout = 1, SESSION wait_timeout = 30 \
         /*M!100300 , SESSION idle_transaction_timeout = 5, SESSION max_statement_time = {statement} */"
    ))
    .into_sql_str()
}

/// A wait for a lock ends within a second, which is the least that MySQL knows, and is to be told from a
/// statement that takes too long.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Connections are given up well before the server does so.
const POOL_IDLE: Duration = Duration::from_secs(10);

/// Under the default level, REPEATABLE READ, locks cover the gaps between rows as well.
const ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// Orders in MySQL or MariaDB.
#[derive(Debug)]
pub(super) struct MySql {
    pool: MySqlPool,
    /// As the table was when it was last looked at; what has begun goes on with what it began with.
    schema: watch::Sender<Arc<Schema>>,
    unpaid: Vec<String>,
    config: Config,
    timeout: Duration,
    outbox: Outbox,
}

impl MySql {
    pub(super) async fn open(config: &Config) -> Result<Self, OpenError> {
        let timeout = config.database.timeout.get().max(SHORTEST_TIMEOUT);
        let pool = MySqlPoolOptions::new()
            .max_connections(super::connections(config))
            .acquire_timeout(super::acquire_timeout(config))
            .idle_timeout(POOL_IDLE)
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    connection.execute(sqlx::raw_sql(ISOLATION)).await?;
                    connection.execute(sqlx::raw_sql(limits(timeout))).await.map(drop)
                })
            })
            .connect_lazy_with(options(config)?);
        // The zone is set while connecting, and only the driver's own error still has its number.
        drop(acquire(&pool, timeout).await.map_err(|error| refused(config, error))?);
        let mut session = Session::take(&pool, timeout, sorted).await?;
        let schema = Arc::new(Schema::read(&mut session, config, None).await?);
        drop(session);
        let outbox = Outbox::new(Connections { pool: pool.clone(), timeout }, &schema.own);
        let (unpaid, config) = (schema.unpaid.clone(), config.clone());
        Ok(Self { pool, schema: watch::Sender::new(schema), unpaid, config, timeout, outbox })
    }

    fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema.borrow())
    }

    async fn session(&self) -> Result<Session<Driver>> {
        Session::take(&self.pool, self.timeout, sorted).await
    }
}

fn options(config: &Config) -> Result<MySqlConnectOptions, OpenError> {
    let options: MySqlConnectOptions = config.database.url.secret().parse().map_err(super::unusable_url)?;
    // The driver would set UTC, and the columns of a shop are mostly in its server's own zone.
    let zone = config.database.time_zone.as_ref().map(zone_name);
    // The user's SQL runs in the server's own modes.
    let options = options.timezone(zone).pipes_as_concat(false).no_engine_substitution(false);
    // The ids of one statement are compared byte by byte with what is bound.
    Ok(options.charset("utf8mb4").statement_cache_capacity(ids::SIZES * (9 + config.close.sql.len())))
}

/// As the server knows it; UTC has its name only where the tables of time zones are filled.
fn zone_name(zone: &TimeZone) -> String {
    match zone {
        TimeZone::Named(name) if name.eq_ignore_ascii_case("utc") => "+00:00".into(),
        TimeZone::Named(_) | TimeZone::Offset(_) => zone.to_string(),
    }
}

/// Why no connection could be had.
fn refused(config: &Config, error: sqlx::Error) -> OpenError {
    const UNKNOWN_TIME_ZONE: u16 = 1298;
    match &config.database.time_zone {
        Some(zone) if number(&error) == UNKNOWN_TIME_ZONE => Misfit(format!(
            "database.time_zone is {zone}, which this server does not know; write an offset such as \"+08:00\" within the server's range, \
             or load the names with: mysql_tzinfo_to_sql /usr/share/zoneinfo | mysql -u root mysql"
        ))
        .into(),
        _ => sorted(error).into(),
    }
}

fn number(error: &sqlx::Error) -> u16 {
    error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>()).map_or(0, MySqlDatabaseError::number)
}

/// A row of any of the reads: id, status, deadline, now.
type Tuple = (String, Option<String>, Option<i64>, i64);

fn row((id, status, deadline, now): Tuple, locked: bool) -> Row {
    Row { id: OrderId::from_database(&id), status, deadline, now, locked }
}

#[async_trait]
impl Store for MySql {
    fn id_kind(&self) -> IdKind {
        self.schema().id_kind.clone()
    }

    fn unpaid(&self) -> &[String] {
        &self.unpaid
    }

    async fn refresh(&self) -> Result<(), OpenError> {
        let mut session = self.session().await?;
        let schema = Schema::read(&mut session, &self.config, Some(&self.schema().own)).await?;
        self.schema.send_replace(Arc::new(schema));
        Ok(())
    }

    async fn begin(&self, wait: LockWait) -> Result<Box<dyn Transaction>> {
        let mut session = self.session().await?;
        // MySQL makes 1 of the 0, the least that it knows; MariaDB counts whole seconds, too, but knows 0.
        session
            .begin(match wait {
                LockWait::Briefly | LockWait::Never => "SET SESSION innodb_lock_wait_timeout = 0; START TRANSACTION",
                LockWait::Patiently => "SET SESSION innodb_lock_wait_timeout = 1; START TRANSACTION",
            })
            .await?;
        Ok(Box::new(Open { session, schema: self.schema() }))
    }

    async fn due(&self, query: &DueQuery) -> Result<Page> {
        let mut session = self.session().await?;
        let (schema, ahead) = (self.schema(), horizon_micros(query.ahead));
        let mut paging = Paging::new(query, schema.due.len());
        while let Some(read) = paging.next_read() {
            let statement = &schema.due[read.status];
            let sql = if read.after.is_some() { &statement.next } else { &statement.first };
            let arguments = schema.due_arguments(ahead, &read).map_err(sorted)?;
            let select = sqlx::query_as_with::<_, (String, Option<String>, Option<i64>, i64, String), _>(sql.clone(), arguments);
            let rows = session.run(|connection| select.fetch_all(connection)).await?;
            paging.add(rows.into_iter().map(|(id, status, deadline, now, text)| (row((id, status, deadline, now), false), text)).collect());
        }
        Ok(paging.finish())
    }

    async fn count_overdue(&self) -> Result<u64> {
        let mut session = self.session().await?;
        let schema = self.schema();
        let select = sqlx::query_scalar_with::<_, i64, _>(schema.count_overdue.clone(), schema.horizon(0).map_err(sorted)?);
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
        rows(&mut self.session().await?, &self.schema().peek, ids, false).await
    }

    fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}

async fn rows(session: &mut Session<Driver>, statement: &ListStatement, ids: &[OrderId], locked: bool) -> Result<Vec<Row>> {
    let mut rows = Vec::with_capacity(ids.len());
    for batch in batches(ids) {
        let (sql, arguments) = statement.bound(batch).map_err(sorted)?;
        let select = sqlx::query_as_with::<_, Tuple, MySqlArguments>(sql, arguments);
        let tuples = session.run(|connection| select.fetch_all(connection)).await?;
        rows.extend(tuples.into_iter().map(|tuple| row(tuple, locked)));
    }
    Ok(rows)
}

struct Open {
    session: Session<Driver>,
    schema: Arc<Schema>,
}

impl Open {
    async fn change(&mut self, statement: &ListStatement, ids: &[OrderId]) -> Result<u64> {
        let mut changed = 0;
        for batch in batches(ids) {
            let (sql, arguments) = statement.bound(batch).map_err(sorted)?;
            let statement = sqlx::query_with(sql, arguments);
            changed += self.session.run(|connection| statement.execute(connection)).await?.rows_affected();
        }
        Ok(changed)
    }
}

#[async_trait]
impl Transaction for Open {
    async fn lock(&mut self, ids: &[OrderId]) -> Result<Vec<Row>> {
        rows(&mut self.session, &self.schema.lock, ids, true).await
    }

    async fn peek(&mut self, ids: &[OrderId]) -> Result<Vec<Row>> {
        rows(&mut self.session, &self.schema.peek, ids, false).await
    }

    async fn close_due(&mut self, _: &[OrderId]) -> Result<Vec<Row>> {
        // Neither server has UPDATE … RETURNING.
        Ok(Vec::new())
    }

    async fn update(&mut self, ids: &[OrderId]) -> Result<Updated> {
        let schema = Arc::clone(&self.schema);
        let changed = self.change(&schema.update, ids).await?;
        let mut closed = 0;
        for batch in batches(ids) {
            let (sql, arguments) = schema.count_closed.bound(batch).map_err(sorted)?;
            let select = sqlx::query_scalar_with::<_, i64, MySqlArguments>(sql, arguments);
            closed += self.session.run(|connection| select.fetch_one(connection)).await?.unsigned_abs();
        }
        Ok(Updated { changed, closed })
    }

    fn records(&self) -> bool {
        self.schema.recorder.is_some()
    }

    async fn included(&mut self, ids: &[OrderId]) -> Result<HashMap<OrderId, String>> {
        let schema = Arc::clone(&self.schema);
        let Some(statement) = &schema.included else { return Ok(HashMap::new()) };
        let mut data = HashMap::with_capacity(ids.len());
        for batch in batches(ids) {
            let (sql, arguments) = statement.bound(batch).map_err(sorted)?;
            let select = sqlx::query_as_with::<_, (String, String), MySqlArguments>(sql, arguments);
            let rows = self.session.run(|connection| select.fetch_all(connection)).await?;
            data.extend(rows.into_iter().map(|(id, data)| (OrderId::from_database(&id), data)));
        }
        Ok(data)
    }

    async fn run_close_sql(&mut self, ids: &[OrderId]) -> Result<()> {
        let schema = Arc::clone(&self.schema);
        for statement in &schema.close_sql {
            for ids in statement.runs(ids) {
                let changed = self.change(&statement.sql, ids).await?;
                statement.check(ids, changed)?;
            }
        }
        Ok(())
    }

    async fn record(&mut self, events: &[NewEvent]) -> Result<()> {
        let schema = Arc::clone(&self.schema);
        let Some(recorder) = &schema.recorder else { return Ok(()) };
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

/// By error number: <https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html> and
/// <https://mariadb.com/kb/en/mariadb-error-code-reference/>.
fn classify(error: &dyn DatabaseError) -> Class {
    match error.try_downcast_ref::<MySqlDatabaseError>().map_or(0, MySqlDatabaseError::number) {
        // Deadlock, a row or a table changed under its statement, a statement that is to be prepared again.
        1213 | 1020 | 1412 | 1615 => Class::Conflict,
        // Lock wait timeout, a row that was not to be waited for.
        1205 | 3572 => Class::Locked,
        // Limits on the time of a statement.
        1969 | 3024 => Class::TimedOut,
        // Disk full, out of memory, too many connections, handshake and access, no such database, packets (but one that
        // is too large may be made smaller), shutdown, killed by an operator or a limit, too many prepared statements.
        1021 | 1037 | 1038 | 1040..=1045 | 1047 | 1049 | 1053 | 1077..=1080 | 1114 | 1129 | 1130 | 1152 | 1154..=1161 | 1184 | 1203 | 1226 | 1251
        | 1317 | 1461
        // A replica, read-only or on its way to becoming one; passwords that expired; locked accounts.
        | 1290 | 1792 | 1820 | 1836 | 1862 | 1927 | 2000..=2999 | 3032 | 3100 | 3101 | 3118 | 3168 | 3169 | 3879 | 4031 | 4151
        // The index that our statements name was dropped or renamed: a matter of the table, not of an order.
        | 1176 => Class::Unavailable,
        _ => Class::Rejected,
    }
}
