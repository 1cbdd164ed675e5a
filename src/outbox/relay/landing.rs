//! What comes of deliveries: for the event, for its target, and for what was put off meanwhile.

use std::time::Duration;

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::{OBSERVING, Pass, Relay};
use crate::{
    metric,
    order::rfc3339,
    outbox::{
        Answer, Claimed, Event, Failed, Note, Rearmed, Rest, Settled,
        breaker::{Breaker, Recovery},
    },
};

/// How soon an event is tried again whose target was not there.
const AWAY: Duration = Duration::from_secs(1);

/// How often an event is tried at the least before it is given up, unless it is to be tried less often.
const FEWEST: u32 = 3;

/// A delivery that has ended.
pub(super) type Landed = (Claimed, Answer);

/// What a relay has in hand.
pub(super) struct Hand {
    pub(super) flying: FuturesUnordered<BoxFuture<'static, Landed>>,
    /// How many of them are not tried for the first time.
    pub(super) again: usize,
    /// What came of deliveries, and is to be noted in the outbox.
    pub(super) settled: Settled,
    pub(super) breaker: Breaker,
    /// Whether it was its own wish that the target is not asked.
    pub(super) rested: bool,
    /// Since when what failed is to be made due again.
    pub(super) forward: Option<Instant>,
    /// Whether there may be more to claim.
    pub(super) more: bool,
    /// When to look again for what has failed before.
    pub(super) look_again: Instant,
    pub(super) observed: Option<Instant>,
    /// Whether the states of targets can't be kept.
    pub(super) stateless: bool,
    /// Whether the target's state tells of a trouble that this relay has not seen.
    pub(super) stale: bool,
    /// When a success, or a failure, was noted of the target last.
    pub(super) noted: [Option<Instant>; 2],
    pub(super) turn: bool,
    pub(super) pass: Pass,
}

impl Hand {
    /// Whether a success, or a failure, is to be noted now: not each time.
    fn is_noted(&mut self, success: bool, now: Instant) -> bool {
        let last = &mut self.noted[usize::from(success)];
        let is_due = last.is_none_or(|at| now - at >= OBSERVING);
        if is_due {
            *last = Some(now);
        }
        is_due
    }

    pub(super) fn new() -> Self {
        Self {
            flying: FuturesUnordered::new(),
            again: 0,
            settled: Settled::default(),
            breaker: Breaker::default(),
            rested: false,
            forward: None,
            more: true,
            look_again: Instant::now(),
            observed: None,
            stateless: false,
            stale: false,
            noted: [None; 2],
            turn: false,
            pass: Pass::default(),
        }
    }
}

impl Relay {
    pub(super) fn land_all(&self, landed: Landed, hand: &mut Hand) {
        self.land(landed, hand);
        while let Some(Some(landed)) = hand.flying.next().now_or_never() {
            self.land(landed, hand);
        }
    }

    pub(super) fn land(&self, (claimed, answer): Landed, hand: &mut Hand) {
        let now = Instant::now();
        let target = self.courier.target().name();
        if claimed.attempt > 1 {
            hand.again -= 1;
            hand.more = true;
        }
        metric::DELIVERIES.add(1, &[target, answer.name()]);
        match answer {
            Answer::Delivered | Answer::Again { .. } | Answer::Unwanted => {
                if answer == Answer::Unwanted {
                    debug!(to = target, event = %claimed.event.id, timer = claimed.event.order_id, "the target does not want this timer");
                }
                if let Answer::Again { due } = answer {
                    let Event { order_id, deadline, .. } = &claimed.event;
                    hand.settled.again.push(Rearmed { timer: order_id.clone(), fired_for: *deadline, due });
                }
                hand.pass.delivered += 1;
                hand.settled.delivered.push(claimed.event.id);
                self.took(now, hand);
            }
            Answer::Failed { reason, rest } => {
                hand.pass.failed += 1;
                if let Some(Rest { target: rest, .. }) = rest {
                    hand.rested = true;
                    if hand.breaker.rest(now, rest) {
                        let until = rfc3339(unix_micros() + i64::try_from(rest.as_micros()).unwrap_or(0));
                        warn!(
                            to = target,
                            reason, until, "the target wants to be left alone for a while; then it is asked with a few events"
                        );
                    }
                    hand.settled.notes.push(Note::Resting(reason.clone(), rest));
                } else {
                    self.refused(now, &reason, false, hand);
                }
                let failed = self.failed(&claimed, reason, rest);
                hand.settled.failed.push(failed);
            }
            Answer::Unreachable { reason } => {
                hand.pass.failed += 1;
                self.refused(now, &reason, true, hand);
                let failed = self.failed(&claimed, reason, None);
                hand.settled.failed.push(failed);
            }
            Answer::Away { reason } => {
                hand.pass.failed += 1;
                debug!(to = target, event = %claimed.event.id, reason, "delivery failed; will retry: the target is not there");
                self.refused(now, &reason, true, hand);
                hand.settled.failed.push(claimed.not_tried(reason, AWAY));
            }
            Answer::Gone { reason } => {
                hand.pass.failed += 1;
                if hand.breaker.gone() {
                    say_gone(target, &reason);
                }
                hand.settled.notes.push(Note::Gone(reason.clone()));
                hand.settled.failed.push(claimed.not_tried(reason, Duration::ZERO));
            }
        }
    }

    fn took(&self, now: Instant, hand: &mut Hand) {
        match hand.breaker.succeeded(now) {
            Recovery::From(trouble) => {
                info!(to = self.courier.target().name(), "the target takes events again");
                hand.settled.notes.push(Note::Took { recovered: true });
                // What was put off because nothing was taken goes now; what the target itself put off does not.
                hand.forward = Some(now - trouble).filter(|_| !std::mem::take(&mut hand.rested));
                hand.look_again = now;
                hand.more = true;
            }
            Recovery::None if std::mem::take(&mut hand.stale) => hand.settled.notes.push(Note::Took { recovered: true }),
            Recovery::None if hand.is_noted(true, now) => hand.settled.notes.push(Note::Took { recovered: false }),
            Recovery::None => {}
        }
    }

    fn refused(&self, now: Instant, reason: &str, away: bool, hand: &mut Hand) {
        if hand.breaker.failed(now, away) {
            warn!(to = self.courier.target().name(), reason, "the target fails; asking it less often");
            hand.settled.notes.push(Note::Troubled(reason.into()));
        } else if hand.is_noted(false, now) {
            hand.settled.notes.push(Note::Refused(reason.into()));
        }
    }

    /// Puts a delivery off, or gives it up when it has been tried for long enough.
    fn failed(&self, claimed: &Claimed, reason: String, rest: Option<Rest>) -> Failed {
        let Event { id: event, order_id: order, .. } = &claimed.event;
        let (target, attempt) = (self.courier.target().name(), claimed.attempt);
        let over = if self.outbox.knows_targets() {
            claimed.failing_for.unwrap_or_default() >= self.retry.length()
        } else {
            attempt >= self.retry.attempts
        };
        if over && attempt >= self.retry.attempts.min(FEWEST) {
            error!(
                to = target, %event, %order, attempts = attempt, reason,
                "event can't be delivered and is a dead letter; mend the cause, then run `order-closer dead-letters retry` with its id"
            );
            return claimed.failed(reason, None);
        }
        let pause = self.retry.pause_after(attempt).unwrap_or_else(|| self.retry.max.get());
        let pause = pause.max(rest.map_or(Duration::ZERO, |rest| rest.event));
        debug!(to = target, %event, %order, attempt, retry_in_s = pause.as_secs_f64(), reason, "delivery failed; will retry");
        claimed.failed(reason, Some(pause))
    }
}

pub(super) fn say_gone(target: &str, reason: &str) {
    error!(
        to = target,
        reason, "the target wants no more events; they wait until somebody runs `order-closer targets resume` with its name"
    );
}

/// The host's clock, for people: in microseconds since 1970 UTC.
fn unix_micros() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
