//! What is asked of an orders table, and what comes back.

use std::time::Duration;

use tokio::time::Instant;

use crate::order::{OrderId, Row, Shares};

/// Where a page of due orders ended; the next page begins after it.
///
/// Opaque outside the store that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    pub(super) status: usize,
    pub(super) deadline: String,
    pub(super) id: OrderId,
}

impl Cursor {
    /// What it is made of: which of the unpaid statuses, the deadline's text, the order.
    #[must_use]
    pub fn parts(&self) -> (usize, &str, &str) {
        (self.status, &self.deadline, self.id.as_str())
    }

    /// A place that somebody has kept. One that was never one of this table may be refused by the database.
    #[must_use]
    pub fn from_parts(status: usize, deadline: String, id: OrderId) -> Self {
        Self { status, deadline, id }
    }
}

/// Deadlines between two moments, as the database's clock shows them. In an hour that a time zone has twice, or not at all,
/// the bounds may be an hour wide of the mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub(super) from: i64,
    pub(super) until: i64,
}

impl Window {
    /// From and until how many microseconds from now.
    #[cfg(test)]
    pub(crate) const fn bounds(self) -> (i64, i64) {
        (self.from, self.until)
    }

    /// What is overdue, but no longer than so; `None` for whatever is.
    #[must_use]
    pub fn overdue(oldest: Option<Duration>) -> Self {
        Self { from: -window_micros(oldest.unwrap_or(Duration::MAX)), until: 0 }
    }

    /// What has been overdue for longer than that.
    #[must_use]
    pub fn older(oldest: Duration) -> Self {
        Self { from: -window_micros(Duration::MAX), until: -window_micros(oldest) }
    }

    /// What falls due within this time, or just has.
    #[must_use]
    pub fn ahead(ahead: Duration) -> Self {
        Self { from: 0, until: window_micros(ahead) }
    }

    /// What falls due after the one time from now, and within the other.
    #[must_use]
    pub fn between(after: Duration, within: Duration) -> Self {
        Self { from: window_micros(after) + 1, until: window_micros(within) }
    }

    /// What is overdue, and what falls due within this time.
    #[must_use]
    pub fn until(ahead: Duration) -> Self {
        Self { until: window_micros(ahead), ..Self::overdue(None) }
    }
}

/// A length of time in microseconds: a century at most, so that no sum with a clock leaves the calendar.
fn window_micros(time: Duration) -> i64 {
    const CENTURY: Duration = Duration::from_secs(100 * 366 * 86_400);
    i64::try_from(time.min(CENTURY).as_micros()).unwrap_or(i64::MAX)
}

/// What [`Store::due`] is to read.
#[derive(Debug, Clone)]
pub struct DueQuery {
    /// Orders with such deadlines.
    pub window: Window,
    /// Of these shares alone, where the database can tell: orders of others may be among them.
    pub shares: Shares,
    /// At most this many orders.
    pub limit: u32,
    /// Continue after this place; `None` begins with the oldest deadline.
    pub after: Option<Cursor>,
}

impl DueQuery {
    /// The first orders in this window, of all shares.
    #[must_use]
    pub const fn of(window: Window, limit: u32) -> Self {
        Self { window, shares: Shares::ALL, limit, after: None }
    }
}

/// One page of unpaid orders, oldest deadline first within each unpaid status.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The orders, unlocked: what they were, not what they are.
    pub rows: Vec<Row>,
    /// Where the next page begins; `None` when this was the last.
    pub next: Option<Cursor>,
    /// How many statements it took, one after the other.
    pub reads: u32,
    /// When the database was asked for its first rows, where they were waited for before: several shards are read at once.
    pub asked: Option<Instant>,
}

/// A row of an order, as [`crate::store::Store::inspect`] finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// The row, unlocked.
    pub row: Row,
    /// What stands in the deadline column, as text; `None` is SQL's NULL.
    pub stored: Option<String>,
    /// Whether `orders.filter` lets it through.
    pub passes_filter: bool,
    /// Whether another rule takes it, too, so that neither closes it.
    pub is_claimed_twice: bool,
}

/// How many unpaid orders there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// How many.
    pub orders: u64,
    /// The first of their deadlines, in microseconds since 1970 UTC.
    pub since: Option<i64>,
}
