//! What the three dialects share: the user's names quoted, and the statuses as SQL literals.

use std::time::Duration;

use crate::{
    config::{Config, Status},
    store::{Misfit, close_sql::CloseStatement, sql::Template},
};

/// Deadlines before this many seconds since 1970 (the start of 1971) are no deadlines: zero dates, zeros
/// in epoch columns, and seconds taken for milliseconds would otherwise close orders at once.
pub(super) const EARLIEST_DEADLINE_SECS: i64 = 31_536_000;

/// The same moment, as SQL text.
pub(super) const EARLIEST_DEADLINE_TEXT: &str = "1971-01-01 00:00:00";

/// The latest deadline that is told from any other, in microseconds since 1970: far beyond every
/// calendar, and still within an `i64` when a clock is subtracted.
pub(super) const LATEST_DEADLINE_MICROS: i64 = 9_000_000_000_000_000_000;

/// What the status column holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StatusKind {
    /// Whole numbers.
    Integer,
    /// Text.
    Text,
    /// One of these labels.
    Enumeration(Vec<String>),
}

/// The user's names, quoted for one dialect.
#[derive(Debug, Clone)]
pub(super) struct Names {
    pub(super) table: String,
    pub(super) id: String,
    pub(super) status: String,
    pub(super) deadline: String,
}

/// Quotes a name; the configuration has refused names with quotes in them.
pub(super) fn quoted(quote: char, name: &str) -> String {
    format!("{quote}{name}{quote}")
}

impl Names {
    pub(super) fn new(config: &Config, quote: char) -> Self {
        let orders = &config.orders;
        let table = match &orders.table.schema {
            Some(schema) => format!("{}.{}", quoted(quote, schema), quoted(quote, &orders.table.name)),
            None => quoted(quote, &orders.table.name),
        };
        Self {
            table,
            id: quoted(quote, orders.id.as_str()),
            status: quoted(quote, orders.status.as_str()),
            deadline: quoted(quote, orders.deadline.column.as_str()),
        }
    }
}

/// The configured statuses as SQL literals, checked against the column.
#[derive(Debug, Clone)]
pub(super) struct StatusLiterals {
    /// As the column prints them, for the judge.
    pub(super) unpaid_texts: Vec<String>,
    /// Each unpaid status, for the sweep.
    pub(super) unpaid: Vec<String>,
    /// The closed status.
    pub(super) closed: String,
}

impl StatusLiterals {
    pub(super) fn new(config: &Config, kind: &StatusKind, type_name: &str) -> Result<Self, Misfit> {
        let orders = &config.orders;
        let literal = |key: &str, status: &Status| {
            status_literal(status, kind).map_err(|what| {
                Misfit(format!(
                    "{key} has {status}, but {column} of {table} is {type_name}: {what}",
                    status = shown(status),
                    column = orders.status,
                    table = orders.table
                ))
            })
        };
        Ok(Self {
            unpaid_texts: orders.unpaid.get().iter().map(Status::text).collect(),
            unpaid: orders.unpaid.get().iter().map(|status| literal("orders.unpaid", status)).collect::<Result<_, _>>()?,
            closed: literal("orders.closed", &orders.closed)?,
        })
    }

    /// The unpaid statuses as the inside of an IN list.
    pub(super) fn unpaid_list(&self) -> String {
        self.unpaid.join(", ")
    }
}

fn shown(status: &Status) -> String {
    match status {
        Status::Integer(number) => number.to_string(),
        Status::Text(text) => format!("{text:?}"),
    }
}

fn status_literal(status: &Status, kind: &StatusKind) -> Result<String, String> {
    match (kind, status) {
        (StatusKind::Integer, Status::Integer(number)) => Ok(number.to_string()),
        (StatusKind::Integer, Status::Text(_)) => Err("write a number, without quotes".into()),
        (StatusKind::Text | StatusKind::Enumeration(_), Status::Integer(number)) => Err(format!("write it as a string, \"{number}\"")),
        (StatusKind::Enumeration(labels), Status::Text(text)) if !labels.contains(text) => {
            Err(format!("its labels are {}", labels.join(", ")))
        }
        (StatusKind::Text | StatusKind::Enumeration(_), Status::Text(text)) => Ok(format!("'{text}'")),
    }
}

/// The further assignments of the UPDATE, each with its leading comma.
pub(super) fn further_assignments(config: &Config, quote: char) -> String {
    config.orders.set.iter().map(|(column, expression)| format!(", {} = {expression}", quoted(quote, column.as_str()))).collect()
}

/// The user's filter as one more condition; on lines of its own, so that a comment in it ends there.
pub(super) fn filter_condition(config: &Config) -> String {
    config.orders.filter.as_ref().map_or_else(String::new, |filter| format!(" AND (\n{filter}\n)"))
}

/// Whether the filter may look at more than its own row: a subquery and a function have parentheses.
pub(super) fn filter_looks_elsewhere(config: &Config) -> bool {
    config.orders.filter.as_ref().is_some_and(|filter| filter.contains('('))
}

/// The user's statements as a dialect makes them of their templates; `escapes` as in [`Template::parse`].
pub(super) fn close_statements<S>(config: &Config, escapes: bool, make: impl Fn(&Template) -> S) -> Result<Vec<CloseStatement<S>>, Misfit> {
    (1..)
        .zip(&config.close.sql)
        .map(|(number, statement)| {
            let template =
                Template::parse(&statement.sql, escapes).map_err(|what| Misfit(format!("close.sql: statement {number} {what}")))?;
            Ok(CloseStatement::new(make(&template), number, statement.rows))
        })
        .collect()
}

/// Where events are recorded, the columns that they carry, each with its configured name and what `find` makes of it.
pub(super) fn included<C>(
    config: &Config,
    mut find: impl FnMut(&'static str, &str) -> Result<C, Misfit>,
) -> Result<Vec<(String, C)>, Misfit> {
    let columns = config.events.include.iter().filter(|_| config.events.enabled);
    columns.map(|name| Ok((name.to_string(), find("events.include", name.as_str())?))).collect()
}

/// What `deadline.plus` adds, in microseconds.
pub(super) fn plus_micros(config: &Config) -> i64 {
    config.orders.deadline.plus.map_or(0, |plus| i64::try_from(plus.get().as_micros()).unwrap_or(LATEST_DEADLINE_MICROS))
}

/// How far ahead to look, in microseconds: a century at most, so that no sum with a clock leaves the calendar.
pub(super) fn horizon_micros(ahead: Duration) -> i64 {
    const CENTURY: Duration = Duration::from_secs(100 * 366 * 86_400);
    i64::try_from(ahead.min(CENTURY).as_micros()).unwrap_or(LATEST_DEADLINE_MICROS)
}

/// The error for a column that the table does not have.
pub(super) fn no_such_column(config: &Config, key: &str, column: &str, existing: &[String]) -> Misfit {
    let table = &config.orders.table;
    Misfit(format!("{key} is {column:?}, but the table {table} has no such column; it has {}", existing.join(", ")))
}
