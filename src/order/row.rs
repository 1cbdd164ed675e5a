//! An order's row as one statement of the database saw it.

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

impl Row {
    /// The microseconds until the deadline, by the database's clock; none or fewer once it has come. `None` when the row
    /// has no deadline.
    #[must_use]
    pub fn remaining(&self) -> Option<i64> {
        self.deadline.map(|deadline| deadline.saturating_sub(self.now))
    }

    /// Whether the deadline has come.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.remaining().is_some_and(|remaining| remaining <= 0)
    }
}
