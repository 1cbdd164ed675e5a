//! SQLite: `BEGIN IMMEDIATE` locks the whole database, ids travel as one JSON parameter.

mod affinity;
mod catalogue;
mod deadline;
mod file;
mod own;
mod statements;
mod survey;

pub(super) use own::words;

use std::{borrow::Cow, os::unix::fs::MetadataExt, time::Duration};

use async_trait::async_trait;
use serde::Deserialize;
use sqlx::{SqlSafeStr, SqlStr, error::DatabaseError, sqlite::SqliteConnectOptions};

use crate::{
    config::{DatabaseUrl, Rule, TimeZone},
    order::{OrderId, Row},
    store::{
        Limits, OpenError, Settings, StoreError,
        catalogue::Findings,
        connections::Plan,
        dialect::{Batch, Dialect, DriverRow, Fragments, List, sorted},
        driver::{Columns, Driver, Value},
        error::Class,
        hosts::Host,
        own::Words,
        session::Session,
        statement::{Parameters, sql},
        survey::SurveyWords,
        template::Template,
        unusable_url,
    },
};
pub(in crate::store) use deadline::NOW;
use statements::{IDS, Table};

/// Rows that SQLite's thread may read ahead of us: with the driver's 50, the two threads would wake each
/// other forty times for one page of the sweep.
const ROW_BUFFER: usize = 2_000;

/// For how long a connection is used: a backup that took the file's place meanwhile is another file.
const KEPT: Duration = Duration::from_secs(10);

/// Orders in an SQLite file.
#[derive(Debug)]
pub(super) struct Sqlite {
    url: DatabaseUrl,
    time_zone: Option<TimeZone>,
}

#[async_trait]
impl Dialect for Sqlite {
    type Driver = sqlx::Sqlite;
    type List = JsonStatement;
    type Table = Table;

    const READ_ONLY: &'static str = "PRAGMA query_only = ON";
    const PARAMETERS: Parameters = Parameters::Numbered;
    const BRACKETS: (&'static str, &'static str) = ("SELECT * FROM (", ")");
    const TABLES: &'static str =
        "SELECT name FROM sqlite_schema WHERE ?1 = 'main' AND type = 'table' AND name LIKE ?2 ESCAPE '!' ORDER BY name";
    const SURVEY: &'static SurveyWords = &survey::SURVEY;
    const HOME: &'static str = "SELECT 'main'";
    const BEGIN: &'static str = "BEGIN IMMEDIATE";

    const STANDING: &'static str = "SELECT 0, NULL";
    const IS_STANDBY: &'static str = "SELECT 0";

    fn options(settings: &Settings, url: &DatabaseUrl) -> Result<SqliteConnectOptions, OpenError> {
        let options: SqliteConnectOptions = url.secret().parse().map_err(unusable_url)?;
        // The journal mode is the shop's to choose and stays. Foreign keys are enforced, as the driver has it:
        // a close.sql statement that would leave orphans is rejected and seen.
        // Whoever writes holds everything, and nothing is gained by giving up early.
        Ok(options.create_if_missing(false).busy_timeout(settings.acquire_timeout()).row_buffer_size(ROW_BUFFER))
    }

    async fn plan(settings: &Settings, host: &Host<Self>) -> Result<(Self, Plan), OpenError> {
        let database = &settings.database;
        let file = host.plain.get_filename();
        file::found(file, &database.url)?;
        let plan = Plan {
            closing: String::new(),
            reading: String::new(),
            timeout: database.timeout.get(),
            reading_timeout: settings.reading,
            idle: None,
            // A second would sleep in SQLite's busy handler and wake late, and each would make the other's page cache
            // worthless.
            one_writer_for: Some(KEPT),
        };
        Ok((Self { url: database.url.clone(), time_zone: database.time_zone.clone() }, plan))
    }

    // It proves by itself that the file can be written.
    fn begin(_: Limits, _: bool) -> SqlStr {
        Self::BEGIN.into_sql_str()
    }

    fn proof(_: bool) -> &'static str {
        "PRAGMA busy_timeout = 0; BEGIN IMMEDIATE; ROLLBACK"
    }

    /// By result code, of which the low byte is the primary one: <https://www.sqlite.org/rescode.html>.
    fn classify(error: &dyn DatabaseError) -> Class {
        let code: u32 = error.code().and_then(|code| code.parse().ok()).unwrap_or(0);
        if let Some(cure) = file::cure(code) {
            return Class::Refused(cure.into());
        }
        match code & 0xff {
            // A schema that changed under the statement.
            17 => Class::Conflict,
            // Busy, locked.
            5 | 6 => Class::Locked,
            // Memory, a file that was moved away, interrupted, I/O, corrupt, full, lock protocol.
            7 | 8 | 9 | 10 | 11 | 13 | 15 | 22 => Class::Unavailable,
            _ => Class::Rejected,
        }
    }

    // A file that can't be written does not become another one by being opened again.
    fn refuses_to_write(_: &(dyn DatabaseError + 'static)) -> bool {
        false
    }

    // A backup that was put in its place is another file. Numbers of files are counted on each host anew.
    async fn identity(&self, _: &mut Session<Self>) -> Result<String, StoreError> {
        let options: SqliteConnectOptions = self.url.secret().parse().map_err(sorted::<Self>)?;
        let file = options.get_filename().metadata().map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(format!("{}/{}/{}", host(), file.dev(), file.ino()))
    }

    async fn describe(&self, session: &mut Session<Self>, rule: &Rule) -> Result<(Table, Fragments), OpenError> {
        statements::read(session, rule, &self.url, self.time_zone.as_ref()).await
    }

    fn words(schema: &str, table: &str) -> Words {
        words(schema, table)
    }

    async fn findings(&self, session: &mut Session<Self>, table: &Table, fragments: &Fragments) -> Result<Findings, StoreError> {
        table.findings(session, fragments).await
    }

    fn list(table: &Table, statement: String) -> Result<JsonStatement, OpenError> {
        Ok(JsonStatement { sql: sql(statement), numbers: table.ids_are_numbers })
    }

    fn user_list(table: &Table, template: &Template) -> JsonStatement {
        JsonStatement { sql: sql(template.render(IDS)), numbers: table.ids_are_numbers }
    }

    fn batch(found: &[DriverRow<Self>], ids: &[OrderId], locked: bool) -> Result<Batch, StoreError> {
        let Some(found) = found.first() else { return Ok(Batch::default()) };
        let mut columns = Columns::<sqlx::Sqlite>::of(found);
        let mut read = || Ok((columns.text()?, columns.number()?, columns.number()? != 0));
        let (rows, now, has_triggers) = read().map_err(sorted::<Self>)?;
        let rows: Vec<Read<'_>> = serde_json::from_str(&rows)
            .map_err(|error| StoreError::Rejected(format!("the rows of these orders can't be read: {error}")))?;
        let row = |(place, Read(id, status, deadline)): (usize, Read<'_>)| {
            // Numbers come in the order in which they are asked for, and are spared another copy.
            let asked = ids.get(place).filter(|asked| asked.as_str() == id);
            Row { id: asked.map_or_else(|| OrderId::from_database(&id), OrderId::clone), status, deadline, now, locked }
        };
        Ok(Batch { rows: rows.into_iter().enumerate().map(row).collect(), has_triggers })
    }
}

/// What tells this host from others, and is the same in all its containers.
fn host() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    boot.map_or_else(|_| gethostname::gethostname().to_string_lossy().into_owned(), |boot| boot.trim().to_owned())
}

/// A row of a batch: id, status, deadline.
#[derive(Deserialize)]
struct Read<'a>(#[serde(borrow)] Cow<'a, str>, Option<String>, Option<i64>);

/// A statement with a list of ids as its parameter ?1: a JSON array of numbers or strings.
#[derive(Debug)]
pub(super) struct JsonStatement {
    sql: SqlStr,
    numbers: bool,
}

impl List<sqlx::Sqlite> for JsonStatement {
    fn bound(&self, ids: &[OrderId]) -> Result<(SqlStr, sqlx::sqlite::SqliteArguments), sqlx::Error> {
        let texts = ids.iter().map(OrderId::as_str);
        let list = if self.numbers {
            // In its canonical spelling a whole number is JSON as it stands.
            format!("[{}]", texts.collect::<Vec<_>>().join(","))
        } else {
            texts.collect::<serde_json::Value>().to_string()
        };
        let mut arguments = sqlx::sqlite::SqliteArguments::default();
        sqlx::Sqlite::bind(&mut arguments, &Value::Text(list))?;
        Ok((self.sql.clone(), arguments))
    }
}
