//! How the daemon learns that an order may be due: the [`Listener`] hears keyspace notifications, the [`LookAhead`] reads
//! what falls due soon and the [`Pacer`] makes each notification come at its deadline, and the [`Sweep`] reads what is overdue.
//!
//! All of them only offer ids to the [`crate::close::Inbox`]; none decides anything. Whatever one of them
//! misses, the sweep finds. Where several instances run, [`Membership`] says which of them tries an order first.

mod beat;
mod claims;
mod clock;
mod clock_watch;
mod intake;
mod key;
mod listener;
mod look_ahead;
mod membership;
mod overdue;
mod pacer;
mod pages;
mod passes;
mod pause_watch;
mod rest;
mod routes;
mod slow;
mod sweep;
mod wheel;
mod witness;
mod zone;

pub use beat::Beat;
pub use claims::{Claims, claimed_twice};
pub use clock_watch::{ClockWatch, accept_clock, compare_clocks};
pub use intake::Intake;
pub use key::{KeyReader, NotAnOrder};
pub use listener::{Hearing, Listener, Listening};
pub use look_ahead::LookAhead;
#[cfg(test)]
pub use membership::Hash;
pub use membership::{Board, Body, Heart, Membership, Pulse, first_edition_lives};
pub use overdue::{left_alone, since};
pub use pacer::{Pacer, Touch, Upcoming};
pub use pages::{PageRead, Pages};
pub use passes::{Pass, Passes};
pub use pause_watch::PauseWatch;
pub use rest::LONGEST_READ;
pub use routes::{Expected, Routes, Taker, Takers};
pub use slow::Turns;
pub use sweep::Sweep;
pub use witness::{Difference, Keys, Mapping, Rows, TOLERANCE, Unanswered, Witness};
pub use zone::ZoneWatch;
