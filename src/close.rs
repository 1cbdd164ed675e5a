//! Closing orders: the [`Inbox`] holds ids until a worker is free, the [`Closer`] takes them through
//! lock, judge, update, batch after batch.
//!
//! An id may arrive any number of times, early, late or invented: what happens to the order is decided
//! in the transaction alone. Batches that conflict are retried, batches that fail are split until the order
//! that causes it stands alone.
//!
//! Whose fault a failure is, no error code tells. What fails with no order at all ([`crate::store::examine`]) is the
//! fault of the database or its tables: it is waited for, and counts against nobody. What fails for an order
//! alone counts against that order. If its error speaks of the database, as a full disk's does, the order is given up
//! only if another has been closed meanwhile, or if no other fails.

mod closer;
mod inbox;
mod stats;
mod transaction;
mod trouble;
mod worker;

pub use closer::{Closed, Closer, Looked, Outcome, Unfinished};
pub use inbox::{Ending, Inbox, Offer, Pending};
pub use stats::{Lateness, Stats, Summary, millis};
pub use trouble::Trouble;
pub use worker::{Later, Worker};
