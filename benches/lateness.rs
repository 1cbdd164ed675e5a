//! How late orders were closed, from the database's own record of its commits.

use std::ops::Range;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::{
    orders::{Millis, now},
    shop::{CLOSED, Shop},
    support::{Database, Kind},
};

/// An order that fell due. Microseconds since 1970, by the database's clock.
#[derive(Debug, Clone, Copy)]
pub struct Due {
    /// Its deadline.
    pub deadline: i64,
    /// When its closure was committed; `None` while it is open.
    pub committed: Option<i64>,
}

/// The orders with a deadline between these moments, and what became of them. PostgreSQL alone, with
/// `track_commit_timestamp`, and only while nobody but the closer has changed the rows.
pub async fn fell_due(shop: &Shop, from: Millis, until: Millis) -> Vec<Due> {
    fell_due_in(&shop.database, "orders", from, until).await
}

/// The same of another table.
pub async fn fell_due_in(database: &Database, table: &str, from: Millis, until: Millis) -> Vec<Due> {
    in_table(database, table, &format!("expires_at >= to_timestamp({from} / 1000.0) AND expires_at < to_timestamp({until} / 1000.0)")).await
}

/// The orders with these numbers. Where the database does not record when it committed, the time in the statement that
/// closed the order stands for that: one flush to disk earlier.
pub async fn of_orders(shop: &Shop, numbers: &Range<i64>) -> Vec<Due> {
    in_table(&shop.database, "orders", &format!("order_no >= {} AND order_no < {}", numbers.start, numbers.end)).await
}

async fn in_table(database: &Database, table: &str, condition: &str) -> Vec<Due> {
    let micros = |column: &str| match database.kind {
        Kind::Postgres => format!("(extract(epoch FROM {column}) * 1000000)::bigint"),
        Kind::MariaDb => format!("CAST(UNIX_TIMESTAMP({column}) * 1000000 AS SIGNED)"),
        Kind::Sqlite => format!("CAST(round(unixepoch({column}, 'subsec') * 1000) AS integer) * 1000"),
    };
    let committed = match database.kind {
        Kind::Postgres => "pg_xact_commit_timestamp(xmin)",
        Kind::MariaDb | Kind::Sqlite => "closed_at",
    };
    let sql = format!(
        "SELECT {}, CASE status WHEN '{CLOSED}' THEN {} END FROM {table} WHERE {condition}",
        micros("expires_at"),
        micros(committed),
    );
    let number = |text: &Option<String>| text.as_deref().map(|text| text.parse().expect("a whole number"));
    database.rows(&sql).await.iter().map(|row| Due { deadline: number(&row[0]).expect("never NULL"), committed: number(&row[1]) }).collect()
}

/// Lateness (time of the commit minus deadline) of the orders that fell due.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Lateness {
    /// How many fell due.
    pub due: u64,
    /// How many of them were closed before we stopped to look.
    pub closed: u64,
    /// The median.
    pub p50: Percentile,
    /// Nine of ten were closed by then.
    pub p90: Percentile,
    /// Ninety-nine of a hundred.
    pub p99: Percentile,
    /// The latest.
    pub max: Percentile,
}

/// One figure of it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Percentile {
    /// Milliseconds.
    pub ms: f64,
    /// Whether it is only a lower bound, because orders are open that count with the time since their deadline.
    pub at_least: bool,
}

impl Lateness {
    /// Sums up. Panics if an order was closed before its deadline.
    pub fn of(orders: &[Due]) -> Self {
        let now = now() * 1_000;
        let mut histogram = Histogram::<u64>::new(3).expect("three digits are possible");
        let mut least_open = None;
        for order in orders {
            let late = order.committed.unwrap_or(now) - order.deadline;
            let late = u64::try_from(late).unwrap_or_else(|_| panic!("an order was closed {} µs before its deadline", -late));
            histogram.record(late).expect("the histogram grows");
            if order.committed.is_none() {
                least_open = Some(least_open.map_or(late, |least: u64| least.min(late)));
            }
        }
        let figure = |micros: u64| Percentile { ms: micros as f64 / 1_000.0, at_least: least_open.is_some_and(|least| least <= micros) };
        Self {
            due: orders.len() as u64,
            closed: orders.iter().filter(|order| order.committed.is_some()).count() as u64,
            p50: figure(histogram.value_at_quantile(0.5)),
            p90: figure(histogram.value_at_quantile(0.9)),
            p99: figure(histogram.value_at_quantile(0.99)),
            max: figure(histogram.max()),
        }
    }
}

impl std::fmt::Display for Percentile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.at_least { "≥ " } else { "" };
        match self.ms {
            ms if ms < 10.0 => write!(f, "{sign}{ms:.1} ms"),
            ms if ms < 10_000.0 => write!(f, "{sign}{ms:.0} ms"),
            ms => write!(f, "{sign}{:.1} s", ms / 1_000.0),
        }
    }
}

impl std::fmt::Display for Lateness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} closed, lateness p50 {}, p90 {}, p99 {}, max {}", self.closed, self.due, self.p50, self.p90, self.p99, self.max)
    }
}
