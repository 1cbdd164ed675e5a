//! What an order is to this daemon: an id, a row, and the verdict on it.
//!
//! Everything here is pure: no clock, no I/O, no logs. The rules that decide whether an order closes
//! stand in [`judge`] alone, and every database and every caller uses that one function.

mod id;
mod judge;
mod printable;
mod row;
mod shares;
mod similar;
mod time;

pub use id::{Charset, IdKind, MAX_ID_BYTES, NotAnId, OrderId};
pub use judge::{Verdict, judge};
pub use printable::Printable;
pub(crate) use printable::{ShellWord, is_invisible, printable, write_visible};
pub use row::Row;
pub use shares::Shares;
pub(crate) use similar::did_you_mean;
pub use time::rfc3339;

use serde::Serialize;

/// What made the daemon look at an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Trigger {
    /// A keyspace notification: the order's key expired in Redis.
    Expired,
    /// The pacer, because the deadline passed and no notification had come.
    Pacer,
    /// The daemon's own sweep found the order overdue.
    Sweep,
    /// `order-closer reconcile` found the order overdue.
    Reconcile,
    /// Somebody asked for this order by its id.
    Request,
    /// A hint came in through a door: a stream, a queue.
    Hint,
}

impl Trigger {
    /// Every trigger, in the order in which reports list them.
    pub const ALL: [Self; 6] = [Self::Expired, Self::Pacer, Self::Sweep, Self::Reconcile, Self::Request, Self::Hint];

    /// The trigger's name in logs, reports and events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Pacer => "pacer",
            Self::Sweep => "sweep",
            Self::Reconcile => "reconcile",
            Self::Request => "request",
            Self::Hint => "hint",
        }
    }
}
