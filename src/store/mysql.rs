//! MySQL and MariaDB: `FOR UPDATE SKIP LOCKED`, ids as IN lists of a few fixed sizes.
//!
//! What these servers do otherwise than one would think, and what is done about it: a comparison of text
//! finds other spellings ([`ids`]), a time without a zone may be ambiguous ([`deadline`]), and a statement that
//! scans locks whatever it scans, so locking statements are told which index to use ([`statements`]).

mod catalogue;
mod deadline;
mod ids;
mod login;
mod own;
mod proxy;
mod rights;
mod statements;
mod survey;
mod zone;

use std::time::Duration;

use async_trait::async_trait;
use sqlx::{
    SqlSafeStr, SqlStr,
    error::DatabaseError,
    mysql::{MySqlConnectOptions, MySqlDatabaseError, MySqlRow},
};
use uuid::Uuid;

use crate::{
    config::{Database, DatabaseUrl, Events, Rule, TimeZone},
    store::{
        Limits, LockWait, Misfit, OpenError, Settings, StoreError,
        between::Between,
        catalogue::Findings,
        connections::Plan,
        dialect::{Dialect, Fragments, sorted, text},
        driver::{Columns, Driver},
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
pub(in crate::store) use deadline::NOW;
use ids::ListStatement;
use statements::Orders;

/// What a new session runs first. READ COMMITTED: under the default level, REPEATABLE READ, locks cover the gaps between
/// rows as well. A lock is waited for a second, the least that MySQL knows. MariaDB knows 0, but with it a statement that
/// scans fails at each locked row, also where it would not change it: a shorter wait is ended by the statement's own limit
/// ([`Limits::statement`]), which MySQL knows for what reads alone: there another connection ends it ([`WHO`]). A payment waits behind a
/// transaction of ours no longer than the others say, should this process hang or a statement not end: MySQL
/// can only give up idle sessions as a whole; MariaDB reads what stands in its comment.
fn set_up(timeout: Duration) -> String {
    format!(
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
         SET SESSION innodb_lock_wait_timeout = 1, SESSION lock_wait_timeout = 1, SESSION wait_timeout = 30 \
         /*M!100300 , SESSION idle_transaction_timeout = 5, SESSION max_statement_time = {} */",
        timeout.as_secs_f64()
    )
}

/// The same of a session that only reads: MySQL has such a limit for what reads alone. MariaDB passes over comments with such
/// a number.
fn set_up_reading(timeout: Duration) -> String {
    format!("{} /*!80000 , SESSION max_execution_time = {} */", set_up(timeout), timeout.as_millis())
}

/// How long a statement of a closure may take that is not to end sooner; the driver may give it up before.
const LONGEST_STATEMENT: Duration = Duration::from_secs(10);

/// A wait for a lock ends within a second, which is the least that MySQL knows, and is to be told from a
/// statement that takes too long.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Connections are given up well before the server does so.
const POOL_IDLE: Duration = Duration::from_secs(10);

/// 0 where the session may write.
macro_rules! read_only {
    () => {
        "SELECT @@innodb_read_only"
    };
}

/// 0 where any session may write. Some accounts write in spite of `read_only`, so it counts only where one of ours could not.
/// It is a number, or a word from MariaDB 12 on.
macro_rules! any_read_only {
    () => {
        "SELECT @@innodb_read_only OR CAST(@@read_only AS CHAR) NOT IN ('0', 'OFF')"
    };
}
/// A further column of the beginning, for MySQL alone: its server, and the session there.
const WHO: &str = "/*!80000 , CONCAT(@@server_uuid, ' ', CONNECTION_ID()) */";

/// Orders in MySQL or MariaDB.
#[derive(Debug)]
pub(super) struct MySql {
    time_zone: Option<TimeZone>,
    /// The server's own zone as it was, unless one is configured.
    servers_zone: Option<ServersZone>,
    timeout: Duration,
}

#[async_trait]
impl Dialect for MySql {
    type Driver = sqlx::MySql;
    type List = ListStatement;
    type Table = Orders;

    const READ_ONLY: &'static str = "SET SESSION TRANSACTION READ ONLY";
    const PARAMETERS: Parameters = Parameters::Bare;
    const TABLES: &'static str = "SELECT CAST(table_name AS CHAR) FROM information_schema.tables
         WHERE table_schema = ?1 AND table_type = 'BASE TABLE' AND table_name LIKE ?2 ESCAPE '!' ORDER BY table_name";
    const SURVEY: &'static SurveyWords = &survey::SURVEY;
    const HOME: &'static str = "SELECT CAST(COALESCE(DATABASE(), '') AS CHAR)";
    const BEGIN: &'static str = "START TRANSACTION";
    // A commit is not to be interrupted.
    const COMMIT: &'static str = "SET @order_closer = 1 /*M!100300 , SESSION max_statement_time = 10 */; COMMIT";
    const LIMITED_BY_TIME: bool = true;

    const STANDING: &'static str = concat!(any_read_only!(), ", NULL");
    const IS_STANDBY: &'static str = any_read_only!();

    fn options(settings: &Settings, url: &DatabaseUrl) -> Result<MySqlConnectOptions, OpenError> {
        let Settings { database, rule, .. } = settings;
        let options: MySqlConnectOptions = url.secret().parse().map_err(unusable_url)?;
        // The driver would set UTC, and the columns of a shop are mostly in its server's own zone.
        let options = options.timezone(database.time_zone.as_ref().map(zone_name));
        // The user's SQL runs in the server's own modes.
        let options = options.pipes_as_concat(false).no_engine_substitution(false);
        // The ids of one statement are compared byte by byte with what is bound.
        Ok(options.charset("utf8mb4").statement_cache_capacity(ids::SIZES * (9 + rule.close_sql.len())))
    }

    async fn plan(settings: &Settings, host: &Host<Self>) -> Result<(Self, Plan), OpenError> {
        let Settings { database, .. } = settings;
        let timeout = database.timeout.get().max(SHORTEST_TIMEOUT);
        let servers_zone = match database.time_zone {
            None => Some(zone::of_session(&host.plain, settings.acquire_timeout()).await.map_err(|error| Self::refused(database, error))?),
            Some(_) => None,
        };
        let dialect = Self { time_zone: database.time_zone.clone(), servers_zone, timeout };
        let reading_timeout = timeout.min(settings.reading);
        let (closing, reading) = (set_up(timeout), set_up_reading(reading_timeout));
        let plan = Plan { closing, reading, timeout, reading_timeout, idle: Some(POOL_IDLE), one_writer_for: None };
        Ok((dialect, plan))
    }

    // The zone is set while connecting, and only the driver's own error still has its number.
    fn refused(database: &Database, error: sqlx::Error) -> OpenError {
        const UNKNOWN_TIME_ZONE: u16 = 1298;
        let number = error.as_database_error().map_or(0, number);
        if let Some(misfit) = login::misfit(&error, number) {
            return misfit.into();
        }
        match &database.time_zone {
            Some(zone) if number == UNKNOWN_TIME_ZONE => Misfit(format!(
                "database.time_zone is {zone}, which this server does not know; write an offset such as \"+08:00\" within the server's range, \
                 or load the names with: mysql_tzinfo_to_sql /usr/share/zoneinfo | mysql -u root mysql"
            ))
            .into(),
            _ => sorted::<Self>(error).into(),
        }
    }

    fn keeping_zone(&self, options: MySqlConnectOptions) -> MySqlConnectOptions {
        match &self.servers_zone {
            Some(zone) => options.timezone(zone.name.clone()),
            None => options,
        }
    }

    fn servers_zone(&self) -> Option<&ServersZone> {
        self.servers_zone.as_ref()
    }

    async fn servers_zone_now(&self, host: &Host<Self>) -> Result<Option<ServersZone>, StoreError> {
        zone::of_session(&host.plain, self.timeout).await.map(Some).map_err(sorted::<Self>)
    }

    fn begin(limits: Limits, refused: bool) -> SqlStr {
        let Limits { wait, statement, .. } = limits;
        let proof = Self::proof(refused);
        let limit = if wait == LockWait::Patiently { LONGEST_STATEMENT } else { statement };
        sql(format!(
            "SET @order_closer = 1 /*M!100300 , SESSION max_statement_time = {} */; START TRANSACTION; {proof} {WHO}",
            limit.as_secs_f64()
        ))
    }

    /// A way to the database may lead to several servers, and one's session is another's stranger.
    fn kill(begun: &[MySqlRow]) -> Option<SqlStr> {
        let who = sqlx::MySql::text(begun.last()?, 1).ok()??;
        let (server, session) = who.split_once(' ')?;
        let (server, session) = (Uuid::parse_str(server).ok()?, session.parse::<u64>().ok()?);
        Some(sql(format!(
            "SET @order_closer = IF(@@server_uuid = '{server}', 'KILL QUERY {session}', 'DO 0'); \
             PREPARE order_closer FROM @order_closer; EXECUTE order_closer; DEALLOCATE PREPARE order_closer"
        )))
    }

    fn proof(refused: bool) -> &'static str {
        if refused { any_read_only!() } else { read_only!() }
    }

    /// By error number: <https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html> and
    /// <https://mariadb.com/kb/en/mariadb-error-code-reference/>.
    fn classify(error: &dyn DatabaseError) -> Class {
        match number(error) {
            number if let Some(cure) = login::cure(number, error.message()) => Class::Refused(cure),
            // Deadlock, a row or a table changed under its statement, a statement that is to be prepared again.
            // With several primaries of a group: another transaction was certified first.
            1213 | 1020 | 1412 | 1615 | 3101 => Class::Conflict,
            // Lock wait timeout, a row that was not to be waited for.
            1205 | 3572 => Class::Locked,
            // Limits on the time of a statement.
            1969 | 3024 => Class::TimedOut,
            // Disk full, out of memory, too many connections, handshake, packets (but one that
            // is too large may be made smaller), shutdown, killed by an operator or a limit, too many prepared statements.
            1021 | 1037 | 1038 | 1040..=1043 | 1047 | 1053 | 1077..=1080 | 1114 | 1129 | 1152 | 1154..=1161 | 1184 | 1203 | 1226 | 1251
            | 1317 | 1461
            // A replica, read-only or on its way to becoming one; with `innodb_read_only` MySQL can't lock the table, and MariaDB's is
            // read-only.
            | 1015 | 1036 | 1290 | 1792 | 1836 | 1927 | 2000..=2999 | 3032 | 3100 | 3168 | 3169 | 3879 | 4031
            // ProxySQL's own: none of its servers can be reached.
            | 9001 | 9002 => Class::Unavailable,
            _ => Class::Rejected,
        }
    }

    fn refuses_to_write(error: &(dyn DatabaseError + 'static)) -> bool {
        matches!(number(error), 1015 | 1036 | 1290 | 1792 | 1836)
    }

    async fn identity(&self, session: &mut Session<Self>) -> Result<String, StoreError> {
        let mut identity = text::<Self>(&session.execute(DATABASE.into_sql_str()).await?)?;
        for row in session.execute(SERVER.into_sql_str()).await? {
            let mut columns = Columns::<sqlx::MySql>::of(&row);
            let mut next = || columns.text().map_err(sorted::<Self>);
            identity += &format!("/{}={}", next()?, next()?);
        }
        Ok(identity)
    }

    async fn running_for(&self, session: &mut Session<Self>) -> Result<Option<Duration>, StoreError> {
        let found = session.execute(UPTIME.into_sql_str()).await?;
        let Some(row) = found.first() else { return Ok(None) };
        let mut columns = Columns::<sqlx::MySql>::of(row);
        let mut next = || columns.text().map_err(sorted::<Self>);
        let (_, seconds) = (next()?, next()?);
        Ok(seconds.parse::<u64>().ok().map(|whole| Duration::from_secs(whole + 1)))
    }

    async fn describe(&self, session: &mut Session<Self>, rule: &Rule) -> Result<(Orders, Fragments), OpenError> {
        statements::read(session, rule, self.time_zone.as_ref()).await
    }

    fn words(schema: &str, table: &str) -> Words {
        own::words(schema, table)
    }

    async fn findings(&self, session: &mut Session<Self>, orders: &Orders, _: &Fragments) -> Result<Findings, StoreError> {
        orders.findings(session).await
    }

    async fn between(session: Session<Self>) -> Result<Option<Between>, StoreError> {
        proxy::look(session).await.map(Some)
    }

    async fn without_transactions(&self, session: &mut Session<Self>, orders: &Orders, rule: &Rule) -> Result<Option<String>, StoreError> {
        catalogue::without_transactions(session, &orders.table, rule).await
    }

    async fn lacking_rights(session: &mut Session<Self>, rule: &Rule, events: &Events) -> Result<Vec<String>, StoreError> {
        rights::lacking(session, rule, events).await
    }

    fn list(orders: &Orders, statement: String) -> Result<ListStatement, OpenError> {
        let template = Template::parse(&statement, orders.server.escapes)
            .map_err(|what| StoreError::Rejected(format!("orders.filter or orders.set: {what}")))?;
        Ok(Self::user_list(orders, &template))
    }

    fn user_list(orders: &Orders, template: &Template) -> ListStatement {
        ListStatement::new(template, orders.id)
    }
}

/// The database within its server. Locks nothing.
const DATABASE: &str = "SELECT COALESCE(DATABASE(), '')";

/// The server: its variables of these names, those that it has; each session may read them. MySQL has `server_uuid`, MariaDB
/// has `server_uid` in later versions only. Locks nothing.
const SERVER: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
     ('server_uuid', 'server_uid', 'hostname', 'port', 'server_id', 'datadir')";

/// For how many whole seconds it has been running; each session may read it. Locks nothing.
const UPTIME: &str = "SHOW GLOBAL STATUS LIKE 'Uptime'";

/// As the server knows it; UTC has its name only where the tables of time zones are filled.
fn zone_name(zone: &TimeZone) -> String {
    match zone {
        TimeZone::Named(name) if name.eq_ignore_ascii_case("utc") => "+00:00".into(),
        TimeZone::Named(_) | TimeZone::Offset(_) => zone.to_string(),
    }
}

fn number(error: &(dyn DatabaseError + 'static)) -> u16 {
    error.try_downcast_ref::<MySqlDatabaseError>().map_or(0, MySqlDatabaseError::number)
}
