//! The outbox in memory: what is claimed, settled and known of the target, as `src/outbox/claims.rs` and `states.rs` have it in SQL.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{
    daemon::Node,
    database::Result,
    plan::Kind,
    planted::Planted,
    world::{State, World, id, micros},
};
use crate::{
    config::RuleName,
    outbox::{Claimed, Deliveries, Event, Failed, Note, Pick, Settled, State as Condition, TargetState, Want},
    store::StoreError,
};

/// After which time an event is looked at again whose order has an earlier one on its way, in microseconds.
const AFTER_ANOTHER: i64 = 250_000;

/// An event that was recorded when its closure was committed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recorded {
    pub(super) order: u32,
    pub(super) deadline: i64,
    pub(super) at: i64,
}

/// What is still to be told.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Delivery {
    attempts: u32,
    due: i64,
    is_claimed: bool,
    failing_since: Option<i64>,
    failed_at: Option<i64>,
}

/// What is known of the target.
#[derive(Debug, Default)]
pub(super) struct Known {
    condition: Option<Condition>,
    rests_until: i64,
    failing_since: Option<i64>,
}

/// A daemon's way to it.
pub(super) struct Deliver {
    world: Arc<World>,
    node: Arc<Node>,
}

impl fmt::Debug for Deliver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deliver").field("node", &self.node.number).finish_non_exhaustive()
    }
}

/// The id of an event by its place among all.
fn event_id(place: usize) -> Uuid {
    Uuid::from_u128(place as u128 + 1)
}

/// And back.
pub(super) fn place(id: &Uuid) -> usize {
    usize::try_from(id.as_u128() - 1).unwrap_or(usize::MAX)
}

impl State {
    /// Records the event of a closure, with its delivery.
    pub(super) fn record(&mut self, order: u32, deadline: i64, (at, shown): (i64, i64)) {
        self.deliveries.insert(self.events.len(), Delivery { due: shown, ..Delivery::default() });
        self.events.push(Recorded { order, deadline, at });
    }

    fn settle(&mut self, settled: &Settled, now: i64) {
        for note in &settled.notes {
            self.target.note(note, now);
        }
        for delivered in &settled.delivered {
            self.deliveries.remove(&place(delivered));
        }
        for Failed { event, retry_in, counts, until, .. } in &settled.failed {
            let place = place(event);
            let Some(delivery) = self.deliveries.get_mut(&place).filter(|delivery| delivery.due == *until) else { continue };
            let Some(pause) = retry_in else {
                self.deliveries.remove(&place);
                continue;
            };
            (delivery.due, delivery.is_claimed, delivery.failed_at) = (now + micros(*pause), false, Some(now));
            if *counts {
                delivery.failing_since.get_or_insert(now);
            } else {
                delivery.attempts -= 1;
            }
        }
    }

    /// The events that are due, as a want has them.
    fn due(&self, pick: Pick, now: i64, most: usize) -> Vec<usize> {
        let tried = pick == Pick::Again;
        let mut due: Vec<(i64, usize)> = (self.deliveries.iter())
            .filter(|(_, delivery)| delivery.due <= now && (delivery.attempts > 0) == tried)
            .map(|(place, delivery)| (delivery.due, *place))
            .collect();
        due.sort_unstable();
        if pick == Pick::Newest {
            due.reverse();
        }
        let mut due: Vec<usize> = due.into_iter().take(most).map(|(_, place)| place).collect();
        due.sort_unstable();
        due
    }

    /// When the earlier events of its order will be tried that wait, 0 for those that somebody has in hand.
    fn earlier(&self, place: usize, planted: Option<Planted>) -> Option<i64> {
        let order = self.events[place].order;
        let waits = self.deliveries.range(..place).filter(|(earlier, _)| match planted {
            Some(Planted::AnyOrder) => false,
            Some(Planted::OneForAll) => true,
            _ => self.events[**earlier].order == order,
        });
        waits.map(|(_, delivery)| if delivery.is_claimed { 0 } else { delivery.due }).max()
    }

    fn claim(&mut self, want: (Pick, usize), lease: Duration, now: i64, planted: Option<Planted>) -> Vec<Claimed> {
        let mut claimed = Vec::new();
        // Who is behind whom is seen before anything is claimed.
        let due: Vec<(usize, Option<i64>)> =
            self.due(want.0, now, want.1).into_iter().map(|place| (place, self.earlier(place, planted))).collect();
        for (place, earlier) in due {
            let event = self.events[place];
            let Some(delivery) = self.deliveries.get_mut(&place) else { continue };
            if let Some(earlier) = earlier {
                delivery.due = earlier.max(now + AFTER_ANOTHER);
                continue;
            }
            let until = now + micros(lease);
            delivery.attempts += 1;
            (delivery.due, delivery.is_claimed) = (until, true);
            let failing_for = delivery.failing_since.map(|since| Duration::from_micros((now - since).unsigned_abs()));
            claimed.push(Claimed { event: event.told(place), attempt: delivery.attempts, failing_for, until });
            if planted == Some(Planted::ToldAtMostOnce) {
                self.deliveries.remove(&place);
            }
        }
        claimed
    }
}

impl Recorded {
    /// As it is told.
    fn told(self, place: usize) -> Event {
        Event {
            id: event_id(place),
            rule: RuleName::default().to_string(),
            shard: None,
            order_id: id(self.order).as_str().to_owned(),
            deadline: self.deadline,
            closed_at: self.at,
            lateness: self.at - self.deadline,
            trigger: String::new(),
            instance: String::new(),
            data: RawValue::NULL.to_owned(),
            traceparent: None,
            asked_at: None,
            answer: None,
        }
    }
}

impl Known {
    fn note(&mut self, note: &Note, now: i64) {
        if self.condition == Some(Condition::Gone) {
            return;
        }
        let condition = match note {
            Note::Took { recovered: false } | Note::Refused(_) => return,
            Note::Took { recovered: true } => {
                self.failing_since = None;
                Condition::Ok
            }
            Note::Troubled(_) => Condition::Troubled,
            Note::Resting(_, rest) => {
                self.rests_until = now + micros(*rest);
                Condition::Resting
            }
            Note::Gone(_) => Condition::Gone,
        };
        if condition != Condition::Ok {
            self.failing_since.get_or_insert(now);
        }
        // No success ends a rest before its time.
        if self.rests_until <= now || matches!(condition, Condition::Resting | Condition::Gone) {
            self.condition = Some(condition);
        }
    }

    fn told(&self, target: &str, now: i64) -> Option<TargetState> {
        let rests_for = (self.rests_until > now).then(|| Duration::from_micros((self.rests_until - now).unsigned_abs()));
        let state = self.condition?;
        Some(TargetState {
            target: target.to_owned(),
            state: if state == Condition::Resting && rests_for.is_none() { Condition::Troubled } else { state },
            resting_until: rests_for.map(|_| self.rests_until),
            rests_for,
            failing_since: self.failing_since,
            last_success_at: None,
            last_error: None,
        })
    }
}

impl Deliver {
    pub(super) fn new(world: &Arc<World>, node: &Arc<Node>) -> Self {
        Self { world: Arc::clone(world), node: Arc::clone(node) }
    }

    /// A transaction: it happens at one instant or not at all, and sometimes nobody knows which.
    async fn transaction<T>(&self, work: impl FnOnce(MutexGuard<'_, State>, i64) -> T + Send) -> Result<T> {
        self.node.trip(&self.world, None).await?;
        let lost = || StoreError::Unavailable("the connection was lost".into());
        let is_lost = self.world.goes_wrong(Kind::Commits) && self.world.chance(0.2);
        if is_lost && self.world.chance(0.5) {
            return Err(lost());
        }
        let now = self.world.shown();
        let done = work(self.world.state(), now);
        if is_lost {
            return Err(lost());
        }
        self.node.back(&self.world).await;
        Ok(done)
    }
}

#[async_trait]
impl Deliveries for Deliver {
    async fn exchange(&self, _: &str, _: &str, lease: Duration, settled: &Settled, wants: &[Want]) -> Result<Vec<Vec<Claimed>>> {
        let planted = self.world.planted;
        let exchange = |mut state: MutexGuard<'_, State>, now: i64| {
            state.settle(settled, now);
            let (mut claimed, mut total) = (Vec::new(), 0);
            for Want { pick, total: wanted } in wants {
                let found = state.claim((*pick, wanted.saturating_sub(total)), lease, now, planted);
                total += found.len();
                claimed.push(found);
            }
            claimed
        };
        self.transaction(exchange).await
    }

    async fn bring_forward(&self, _: &str, ago: Duration, within: Duration, _: u32) -> Result<u64> {
        let bring = |mut state: MutexGuard<'_, State>, now: i64| {
            let is_put_off = |delivery: &Delivery| {
                let failed = delivery.attempts > 0 && delivery.failed_at.is_some_and(|at| at >= now - micros(ago));
                failed && !delivery.is_claimed && delivery.due > now && delivery.due <= now + micros(within)
            };
            let put_off = state.deliveries.values_mut().filter(|delivery| is_put_off(delivery));
            put_off.map(|delivery| delivery.due = now).count() as u64
        };
        self.transaction(bring).await
    }

    async fn introduce(&self, _: &str) -> Result<()> {
        self.transaction(|mut state, _| {
            state.target.condition.get_or_insert(Condition::Ok);
        })
        .await
    }

    async fn target_state(&self, target: &str) -> Result<Option<TargetState>> {
        self.transaction(|state, now| state.target.told(target, now)).await
    }

    fn knows_targets(&self) -> bool {
        true
    }
}

/// When each event was taken for the first time, by its place among all.
pub(super) fn first_told(told: &[(usize, i64)]) -> BTreeMap<usize, i64> {
    let mut first = BTreeMap::new();
    for (place, at) in told {
        first.entry(*place).or_insert(*at);
    }
    first
}
