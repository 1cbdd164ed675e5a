//! What the daemon would do, beside what becomes of the orders meanwhile: for whoever has another way of closing them and wants
//! to see this one first.
//!
//! Look-ahead, notifications, pacer, sweep, witness and judge are the daemon's own; their store is a [`Shadow`], which writes
//! nothing. Beside them a [`Watch`] reads the rows of all orders that are due or will be, sees them leave the unpaid status, and
//! has the [`Ledger`] set one against the other.
//!
//! - When an order left the unpaid status is known to within half a second for what is due, and to within ten for what is not
//!   due yet; or as exactly as a column of the table has it.
//! - How late orders were closed in the day before is read from their rows by [`Past`], where that column is named.
//! - Reading takes a tenth of the time at the most, so that a slow table rests nine times as long as it was read.
//! - No more than half a million orders are watched at a time. The others are counted.

mod foreseen;
mod ledger;
mod lines;
mod past;
mod watch;

pub use foreseen::Foreseen;
pub use ledger::{Ledger, Totals};
pub use lines::{Report, Tell};
pub use past::{Before, Past};
pub use watch::Watch;

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::ColumnName;

#[cfg(doc)]
use crate::store::Shadow;

/// How a shadow runs.
#[derive(Debug, Clone)]
pub struct Plan {
    /// For how long; until it is stopped, without.
    pub length: Option<Duration>,
    /// The column with the time at which an order's row was changed last, where there is one.
    pub changed_at: Option<ColumnName>,
    /// Whom it tells.
    pub report: Report,
    /// Cancelled when what it tells is read no more: then it ends.
    pub unread: CancellationToken,
}
