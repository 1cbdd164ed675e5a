//! SQLite: `BEGIN IMMEDIATE` locks the whole database, ids travel as one JSON parameter.

mod affinity;
mod catalogue;
mod connections;
mod moment;
mod outbox;
mod schema;

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use async_trait::async_trait;
use serde::Deserialize;
use sqlx::{SqlStr, Sqlite as Driver, error::DatabaseError, sqlite::SqliteConnectOptions};
use tokio::sync::watch;

use crate::{
    config::Config,
    order::{IdKind, OrderId, Row},
    store::{
        Catalogue, ClockReading, Cursor, DueQuery, LockWait, Misfit, NewEvent, OpenError, Outbox, Page, Store, StoreError, Transaction,
        Updated,
        error::{Class, sort},
        mapping::horizon_micros,
        paging::Paging,
        session::Session,
    },
};
use connections::Connections;
use schema::Schema;

type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Rows that SQLite's thread may read ahead of us: with the driver's 50, the two threads would wake each
/// other forty times for one page of the sweep.
const ROW_BUFFER: usize = 2_000;

/// Orders in an SQLite file.
#[derive(Debug)]
pub(super) struct Sqlite {
    connections: Connections,
    /// As the table was when it was last looked at; what has begun goes on with what it began with.
    schema: watch::Sender<Arc<Schema>>,
    unpaid: Vec<String>,
    config: Config,
    outbox: Outbox,
}

impl Sqlite {
    pub(super) async fn open(config: &Config) -> Result<Self, OpenError> {
        let timeout = config.database.timeout.get();
        let options: SqliteConnectOptions = config.database.url.secret().parse().map_err(super::unusable_url)?;
        let file = options.get_filename();
        // SQLite's own message would not say which file.
        if !file.exists() {
            return Err(Misfit(format!(
                "database.url is {}, and there is no file {}; a relative path begins at the working directory",
                config.database.url,
                file.display()
            ))
            .into());
        }
        // The journal mode is the shop's to choose and stays. Foreign keys are enforced, as the driver has it:
        // a close.sql statement that would leave orphans is rejected and seen.
        // Whoever writes holds everything, and nothing is gained by giving up early.
        let options = options.create_if_missing(false).busy_timeout(super::acquire_timeout(config)).row_buffer_size(ROW_BUFFER);
        let connections = Connections::new(&options, super::connections(config), timeout, super::acquire_timeout(config));
        let mut session = connections.reader().await?;
        let schema = Arc::new(Schema::read(&mut session, config, None).await?);
        drop(session);
        let outbox = Outbox::new(connections.clone(), &schema.own);
        let (unpaid, config) = (schema.unpaid.clone(), config.clone());
        Ok(Self { connections, schema: watch::Sender::new(schema), unpaid, config, outbox })
    }

    fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema.borrow())
    }
}

/// A row of the sweep: id, status, deadline, now.
type Tuple = (String, Option<String>, Option<i64>, i64);

fn row((id, status, deadline, now): Tuple) -> Row {
    Row { id: OrderId::from_database(&id), status, deadline, now, locked: false }
}

#[async_trait]
impl Store for Sqlite {
    fn id_kind(&self) -> IdKind {
        self.schema().id_kind.clone()
    }

    fn unpaid(&self) -> &[String] {
        &self.unpaid
    }

    async fn refresh(&self) -> Result<(), OpenError> {
        let mut session = self.connections.reader().await?;
        let schema = Schema::read(&mut session, &self.config, Some(&self.schema().own)).await?;
        self.schema.send_replace(Arc::new(schema));
        Ok(())
    }

    async fn begin(&self, _: LockWait) -> Result<Box<dyn Transaction>> {
        Ok(Box::new(Open { session: self.connections.begin().await?, schema: self.schema(), triggers: true }))
    }

    async fn due(&self, query: &DueQuery) -> Result<Page> {
        let mut session = self.connections.reader().await?;
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
            paging.add(rows.into_iter().map(|(id, status, deadline, now, text)| (row((id, status, deadline, now)), text)).collect());
        }
        Ok(paging.finish())
    }

    async fn count_overdue(&self) -> Result<u64> {
        let mut session = self.connections.reader().await?;
        let mut count = 0;
        for sql in &self.schema().count_overdue {
            let select = sqlx::query_scalar::<_, i64>(sql.clone()).bind(0_i64);
            count += session.run(|connection| select.fetch_one(connection)).await?.unsigned_abs();
        }
        Ok(count)
    }

    async fn clock(&self) -> Result<ClockReading> {
        schema::clock(&mut self.connections.reader().await?).await
    }

    async fn catalogue(&self) -> Result<Catalogue> {
        self.schema().catalogue(&mut self.connections.reader().await?).await
    }

    async fn look(&self, ids: &[OrderId]) -> Result<Vec<Row>> {
        Ok(rows(&mut self.connections.reader().await?, &self.schema(), ids, false).await?.0)
    }

    fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    async fn close(&self) {
        self.connections.close().await;
    }
}

/// A row of a batch: id, status, deadline.
#[derive(Deserialize)]
struct Read<'a>(#[serde(borrow)] Cow<'a, str>, Option<String>, Option<i64>);

/// Returns the rows of these orders, and whether the table has triggers.
async fn rows(session: &mut Session<Driver>, schema: &Schema, ids: &[OrderId], locked: bool) -> Result<(Vec<Row>, bool)> {
    let select = sqlx::query_as::<_, (String, i64, bool)>(schema.read.clone()).bind(schema.json(ids));
    let (rows, now, triggers) = session.run(|connection| select.fetch_one(connection)).await?;
    let rows: Vec<Read<'_>> =
        serde_json::from_str(&rows).map_err(|error| StoreError::Rejected(format!("the rows of these orders can't be read: {error}")))?;
    let row = |(place, Read(id, status, deadline)): (usize, Read<'_>)| {
        // Numbers come in the order in which they are asked for, and are spared another copy.
        let asked = ids.get(place).filter(|asked| asked.as_str() == id);
        Row { id: asked.map_or_else(|| OrderId::from_database(&id), OrderId::clone), status, deadline, now, locked }
    };
    Ok((rows.into_iter().enumerate().map(row).collect(), triggers))
}

struct Open {
    session: Session<Driver>,
    schema: Arc<Schema>,
    /// Whether the table has triggers, as far as is known: one could give an order another status than it was set to.
    triggers: bool,
}

impl Open {
    async fn change(&mut self, sql: SqlStr, ids: &[OrderId]) -> Result<u64> {
        let statement = sqlx::query(sql).bind(self.schema.json(ids));
        Ok(self.session.run(|connection| statement.execute(connection)).await?.rows_affected())
    }
}

#[async_trait]
impl Transaction for Open {
    async fn lock(&mut self, ids: &[OrderId]) -> Result<Vec<Row>> {
        // The transaction holds the only write lock that there is.
        let (rows, triggers) = rows(&mut self.session, &self.schema, ids, true).await?;
        self.triggers = triggers;
        Ok(rows)
    }

    async fn peek(&mut self, ids: &[OrderId]) -> Result<Vec<Row>> {
        Ok(rows(&mut self.session, &self.schema, ids, false).await?.0)
    }

    async fn close_due(&mut self, _: &[OrderId]) -> Result<Vec<Row>> {
        // UPDATE … RETURNING works, but costs more than reading the rows first: it has to tell each row's deadline twice.
        Ok(Vec::new())
    }

    async fn update(&mut self, ids: &[OrderId]) -> Result<Updated> {
        let changed = self.change(self.schema.update.clone(), ids).await?;
        if !self.triggers {
            return Ok(Updated { changed, closed: changed });
        }
        let select = sqlx::query_scalar::<_, i64>(self.schema.count_closed.clone()).bind(self.schema.json(ids));
        let closed = self.session.run(|connection| select.fetch_one(connection)).await?.unsigned_abs();
        Ok(Updated { changed, closed })
    }

    fn records(&self) -> bool {
        self.schema.recorder.is_some()
    }

    async fn included(&mut self, ids: &[OrderId]) -> Result<HashMap<OrderId, String>> {
        let Some(sql) = self.schema.included.clone() else { return Ok(HashMap::new()) };
        let select = sqlx::query_as::<_, (String, String)>(sql).bind(self.schema.json(ids));
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

/// By result code, of which the low byte is the primary one: <https://www.sqlite.org/rescode.html>.
fn classify(error: &dyn DatabaseError) -> Class {
    let code: u32 = error.code().and_then(|code| code.parse().ok()).unwrap_or(0);
    match code & 0xff {
        // A schema that changed under the statement.
        17 => Class::Conflict,
        // Busy, locked.
        5 | 6 => Class::Locked,
        // Permission, memory, read-only, interrupted, I/O, corrupt, full, can't open, lock protocol, no database.
        3 | 7 | 8 | 9 | 10 | 11 | 13 | 14 | 15 | 22 | 23 | 26 => Class::Unavailable,
        _ => Class::Rejected,
    }
}
