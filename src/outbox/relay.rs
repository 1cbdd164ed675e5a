//! The relay: takes deliveries of one target from the outbox, again and again, at least once each.
//!
//! Each target has a relay of its own, so none can hold up another, and none closures. Instances share the work by
//! claims: a delivery is claimed only when it begins at once, and for no longer than it can take, so what a crashed
//! relay had in hand is soon another's.
//!
//! No event is another's hostage. What has failed has a lane of its own, in which it waits by itself and takes no more than
//! a quarter of the room while others wait. While a target fails, those never tried are taken from both ends, and when it
//! takes nothing at all ([`super::breaker`]), the latest is asked with: of those that no receiver takes none is in the way of the
//! next. An attempt counts only for what was sent, and only what was tried for long enough becomes a dead letter.

mod landing;

use std::{future::pending, sync::Arc, time::Duration};

use futures::StreamExt;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{Claimed, Courier, Deliveries, Pick, Settled, State, Want, claims::AFTER_ANOTHER};
use crate::{
    config::Retry,
    order::rfc3339,
    store::{StoreError, instance},
};
use landing::{Hand, say_gone};

/// How often, at most and at least, the outbox is looked into when nobody says that something was closed: for what
/// others closed, and for what is to be tried again.
const POLL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How often the target's state is read, and its successes are written.
const OBSERVING: Duration = Duration::from_secs(1);

/// How much longer than a delivery can take its claim holds: the time to note what came of it.
const NOTING: Duration = Duration::from_secs(10);

/// So many events are made due again by one statement: closures come first.
const PIECE: u32 = 500;

/// Delivers one target's events.
#[derive(Debug)]
pub struct Relay {
    /// Where events are.
    pub outbox: Arc<dyn Deliveries>,
    /// Who is told.
    pub courier: Courier,
    /// When a delivery that failed is tried again.
    pub retry: Retry,
    /// Changes when events were recorded.
    pub recorded: watch::Receiver<()>,
    /// When to stop.
    pub stop: CancellationToken,
    /// How long deliveries in flight may take then. What is cut off is delivered again.
    pub grace: Duration,
}

/// What one pass over all that was due has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pass {
    /// How many events were delivered.
    pub delivered: u64,
    /// How many were not.
    pub failed: u64,
    /// Whether it ended before all that was due had been tried, because the target takes nothing.
    pub cut_short: bool,
}

impl Relay {
    /// Relays until it is told to stop.
    pub async fn run(mut self) {
        let mut hand = Hand::new();
        let mut away = false;
        while !self.stop.is_cancelled() {
            let worked = self.work(&mut hand).await;
            let again = worked.is_ok() && hand.more && self.room(&hand) > 0;
            self.report(worked, &mut away);
            if again {
                continue;
            }
            let poll = self.poll();
            let now = Instant::now();
            let wake = hand.breaker.next_room(now).map_or(poll, |at| poll.min(at - now));
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                Some(landed) = hand.flying.next() => self.land_all(landed, &mut hand),
                () = woken(&mut self.recorded, wake) => hand.more = true,
            }
        }
        self.end(hand).await;
    }

    /// Delivers once what is due, unless the target takes nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn run_once(self) -> Result<Pass, StoreError> {
        let mut hand = Hand::new();
        let mut looked_after = 0;
        loop {
            self.work(&mut hand).await?;
            if let Some(landed) = hand.flying.next().await {
                self.land_all(landed, &mut hand);
                hand.more &= !hand.breaker.is_open();
            } else if hand.pass.delivered > looked_after && !hand.breaker.is_open() {
                // Each may have had a later event of its order behind it, which was put off.
                tokio::time::sleep(AFTER_ANOTHER).await;
                looked_after = hand.pass.delivered;
                hand.more = true;
            } else if !hand.more || self.room(&hand) == 0 {
                break;
            }
        }
        self.exchange(Vec::new(), &mut hand).await?;
        hand.pass.cut_short = hand.breaker.is_open() || hand.breaker.is_gone();
        Ok(hand.pass)
    }

    /// How often to look for what is due.
    fn poll(&self) -> Duration {
        self.retry.initial.get().clamp(POLL.0, POLL.1)
    }

    /// Notes what came of deliveries, and begins new ones as far as there is room.
    async fn work(&self, hand: &mut Hand) -> Result<(), StoreError> {
        if !hand.stateless && hand.observed.is_none_or(|at| at.elapsed() >= OBSERVING) {
            self.exchange(Vec::new(), hand).await?;
            match self.observe(hand).await {
                // Events are told all the same.
                Err(StoreError::Rejected(reason)) => {
                    let target = self.courier.target().name();
                    error!(
                        to = target,
                        reason, "the states of targets can't be kept; grant SELECT, INSERT, UPDATE and DELETE on order_closer_targets"
                    );
                    hand.stateless = true;
                    hand.observed = Some(Instant::now());
                }
                observed => observed?,
            }
        }
        self.bring_forward(hand).await?;
        let wants = if hand.more { self.wants(hand) } else { Vec::new() };
        self.exchange(wants, hand).await
    }

    /// How many deliveries may begin now.
    fn room(&self, hand: &Hand) -> usize {
        hand.breaker.room(Instant::now(), self.courier.target().concurrency(), hand.flying.len())
    }

    /// What to begin: of what has failed before, and of what was never tried.
    fn wants(&self, hand: &mut Hand) -> Vec<Want> {
        let room = self.room(hand);
        let want = |pick, total| Want { pick, total };
        if room == 0 {
            return Vec::new();
        }
        if hand.breaker.is_open() {
            // Where there is room for one only, each of them in turn.
            hand.turn = !hand.turn;
            let first = if room > 1 || hand.turn { Pick::Newest } else { Pick::Again };
            let newest = room.saturating_sub(2).max(1);
            return vec![want(first, newest), want(Pick::Oldest, room.min(newest + 1)), want(Pick::Again, room)];
        }
        hand.turn = hand.breaker.is_failing() && !hand.turn;
        let new = want(if hand.turn { Pick::Newest } else { Pick::Oldest }, room);
        if hand.look_again > Instant::now() {
            return vec![new];
        }
        let share = (self.courier.target().concurrency() / 4).max(1);
        let again = want(Pick::Again, share.saturating_sub(hand.again).min(room));
        // What nobody else needs it may have, but for the room that the next new one needs.
        vec![again, new, want(Pick::Again, room.saturating_sub(share))]
    }

    /// Notes what came of deliveries, claims others, and begins them.
    async fn exchange(&self, wants: Vec<Want>, hand: &mut Hand) -> Result<(), StoreError> {
        if hand.stateless {
            hand.settled.notes.clear();
        }
        if wants.is_empty() && hand.settled.is_empty() {
            return Ok(());
        }
        let target = self.courier.target();
        let claimed = self.outbox.exchange(target.name(), instance(), target.timeout() + NOTING, &hand.settled, &wants).await?;
        let Settled { delivered, failed, .. } = std::mem::take(&mut hand.settled);
        if !delivered.is_empty() || !failed.is_empty() {
            debug!(to = target.name(), delivered = delivered.len(), failed = failed.len(), "deliveries noted");
        }
        let mut total = 0;
        for (Want { pick, total: wanted }, claimed) in wants.iter().zip(claimed) {
            let is_all = total + claimed.len() < *wanted;
            total += claimed.len();
            if *pick != Pick::Again {
                hand.more = !is_all;
            } else if is_all {
                hand.look_again = Instant::now() + self.poll();
            }
            for claimed in claimed {
                self.begin(claimed, hand);
            }
        }
        Ok(())
    }

    fn begin(&self, claimed: Claimed, hand: &mut Hand) {
        hand.breaker.begun(Instant::now());
        hand.again += usize::from(claimed.attempt > 1);
        let delivery = self.courier.deliver(Arc::new(claimed.event.clone()));
        hand.flying.push(Box::pin(async move { (claimed, delivery.await) }));
    }

    /// Reads what others know of the target: that it is gone, that it rests, that somebody has resumed it.
    async fn observe(&self, hand: &mut Hand) -> Result<(), StoreError> {
        let now = Instant::now();
        let target = self.courier.target().name();
        if hand.observed.is_none() {
            self.outbox.introduce(target).await?;
        }
        let state = self.outbox.target_state(target).await?;
        let first = hand.observed.replace(now).is_none();
        let Some(state) = state else { return Ok(()) };
        hand.stale = state.state == State::Troubled && !hand.breaker.is_open();
        if state.state == State::Gone {
            if hand.breaker.gone() {
                say_gone(target, &state.last_error.unwrap_or_default());
            }
        } else if hand.breaker.is_gone() || (state.state == State::Ok && hand.breaker.is_resting(now)) {
            hand.breaker.back();
            info!(to = target, "the target is asked again: somebody resumed it");
        }
        if let Some(rest) = state.rests_for.filter(|_| state.state == State::Resting) {
            let is_news = hand.breaker.rest(now, rest);
            hand.rested = true;
            if is_news && first {
                let until = state.resting_until.map(rfc3339);
                warn!(to = target, until, "the target wanted to be left alone for a while; then it is asked with a few events");
            }
        }
        Ok(())
    }

    /// Makes due, piece by piece, what was put off while the target took nothing.
    async fn bring_forward(&self, hand: &mut Hand) -> Result<(), StoreError> {
        let Some(since) = hand.forward else { return Ok(()) };
        let brought = self.outbox.bring_forward(self.courier.target().name(), since.elapsed(), self.retry.max.get(), PIECE).await?;
        hand.look_again = Instant::now();
        hand.more = true;
        if brought < u64::from(PIECE) {
            hand.forward = None;
        }
        Ok(())
    }

    fn report(&self, worked: Result<(), StoreError>, away: &mut bool) {
        let to = self.courier.target().name();
        match worked {
            Ok(()) if std::mem::take(away) => info!(to, "relaying again"),
            Ok(()) => {}
            Err(StoreError::Conflict(reason) | StoreError::Locked(reason)) => debug!(to, reason, "the outbox is busy; trying again"),
            Err(error) => {
                if !std::mem::replace(away, true) {
                    warn!(to, %error, "the outbox can't be used; trying again");
                }
            }
        }
    }

    /// Lets deliveries in flight end.
    async fn end(self, mut hand: Hand) {
        let landing = async {
            while let Some(landed) = hand.flying.next().await {
                self.land(landed, &mut hand);
            }
        };
        // What is cut off is due again when its claim has run out.
        tokio::time::timeout(self.grace, landing).await.ok();
        if let Err(error) = self.exchange(Vec::new(), &mut hand).await {
            warn!(to = self.courier.target().name(), %error, "deliveries could not be noted; they will be repeated");
        }
    }
}

/// Waits for something to be recorded, or for the next look.
async fn woken(recorded: &mut watch::Receiver<()>, poll: Duration) {
    let recording = async {
        if recorded.changed().await.is_err() {
            // Nobody closes any more; the stop comes next.
            pending::<()>().await;
        }
    };
    tokio::time::timeout(poll, recording).await.ok();
}
