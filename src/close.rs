//! Closing orders: the [`Inbox`] holds ids until a worker is free, the [`Closer`] takes them through
//! lock, judge, update, batch after batch.
//!
//! An id may arrive any number of times, early, late or invented: what happens to the order is decided
//! in the transaction alone; before it, each order passes a [`Clearance`]. A batch that fails goes into the inbox's lane `alone`, whose workers find out by which of its
//! orders; the workers of all others go on.
//!
//! Whose fault a failure is, no error code tells. An order that another transaction holds is tried again until that
//! ends. One that the database refuses loses an attempt, unless three different orders are refused and none is
//! closed: then it is not theirs. A transaction that does not even begin has nothing to do with its orders, which wait.

mod alone;
mod asking;
mod bounds;
mod clearance;
mod closer;
mod closures;
mod gate;
mod history;
mod inbox;
mod lanes;
mod looks;
mod outage;
mod outcome;
mod pace;
mod queue;
mod registrar;
mod reminder;
mod request;
mod spare;
mod stats;
mod throttle;
mod transaction;
mod trouble;
mod waits;
mod worker;

pub use bounds::{Bounds, JUMP};
pub use clearance::{Alone, Clearance, Clearances, Cleared, Foresight, Leave, Permit, PutOff, Share, Sorted, Why};
pub use closer::{Closer, Ending};
pub use gate::{Gate, Passage};
pub use history::{Closure, MINUTES, Recent, SECONDS};
pub use inbox::{Batch, Consequence, Crowd, Inbox, Kept, KeptBy, Offer, Pending};
pub use looks::{Look, Seen};
pub use outage::Outage;
pub use outcome::{Closed, Looked, Outcome};
pub use registrar::Registrar;
pub use reminder::Reminder;
pub use request::{Requested, Requests};
pub(crate) use spare::Spare;
pub use stats::{Done, Lateness, Stats, Summary, millis};
pub use throttle::Throttle;
pub use worker::{Follow, Later, Worker};
