//! The rules that decide whether an order closes.

use std::time::Duration;

use crate::order::Row;

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
    /// Unpaid, due and locked by us, but nobody was asked about it who was to be, or about another deadline.
    Unasked,
}

impl Verdict {
    /// Its name for people and programs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Close { .. } => "close",
            Self::Settled { .. } => "settled",
            Self::NotDue { .. } => "not_due",
            Self::NotFound => "not_found",
            Self::Locked => "locked",
            Self::Unasked => "unasked",
        }
    }

    /// Whether the order is to be closed.
    #[must_use]
    pub fn is_close(&self) -> bool {
        matches!(self, Self::Close { .. })
    }
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
    let Some(remaining) = row.remaining() else {
        return Verdict::NotDue { remaining: None };
    };
    if remaining > 0 {
        return Verdict::NotDue { remaining: Some(Duration::from_micros(remaining.unsigned_abs())) };
    }
    if !row.locked {
        return Verdict::Locked;
    }
    Verdict::Close { overdue: Duration::from_micros(remaining.unsigned_abs()) }
}
