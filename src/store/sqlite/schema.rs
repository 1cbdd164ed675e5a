//! The orders table as SQLite's catalogue describes it, and the statements made from that.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr, Sqlite as Driver};

use super::{
    catalogue::{columns, id_kind, indexes, no_such_table, rowid_alias, shown, status_kind, table_kind},
    moment::{Moment, NOW},
    outbox::words,
};
use crate::{
    config::Config,
    order::{IdKind, OrderId},
    store::{
        Catalogue, ClockReading, OpenError, StoreError,
        catalogue::{Asked, Described, Index},
        close_sql::CloseStatement,
        mapping::{
            Names, StatusLiterals, close_statements, filter_condition, further_assignments, included, no_such_column, plus_micros, quoted,
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
    pub(super) count_closed: SqlStr,
    pub(super) close_sql: Vec<CloseStatement<SqlStr>>,
    pub(super) own: OwnTables,
    pub(super) recorder: Option<Arc<Recorder>>,
    pub(super) included: Option<SqlStr>,
    /// One for each unpaid status and each way of writing a time.
    pub(super) due: Vec<Due>,
    /// To be added up.
    pub(super) count_overdue: Vec<SqlStr>,
    sample: SqlStr,
    swept_late: Option<SqlStr>,
    /// The condition on what the sweep reads first.
    swept: String,
    names: Names,
    schema: String,
    table: String,
    described: Described,
    rowid_alias: Option<String>,
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
            None => OwnTables::find(session, words(&schema, &table.name)).await?,
        };
        let literals = StatusLiterals::new(config, &status_kind(status, config)?, &shown(status))?;
        let names = Names::new(config, '"');
        let moment = Moment::new(&shown(deadline), &names.deadline, config)?;
        let id_kind = id_kind(id)?;
        let not_dead = own.not_dead(&format!("CAST({}.{} AS TEXT)", names.table, names.id));
        let statements =
            Statements { config, schema: &schema, names: &names, literals: &literals, moment: &moment, id: &id_kind, not_dead };

        Ok(Self {
            read: statements.read(),
            update: statements.update(),
            count_closed: statements.count_closed(),
            close_sql: close_statements(config, false, |template| sql(template.render(IDS)))?,
            included: statements.included(&carried.into_iter().map(|(name, _)| name).collect::<Vec<_>>()),
            recorder: own.recorder(config),
            own,
            due: statements.due(),
            count_overdue: statements.count_overdue(),
            sample: statements.sample(""),
            swept_late: moment.east_of_sweep().map(|condition| statements.sample(&format!(" AND {} AND {condition}", statements.unpaid()))),
            swept: statements.swept(),
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
        let texts = ids.iter().map(OrderId::as_str);
        match &self.id_kind {
            // In its canonical spelling a whole number is JSON as it stands.
            IdKind::Integer { .. } => format!("[{}]", texts.collect::<Vec<_>>().join(",")),
            IdKind::Text { .. } | IdKind::Uuid => texts.collect::<serde_json::Value>().to_string(),
        }
    }

    pub(super) async fn catalogue(&self, session: &mut Session<Driver>) -> Result<Catalogue, StoreError> {
        let version = sqlx::query_scalar::<_, String>("SELECT 'SQLite ' || sqlite_version()");
        let product = session.run(|connection| version.fetch_one(connection)).await?;
        let clock = clock(session).await?;
        let sample = sqlx::query_as::<_, (String, String, Option<i64>)>(self.sample.clone());
        let sample = session.run(|connection| sample.fetch_optional(connection)).await?;
        let swept_late = match &self.swept_late {
            Some(sql) => {
                let select = sqlx::query_as::<_, (String, String, Option<i64>)>(sql.clone());
                session.run(|connection| select.fetch_optional(connection)).await?
            }
            None => None,
        };
        let indexes = self.usable_indexes(session).await?;
        let Names { table, id, deadline, status } = &self.names;
        // An index names its schema itself, and the table without one.
        let bare_table = table.rsplit_once("\".\"").map_or_else(|| table.clone(), |(_, name)| format!("\"{name}"));
        Ok(self.described.catalogue(Asked {
            product,
            clock,
            table: table_kind(session, &self.schema, &self.table).await?,
            row_security: false,
            sample,
            swept_late,
            indexes,
            drops_implied: false,
            create_sweep_index: format!("CREATE INDEX order_closer_due ON {bare_table} ({status}, {deadline}, {id});"),
            create_id_index: format!("CREATE UNIQUE INDEX order_closer_id ON {bare_table} ({id});"),
        }))
    }

    /// Without the partial ones by which SQLite can't sweep, as it says itself when it must.
    async fn usable_indexes(&self, session: &mut Session<Driver>) -> Result<Vec<Index>, StoreError> {
        let mut usable = Vec::new();
        for index in indexes(session, &self.schema, &self.table, self.rowid_alias.as_deref()).await? {
            let (table, name, swept) = (&self.names.table, index.name.replace('"', "\"\""), &self.swept);
            let must = sql(format!("EXPLAIN SELECT 1 FROM {table} INDEXED BY \"{name}\" WHERE {swept}"));
            match index.partial {
                true => match session.execute(must).await {
                    Ok(()) => usable.push(index),
                    Err(StoreError::Rejected(_)) => {}
                    Err(error) => return Err(error),
                },
                false => usable.push(index),
            }
        }
        Ok(usable)
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
    schema: &'a str,
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

    /// The condition that the status is one of these literals, in just that spelling: a collation may take 'PENDING' for
    /// 'pending', the judge does not, and the sweep would find such an order for ever.
    fn has_status(&self, literals: &[String]) -> String {
        let status = &self.names.status;
        let one_of = match literals {
            // A partial index serves only a condition like its own.
            [one] => format!("= {one}"),
            several => format!("IN ({})", several.join(", ")),
        };
        format!("{status} {one_of} AND {status} COLLATE BINARY {one_of}")
    }

    /// The condition that the order is unpaid.
    fn unpaid(&self) -> String {
        self.has_status(&self.literals.unpaid)
    }

    /// In: ?1 ids. Out: their rows as one JSON array of [id, status, deadline], since the driver takes longer to
    /// hand over a thousand rows than SQLite to find them; the clock; and whether the table has triggers. Locks
    /// nothing; the transaction has locked everything.
    fn read(&self) -> SqlStr {
        let Names { table, id, status, .. } = self.names;
        let (listed, valid, filter) = (self.listed(), self.valid(), filter_condition(self.config));
        let micros = self.moment.micros(plus_micros(self.config));
        let triggers = format!(
            "EXISTS (SELECT 1 FROM \"{schema}\".sqlite_schema WHERE type = 'trigger' AND tbl_name = '{name}' COLLATE NOCASE)",
            schema = self.schema,
            name = self.config.orders.table.name.replace('\'', "''"),
        );
        sql(format!(
            "SELECT json_group_array(json_array(CAST({id} AS TEXT), CAST({status} AS TEXT), {micros})), {NOW}, {triggers} \
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
            "UPDATE {table} SET {status} = {closed}{set} WHERE {listed} AND {valid} AND +{status} COLLATE BINARY IN ({unpaid}){filter}",
            valid = self.valid()
        ))
    }

    /// In: ?1 ids. Out: the number of their rows that are closed. Locks nothing. Not filtered: closing may have changed what
    /// the filter asks.
    fn count_closed(&self) -> SqlStr {
        let Names { table, status, .. } = self.names;
        let (listed, closed) = (self.listed(), &self.literals.closed);
        sql(format!("SELECT count(*) FROM {table} WHERE {listed} AND +{status} COLLATE BINARY = {closed}"))
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
        // Asked before all else: of many orders with one deadline each page passes over those of the pages before, and what
        // follows costs several times as much.
        let after = format!(" AND ({deadline}, {id}) > ({cursor}, {id_parameter})");
        let plus = plus_micros(self.config);
        let (first, next) = (self.moment.within(plus, None), self.moment.within(plus, Some(cursor)));
        let page = |unpaid: &String, within: &str, after: &str| {
            let unpaid = self.has_status(std::slice::from_ref(unpaid));
            sql(format!(
                "SELECT {row}, {text} FROM {table} WHERE {unpaid}{after} AND {within} AND {valid}{not_dead}{filter} \
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
        let table = &self.names.table;
        let (unpaid, valid, filter) = (self.unpaid(), self.valid(), filter_condition(self.config));
        let not_dead = &self.not_dead;
        let within = self.moment.within(plus_micros(self.config), None);
        within
            .iter()
            .map(|within| sql(format!("SELECT count(*) FROM {table} WHERE {unpaid} AND {within} AND {valid}{not_dead}{filter}")))
            .collect()
    }

    /// What the sweep asks first.
    fn swept(&self) -> String {
        let unpaid = self.has_status(&self.literals.unpaid[..1]);
        let within = self.moment.within(plus_micros(self.config), None);
        format!("{unpaid} AND {}{}", within[0], filter_condition(self.config))
    }

    /// Out: id, stored text and meaning of some deadline for which this holds. Locks nothing.
    fn sample(&self, condition: &str) -> SqlStr {
        let Names { table, id, deadline, .. } = self.names;
        let micros = self.moment.micros(plus_micros(self.config));
        sql(format!(
            "SELECT CAST({id} AS TEXT), CAST({deadline} AS TEXT), {micros} FROM {table} WHERE {deadline} IS NOT NULL AND {valid}{condition} LIMIT 1",
            valid = self.valid()
        ))
    }
}
