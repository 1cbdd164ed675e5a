//! How the daemon learns that an order may be due: the [`Listener`] hears keyspace notifications, the
//! [`Sweep`] reads the table, and the [`Pacer`] makes each notification come at its deadline.
//!
//! All three only offer ids to the [`crate::close::Inbox`]; none decides anything. Whatever one of them
//! misses, the sweep finds. Where several instances run, [`Membership`] says which of them tries an order first.

mod clock;
mod key;
mod listener;
mod membership;
mod pacer;
mod sweep;
mod witness;
mod zone;

pub use key::{KeyReader, NotAnOrder};
pub use listener::{Listener, SessionEnd};
pub use membership::Membership;
pub use pacer::{Pacer, Upcoming};
pub use sweep::{Found, Sweep};
pub use witness::{Difference, Keys, Mapping, Rows, TOLERANCE, Unanswered, Witness};
pub use zone::ZoneWatch;
