//! How the deadline column holds a point in time, and how it is compared with the clock.

use super::{catalogue::Column, statements::NOW};
use crate::{
    config::{EpochUnit, Rule},
    store::{
        Misfit,
        mapping::{EARLIEST_DEADLINE_SECS, EARLIEST_DEADLINE_TEXT, LATEST_DEADLINE_MICROS},
    },
};

/// How the deadline column holds a point in time; `column` is its quoted name.
#[derive(Debug)]
pub(super) enum DeadlineColumn {
    /// With a zone.
    Absolute { column: String },
    /// Without: the session's zone decides.
    Local { column: String },
    /// As a number since 1970.
    Epoch { column: String, unit: EpochUnit },
}

impl DeadlineColumn {
    pub(super) fn new(column: &Column, name: &str, rule: &Rule) -> Result<Self, Misfit> {
        let unit = rule.deadline.unit;
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
    pub(super) fn micros(&self, plus: i64) -> String {
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

    /// The condition that the deadline is real, and from `from` to `until` microseconds away. The column stands bare, so that
    /// an index on it serves.
    pub(super) fn within(&self, from: &str, until: &str, plus: i64) -> String {
        let (Self::Absolute { column } | Self::Local { column } | Self::Epoch { column, .. }) = self;
        format!("{} AND {column} >= {}", self.real_until(until, plus), self.bound(from, plus))
    }

    /// The same however long ago it was.
    pub(super) fn real_until(&self, until: &str, plus: i64) -> String {
        let bound = self.bound(until, plus);
        match self {
            Self::Absolute { column } | Self::Local { column } => format!("{column} >= '{EARLIEST_DEADLINE_TEXT}' AND {column} <= {bound}"),
            Self::Epoch { column, unit } => {
                format!("{column} >= {} AND {column} <= {bound}", EARLIEST_DEADLINE_SECS * 1_000_000 / unit.micros())
            }
        }
    }

    /// The condition, with its leading AND, that the deadline has passed within the last day. The column stands bare, so that
    /// partitions by it are pruned.
    pub(super) fn recent(&self, plus: i64) -> String {
        let (Self::Absolute { column } | Self::Local { column } | Self::Epoch { column, .. }) = self;
        format!(" AND {column} >= {} AND {column} <= {}", self.bound("(-86400000000)", plus), self.bound("0", plus))
    }

    /// What the column holds for a deadline that is `horizon` microseconds away.
    fn bound(&self, horizon: &str, plus: i64) -> String {
        let time = format!("statement_timestamp() + ({horizon}::bigint - {plus}) * interval '1 microsecond'");
        match self {
            Self::Absolute { .. } => time,
            Self::Local { .. } => format!("({time})::timestamp"),
            Self::Epoch { unit, .. } => format!("floor(({NOW} + {horizon}::bigint - {plus})::numeric / {})::bigint", unit.micros()),
        }
    }
}
