//! The orders table as SQLite's catalogue describes it, and the statements made from that.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr, Sqlite as Driver};

use super::{
    affinity::Affinity,
    moment::{Moment, NOW},
    outbox::words,
};
use crate::{
    config::{Config, Status},
    order::{Charset, IdKind, OrderId},
    store::{
        Catalogue, ClockReading, Misfit, OpenError, StoreError,
        catalogue::{Asked, Described, Index},
        close_sql::CloseStatement,
        mapping::{
            Names, StatusKind, StatusLiterals, close_statements, filter_condition, further_assignments, included, no_such_column,
            plus_micros, quoted,
        },
        outbox::{OwnTables, Recorder},
        session::Session,
    },
};

/// A list of ids from the parameter ?1.
const IDS: &str = "SELECT value FROM json_each(?1)";

/// The sweep's two statements for one status: the first page, and the next.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) first: SqlStr,
    pub(super) next: SqlStr,
}

/// The table and the statements on it.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) id_kind: IdKind,
    pub(super) unpaid: Vec<String>,
    pub(super) read: SqlStr,
    pub(super) update: SqlStr,
    pub(super) close_sql: Vec<CloseStatement<SqlStr>>,
    pub(super) own: OwnTables,
    pub(super) recorder: Option<Arc<Recorder>>,
    pub(super) included: Option<SqlStr>,
    /// One for each unpaid status and each way of writing a time.
    pub(super) due: Vec<Due>,
    /// To be added up.
    pub(super) count_overdue: Vec<SqlStr>,
    sample: SqlStr,
    names: Names,
    schema: String,
    table: String,
    described: Described,
    rowid_alias: Option<String>,
}

/// A column of the catalogue.
#[derive(Debug, sqlx::FromRow)]
struct Column {
    name: String,
    /// As the table declares it; often enough not at all.
    declared: String,
    /// Its place in the primary key, from 1.
    key_part: i64,
}

fn sql(text: String) -> SqlStr {
    AssertSqlSafe(text).into_sql_str()
}

impl Schema {
    /// `own` are our own tables, if they were found before.
    pub(super) async fn read(session: &mut Session<Driver>, config: &Config, own: Option<&OwnTables>) -> Result<Self, OpenError> {
        let table = &config.orders.table;
        let schema = table.schema.clone().unwrap_or_else(|| "main".into());
        let columns = columns(session, &schema, &table.name).await?;
        if columns.is_empty() {
            return Err(no_such_table(session, config).await?.into());
        }
        let find = |key: &'static str, name: &str| {
            let existing: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
            // SQLite tells no names apart by case.
            columns.iter().find(|column| column.name.eq_ignore_ascii_case(name)).ok_or_else(|| no_such_column(config, key, name, &existing))
        };
        let orders = &config.orders;
        let id = find("orders.id", orders.id.as_str())?;
        let status = find("orders.status", orders.status.as_str())?;
        let deadline = find("orders.deadline.column", orders.deadline.column.as_str())?;
        for column in orders.set.keys() {
            find("orders.set", column.as_str())?;
        }
        let carried = included(config, find)?;
        let own = match own {
            Some(own) => own.clone(),
            None => OwnTables::find(session, words(&schema)).await?,
        };
        let literals = StatusLiterals::new(config, &status_kind(status, config), &shown(status))?;
        let names = Names::new(config, '"');
        let moment = Moment::new(&shown(deadline), &names.deadline, config)?;
        let id_kind = id_kind(id)?;
        let not_dead = own.not_dead(&format!("CAST({}.{} AS TEXT)", names.table, names.id));
        let statements = Statements { config, names: &names, literals: &literals, moment: &moment, id: &id_kind, not_dead };

        Ok(Self {
            read: statements.read(),
            update: statements.update(),
            close_sql: close_statements(config, false, |template| sql(template.render(IDS)))?,
            included: statements.included(&carried.into_iter().map(|(name, _)| name).collect::<Vec<_>>()),
            recorder: own.recorder(config),
            own,
            due: statements.due(),
            count_overdue: statements.count_overdue(),
            sample: statements.sample(),
            unpaid: literals.unpaid_texts.clone(),
            described: Described::new(
                [id, status, deadline].map(|column| (column.name.as_str(), shown(column))),
                match &config.database.time_zone {
                    Some(zone) => format!("{zone} (database.time_zone)"),
                    None => "UTC (SQLite's own)".into(),
                },
                moment.is_local(),
            ),
            rowid_alias: rowid_alias(&columns),
            schema,
            table: table.name.clone(),
            id_kind,
            names,
        })
    }

    /// Ids as SQLite reads them: a JSON array of numbers or strings.
    pub(super) fn json(&self, ids: &[OrderId]) -> String {
        let value = |id: &OrderId| match &self.id_kind {
            // In its canonical spelling a whole number is JSON as it stands.
            IdKind::Integer { .. } => id.to_string(),
            IdKind::Text { .. } | IdKind::Uuid => serde_json::Value::from(id.as_str()).to_string(),
        };
        format!("[{}]", ids.iter().map(value).collect::<Vec<_>>().join(","))
    }

    pub(super) async fn catalogue(&self, session: &mut Session<Driver>) -> Result<Catalogue, StoreError> {
        let version = sqlx::query_scalar::<_, String>("SELECT 'SQLite ' || sqlite_version()");
        let product = session.run(|connection| version.fetch_one(connection)).await?;
        let clock = clock(session).await?;
        let sample = sqlx::query_as::<_, (String, String, Option<i64>)>(self.sample.clone());
        let sample = session.run(|connection| sample.fetch_optional(connection)).await?;
        let indexes = indexes(session, &self.schema, &self.table, self.rowid_alias.as_deref()).await?;
        let Names { table, id, deadline, status } = &self.names;
        // An index names its schema itself, and the table without one.
        let bare_table = table.rsplit_once("\".\"").map_or_else(|| table.clone(), |(_, name)| format!("\"{name}"));
        Ok(self.described.catalogue(Asked {
            product,
            clock,
            sample,
            indexes,
            drops_implied: false,
            create_sweep_index: format!("CREATE INDEX order_closer_due ON {bare_table} ({status}, {deadline}, {id});"),
            create_id_index: format!("CREATE UNIQUE INDEX order_closer_id ON {bare_table} ({id});"),
        }))
    }
}

/// Reads the database's clock.
pub(super) async fn clock(session: &mut Session<Driver>) -> Result<ClockReading, StoreError> {
    let clock = sqlx::query_scalar::<_, i64>(sql(format!("SELECT {NOW}")));
    let started = std::time::Instant::now();
    let micros = session.run(|connection| clock.fetch_one(connection)).await?;
    Ok(ClockReading { micros, round_trip: started.elapsed() })
}

/// What the statements are made of.
struct Statements<'a> {
    config: &'a Config,
    names: &'a Names,
    literals: &'a StatusLiterals,
    moment: &'a Moment,
    id: &'a IdKind,
    /// The condition that an order is no dead letter.
    not_dead: String,
}

impl Statements<'_> {
    /// The condition that the row is one of the ids of ?1. Text is compared twice: by the column's collation,
    /// for its index, and by its bytes, so that no other spelling passes.
    fn listed(&self) -> String {
        let id = &self.names.id;
        match self.id {
            IdKind::Integer { .. } => format!("{id} IN ({IDS})"),
            IdKind::Text { .. } | IdKind::Uuid => {
                format!("{id} IN ({IDS}) AND CAST({id} AS BLOB) IN (SELECT CAST(value AS BLOB) FROM json_each(?1))")
            }
        }
    }

    /// The condition that what stands in the id column is an id at all.
    fn valid(&self) -> String {
        let id = &self.names.id;
        match self.id {
            IdKind::Integer { .. } => format!("typeof({id}) = 'integer'"),
            IdKind::Text { .. } | IdKind::Uuid => format!("typeof({id}) IN ('text', 'integer')"),
        }
    }

    /// In: ?1 ids. Out: their rows as one JSON array of [id, status, deadline], since the driver takes longer to
    /// hand over a thousand rows than SQLite to find them; and the clock. Locks nothing; the transaction has
    /// locked everything.
    fn read(&self) -> SqlStr {
        let Names { table, id, status, .. } = self.names;
        let (listed, valid, filter) = (self.listed(), self.valid(), filter_condition(self.config));
        let micros = self.moment.micros(plus_micros(self.config));
        sql(format!(
            "SELECT json_group_array(json_array(CAST({id} AS TEXT), CAST({status} AS TEXT), {micros})), {NOW} \
             FROM {table} WHERE {listed} AND {valid}{filter}"
        ))
    }

    /// In: ?1 ids. Out: the number of rows changed. The status is asked once more for tables in which an id
    /// is not unique; its `+` keeps SQLite from reading every unpaid order by an index on the status.
    fn update(&self) -> SqlStr {
        let Names { table, status, .. } = self.names;
        let (set, listed, unpaid, filter) =
            (further_assignments(self.config, '"'), self.listed(), self.literals.unpaid_list(), filter_condition(self.config));
        let closed = &self.literals.closed;
        sql(format!(
            "UPDATE {table} SET {status} = {closed}{set} WHERE {listed} AND {valid} AND +{status} IN ({unpaid}){filter}",
            valid = self.valid()
        ))
    }

    /// In: ?1 ids, of closed orders. Out: id and what events carry. Locks nothing. Not filtered: closing may have changed
    /// what the filter asks.
    fn included(&self, columns: &[String]) -> Option<SqlStr> {
        let Names { table, id, status, .. } = self.names;
        let pair = |name: &String| {
            let column = quoted('"', name);
            // A blob has no place in JSON.
            format!("'{name}', CASE typeof({column}) WHEN 'blob' THEN lower(hex({column})) ELSE {column} END")
        };
        let pairs: Vec<String> = columns.iter().map(pair).collect();
        (!columns.is_empty()).then(|| {
            sql(format!(
                "SELECT CAST({id} AS TEXT), json_object({}) FROM {table} WHERE {listed} AND +{status} = {closed}",
                pairs.join(", "),
                listed = self.listed(),
                closed = self.literals.closed,
            ))
        })
    }

    /// In: ?1 horizon, ?2 page size, ?3 and ?4 the place to continue after. Out: rows in the order of
    /// deadlines. Locks nothing.
    fn due(&self) -> Vec<Due> {
        let Names { table, id, status, deadline } = self.names;
        let micros = self.moment.micros(plus_micros(self.config));
        let row = format!("CAST({id} AS TEXT), CAST({status} AS TEXT), {micros}, {NOW}");
        let (text, valid, filter) = (self.moment.text(), self.valid(), filter_condition(self.config));
        let not_dead = &self.not_dead;
        let (id, id_parameter) = match self.id {
            IdKind::Integer { .. } => (id.clone(), "CAST(?4 AS INTEGER)"),
            // To the column's own collation two orders may be one, and a page would end between them.
            IdKind::Text { .. } | IdKind::Uuid => (format!("{id} COLLATE BINARY"), "?4"),
        };
        let cursor = self.moment.cursor();
        let after = format!(" AND ({deadline}, {id}) > ({cursor}, {id_parameter})");
        let plus = plus_micros(self.config);
        let (first, next) = (self.moment.within(plus, None), self.moment.within(plus, Some(cursor)));
        let page = |unpaid: &str, within: &str, after: &str| {
            sql(format!(
                "SELECT {row}, {text} FROM {table} WHERE {status} = {unpaid} AND {within}{after} AND {valid}{not_dead}{filter} \
                 ORDER BY {deadline}, {id} LIMIT ?2"
            ))
        };
        let mut due = Vec::new();
        for unpaid in &self.literals.unpaid {
            for (first, next) in first.iter().zip(&next) {
                due.push(Due { first: page(unpaid, first, ""), next: page(unpaid, next, &after) });
            }
        }
        due
    }

    /// In: ?1 horizon. Out: one number. Locks nothing.
    fn count_overdue(&self) -> Vec<SqlStr> {
        let Names { table, status, .. } = self.names;
        let (unpaid, valid, filter) = (self.literals.unpaid_list(), self.valid(), filter_condition(self.config));
        let not_dead = &self.not_dead;
        let within = self.moment.within(plus_micros(self.config), None);
        within
            .iter()
            .map(|within| {
                sql(format!("SELECT count(*) FROM {table} WHERE {status} IN ({unpaid}) AND {within} AND {valid}{not_dead}{filter}"))
            })
            .collect()
    }

    /// Out: id, stored text and meaning of some deadline. Locks nothing.
    fn sample(&self) -> SqlStr {
        let Names { table, id, deadline, .. } = self.names;
        let micros = self.moment.micros(plus_micros(self.config));
        sql(format!(
            "SELECT CAST({id} AS TEXT), CAST({deadline} AS TEXT), {micros} FROM {table} WHERE {deadline} IS NOT NULL AND {valid} LIMIT 1",
            valid = self.valid()
        ))
    }
}

async fn columns(session: &mut Session<Driver>, schema: &str, table: &str) -> Result<Vec<Column>, StoreError> {
    // Not the hidden columns of virtual tables, but generated ones.
    let select = sqlx::query_as::<_, Column>(
        "SELECT name, type AS declared, pk AS key_part FROM pragma_table_xinfo(?1, ?2) WHERE hidden <> 1 ORDER BY cid",
    )
    .bind(table)
    .bind(schema);
    session.run(|connection| select.fetch_all(connection)).await
}

async fn indexes(session: &mut Session<Driver>, schema: &str, table: &str, rowid_alias: Option<&str>) -> Result<Vec<Index>, StoreError> {
    let select = sqlx::query_as::<_, (String, String, bool, bool)>(
        "SELECT l.name, COALESCE(i.name, ''), l.\"unique\", l.partial
         FROM pragma_index_list(?1, ?2) l JOIN pragma_index_info(l.name, ?2) i ORDER BY l.seq, i.seqno",
    )
    .bind(table)
    .bind(schema);
    // A table is its own index on the row id, and lists none.
    let row_id =
        rowid_alias.map(|column| Index { name: "INTEGER PRIMARY KEY".into(), columns: vec![column.into()], unique: true, partial: false });
    let mut indexes = Vec::from_iter(row_id);
    for (name, column, unique, partial) in session.run(|connection| select.fetch_all(connection)).await? {
        match indexes.last_mut() {
            Some(last) if last.name == name => last.columns.push(column),
            _ => indexes.push(Index { name, columns: vec![column], unique, partial }),
        }
    }
    Ok(indexes)
}

async fn no_such_table(session: &mut Session<Driver>, config: &Config) -> Result<Misfit, StoreError> {
    let select = sqlx::query_scalar::<_, String>(
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name LIMIT 20",
    );
    let tables = session.run(|connection| select.fetch_all(connection)).await?;
    let hint = if tables.is_empty() { "it has none".into() } else { format!("it has {}", tables.join(", ")) };
    Ok(Misfit(format!("orders.table is {}, but {} has no such table; {hint}", config.orders.table, config.database.url)))
}

/// The declared type, for people.
fn shown(column: &Column) -> String {
    if column.declared.is_empty() { "of no declared type".into() } else { column.declared.clone() }
}

/// The column that is another name of the row id, if there is one.
fn rowid_alias(columns: &[Column]) -> Option<String> {
    let mut key = columns.iter().filter(|column| column.key_part > 0);
    match (key.next(), key.next()) {
        (Some(column), None) if column.declared.eq_ignore_ascii_case("INTEGER") => Some(column.name.clone()),
        _ => None,
    }
}

/// Where the declaration does not say, the configured statuses do.
fn status_kind(column: &Column, config: &Config) -> StatusKind {
    match (Affinity::of(&column.declared), &config.orders.closed) {
        (Affinity::Integer, _) => StatusKind::Integer,
        (Affinity::Text, _) => StatusKind::Text,
        (Affinity::Blob | Affinity::Real | Affinity::Numeric, Status::Integer(_)) => StatusKind::Integer,
        (Affinity::Blob | Affinity::Real | Affinity::Numeric, Status::Text(_)) => StatusKind::Text,
    }
}

fn id_kind(column: &Column) -> Result<IdKind, Misfit> {
    match Affinity::of(&column.declared) {
        _ if column.declared.to_ascii_uppercase().contains("UUID") => Ok(IdKind::Uuid),
        Affinity::Integer => Ok(IdKind::Integer { min: i64::MIN.into(), max: i64::MAX.into() }),
        // SQLite enforces no length. Numbers in a NUMERIC column are found by their digits.
        Affinity::Text | Affinity::Numeric => Ok(IdKind::Text { max_chars: None, charset: Charset::Unicode }),
        Affinity::Blob | Affinity::Real => Err(Misfit(format!(
            "orders.id: the column {} is {}; an id is declared as INTEGER, TEXT or, with UUIDs in lower-case text, UUID",
            column.name,
            shown(column)
        ))),
    }
}
