//! The rules that decide whether an order closes.

use std::time::Duration;

use crate::order::OrderId;

/// An order's row as one statement of the database saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The id, as the column prints it.
    pub id: OrderId,
    /// The status, as the column prints it; `None` is SQL's NULL.
    pub status: Option<String>,
    /// The deadline in microseconds since 1970 UTC; `None` when the row has none.
    ///
    /// A deadline before 1971 is a zero date or a wrong unit, and the stores report it as `None`.
    pub deadline: Option<i64>,
    /// The database's clock when it read the row, in microseconds since 1970 UTC.
    pub now: i64,
    /// Whether this transaction holds the row's lock.
    pub locked: bool,
}

/// What is to be done with an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Unpaid, past its deadline, and locked by us: close it.
    Close {
        /// How long ago the deadline passed, by the database's clock.
        overdue: Duration,
    },
    /// Its status is not an unpaid one; nothing is left to do.
    Settled {
        /// That status; `None` is SQL's NULL.
        status: Option<String>,
    },
    /// Unpaid, and its deadline has not come.
    NotDue {
        /// The time until the deadline; `None` when the row has no deadline, so that it is never due.
        remaining: Option<Duration>,
    },
    /// No such order.
    NotFound,
    /// Unpaid and due, but its row is locked: a payment may be in progress.
    Locked,
}

/// Judges one order.
///
/// An order closes only if its row is locked by this transaction, its status is one of `unpaid`,
/// and its deadline is not after the database's clock.
#[must_use]
pub fn judge(unpaid: &[String], row: Option<&Row>) -> Verdict {
    let Some(row) = row else {
        return Verdict::NotFound;
    };
    let is_unpaid = row.status.as_ref().is_some_and(|status| unpaid.contains(status));
    if !is_unpaid {
        return Verdict::Settled { status: row.status.clone() };
    }
    let Some(deadline) = row.deadline else {
        return Verdict::NotDue { remaining: None };
    };
    let remaining = deadline.saturating_sub(row.now);
    if remaining > 0 {
        return Verdict::NotDue { remaining: Some(Duration::from_micros(remaining.unsigned_abs())) };
    }
    if !row.locked {
        return Verdict::Locked;
    }
    Verdict::Close { overdue: Duration::from_micros(remaining.unsigned_abs()) }
}
