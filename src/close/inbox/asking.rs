//! The inbox as those see it who ask about orders before their batch, or let them wait.

use std::sync::atomic::Ordering;

use tokio::time::Instant;

use crate::{
    close::{
        Inbox, Pending,
        clearance::{PutOff, Sorted, Why},
    },
    order::OrderId,
};

impl Inbox {
    /// Takes in orders about which somebody is to be asked, and others that are to wait; all of them were in hand.
    pub fn put_off(&self, ask: Vec<Pending>, wait: Vec<PutOff>) {
        if ask.is_empty() && wait.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.in_hand = state.in_hand.saturating_sub(ask.len());
        state.asking.add(ask);
        wait.into_iter().for_each(|held| state.wait(held, self.capacity));
        self.tell_idle(&state);
        drop(state);
        self.asking.notify_one();
        // What was answered meanwhile.
        self.arrived.notify_one();
        // What has been tried in vain may have been the last that somebody waits for.
        self.alone.notify_one();
    }

    /// Takes orders to ask about; `None` once the inbox is closed. Whoever waits here also wakes what has waited.
    pub async fn take_to_ask(&self) -> Option<Vec<Pending>> {
        loop {
            let asking = self.asking.notified();
            let next = {
                let mut state = self.lock();
                if state.closed {
                    self.asking.notify_one();
                    return None;
                }
                if state.wake(Instant::now()) {
                    self.arrived.notify_one();
                    self.alone.notify_one();
                }
                let batch = state.asking.next();
                if !batch.is_empty() {
                    state.in_hand += batch.len();
                    self.asking.notify_one();
                    return Some(batch);
                }
                state.waits.next()
            };
            match next {
                Some(next) => tokio::time::timeout_at(next, asking).await.unwrap_or_default(),
                None => asking.await,
            }
        }
    }

    /// Takes in orders about which somebody was asked.
    pub fn asked(&self, Sorted { go, wait, ask }: Sorted) {
        let mut state = self.lock();
        let go = go.into_cleared();
        state.asking.asked(go.iter().chain(wait.iter().map(|held| &held.pending)).chain(&ask));
        state.in_hand = state.in_hand.saturating_sub(go.len() + ask.len());
        state.asking.clear(go);
        state.asking.add(ask);
        wait.into_iter().for_each(|held| state.wait(held, self.capacity));
        self.tell_idle(&state);
        drop(state);
        self.arrived.notify_one();
        self.alone.notify_one();
        self.asking.notify_one();
        self.space.notify_one();
    }

    /// Something new is known of these orders, about which somebody was asked: those that wait for it pass on.
    pub fn answered<'a>(&self, ids: impl IntoIterator<Item = &'a OrderId>) {
        let now = Instant::now();
        let mut state = self.lock();
        ids.into_iter().for_each(|id| state.answered(id, now));
        drop(state);
        self.arrived.notify_one();
        self.alone.notify_one();
    }

    /// Whether nobody answers who is asked about orders.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        self.silence.load(Ordering::Relaxed)
    }

    /// From now on nobody answers, or somebody does.
    pub fn set_unanswered(&self, silence: bool) {
        self.silence.store(silence, Ordering::Relaxed);
    }

    /// How many orders wait for this reason.
    #[must_use]
    pub fn waits(&self, why: Why) -> usize {
        self.lock().waits.count(why)
    }
}
