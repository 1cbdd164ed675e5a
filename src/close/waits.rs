//! Orders that a clearance lets wait: in nobody's way, each until its time has come.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::close::{
    Pending,
    clearance::{PutOff, Why},
};

/// Where an order waits; the number tells those of one instant apart.
pub(super) type Place = (Instant, u64);

/// The orders, by the time until which they wait.
#[derive(Debug, Default)]
pub(super) struct Waits {
    orders: BTreeMap<Place, (Pending, Why)>,
    number: u64,
}

impl Waits {
    pub(super) fn len(&self) -> usize {
        self.orders.len()
    }

    /// How many wait for this reason.
    pub(super) fn count(&self, why: Why) -> usize {
        self.orders.values().filter(|(_, reason)| *reason == why).count()
    }

    pub(super) fn add(&mut self, PutOff { pending, until, why }: PutOff) -> Place {
        self.number += 1;
        let place = (until, self.number);
        self.orders.insert(place, (pending, why));
        place
    }

    /// The deadline that the row of an order had, as far as that is known.
    pub(super) fn deadline(&self, place: Place) -> Option<i64> {
        self.orders.get(&place).and_then(|(pending, _)| pending.deadline)
    }

    pub(super) fn remove(&mut self, place: Place) {
        self.orders.remove(&place);
    }

    /// When the next order's time comes.
    pub(super) fn next(&self) -> Option<Instant> {
        self.orders.first_key_value().map(|((until, _), _)| *until)
    }

    /// Takes out an order whose time has come.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Pending> {
        let first = self.orders.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove().0)
    }
}
