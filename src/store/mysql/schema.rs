//! The orders table as the server's catalogue describes it, and the statements made from that.

use std::sync::Arc;

use sqlx::{Arguments, AssertSqlSafe, MySql as Driver, SqlSafeStr, SqlStr, mysql::MySqlArguments};

use super::{
    catalogue::{Column, Server, Table, columns, id_column, indexes, status_column, table},
    ids::{IdColumn, ListStatement},
    moment::{Moment, NOW},
    outbox::words,
};
use crate::{
    config::Config,
    order::IdKind,
    store::{
        Catalogue, ClockReading, OpenError, StoreError,
        catalogue::{Asked, Described, Index, TableKind},
        close_sql::CloseStatement,
        mapping::{
            Names, StatusLiterals, close_statements, filter_condition, further_assignments, included, no_such_column, plus_micros, quoted,
        },
        outbox::{OwnTables, Recorder},
        paging::Read,
        session::Session,
        sql::Template,
    },
};

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
    pub(super) lock: ListStatement,
    pub(super) peek: ListStatement,
    pub(super) update: ListStatement,
    pub(super) count_closed: ListStatement,
    pub(super) close_sql: Vec<CloseStatement<ListStatement>>,
    pub(super) own: OwnTables,
    pub(super) recorder: Option<Arc<Recorder>>,
    pub(super) included: Option<ListStatement>,
    pub(super) due: Vec<Due>,
    pub(super) count_overdue: SqlStr,
    /// How often the horizon stands in a condition on the deadline.
    horizons: usize,
    /// How often the cursor's deadline stands in the condition for the next page.
    lasts: usize,
    id_column: IdColumn,
    sample: SqlStr,
    create_sweep_index: String,
    create_id_index: String,
    table: Table,
    server: Server,
    described: Described,
}

fn sql(text: String) -> SqlStr {
    AssertSqlSafe(text).into_sql_str()
}

fn parameters(condition: &str) -> usize {
    condition.matches('?').count()
}

impl Schema {
    /// `own` are our own tables, if they were found before.
    pub(super) async fn read(session: &mut Session<Driver>, config: &Config, own: Option<&OwnTables>) -> Result<Self, OpenError> {
        let server = Server::read(session).await?;
        let table = table(session, config).await?;
        let columns = columns(session, &table).await?;
        let find = |key: &'static str, name: &str| {
            let existing: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
            // Column names are the one kind of name that these servers never tell apart by case.
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
            None => OwnTables::find(session, words(&table.schema, &table.name)).await?,
        };
        let names = Names::new(config, '`');
        let (status_kind, status_text) = status_column(status, &names.status)?;
        let literals = StatusLiterals::new(config, &status_kind, &status.declared)?;
        let moment = Moment::new(&deadline.base, &deadline.declared, &names.deadline, config)?;
        let (id_column, id_kind) = id_column(id)?;
        let indexes = indexes(session, &server, &table).await?;
        let not_dead = own.not_dead(&id_column.text(&format!("{}.{}", names.table, names.id)));
        let statements = Statements {
            config,
            names: &names,
            literals: &literals,
            moment: &moment,
            id: id_column,
            status_text,
            not_dead,
            escapes: server.escapes,
        };
        let hint = index_hint(&indexes, &id.name);
        let zone = zone(session, config).await?;
        let (id_part, status_part) = (id.key_part(&names.id), status.key_part(&names.status));

        Ok(Self {
            id_kind,
            unpaid: literals.unpaid_texts.clone(),
            lock: statements.lock(&hint)?,
            peek: statements.peek(&hint)?,
            update: statements.update(&hint)?,
            count_closed: statements.count_closed(&hint)?,
            close_sql: close_statements(config, server.escapes, |template| ListStatement::new(template, id_column))?,
            included: statements.included(&hint, &carried)?,
            recorder: own.recorder(config),
            own,
            due: literals.unpaid.iter().map(|status| statements.due(status)).collect(),
            count_overdue: statements.count_overdue(),
            horizons: parameters(&moment.within(0)),
            lasts: parameters(&moment.after("", "")),
            sample: statements.sample(),
            id_column,
            described: Described::new(
                [id, status, deadline].map(|column| (column.name.as_str(), column.declared.clone())),
                zone,
                matches!(moment, Moment::Local { .. }),
            ),
            create_sweep_index: create_index("", "due", &table, &[&status_part, &names.deadline, &id_part]),
            create_id_index: create_index(if table.kind() == TableKind::Partitioned { "" } else { "UNIQUE " }, "id", &table, &[&id_part]),
            table,
            server,
        })
    }

    /// What the condition on the deadline binds.
    pub(super) fn horizon(&self, ahead: i64) -> Result<MySqlArguments, sqlx::Error> {
        let mut arguments = MySqlArguments::default();
        for _ in 0..self.horizons {
            arguments.add(ahead).map_err(sqlx::Error::Encode)?;
        }
        Ok(arguments)
    }

    /// What [`Due`] binds.
    pub(super) fn due_arguments(&self, ahead: i64, read: &Read) -> Result<MySqlArguments, sqlx::Error> {
        let mut arguments = self.horizon(ahead)?;
        if let Some(cursor) = &read.after {
            for _ in 0..self.lasts {
                arguments.add(cursor.deadline.as_str()).map_err(sqlx::Error::Encode)?;
            }
            self.id_column.bind(&mut arguments, &cursor.id)?;
        }
        arguments.add(read.limit).map_err(sqlx::Error::Encode)?;
        Ok(arguments)
    }

    pub(super) async fn catalogue(&self, session: &mut Session<Driver>) -> Result<Catalogue, StoreError> {
        let clock = clock(session).await?;
        let sample = sqlx::query_as::<_, (String, String, Option<i64>)>(self.sample.clone());
        let sample = session.run(|connection| sample.fetch_optional(connection)).await?;
        let indexes = indexes(session, &self.server, &self.table).await?;
        Ok(self.described.catalogue(Asked {
            product: self.server.product.clone(),
            clock,
            table: self.table.kind(),
            row_security: false,
            sample,
            swept_late: None,
            indexes,
            drops_implied: false,
            create_sweep_index: self.create_sweep_index.clone(),
            create_id_index: self.create_id_index.clone(),
        }))
    }
}

/// With the schema, since others may be in another one.
fn create_index(unique: &str, name: &str, Table { schema, name: table, .. }: &Table, parts: &[&str]) -> String {
    let table = [schema, table].map(|name| quoted('`', name)).join(".");
    format!("CREATE {unique}INDEX order_closer_{name} ON {table} ({});", parts.join(", "))
}

/// Reads the database's clock.
pub(super) async fn clock(session: &mut Session<Driver>) -> Result<ClockReading, StoreError> {
    let clock = sqlx::query_scalar::<_, i64>(sql(format!("SELECT {NOW}")));
    let started = std::time::Instant::now();
    let micros = session.run(|connection| clock.fetch_one(connection)).await?;
    Ok(ClockReading { micros, round_trip: started.elapsed() })
}

/// Makes a statement find its rows by the id's index, however long its list: a scan would lock the whole table.
fn index_hint(indexes: &[Index], id: &str) -> String {
    let serving = indexes.iter().filter(|index| index.serves_id(id));
    // One that allows each id once is the surest to stay.
    let chosen = serving.max_by_key(|index| (index.makes_unique(id), index.name == "PRIMARY"));
    chosen.map_or_else(String::new, |index| format!(" FORCE INDEX (`{}`)", index.name.replace('`', "``")))
}

/// The zone in which times without a zone are read, as `check` names it.
async fn zone(session: &mut Session<Driver>, config: &Config) -> Result<String, StoreError> {
    let select = sqlx::query_as::<_, (String, String)>("SELECT CAST(@@session.time_zone AS CHAR), CAST(@@system_time_zone AS CHAR)");
    let (zone, system) = session.run(|connection| select.fetch_one(connection)).await?;
    Ok(match &config.database.time_zone {
        Some(zone) => format!("{zone} (database.time_zone)"),
        None if zone == "SYSTEM" => format!("SYSTEM ({system}) (the server's own)"),
        None => format!("{zone} (the server's own)"),
    })
}

/// What the statements are made of.
struct Statements<'a> {
    config: &'a Config,
    names: &'a Names,
    literals: &'a StatusLiterals,
    moment: &'a Moment,
    id: IdColumn,
    status_text: String,
    /// The condition that an order is no dead letter.
    not_dead: String,
    escapes: bool,
}

impl Statements<'_> {
    fn row(&self) -> String {
        let id = self.id.text(&self.names.id);
        format!("{id}, {}, {}, {NOW}", self.status_text, self.moment.micros(plus_micros(self.config)))
    }

    /// The condition that the row is one of `:ids`.
    fn listed(&self) -> String {
        format!("{id} IN (:ids){exactly}", id = self.names.id, exactly = self.id.exactly(&self.names.id))
    }

    /// The condition that the status is one of these literals, in just that spelling: a collation takes 'PENDING' for
    /// 'pending', the judge does not, and the sweep would find such an order for ever.
    fn has_status(&self, literals: &[String]) -> String {
        let spelled = |literal: &String| format!("CAST({literal} AS BINARY)");
        let exactly = match literals.first() {
            Some(first) if first.starts_with('\'') => {
                let spelled: Vec<String> = literals.iter().map(spelled).collect();
                format!(" AND CAST({} AS BINARY) IN ({})", self.status_text, spelled.join(", "))
            }
            _ => String::new(),
        };
        format!("{} IN ({}){exactly}", self.names.status, literals.join(", "))
    }

    fn list(&self, statement: &str) -> Result<ListStatement, OpenError> {
        let template = Template::parse(statement, self.escapes)
            .map_err(|what| StoreError::Rejected(format!("orders.filter or orders.set: {what}")))?;
        Ok(ListStatement::new(&template, self.id))
    }

    /// In: ids. Out: their rows. Locks the rows until the end of the transaction, skips locked ones: MariaDB, by its comment,
    /// with a time limit for locks, since SKIP LOCKED without any fails at the first locked row ("Operation not permitted").
    fn lock(&self, hint: &str) -> Result<ListStatement, OpenError> {
        let (row, table, listed, filter) = (self.row(), &self.names.table, self.listed(), filter_condition(self.config));
        self.list(&format!(
            "/*M! SET STATEMENT innodb_lock_wait_timeout = 1 FOR */ SELECT {row} FROM {table}{hint} WHERE {listed}{filter} \
             ORDER BY {} FOR UPDATE SKIP LOCKED",
            self.names.id
        ))
    }

    /// In: ids. Out: their rows as last committed. Locks nothing.
    fn peek(&self, hint: &str) -> Result<ListStatement, OpenError> {
        let (row, table, listed, filter) = (self.row(), &self.names.table, self.listed(), filter_condition(self.config));
        self.list(&format!("SELECT {row} FROM {table}{hint} WHERE {listed}{filter}"))
    }

    /// In: ids, whose rows are locked. Out: the number of rows changed. The status is asked once more for
    /// tables in which an id is not unique.
    fn update(&self, hint: &str) -> Result<ListStatement, OpenError> {
        let Names { table, status, .. } = self.names;
        let (listed, unpaid, filter) = (self.listed(), self.has_status(&self.literals.unpaid), filter_condition(self.config));
        // These servers assign from left to right; with the status last, the other expressions see the old one.
        let assignments = format!("{}, {status} = {}", further_assignments(self.config, '`'), self.literals.closed);
        let assignments = assignments.trim_start_matches(", ");
        self.list(&format!("UPDATE {table}{hint} SET {assignments} WHERE {listed} AND {unpaid}{filter}"))
    }

    /// In: ids. Out: the number of their rows that are closed. Locks nothing. Not filtered: closing may have changed what
    /// the filter asks.
    fn count_closed(&self, hint: &str) -> Result<ListStatement, OpenError> {
        let (table, listed, closed) = (&self.names.table, self.listed(), self.has_status(std::slice::from_ref(&self.literals.closed)));
        self.list(&format!("SELECT COUNT(*) FROM {table}{hint} WHERE {listed} AND {closed}"))
    }

    /// In: ids, of closed orders. Out: id and what events carry. Locks nothing. Not filtered: closing may have changed
    /// what the filter asks.
    fn included(&self, hint: &str, columns: &[(String, &Column)]) -> Result<Option<ListStatement>, OpenError> {
        if columns.is_empty() {
            return Ok(None);
        }
        let Names { table, id, status, .. } = self.names;
        let pair = |(name, column): &(String, &Column)| {
            let value = quoted('`', name);
            // Bytes have no place in JSON.
            if column.is_binary() { format!("'{name}', LOWER(HEX({value}))") } else { format!("'{name}', {value}") }
        };
        let pairs: Vec<String> = columns.iter().map(pair).collect();
        let (id_text, listed, closed) = (self.id.text(id), self.listed(), &self.literals.closed);
        let object = format!("CAST(JSON_OBJECT({}) AS CHAR)", pairs.join(", "));
        self.list(&format!("SELECT {id_text}, {object} FROM {table}{hint} WHERE {listed} AND {status} = {closed}")).map(Some)
    }

    /// In: the horizon, the place to continue after, the page size. Out: rows in the order of deadlines. Locks nothing.
    fn due(&self, unpaid: &str) -> Due {
        let Names { table, id, deadline, .. } = self.names;
        let (row, text, filter) = (self.row(), self.moment.text(), filter_condition(self.config));
        let unpaid = self.has_status(&[unpaid.to_owned()]);
        let within = self.moment.within(plus_micros(self.config));
        let page = |after: &str| {
            sql(format!(
                "SELECT {row}, {text} FROM {table} WHERE {unpaid} AND {within}{after} AND {id} IS NOT NULL{valid}{not_dead}{filter} \
                 ORDER BY {deadline}, {id} LIMIT ?",
                valid = self.id.valid(id),
                not_dead = self.not_dead,
            ))
        };
        Due { first: page(""), next: page(&format!(" AND {}", self.moment.after(id, self.id.parameter()))) }
    }

    /// In: the horizon. Out: one number. Locks nothing.
    fn count_overdue(&self) -> SqlStr {
        let Names { table, id, .. } = self.names;
        let (within, unpaid, filter) =
            (self.moment.within(plus_micros(self.config)), self.has_status(&self.literals.unpaid), filter_condition(self.config));
        sql(format!(
            "SELECT COUNT(*) FROM {table} WHERE {unpaid} AND {within} AND {id} IS NOT NULL{}{}{filter}",
            self.id.valid(id),
            self.not_dead
        ))
    }

    /// Out: id, stored text and meaning of some deadline. Locks nothing.
    fn sample(&self) -> SqlStr {
        let Names { table, id, deadline, .. } = self.names;
        let (id_text, micros) = (self.id.text(id), self.moment.micros(plus_micros(self.config)));
        sql(format!(
            "SELECT {id_text}, CAST({deadline} AS CHAR), {micros} FROM {table} WHERE {deadline} IS NOT NULL AND {id} IS NOT NULL LIMIT 1"
        ))
    }
}
