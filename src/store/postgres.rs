//! PostgreSQL: `FOR UPDATE SKIP LOCKED`, ids as one array parameter.

mod catalogue;
mod deadline;
mod login;
mod own;
mod pooler;
mod rights;
mod statements;
mod survey;
mod version;
mod zone;

use std::time::Duration;

use async_trait::async_trait;
use sqlx::{SqlSafeStr, SqlStr, error::DatabaseError, postgres::PgConnectOptions};
use tracing::warn;

use crate::{
    config::{Database, DatabaseUrl, Events, Rule},
    order::{OrderId, Shares},
    store::{
        Limits, LockWait, OpenError, Settings, StoreError,
        catalogue::Findings,
        connections::Plan,
        dialect::{Dialect, Fragments, List, text},
        error::Class,
        hosts::Host,
        own::Words,
        session::Session,
        statement::{Parameters, sql},
        survey::SurveyWords,
        template::Template,
        unusable_url,
        zone::ServersZone,
    },
};
pub(in crate::store) use statements::NOW;
use statements::Table;
use zone::SessionZone;

/// How long a statement may wait for a row that another transaction holds, but in a transaction that closes orders.
const LOCK_WAIT: &str = "500ms";

/// Orders in PostgreSQL.
#[derive(Debug)]
pub(super) struct Postgres {
    zone: SessionZone,
    database: Database,
}

#[async_trait]
impl Dialect for Postgres {
    type Driver = sqlx::Postgres;
    type List = ArrayStatement;
    type Table = Table;

    const READ_ONLY: &'static str = "SET default_transaction_read_only = on";
    const PARAMETERS: Parameters = Parameters::Dollar;
    const TABLES: &'static str = "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = ?1 AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname LIKE ?2 ESCAPE '!' ORDER BY c.relname";
    const SURVEY: &'static SurveyWords = &survey::SURVEY;
    const HOME: &'static str = "SELECT COALESCE(current_schema()::text, 'public')";
    const BEGIN: &'static str = "BEGIN ISOLATION LEVEL READ COMMITTED";
    const BEGIN_OF_RELAYS: &'static str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = off";
    const CHECK_DEFERRED: Option<&'static str> = Some("SET CONSTRAINTS ALL IMMEDIATE");
    const FAILS_WHOLE: bool = true;

    const STANDING: &'static str = STANDING;
    const IS_STANDBY: &'static str = read_only!();

    fn options(_: &Settings, url: &DatabaseUrl) -> Result<PgConnectOptions, OpenError> {
        let options: PgConnectOptions = url.secret().parse().map_err(unusable_url)?;
        Ok(options.application_name("order-closer"))
    }

    async fn plan(settings: &Settings, host: &Host<Self>) -> Result<(Self, Plan), OpenError> {
        let database = &settings.database;
        let timeout = database.timeout.get();
        pooler::refuse_unfit_server(&host.plain, settings.acquire_timeout()).await?;
        let zone = zone::session_zone(database, &host.url).await?;
        if let SessionZone::Unknown(reason) = &zone {
            warn!(
                reason,
                "the server's time zone could not be learned, and sessions stay in UTC, also for orders.set and close.sql; set database.time_zone"
            );
        }
        // A payment waits for a lock of ours no longer than this, should this process hang or a statement not end.
        let set_up = |timeout: Duration| {
            format!(
                "SET idle_in_transaction_session_timeout = '5s'; SET statement_timeout = {}; SET lock_timeout = '{LOCK_WAIT}'; {}",
                timeout.as_millis().max(1),
                zone.set_sql()
            )
        };
        let (closing, reading) = (set_up(timeout), set_up(settings.reading));
        let plan = Plan { closing, reading, timeout, reading_timeout: settings.reading, idle: None, one_writer_for: None };
        Ok((Self { zone, database: database.clone() }, plan))
    }

    fn servers_zone(&self) -> Option<&ServersZone> {
        match &self.zone {
            SessionZone::Servers(zone) => Some(zone),
            SessionZone::Configured(_) | SessionZone::Unknown(_) => None,
        }
    }

    async fn servers_zone_now(&self, host: &Host<Self>) -> Result<Option<ServersZone>, StoreError> {
        match zone::session_zone(&self.database, &host.url).await? {
            SessionZone::Servers(zone) => Ok(Some(zone)),
            SessionZone::Unknown(reason) => Err(StoreError::Unavailable(reason)),
            SessionZone::Configured(_) => Ok(None),
        }
    }

    fn is_of(shares: Shares, id: &str) -> String {
        shares.condition(&format!("{id}::bigint"), |number| format!("{number}::bigint"), |share| format!("({share})::int"))
    }

    fn begin(limits: Limits, _: bool) -> SqlStr {
        // An UPDATE can't skip locked rows: it waits for a payment that is just committing, and for a longer one it gives
        // up, so that the others can close. Zero would mean to wait for ever.
        let lock = if limits.wait == LockWait::Patiently { Duration::from_secs(1) } else { limits.lock };
        let lock = lock.as_millis().max(1);
        sql(format!("BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {lock}; {}", read_only!()))
    }

    fn limit_statements(limit: Duration) -> Option<SqlStr> {
        Some(sql(format!("SET LOCAL statement_timeout = {}", limit.as_millis())))
    }

    fn proof(_: bool) -> &'static str {
        read_only!()
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
            code if let Some(cure) = login::cure(code, error.message()) => Class::Refused(cure),
            // Limits on transactions.
            READ_ONLY | "25P03" | "25P04" => Class::Unavailable,
            // Connection, authorization, resources, shutdown, internal and system errors.
            _ if ["08", "28", "53", "57P", "58", "XX"].iter().any(|class| code.starts_with(class)) => Class::Unavailable,
            _ => Class::Rejected,
        }
    }

    fn refuses_to_write(error: &(dyn DatabaseError + 'static)) -> bool {
        error.code().is_some_and(|code| code == READ_ONLY)
    }

    async fn identity(&self, session: &mut Session<Self>) -> Result<String, StoreError> {
        let cluster = match text::<Self>(&session.execute(MAY_READ_CONTROL.into_sql_str()).await?)?.as_str() {
            "true" => CONTROL,
            _ => STARTED,
        };
        let cluster = text::<Self>(&session.execute(cluster.into_sql_str()).await?)?;
        let database = text::<Self>(&session.execute(DATABASE.into_sql_str()).await?)?;
        Ok(format!("{cluster}/{database}"))
    }

    async fn running_for(&self, session: &mut Session<Self>) -> Result<Option<Duration>, StoreError> {
        let seconds = text::<Self>(&session.execute(RUNNING_FOR.into_sql_str()).await?)?;
        Ok(seconds.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
    }

    async fn describe(&self, session: &mut Session<Self>, rule: &Rule) -> Result<(Table, Fragments), OpenError> {
        statements::read(session, rule, &self.zone).await
    }

    fn words(schema: &str, table: &str) -> Words {
        own::words(schema, table)
    }

    async fn findings(&self, session: &mut Session<Self>, table: &Table, fragments: &Fragments) -> Result<Findings, StoreError> {
        table.findings(session, fragments).await
    }

    async fn lacking_rights(session: &mut Session<Self>, rule: &Rule, events: &Events) -> Result<Vec<String>, StoreError> {
        rights::lacking(session, rule, events).await
    }

    fn list(_: &Table, statement: String) -> Result<ArrayStatement, OpenError> {
        Ok(ArrayStatement(sql(statement)))
    }

    fn user_list(table: &Table, template: &Template) -> ArrayStatement {
        ArrayStatement(sql(template.render(&format!("SELECT unnest($1::text[]::{}[])", table.id_type))))
    }
}

/// Whether this user may call what [`CONTROL`] does; some managed servers forbid it. Locks nothing.
const MAY_READ_CONTROL: &str = "SELECT coalesce(bool_and(has_function_privilege(to_regprocedure(name)::oid, 'EXECUTE')), false)::text \
     FROM (VALUES ('pg_control_system()'), ('pg_control_checkpoint()')) functions (name)";

/// The timeline of the WAL that is written: a standby that was promoted tells it at once, while its control file names the one
/// before until the first checkpoint has ended, minutes later.
macro_rules! written_timeline {
    () => {
        "('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint"
    };
}

/// The cluster. A standby that was promoted, or a server restored to a point in time, begins a new timeline. Locks nothing.
const CONTROL: &str = concat!(
    "SELECT s.system_identifier || '/' || CASE WHEN pg_is_in_recovery() THEN c.timeline_id ELSE ",
    written_timeline!(),
    " END FROM pg_control_system() s, pg_control_checkpoint() c"
);

/// Locks nothing.
const STANDING: &str = concat!(
    "SELECT current_setting('transaction_read_only')::bool::int::bigint, CASE WHEN pg_is_in_recovery() THEN NULL ELSE ",
    written_timeline!(),
    " END"
);

/// Where that is forbidden, the moment at which the server was started, to the microsecond. Locks nothing.
const RUNNING_FOR: &str = "SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::text";
const STARTED: &str = "SELECT extract(epoch FROM pg_postmaster_start_time())::text";

/// The database within it, and the schemas in which a table's bare name is looked for. Locks nothing.
const DATABASE: &str =
    "SELECT oid || '/' || array_to_string(current_schemas(false), ',') FROM pg_database WHERE datname = current_database()";

/// A standby, or a primary that became one.
const READ_ONLY: &str = "25006";

/// 0 where the session may write.
macro_rules! read_only {
    () => {
        "SELECT current_setting('transaction_read_only')::bool::int::bigint"
    };
}
use read_only;

/// A statement with a list of ids as its parameter $1.
#[derive(Debug)]
pub(super) struct ArrayStatement(SqlStr);

impl List<sqlx::Postgres> for ArrayStatement {
    fn bound(&self, ids: &[OrderId]) -> Result<(SqlStr, sqlx::postgres::PgArguments), sqlx::Error> {
        let texts: Vec<&str> = ids.iter().map(OrderId::as_str).collect();
        let mut arguments = sqlx::postgres::PgArguments::default();
        sqlx::Arguments::add(&mut arguments, texts).map_err(sqlx::Error::Encode)?;
        Ok((self.0.clone(), arguments))
    }
}
