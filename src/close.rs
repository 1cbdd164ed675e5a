//! Closing orders: the [`Inbox`] holds ids until a worker is free, the [`Closer`] takes them through
//! lock, judge, update, batch after batch.
//!
//! An id may arrive any number of times, early, late or invented: what happens to the order is decided
//! in the transaction alone. Batches that conflict are retried, batches that are rejected are split
//! until the order that causes it stands alone, and an unavailable database is waited for.

mod closer;
mod inbox;
mod stats;
mod transaction;
mod worker;

pub use closer::{Closed, Closer, Looked, Outcome, Unfinished};
pub use inbox::{Ending, Inbox, Offer, Pending};
pub use stats::{Lateness, Stats, Summary, millis};
pub use worker::{Later, Worker};
