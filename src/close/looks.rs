//! Looks that somebody waits for: whoever has brought a hint that must not get lost hears what the look has shown.

use std::collections::HashMap;

use tokio::sync::oneshot;

use crate::{close::Outcome, order::OrderId};

/// What a look at an order has shown. In each case the order's hint has done what it can: what is unpaid and not closed is in
/// the table, where look-ahead and sweep find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It was due, and is closed.
    Closed,
    /// It is paid, or closed already; or that was so less than a minute ago.
    Settled,
    /// It is unpaid, and its deadline comes later or never.
    NotDue,
    /// There is no such order.
    NotFound,
    /// It is due and can't be closed now: held by another transaction, refused by the database, disputed, or somebody is asked.
    Waits,
}

impl Seen {
    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Settled => "settled",
            Self::NotDue => "not_due",
            Self::NotFound => "not_found",
            Self::Waits => "waits",
        }
    }
}

/// What became of the wish for a look.
#[derive(Debug)]
pub enum Look {
    /// The look was taken before.
    Taken(Seen),
    /// It will be, and this hears of it. Ends without a word when the daemon stops before.
    Awaited(oneshot::Receiver<Seen>),
    /// There are too many hints already, or the daemon stops.
    Full,
}

/// Whoever waits, by the order.
#[derive(Debug, Default)]
pub(super) struct Awaited(HashMap<OrderId, Vec<oneshot::Sender<Seen>>, foldhash::quality::RandomState>);

impl Awaited {
    pub(super) fn wait_for(&mut self, id: &OrderId) -> oneshot::Receiver<Seen> {
        let (tell, told) = oneshot::channel();
        let waiting = self.0.entry(id.clone()).or_default();
        // Who has given up does not wait.
        waiting.retain(|tell| !tell.is_closed());
        waiting.push(tell);
        told
    }

    pub(super) fn tell(&mut self, id: &OrderId, outcome: &Outcome) {
        self.say(
            id,
            match outcome {
                Outcome::Closed(_) => Seen::Closed,
                Outcome::Settled { .. } => Seen::Settled,
                Outcome::NotDue { .. } => Seen::NotDue,
                Outcome::NotFound => Seen::NotFound,
                Outcome::Locked { .. } | Outcome::Undone | Outcome::Rejected { .. } => Seen::Waits,
                // It is looked at again at once.
                Outcome::Unasked => return,
            },
        );
    }

    /// An order is to wait for an answer, or for its key.
    pub(super) fn waits(&mut self, id: &OrderId) {
        self.say(id, Seen::Waits);
    }

    fn say(&mut self, id: &OrderId, seen: Seen) {
        if self.0.is_empty() {
            return;
        }
        for tell in self.0.remove(id).unwrap_or_default() {
            // Who has given up does not wait.
            tell.send(seen).ok();
        }
    }
}
