//! Closes unpaid orders at their payment deadline: on time, once, and never a paid one.
//!
//! How an order travels:
//!
//! ```text
//!  Redis ──expired key──> Listener ─┐
//!    ^ touch at the deadline        │
//!  Pacer ───────────────────────────┤ ids
//!    ^ soon due                     │
//!  Sweep ──overdue──────────────────┤            lock -> judge -> update
//!    ^ the orders table             v                  one transaction
//!  reconcile, close ───────> Inbox ──> Worker ──> Closer ──> Store ──events──> Relay ──> others
//! ```
//!
//! A notification is a hint; the database is the truth. Whatever names an order only asks for a look at
//! it: whether it closes is decided under its row lock, by [`order::judge`], against the database's clock.
//!
//! | room | what is in it |
//! |---|---|
//! | [`metric`] | what is measured: names, labels, meanings |
//! | [`watchdog`] | whether every loop turns |
//! | [`order`] | ids, rows, verdicts; the rules. Pure. |
//! | [`config`] | the settings: what each means, where each came from |
//! | [`webhook`] | signed requests over HTTP |
//! | [`store`] | the orders table, in PostgreSQL, MySQL and SQLite, and the door to our own tables beside it |
//! | [`redis`] | all that is said to Redis |
//! | [`outbox`] | events and dead letters; telling others: webhooks, a Redis Stream |
//! | [`close`] | inbox, batches, retries, the transaction |
//! | [`trigger`] | listener, pacer, sweep: how we learn that an order may be due |
//! | [`ask`] | the question before closing: what the payment provider knows |
//! | [`doors`] | hints from a stream, a sorted set, a queue |
//! | [`explain`] | what is known of one order, and a sentence that says it all |
//! | [`shadow`] | what the daemon would do, beside what becomes of the orders: `run --shadow` |
//! | [`ops`] | signals, the service manager, the lines that sum the daemon up, metrics, readiness |
//! | [`http`] | questions about the daemon, and orders that somebody wants closed |
//! | [`app`] | the daemon put together |
//! | [`cli`] | the command line |
//!
//! Each room uses those above it in this table, and none below.

pub mod app;
pub mod ask;
pub mod cli;
pub mod close;
pub mod config;
pub mod doors;
pub mod explain;
pub mod http;
pub mod metric;
#[cfg(test)]
mod model;
pub mod ops;
pub mod order;
pub mod outbox;
pub mod redis;
pub mod shadow;
pub mod stall;
pub mod store;
pub mod trigger;
pub mod watchdog;
pub mod webhook;
