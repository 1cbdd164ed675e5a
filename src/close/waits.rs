//! Orders that a clearance lets wait: in nobody's way, each until its time has come.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::close::{
    Pending,
    alone::Waiting,
    clearance::{PutOff, Why},
};

/// An order that waits.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) pending: Pending,
    pub(super) why: Why,
    /// What the lane `alone` knows of it, if it came from there.
    pub(super) before: Option<Waiting>,
}

/// Where an order waits; the number tells those of one instant apart.
pub(super) type Place = (Instant, u64);

/// The orders, by the time until which they wait.
#[derive(Debug, Default)]
pub(super) struct Waits {
    orders: BTreeMap<Place, Held>,
    counts: [usize; Why::COUNT],
    number: u64,
}

impl Waits {
    pub(super) fn len(&self) -> usize {
        self.orders.len()
    }

    /// How many wait for this reason.
    pub(super) fn count(&self, why: Why) -> usize {
        self.counts[why as usize]
    }

    pub(super) fn add(&mut self, PutOff { pending, until, why }: PutOff, before: Option<Waiting>) -> Place {
        self.number += 1;
        let place = (until, self.number);
        self.counts[why as usize] += 1;
        self.orders.insert(place, Held { pending, why, before });
        place
    }

    /// Why an order waits.
    pub(super) fn why(&self, place: Place) -> Option<Why> {
        self.orders.get(&place).map(|held| held.why)
    }

    /// The deadline that the row of an order had, as far as that is known.
    pub(super) fn deadline(&self, place: Place) -> Option<i64> {
        self.orders.get(&place).and_then(|held| held.pending.deadline)
    }

    /// Takes an order out.
    pub(super) fn remove(&mut self, place: Place) -> Option<Held> {
        let held = self.orders.remove(&place)?;
        self.counts[held.why as usize] -= 1;
        Some(held)
    }

    /// When the next order's time comes.
    pub(super) fn next(&self) -> Option<Instant> {
        self.orders.first_key_value().map(|((until, _), _)| *until)
    }

    /// Takes out an order whose time has come.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Held> {
        let place = self.orders.first_key_value().map(|(place, _)| *place).filter(|place| place.0 <= now)?;
        self.remove(place)
    }
}
