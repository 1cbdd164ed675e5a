//! What is measured, a scenario in each file.

/// What becomes of lateness and of a crowd when somebody is asked before.
pub mod ask;
/// How fast a flash sale's orders are closed, beside bare SQL.
pub mod burst;
/// What the daemon costs while nothing is due.
pub mod cost;
/// How late orders are closed by hints that come through a door.
pub mod doors;
/// Several daemons on the same Redis and database.
pub mod fan_in;
/// What recording events costs, and those that nobody takes.
pub mod outbox;
/// Other products that close the same orders.
pub mod peers;
/// How late orders are closed, by the number of pending ones, beside other ways.
pub mod punctual;
/// How soon nothing is overdue after an outage.
pub mod recovery;
/// Orders in many tables of several databases.
pub mod shards;
/// Lateness and processor time at a steady rate.
pub mod steady;
/// How fast timers are registered, and how late they are told of.
pub mod timers;
/// Whether orders that need nothing of what is broken close on time.
pub mod trouble;
/// What it costs to be watched.
pub mod watched;
