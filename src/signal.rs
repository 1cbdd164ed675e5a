//! How the daemon learns that an order may be due: the [`Listener`] hears keyspace notifications, the
//! [`Sweep`] reads the table, and the [`Pacer`] makes each notification come at its deadline.
//!
//! All three only offer ids to the [`crate::close::Inbox`]; none decides anything. Whatever one of them
//! misses, the sweep finds. Where several instances run, [`Peers`] says which of them tries an order first.

mod advice;
mod clock;
mod key;
mod listener;
mod notifications;
mod pacer;
mod peers;
mod redis;
mod sweep;
mod zone;

pub use advice::redis_cli;
pub use key::{KeyReader, NotAnOrder};
pub use listener::{Listener, SessionEnd};
pub use notifications::{EXPIRED_FLAGS, missing_flags, with_flags};
pub use pacer::{Pacer, Upcoming};
pub use peers::Peers;
pub use redis::{Commands, Events, PATIENCE, RedisError, Subscriber, address, pattern};
pub use sweep::{Found, Sweep};
pub use zone::ZoneWatch;
