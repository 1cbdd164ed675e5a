//! How the deadline column holds a point in time, and how it is compared with the clock.
//!
//! A `DATETIME` is read in the session's zone. Where clocks are put back one text means two moments, and
//! where they are put forward some texts mean none; in either case the later reading counts, so that no
//! order closes early. The sweep's bounds may be an hour wide of the mark then; the judge is not.

use crate::{
    config::{EpochUnit, Rule},
    store::{
        Misfit,
        mapping::{EARLIEST_DEADLINE_SECS, EARLIEST_DEADLINE_TEXT, LATEST_DEADLINE_MICROS},
    },
};

/// The statement's beginning in microseconds since 1970, whatever the session's zone.
pub(in crate::store) const NOW: &str = "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS SIGNED)";

/// How the deadline column holds a point in time; `column` is its quoted name.
#[derive(Debug)]
pub(super) enum DeadlineColumn {
    /// `TIMESTAMP`: a moment.
    Absolute { column: String },
    /// `DATETIME`, `DATE`: the session's zone decides.
    Local { column: String },
    /// A number since 1970.
    Epoch { column: String, unit: EpochUnit, number: Number },
}

/// What an epoch column counts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    Integer,
    Decimal,
    Double,
}

impl DeadlineColumn {
    /// `data_type` and `declared` as the catalogue has them, `name` as quoted.
    pub(super) fn new(data_type: &str, declared: &str, name: &str, rule: &Rule) -> Result<Self, Misfit> {
        let deadline = &rule.deadline;
        let misfit = |what: &str| Err(Misfit(format!("orders.deadline: the column {} is {declared}: {what}", deadline.column)));
        let column = name.to_owned();
        let number = match data_type {
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => Some(Number::Integer),
            "decimal" => Some(Number::Decimal),
            "double" => Some(Number::Double),
            _ => None,
        };
        match (data_type, number, deadline.unit) {
            ("timestamp", _, None) => Ok(Self::Absolute { column }),
            ("datetime" | "date", _, None) => Ok(Self::Local { column }),
            ("timestamp" | "datetime" | "date", _, Some(_)) => misfit("it holds a time and no number, so unit must be left out"),
            (_, Some(number), Some(unit)) => Ok(Self::Epoch { column, unit, number }),
            (_, Some(_), None) => misfit("say what it counts since 1970, unit = \"s\" for seconds or unit = \"ms\" for milliseconds"),
            _ => misfit("a deadline is a TIMESTAMP or DATETIME, or a number with a unit"),
        }
    }

    /// The deadline in microseconds since 1970, or NULL if the row has none.
    pub(super) fn micros(&self, plus: i64) -> String {
        let (condition, micros) = match self {
            Self::Absolute { column } => {
                (format!("UNIX_TIMESTAMP({column}) >= {EARLIEST_DEADLINE_SECS}"), format!("UNIX_TIMESTAMP({column}) * 1000000"))
            }
            Self::Local { column } => (
                format!("{column} >= '{EARLIEST_DEADLINE_TEXT}'"),
                format!(
                    // Further away, an hour does not matter yet, and UNIX_TIMESTAMP, which on many servers is 0
                    // from 2038 on, must not be asked.
                    "CASE WHEN {column} > NOW(6) + INTERVAL 2 DAY THEN {NOW} + TIMESTAMPDIFF(MICROSECOND, NOW(6), {column}) ELSE {} * 1000000 END",
                    later_reading(column)
                ),
            ),
            Self::Epoch { column, unit, .. } => (
                format!("{column} >= {}", EARLIEST_DEADLINE_SECS * 1_000_000 / unit.micros()),
                // A product of integers would be out of range for a senseless one, and fail the whole statement.
                format!("CEILING(CAST({column} AS DECIMAL(50, 12)) * {})", unit.micros()),
            ),
        };
        format!("CASE WHEN {condition} THEN CAST(LEAST({micros} + {plus}, {LATEST_DEADLINE_MICROS}) AS SIGNED) END")
    }

    /// The condition that the deadline is real and from ?2 to ?1 microseconds away. The column stands bare, so that an
    /// index on it serves.
    pub(super) fn within(&self, plus: i64) -> String {
        // Decimal arithmetic, exact to the microsecond.
        let micros = |away: &str| format!("({NOW} + {away} - {plus})");
        let seconds = |away: &str| format!("({} * 0.000001)", micros(away));
        // FROM_UNIXTIME is NULL beyond 2038 on many servers.
        let far = |away: &str| format!("NOW(6) + INTERVAL ({away} - {plus}) MICROSECOND");
        // The same before 1970; an hour that is there twice may make it an hour too early.
        let from = format!("COALESCE(FROM_UNIXTIME(GREATEST({}, 0)), {})", seconds("?2"), far("?2"));
        let (until, far) = (seconds("?1"), far("?1"));
        match self {
            Self::Absolute { column } => format!(
                // The bound is a local time, and where that means two moments, the server takes the first.
                "{column} >= '{EARLIEST_DEADLINE_TEXT}' AND {column} >= {from} AND {column} <= COALESCE(FROM_UNIXTIME({until}) \
                 + INTERVAL GREATEST({until} - UNIX_TIMESTAMP(FROM_UNIXTIME({until})), 0) SECOND, {far})"
            ),
            Self::Local { column } => format!(
                "{column} >= '{EARLIEST_DEADLINE_TEXT}' AND {column} >= {from} AND {column} <= COALESCE(FROM_UNIXTIME({until}), {far})"
            ),
            Self::Epoch { column, unit, number } => {
                let earliest = EARLIEST_DEADLINE_SECS * 1_000_000 / unit.micros();
                let scaled = |away: &str| match unit {
                    EpochUnit::Seconds => seconds(away),
                    EpochUnit::Milliseconds => format!("({} * 0.001)", micros(away)),
                    EpochUnit::Microseconds => micros(away),
                };
                let whole = |away: &str| match number {
                    Number::Integer => format!("FLOOR({})", scaled(away)),
                    Number::Decimal | Number::Double => scaled(away),
                };
                format!("{column} >= {earliest} AND {column} >= {} AND {column} <= {}", whole("?2"), whole("?1"))
            }
        }
    }

    /// The condition, with its leading AND, that the deadline has passed within the last day, give or take an hour. The column
    /// stands bare, so that partitions by it are pruned.
    pub(super) fn recent(&self, plus: i64) -> String {
        const HOUR: i64 = 3_600_000_000;
        let micros = |away: i64| format!("({NOW} + {away} - {plus})");
        let (column, bound): (_, Box<dyn Fn(i64) -> String>) = match self {
            // NULL beyond 2038 on many servers, and then nothing is recent.
            Self::Absolute { column } | Self::Local { column } => {
                (column, Box::new(move |away| format!("FROM_UNIXTIME({} * 0.000001)", micros(away))))
            }
            Self::Epoch { column, unit, .. } => (column, Box::new(move |away| format!("{} DIV {}", micros(away), unit.micros()))),
        };
        format!(" AND {column} >= {} AND {column} <= {}", bound(-25 * HOUR), bound(HOUR))
    }

    /// The column's text for a [`crate::store::Cursor`].
    pub(super) fn text(&self) -> String {
        match self {
            // Its local text may mean two moments.
            Self::Absolute { column } => format!("CAST(UNIX_TIMESTAMP({column}) AS CHAR)"),
            Self::Local { column } | Self::Epoch { column, .. } => format!("CAST({column} AS CHAR)"),
        }
    }

    /// The condition that a row comes after a cursor's in the order of (deadline, id): ?4, and ?5 as `parameter`
    /// has it.
    pub(super) fn after(&self, id: &str, parameter: &str) -> String {
        match self {
            Self::Absolute { column } => {
                let last = "CAST(?4 AS DECIMAL(20, 6))";
                format!(
                    // A coarse bound for the index, and an exact one: these servers compare local times, and where
                    // clocks are about to be put back, later rows have earlier ones.
                    "{column} >= LEAST(FROM_UNIXTIME({last}), FROM_UNIXTIME({last} + 7200) - INTERVAL 2 HOUR) \
                     AND UNIX_TIMESTAMP({column}) >= {last} AND (UNIX_TIMESTAMP({column}) > {last} OR {id} > {parameter})"
                )
            }
            Self::Local { column } => format!("{column} >= ?4 AND ({column} > ?4 OR {id} > {parameter})"),
            Self::Epoch { column, number, .. } => {
                let last = match number {
                    Number::Integer | Number::Decimal => "CAST(?4 AS DECIMAL(65, 30))",
                    Number::Double => "(?4 + 0e0)",
                };
                format!("{column} >= {last} AND ({column} > {last} OR {id} > {parameter})")
            }
        }
    }
}

/// The moment that a local time means, in seconds since 1970; the later where it means two or, in the hour
/// that is skipped, none. NULL for what is no time.
fn later_reading(column: &str) -> String {
    let (day_before, day_after) = (format!("{column} - INTERVAL 1 DAY"), format!("{column} + INTERVAL 1 DAY"));
    let by_next_days_clock = format!("(UNIX_TIMESTAMP({day_after}) - 86400)");
    format!(
        "CASE WHEN FROM_UNIXTIME(UNIX_TIMESTAMP({column})) <> {column} THEN NULLIF(UNIX_TIMESTAMP({day_before}), 0) + 86400 \
         WHEN FROM_UNIXTIME({by_next_days_clock}) = {column} THEN GREATEST(UNIX_TIMESTAMP({column}), {by_next_days_clock}) \
         ELSE NULLIF(UNIX_TIMESTAMP({column}), 0) END"
    )
}
