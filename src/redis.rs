//! Everything that this daemon says to Redis, and the only room that knows its client.
//!
//! Two kinds of connection: a [`Subscriber`] lives for one session of the listener; [`Commands`] is looked after by a
//! supervisor. Both audit, each second, that whoever answers is still the Redis for us: a primary, and where its name leads, or
//! the one that sentinels name. Of a cluster each primary has one of each kind: it announces the keys that it has and no others.
//! When it is not, or nobody answers, the connection is thrown away, and the next one asks everything anew: the name server,
//! the file of authorities, the server's role. No error has a password in it, and each says what mends it.

mod advice;
mod cluster;
mod commands;
mod connection;
mod error;
mod expiry;
mod link;
mod notifications;
mod primaries;
mod resolve;
mod rights;
mod secrets;
mod sentinels;
mod server;
mod slots;
mod spread;
mod subscriber;
mod supervisor;

pub use advice::redis_cli;
pub use commands::{Claimed, Commands, DelayQueue, DueMembers, Group, Life, StreamEntry};
pub use connection::{address, pattern};
pub use error::{RedisError, Said};
pub use expiry::{Expiries, Expiry};
pub use link::PATIENCE;
pub use notifications::{EXPIRED_FLAGS, missing_flags, with_flags};
pub use primaries::{Primaries, Primary};
pub use server::Server;
pub use subscriber::{Events, Subscriber};
pub use supervisor::AUDIT;
