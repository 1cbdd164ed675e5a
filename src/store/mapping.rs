//! What the three dialects share in fitting a rule to a table: its columns, and the statuses as SQL literals.

use crate::{
    config::{ColumnName, Rule, Status},
    order::did_you_mean,
    store::{Misfit, OpenError},
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
    /// Bytes, always this many where the column has a fixed length.
    Bytes {
        /// How many, at most or always.
        length: usize,
        /// Whether shorter values are filled up with zeros.
        fixed: bool,
    },
    /// One of these labels.
    Enumeration(Vec<String>),
}

/// A column of the orders table.
pub(super) trait Column: Clone {
    /// Its name.
    fn name(&self) -> &str;

    /// Its type, as SQL would declare it, for people.
    fn declared(&self) -> String;
}

/// The columns that a rule names.
#[derive(Debug, Clone)]
pub(super) struct Mapped<C> {
    pub(super) id: C,
    pub(super) status: C,
    pub(super) deadline: C,
    /// What events carry, by the names in the configuration.
    pub(super) included: Vec<(String, C)>,
    /// What the question before closing carries, likewise.
    pub(super) asked: Vec<(String, C)>,
    /// The names of all.
    pub(super) names: Vec<String>,
}

impl<C: Column> Mapped<C> {
    /// Finds them among all; `fold_case` where the database tells no names of columns apart by case.
    ///
    /// # Errors
    /// Names the first that is missing, and those that are there.
    pub(super) fn find(rule: &Rule, columns: &[C], fold_case: bool) -> Result<Self, OpenError> {
        let find = |key: &str, name: &ColumnName| {
            let name = name.as_str();
            let is_it = |column: &&C| column.name() == name || (fold_case && column.name().eq_ignore_ascii_case(name));
            columns.iter().find(is_it).cloned().ok_or_else(|| {
                let existing: Vec<&str> = columns.iter().map(Column::name).collect();
                let missing = format!(
                    "{key} is {name:?}, but the table {} has no such column{}; it has {}",
                    rule.table,
                    did_you_mean(name, existing.iter().copied()),
                    existing.join(", ")
                );
                OpenError::Missing(Misfit(missing))
            })
        };
        let carried = |key: &str, names: &[ColumnName]| {
            names.iter().map(|name| Ok((name.to_string(), find(key, name)?))).collect::<Result<Vec<_>, OpenError>>()
        };
        let mapped = Self {
            id: find("orders.id", &rule.id)?,
            status: find("orders.status", &rule.status)?,
            deadline: find("orders.deadline.column", &rule.deadline.column)?,
            included: carried("events.include", &rule.include)?,
            asked: carried("close.ask.include", &rule.asked)?,
            names: columns.iter().map(|column| column.name().to_owned()).collect(),
        };
        rule.traceparent.iter().try_for_each(|column| find("events.traceparent", column).map(drop))?;
        rule.set.keys().try_for_each(|column| find("orders.set", column).map(drop))?;
        Ok(mapped)
    }
}

/// The configured statuses as SQL literals, checked against the column.
#[derive(Debug, Clone)]
pub(super) struct StatusLiterals {
    /// Each unpaid status, for the sweep.
    pub(super) unpaid: Vec<String>,
    /// The closed status.
    pub(super) closed: String,
}

impl StatusLiterals {
    pub(super) fn new(rule: &Rule, kind: &StatusKind, type_name: &str) -> Result<Self, Misfit> {
        let literal = |key: &str, status: &Status| {
            status_literal(status, kind).map_err(|what| {
                Misfit(format!(
                    "{key} has {status}, but {column} of {table} is {type_name}: {what}",
                    status = shown(status),
                    column = rule.status,
                    table = rule.table
                ))
            })
        };
        Ok(Self {
            unpaid: rule.unpaid.iter().map(|status| literal("orders.unpaid", status)).collect::<Result<_, _>>()?,
            closed: literal("orders.closed", &rule.closed)?,
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
        Status::Bytes(text) | Status::Text(text) => format!("{text:?}"),
    }
}

fn status_literal(status: &Status, kind: &StatusKind) -> Result<String, String> {
    match (kind, status) {
        (StatusKind::Integer, Status::Integer(_)) => Ok(status.literal()),
        (StatusKind::Integer, Status::Bytes(_) | Status::Text(_)) => Err("write a number, without quotes".into()),
        (&StatusKind::Bytes { length, fixed }, Status::Bytes(hex)) => match (hex.len() - 2) / 2 {
            has if has == length || (!fixed && has < length) => Ok(status.literal()),
            has => Err(format!("that is {has} byte{}; write \"0x\" and {} hex digits", if has == 1 { "" } else { "s" }, 2 * length)),
        },
        (StatusKind::Bytes { length, .. }, Status::Integer(_) | Status::Text(_)) => {
            Err(format!("write its bytes, \"0x\" and {} hex digits, as HEX() shows them", 2 * length))
        }
        (StatusKind::Text | StatusKind::Enumeration(_), Status::Bytes(_)) => {
            Err("\"0x\" and hex digits are bytes, which only a column of BINARY or VARBINARY has".into())
        }
        (StatusKind::Text | StatusKind::Enumeration(_), Status::Integer(number)) => Err(format!("write it as a string, \"{number}\"")),
        (StatusKind::Enumeration(labels), Status::Text(text)) if !labels.contains(text) => {
            Err(format!("its labels are {}", labels.join(", ")))
        }
        (StatusKind::Text | StatusKind::Enumeration(_), Status::Text(_)) => Ok(status.literal()),
    }
}
