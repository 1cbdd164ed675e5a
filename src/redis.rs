//! Everything that this daemon says to Redis, and the only room that knows its client.
//!
//! Two kinds of connection: a [`Subscriber`] lives for one session and is thrown away when anything is
//! wrong with it; [`Commands`] reconnects by itself, and each command has a time limit.

mod advice;
mod client;
mod commands;
mod error;
mod expiry;
mod notifications;
mod subscriber;

pub use advice::redis_cli;
pub use client::{PATIENCE, address, pattern};
pub use commands::Commands;
pub use error::RedisError;
pub use expiry::{Expiries, Expiry};
pub use notifications::{EXPIRED_FLAGS, missing_flags, with_flags};
pub use subscriber::{Events, Subscriber};
