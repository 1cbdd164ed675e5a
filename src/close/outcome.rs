//! How the look at one order ended.

use std::time::Duration;

use crate::close::Pending;

/// An order that was looked at, and how that ended.
#[derive(Debug, Clone)]
pub struct Looked {
    /// The order, and why it was looked at.
    pub pending: Pending,
    /// How it ended.
    pub outcome: Outcome,
}

impl Looked {
    /// Whether the order was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.outcome, Outcome::Closed(_))
    }
}

/// How the look at one order ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Closed by us, and committed.
    Closed(Closed),
    /// Not an unpaid order.
    Settled {
        /// Its status; `None` is SQL's NULL.
        status: Option<String>,
    },
    /// Not yet due, or never (`None`).
    NotDue {
        /// The time until its deadline.
        remaining: Option<Duration>,
    },
    /// No such order.
    NotFound,
    /// Due, but another transaction holds its row or another that its closure needs.
    Locked {
        /// Which, as far as the database says.
        reason: String,
    },
    /// Due, but nobody was asked about it who was to be, or about another deadline.
    Unasked,
    /// Unpaid, with the deadline for which it was closed a while ago: closing it again would run the user's statements
    /// again.
    Undone,
    /// Its closure fails though it was alone in its transaction.
    Rejected {
        /// The database's reason.
        reason: String,
    },
}

impl Outcome {
    /// Its name in metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Closed(_) => "closed",
            Self::Settled { .. } => "settled",
            Self::NotDue { .. } => "not_due",
            Self::NotFound => "not_found",
            Self::Locked { .. } => "locked",
            Self::Unasked => "unasked",
            Self::Undone => "undone",
            Self::Rejected { .. } => "rejected",
        }
    }
}

/// A closure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// The commit's time minus the deadline.
    pub lateness: Duration,
    /// The deadline, in microseconds since 1970 UTC.
    pub deadline: i64,
}

/// What to say of an order whose row another transaction holds.
pub(super) const ROW_HELD: &str = "locked by another transaction; perhaps a payment in progress";
