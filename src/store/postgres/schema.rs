//! The orders table as PostgreSQL's catalogue describes it, and the statements made from that.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Postgres as Driver, SqlSafeStr, SqlStr};

use super::{outbox::words, zone::SessionZone};
use crate::{
    config::{Config, EpochUnit},
    order::{Charset, IdKind},
    store::{
        Catalogue, ClockReading, Misfit, OpenError, StoreError,
        catalogue::{Asked, Described, Index},
        close_sql::CloseStatement,
        mapping::{
            EARLIEST_DEADLINE_SECS, EARLIEST_DEADLINE_TEXT, LATEST_DEADLINE_MICROS, Names, StatusKind, StatusLiterals, close_statements,
            filter_condition, further_assignments, included, no_such_column, plus_micros, quoted,
        },
        outbox::{OwnTables, Recorder},
        session::Session,
    },
};

// As floating point, since PostgreSQL 14's own extract() computes a slow numeric: exact to the microsecond until the year 2255.
pub(super) const NOW: &str = "(date_part('epoch', statement_timestamp()) * 1000000)::bigint";

/// The sweep's two statements for one status: the first page, and the next.
#[derive(Debug, Clone)]
pub(super) struct Due {
    pub(super) first: SqlStr,
    pub(super) next: SqlStr,
}

/// The table and the statements on it.
#[derive(Debug, Clone)]
pub(super) struct Schema {
    pub(super) id_kind: IdKind,
    pub(super) unpaid: Vec<String>,
    /// None where it could not tell two rows of one id, or could not return the deadline that it judged by.
    pub(super) close_due: Option<SqlStr>,
    pub(super) lock: SqlStr,
    pub(super) peek: SqlStr,
    pub(super) update: SqlStr,
    pub(super) close_sql: Vec<CloseStatement<SqlStr>>,
    pub(super) own: OwnTables,
    pub(super) recorder: Option<Arc<Recorder>>,
    pub(super) included: Option<SqlStr>,
    pub(super) due: Vec<Due>,
    pub(super) count_overdue: SqlStr,
    sample: SqlStr,
    names: Names,
    oid: i64,
    described: Described,
    unpaid_list: String,
}

/// A column of the catalogue; a domain counts as the type beneath it.
#[derive(Debug, sqlx::FromRow)]
struct Column {
    name: String,
    /// The type's short name: `int8`, `varchar`, `timestamptz`.
    base: String,
    /// As SQL would declare it.
    declared: String,
    /// Its schema-qualified name, for casts.
    cast: String,
    type_modifier: i32,
    labels: Vec<String>,
}

fn sql(text: String) -> SqlStr {
    AssertSqlSafe(text).into_sql_str()
}

impl Schema {
    /// `own` are our own tables, if they were found before.
    pub(super) async fn read(
        session: &mut Session<Driver>,
        config: &Config,
        zone: &SessionZone,
        own: Option<&OwnTables>,
    ) -> Result<Self, OpenError> {
        let names = Names::new(config, '"');
        let oid = table_oid(session, config, &names).await?;
        let id_is_unique = indexes(session, oid).await?.iter().any(|index| index.makes_unique(config.orders.id.as_str()));
        let own = match own {
            Some(own) => own.clone(),
            None => own_tables(session, oid).await?,
        };
        let columns = columns(session, oid).await?;
        let unicode = server_encoding(session).await? == "UTF8";
        let find = |key: &'static str, name: &str| {
            let existing: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
            columns.iter().find(|column| column.name == name).ok_or_else(|| no_such_column(config, key, name, &existing))
        };
        let orders = &config.orders;
        let id = find("orders.id", orders.id.as_str())?;
        let status = find("orders.status", orders.status.as_str())?;
        let deadline = find("orders.deadline.column", orders.deadline.column.as_str())?;
        for column in orders.set.keys() {
            find("orders.set", column.as_str())?;
        }
        let carried = included(config, find)?;
        let literals = StatusLiterals::new(config, &status_kind(status)?, &status.declared)?;
        let moment = Moment::new(deadline, &names.deadline, config)?;
        if let (Moment::Local { .. }, SessionZone::Unknown(reason)) = (&moment, zone) {
            return Err(Misfit(format!(
                "orders.deadline.column: {} is {}, without a time zone, and the server's own zone could not be learned ({reason}); \
                 set database.time_zone, such as \"UTC\" or \"+08:00\", to the zone in which your shop writes this column",
                deadline.name, deadline.declared
            ))
            .into());
        }
        let id_type = id_cast(id);
        let ids = format!("SELECT unnest($1::text[]::{id_type}[])");
        let (table, id_name, status_name) = (&names.table, &names.id, &names.status);
        // A bare name in ORDER BY means the output column, which is the text of the column of that name.
        let [by_id, by_deadline] = [&names.id, &names.deadline].map(|column| format!("{table}.{column}"));
        let filter = filter_condition(config);
        let not_dead = own.not_dead(&format!("{table}.{id_name}::text"));
        let unpaid_list = literals.unpaid_list();
        let deadline_micros = moment.micros(plus_micros(config));
        let row = format!("{id_name}::text, {status_name}::text, {deadline_micros}, {NOW}");
        // In: ids, a horizon in microseconds. Out: deadlines that are real and within it.
        let within = |horizon: &str| moment.within(horizon, plus_micros(config));

        let due = literals
            .unpaid
            .iter()
            .map(|status| {
                let page = |after: &str| {
                    // In: $1 horizon, $2 page size, $3 and $4 the place to continue after. Out: rows in the
                    // order of deadlines. Locks nothing.
                    sql(format!(
                        "SELECT {row}, {deadline}::text FROM {table} WHERE {status_name} = {status} AND {within} AND {id_name} IS NOT NULL{after}{not_dead}{filter} \
                         ORDER BY {by_deadline}, {by_id} LIMIT $2",
                        deadline = names.deadline,
                        within = within("$1"),
                    ))
                };
                let after = format!(" AND ({}, {id_name}) > ($3::text::{}, $4::text::{id_type})", names.deadline, deadline.cast);
                Due { first: page(""), next: page(&after) }
            })
            .collect();

        let listed = format!("{id_name} = ANY($1::text[]::{id_type}[])");
        let set = format!("SET {status_name} = {}{}", literals.closed, further_assignments(config, '"'));
        // In: $1 ids. Out: the rows changed, with a status that they had. Locks them; waits for locks. Status and deadline
        // are compared as expressions: an index on them would have it read all orders that are due.
        let close_due = sql(format!(
            "UPDATE {table} {set} WHERE {listed} AND {status_name}::text IN ({unpaid_texts}) AND {deadline_micros} <= {NOW}{filter} \
             RETURNING {id_name}::text, {had}::text, {deadline_micros}, {NOW}",
            unpaid_texts = literals.unpaid.iter().map(|status| format!("{status}::text")).collect::<Vec<_>>().join(", "),
            had = literals.unpaid[0],
        ));

        Ok(Self {
            id_kind: id_kind(id, unicode)?,
            unpaid: literals.unpaid_texts.clone(),
            close_due: (id_is_unique && !orders.sets(&orders.deadline.column)).then_some(close_due),
            // In: $1 ids. Out: their rows. Locks the rows until the end of the transaction, skips locked ones.
            lock: sql(format!("SELECT {row} FROM {table} WHERE {listed}{filter} ORDER BY {by_id} FOR UPDATE SKIP LOCKED")),
            // In: $1 ids. Out: their rows as last committed. Locks nothing.
            peek: sql(format!("SELECT {row} FROM {table} WHERE {listed}{filter}")),
            // In: $1 ids, whose rows are locked. Out: the number of rows changed. The status is asked once more for
            // tables in which an id is not unique.
            update: sql(format!("UPDATE {table} {set} WHERE {listed} AND {status_name} IN ({unpaid_list}){filter}")),
            close_sql: close_statements(config, false, |template| sql(template.render(&ids)))?,
            // In: $1 ids, of closed orders. Out: id and what events carry. Not filtered: closing may have changed what the
            // filter asks.
            included: (!carried.is_empty()).then(|| {
                let pairs: Vec<String> = carried.iter().map(|(name, _)| format!("'{name}', {}", quoted('"', name))).collect();
                sql(format!(
                    "SELECT {id_name}::text, json_build_object({})::text FROM {table} \
                     WHERE {listed} AND {status_name} = {closed}",
                    pairs.join(", "),
                    closed = literals.closed,
                ))
            }),
            recorder: own.recorder(config),
            own,
            due,
            count_overdue: sql(format!(
                "SELECT count(*) FROM {table} WHERE {status_name} IN ({unpaid_list}) AND {} AND {id_name} IS NOT NULL{not_dead}{filter}",
                within("$1")
            )),
            // Out: id, stored text and meaning of the latest deadline among a few rows.
            sample: sql(format!(
                "SELECT {id_name}::text, {deadline}::text, {deadline_micros} FROM {table} WHERE {deadline} IS NOT NULL AND {id_name} IS NOT NULL LIMIT 1",
                deadline = names.deadline
            )),
            described: Described::new(
                [id, status, deadline].map(|column| (column.name.as_str(), column.declared.clone())),
                zone.describe(),
                matches!(moment, Moment::Local { .. }),
            ),
            names,
            oid,
            unpaid_list,
        })
    }

    pub(super) async fn catalogue(&self, session: &mut Session<Driver>) -> Result<Catalogue, StoreError> {
        let version = sqlx::query_scalar::<_, String>("SELECT 'PostgreSQL ' || current_setting('server_version')");
        let product = session.run(|connection| version.fetch_one(connection)).await?;
        let clock = clock(session).await?;
        let sample = sqlx::query_as::<_, (String, String, Option<i64>)>(self.sample.clone());
        let sample = session.run(|connection| sample.fetch_optional(connection)).await?;
        let indexes = indexes(session, self.oid).await?;
        let Names { table, id, deadline, status } = &self.names;
        // A partitioned table takes no index concurrently.
        let partitioned = sqlx::query_scalar::<_, bool>("SELECT relkind = 'p' FROM pg_class WHERE oid = $1::oid").bind(self.oid);
        let concurrently = if session.run(|connection| partitioned.fetch_one(connection)).await? { "" } else { " CONCURRENTLY" };
        Ok(self.described.catalogue(Asked {
            product,
            clock,
            sample,
            indexes,
            // With one unpaid status the index's own condition says it all, and the planner leaves out the query's.
            drops_implied: self.unpaid.len() == 1,
            create_sweep_index: if self.unpaid.len() == 1 {
                format!("CREATE INDEX{concurrently} ON {table} ({deadline}, {id}) WHERE {status} = {};", self.unpaid_list)
            } else {
                format!("CREATE INDEX{concurrently} ON {table} ({status}, {deadline}, {id}) WHERE {status} IN ({});", self.unpaid_list)
            },
            create_id_index: format!("CREATE UNIQUE INDEX{concurrently} ON {table} ({id});"),
        }))
    }
}

/// Reads the database's clock.
pub(super) async fn clock(session: &mut Session<Driver>) -> Result<ClockReading, StoreError> {
    let clock = sqlx::query_scalar::<_, i64>("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint");
    let started = std::time::Instant::now();
    let micros = session.run(|connection| clock.fetch_one(connection)).await?;
    Ok(ClockReading { micros, round_trip: started.elapsed() })
}

/// How the deadline column holds a point in time; `column` is its quoted name.
enum Moment {
    /// With a zone.
    Absolute { column: String },
    /// Without: the session's zone decides.
    Local { column: String },
    /// As a number since 1970.
    Epoch { column: String, unit: EpochUnit },
}

impl Moment {
    fn new(column: &Column, name: &str, config: &Config) -> Result<Self, Misfit> {
        let unit = config.orders.deadline.unit;
        let misfit = |what: &str| Err(Misfit(format!("orders.deadline: the column {} is {}: {what}", column.name, column.declared)));
        let name = name.to_owned();
        match (column.base.as_str(), unit) {
            ("timestamptz", None) => Ok(Self::Absolute { column: name }),
            ("timestamp" | "date", None) => Ok(Self::Local { column: name }),
            ("int2" | "int4" | "int8" | "numeric" | "float8", Some(unit)) => Ok(Self::Epoch { column: name, unit }),
            ("int2" | "int4" | "int8" | "numeric" | "float8", None) => {
                misfit("say what it counts since 1970, unit = \"s\" for seconds or unit = \"ms\" for milliseconds")
            }
            ("timestamptz" | "timestamp" | "date", Some(_)) => misfit("it holds a time and no number, so unit must be left out"),
            _ => misfit("a deadline is a timestamp with or without time zone, or a number with a unit"),
        }
    }

    /// The deadline in microseconds since 1970, or NULL if the row has none.
    fn micros(&self, plus: i64) -> String {
        match self {
            Self::Absolute { column } | Self::Local { column } => format!(
                "CASE WHEN isfinite({column}) AND {column} >= '{EARLIEST_DEADLINE_TEXT}' \
                 THEN LEAST(date_part('epoch', {column}::timestamptz) * 1000000 + {plus}, {LATEST_DEADLINE_MICROS})::bigint END"
            ),
            Self::Epoch { column, unit } => format!(
                "CASE WHEN {column} >= {earliest} THEN LEAST({column}::numeric * {scale} + {plus}, {LATEST_DEADLINE_MICROS})::bigint END",
                earliest = EARLIEST_DEADLINE_SECS * 1_000_000 / unit.micros(),
                scale = unit.micros(),
            ),
        }
    }

    /// The condition that the deadline is real and at most `horizon` microseconds away. The column
    /// stands bare, so that an index on it serves.
    fn within(&self, horizon: &str, plus: i64) -> String {
        let bound = format!("statement_timestamp() + ({horizon}::bigint - {plus}) * interval '1 microsecond'");
        match self {
            Self::Absolute { column } => format!("{column} >= '{EARLIEST_DEADLINE_TEXT}' AND {column} <= {bound}"),
            Self::Local { column } => format!("{column} >= '{EARLIEST_DEADLINE_TEXT}' AND {column} <= ({bound})::timestamp"),
            Self::Epoch { column, unit } => format!(
                "{column} >= {earliest} AND {column} <= floor(({NOW} + {horizon}::bigint - {plus})::numeric / {scale})::bigint",
                earliest = EARLIEST_DEADLINE_SECS * 1_000_000 / unit.micros(),
                scale = unit.micros(),
            ),
        }
    }
}

async fn table_oid(session: &mut Session<Driver>, config: &Config, names: &Names) -> Result<i64, OpenError> {
    let select = sqlx::query_scalar::<_, Option<i64>>("SELECT to_regclass($1)::oid::bigint").bind(&names.table);
    if let Some(oid) = session.run(|connection| select.fetch_one(connection)).await? {
        return Ok(oid);
    }
    let table = &config.orders.table;
    // Somebody who wrote Orders or forgot the schema is told the name that would do.
    let select = sqlx::query_scalar::<_, String>(
        "SELECT schemaname || '.' || tablename FROM pg_tables WHERE lower(tablename) = lower($1) ORDER BY 1 LIMIT 5",
    )
    .bind(&table.name);
    let similar = session.run(|connection| select.fetch_all(connection)).await?;
    let hint = if similar.is_empty() { String::new() } else { format!("; there is {}", similar.join(", ")) };
    Err(Misfit(format!(
        "orders.table is {table}, but this database has no such table on its search_path{hint} (names are taken as written, not folded)"
    ))
    .into())
}

/// Our own tables, in the schema of the orders table.
async fn own_tables(session: &mut Session<Driver>, oid: i64) -> Result<OwnTables, OpenError> {
    let select = sqlx::query_scalar::<_, String>(
        "SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1::oid",
    )
    .bind(oid);
    let schema = session.run(|connection| select.fetch_one(connection)).await?;
    OwnTables::find(session, words(&schema)).await
}

async fn columns(session: &mut Session<Driver>, oid: i64) -> Result<Vec<Column>, StoreError> {
    let select = sqlx::query_as::<_, Column>(
        "SELECT a.attname::text AS name, b.typname::text AS base, format_type(a.atttypid, a.atttypmod) AS declared,
                quote_ident(n.nspname) || '.' || quote_ident(b.typname) AS cast,
                CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END AS type_modifier,
                ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = b.oid ORDER BY enumsortorder) AS labels
         FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
              JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
              JOIN pg_namespace n ON n.oid = b.typnamespace
         WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
    )
    .bind(oid);
    session.run(|connection| select.fetch_all(connection)).await
}

async fn server_encoding(session: &mut Session<Driver>) -> Result<String, StoreError> {
    session.run(|connection| sqlx::query_scalar::<_, String>("SHOW server_encoding").fetch_one(connection)).await
}

async fn indexes(session: &mut Session<Driver>, oid: i64) -> Result<Vec<Index>, StoreError> {
    let select = sqlx::query_as::<_, (String, Vec<String>, bool, bool)>(
        "SELECT c.relname::text,
                ARRAY(SELECT pg_get_indexdef(i.indexrelid, k, true) FROM generate_series(1, i.indnkeyatts) k),
                i.indisunique, i.indpred IS NOT NULL
         FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = $1::oid AND i.indisvalid ORDER BY c.relname",
    )
    .bind(oid);
    let rows = session.run(|connection| select.fetch_all(connection)).await?;
    let unquoted = |column: String| column.trim_matches('"').to_owned();
    Ok(rows
        .into_iter()
        .map(|(name, columns, unique, partial)| Index { name, columns: columns.into_iter().map(unquoted).collect(), unique, partial })
        .collect())
}

fn status_kind(column: &Column) -> Result<StatusKind, Misfit> {
    match column.base.as_str() {
        "int2" | "int4" | "int8" | "numeric" => Ok(StatusKind::Integer),
        "text" | "varchar" | "bpchar" | "citext" => Ok(StatusKind::Text),
        _ if !column.labels.is_empty() => Ok(StatusKind::Enumeration(column.labels.clone())),
        _ => Err(Misfit(format!(
            "orders.status: the column {} is {}; a status is a whole number, text or an enumeration",
            column.name, column.declared
        ))),
    }
}

/// The type to which id texts are cast: without a length, which would cut them.
fn id_cast(column: &Column) -> &str {
    match column.base.as_str() {
        "varchar" => "text",
        _ => &column.cast,
    }
}

fn id_kind(column: &Column, unicode: bool) -> Result<IdKind, Misfit> {
    let integer = |min: i64, max: i64| Ok(IdKind::Integer { min: min.into(), max: max.into() });
    match column.base.as_str() {
        "int2" => integer(i16::MIN.into(), i16::MAX.into()),
        "int4" => integer(i32::MIN.into(), i32::MAX.into()),
        "int8" => integer(i64::MIN, i64::MAX),
        "numeric" if numeric_scale(column.type_modifier) == Some(0) => {
            let largest = 10_i128.pow(numeric_precision(column.type_modifier).min(38)) - 1;
            Ok(IdKind::Integer { min: -largest, max: largest })
        }
        "uuid" => Ok(IdKind::Uuid),
        "text" | "varchar" | "bpchar" | "citext" => Ok(IdKind::Text {
            // The length is stored with the four bytes of its header.
            max_chars: usize::try_from(column.type_modifier - 4).ok(),
            charset: if unicode { Charset::Unicode } else { Charset::Ascii },
        }),
        _ => Err(Misfit(format!("orders.id: the column {} is {}; an id is a whole number, text or a UUID", column.name, column.declared))),
    }
}

/// A numeric's type modifier packs precision and scale, plus the header's four bytes.
fn numeric_precision(type_modifier: i32) -> u32 {
    u32::try_from((type_modifier - 4) >> 16).unwrap_or(0)
}

fn numeric_scale(type_modifier: i32) -> Option<i32> {
    (type_modifier >= 4).then_some((type_modifier - 4) & 0x7ff)
}
