//! The relay: takes deliveries of one target from the outbox, again and again, at least once each.
//!
//! Each target has a relay of its own, so none can hold up another, and none closures. Instances share the work by
//! claims: a delivery is claimed only when it begins at once, and for no longer than it can take, so what a crashed
//! relay had in hand is soon another's. A target that fails again and again is asked less often, one event at a
//! time, and by its first success is trusted again. What that one event meets counts for all that were due: otherwise
//! most of many would never be tried, and never become dead letters.

use std::{
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};
use uuid::Uuid;

use super::{
    Answer, Target,
    breaker::{Breaker, Sign},
};
use crate::{
    config::Retry,
    outbox::{Claimed, Failed},
    store::{Store, StoreError, instance},
};

/// How often, at most and at least, the outbox is looked into when nobody says that something was closed: for what
/// others closed, and for what is to be tried again.
const POLL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How much longer than a delivery can take its claim holds: the time to note what came of it.
const NOTING: Duration = Duration::from_secs(10);

/// For so many deliveries at a time does a failure count, and so often at most: closures come first.
const PIECE: u32 = 500;
const PACE: Duration = Duration::from_secs(1);

/// Delivers one target's events.
#[derive(Debug)]
pub struct Relay {
    /// Where events are.
    pub store: Arc<dyn Store>,
    /// Who is told.
    pub target: Arc<dyn Target>,
    /// When a delivery that failed is tried again.
    pub retry: Retry,
    /// Changes when orders were closed.
    pub closed: watch::Receiver<()>,
    /// When to stop.
    pub stop: CancellationToken,
    /// How long deliveries in flight may take then. What is cut off is delivered again.
    pub grace: Duration,
}

/// A delivery that has ended.
type Landed = (Claimed, Answer);

/// A failure that counts for all deliveries that were due then.
struct Common {
    at: Instant,
    reason: String,
    rest: Option<Duration>,
    /// Whether it uses up an attempt of each.
    counts: bool,
    /// When the next piece is to be counted.
    next: Instant,
}

/// What a relay has in hand.
struct Hand {
    flying: FuturesUnordered<BoxFuture<'static, Landed>>,
    /// Delivered, or failed, and to be noted in the outbox.
    delivered: Vec<Uuid>,
    failed: Vec<Failed>,
    /// To be counted for others too.
    common: Option<Common>,
    breaker: Breaker,
    /// Whether there may be more to claim.
    more: bool,
}

impl Relay {
    /// Relays until it is told to stop.
    pub async fn run(mut self) {
        let breaker = Breaker::new(&self.retry);
        let flying = FuturesUnordered::new();
        let mut hand = Hand { flying, delivered: Vec::new(), failed: Vec::new(), common: None, breaker, more: true };
        let poll = self.retry.initial.get().clamp(POLL.0, POLL.1);
        let mut away = false;
        while !self.stop.is_cancelled() && !hand.breaker.is_gone() {
            let worked = self.work(&mut hand).await;
            let again = worked.is_ok() && self.room(&hand) > 0;
            self.report(worked, &mut away);
            if again {
                continue;
            }
            tokio::select! {
                Some(landed) = hand.flying.next() => {
                    self.land(landed, &mut hand);
                    while let Some(Some(landed)) = hand.flying.next().now_or_never() {
                        self.land(landed, &mut hand);
                    }
                }
                () = woken(&mut self.closed, poll) => hand.more = true,
                () = self.stop.cancelled() => {}
            }
        }
        self.end(hand).await;
    }

    /// Notes what came of deliveries, then begins new ones as far as there is room.
    async fn work(&self, hand: &mut Hand) -> Result<(), StoreError> {
        self.note(hand).await?;
        self.share_failure(hand).await?;
        let room = self.room(hand);
        if room == 0 {
            return Ok(());
        }
        let limit = u32::try_from(room).unwrap_or(u32::MAX);
        let claimed = self.store.outbox().claim(self.target.name(), &instance(), self.target.timeout() + NOTING, limit).await?;
        hand.more = claimed.len() == room;
        for claimed in claimed {
            let target = Arc::clone(&self.target);
            hand.flying.push(Box::pin(async move {
                let answer = target.deliver(&claimed.event).await;
                (claimed, answer)
            }));
        }
        Ok(())
    }

    /// How many deliveries may be claimed now.
    fn room(&self, hand: &Hand) -> usize {
        if hand.more { hand.breaker.room(self.target.concurrency(), hand.flying.len()) } else { 0 }
    }

    fn land(&self, (claimed, answer): Landed, hand: &mut Hand) {
        let (target, event) = (self.target.name(), claimed.event.id);
        match answer {
            Answer::Delivered => {
                if hand.breaker.succeeded() {
                    hand.common = None;
                    info!(to = target, "the target takes events again");
                }
                hand.delivered.push(event);
            }
            Answer::Failed { reason, rest } => self.fail(claimed, reason, rest, true, hand),
            Answer::Away { reason } => self.fail(claimed, reason, None, false, hand),
            Answer::Gone { reason } => {
                if hand.breaker.gone() {
                    error!(to = target, reason, "the target wants no more events; they wait until order-closer is restarted");
                }
                hand.failed.push(claimed.failed(reason, Some(Duration::ZERO)));
            }
        }
    }

    /// Puts a delivery off, or gives it up when that was its last attempt, and attempts count.
    fn fail(&self, claimed: Claimed, reason: String, rest: Option<Duration>, counts: bool, hand: &mut Hand) {
        let (target, event, order) = (self.target.name(), claimed.event.id, claimed.event.order_id.as_str());
        let pause = self.pause_after(claimed.attempt, rest, counts);
        if let Some(pause) = pause {
            let retry_in_s = pause.as_secs_f64();
            debug!(to = target, %event, order, attempt = claimed.attempt, retry_in_s, reason, "delivery failed; will retry");
        } else {
            error!(
                to = target, %event, order, attempts = claimed.attempt, reason,
                "event can't be delivered and is a dead letter; mend the cause, then run `order-closer dead-letters retry` with its id"
            );
        }
        let at = Instant::now();
        match hand.breaker.failed(at, rest) {
            Sign::None => {}
            Sign::Trouble => warn!(to = target, reason, "the target fails; asking it less often"),
            Sign::StillInTrouble => hand.common = Some(Common { at, reason: reason.clone(), rest, counts, next: at }),
        }
        hand.failed.push(claimed.failed(reason, pause));
    }

    /// Writes down what came of deliveries; keeps it for the next time if that fails.
    async fn note(&self, hand: &mut Hand) -> Result<(), StoreError> {
        let Hand { delivered, failed, .. } = hand;
        if delivered.is_empty() && failed.is_empty() {
            return Ok(());
        }
        self.store.outbox().settle(self.target.name(), delivered, failed).await?;
        debug!(to = self.target.name(), delivered = delivered.len(), failed = failed.len(), "deliveries noted");
        delivered.clear();
        failed.clear();
        Ok(())
    }

    /// How long to wait after so many attempts; `None` when that was the last, if attempts count.
    fn pause_after(&self, attempts: u32, rest: Option<Duration>, counts: bool) -> Option<Duration> {
        let pause = self.retry.pause_after(attempts).or_else(|| (!counts).then(|| self.retry.max.get()));
        pause.map(|pause| pause.max(rest.unwrap_or_default()))
    }

    /// Counts a failure for a piece of what was due then.
    async fn share_failure(&self, hand: &mut Hand) -> Result<(), StoreError> {
        let now = Instant::now();
        let Some(Common { at, reason, rest, counts, next }) = hand.common.as_mut().filter(|common| common.next <= now) else {
            return Ok(());
        };
        *next = now + PACE;
        let pause_after = |attempts| self.pause_after(attempts, *rest, *counts);
        let shared = self.store.outbox().share_failure(self.target.name(), reason, at.elapsed(), &pause_after, PIECE).await?;
        if shared.dead > 0 {
            error!(
                to = self.target.name(),
                events = shared.dead,
                reason,
                "events can't be delivered and are dead letters; mend the cause, then run `order-closer dead-letters retry` with their ids"
            );
        }
        if shared.failed < u64::from(PIECE) {
            hand.common = None;
        }
        Ok(())
    }

    fn report(&self, worked: Result<(), StoreError>, away: &mut bool) {
        match worked {
            Ok(()) if std::mem::take(away) => info!(to = self.target.name(), "relaying again"),
            Ok(()) => {}
            Err(StoreError::Conflict(reason) | StoreError::Locked(reason)) => {
                debug!(to = self.target.name(), reason, "the outbox is busy; trying again");
            }
            Err(error) => {
                if !std::mem::replace(away, true) {
                    warn!(to = self.target.name(), %error, "the outbox can't be used; trying again");
                }
            }
        }
    }

    /// Lets deliveries in flight end, and waits for the stop, if it was the target that ended it.
    async fn end(self, mut hand: Hand) {
        let landing = async {
            while let Some(landed) = hand.flying.next().await {
                self.land(landed, &mut hand);
            }
        };
        // What is cut off is due again when its claim has run out.
        tokio::time::timeout(self.grace, landing).await.ok();
        if let Err(error) = self.note(&mut hand).await {
            warn!(to = self.target.name(), %error, "deliveries could not be noted; they will be repeated");
        }
        self.stop.cancelled().await;
    }
}

/// Waits for something to be closed, or for the next look.
async fn woken(closed: &mut watch::Receiver<()>, poll: Duration) {
    let closing = async {
        if closed.changed().await.is_err() {
            // Nobody closes any more; the stop comes next.
            pending::<()>().await;
        }
    };
    tokio::time::timeout(poll, closing).await.ok();
}
