//! The inbox as those see it who wait for the look at an order.

use tokio::time::Instant;

use super::{HINTS_PART, Inbox, Offer, Pending};
use crate::{
    close::{
        lanes::{Lane, Stage},
        looks::{Look, Seen},
    },
    order::{OrderId, Trigger},
};

impl Inbox {
    /// Offers an id as [`Inbox::offer_hint`] does, of whose order nobody has read the row yet, and lets the caller hear what the
    /// look has shown. What there is no space for is to be offered again.
    pub fn look_at(&self, id: &OrderId, trigger: Trigger) -> Look {
        let mut state = self.lock();
        let pending = Pending::new(id.clone(), trigger);
        let offer = state.admit(pending, Lane::Hints, None, self.capacity.div_ceil(HINTS_PART), Instant::now());
        let look = match (offer, state.known.get(id)) {
            (Offer::Full, _) => Look::Full,
            (Offer::Known, Some(Stage::Settled(..))) => Look::Taken(Seen::Settled),
            (Offer::Known, Some(Stage::Held | Stage::Rejected | Stage::Waits(_) | Stage::GivenUp(..))) => Look::Taken(Seen::Waits),
            (Offer::Queued, _) | (Offer::Known, Some(Stage::Hinted | Stage::Open) | None) => Look::Awaited(state.awaited.wait_for(id)),
        };
        drop(state);
        if offer == Offer::Queued {
            self.arrived.notify_one();
        }
        look
    }
}
