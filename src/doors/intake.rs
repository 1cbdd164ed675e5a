//! Takes hints from one door, offers them, and settles them when their looks have been taken.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{Door, Fault, Taken};
use crate::{
    close::{Look, Reminder, Seen},
    config::{Hints, RuleName},
    metric,
    order::{OrderId, Printable, Trigger},
    trigger::Listening,
};

/// The pauses between attempts to open a door.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// A door that was open this long was a good one: whatever shuts it is news, and it is opened again at once.
const GOOD_SESSION: Duration = Duration::from_secs(5);

/// When an inbox without space is asked again.
const FULL: Duration = Duration::from_millis(20);

/// How long the door may take to give back what is in hand, when the daemon stops.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How many settled hints go into one message.
const TOGETHER: usize = 500;

/// One door's intake.
#[derive(Debug)]
pub(super) struct Intake {
    name: String,
    place: String,
    wanted: Vec<RuleName>,
    rules: watch::Receiver<Vec<Listening>>,
    /// How many hints may be in hand.
    room: Arc<Semaphore>,
    prefetch: usize,
    said: Said,
    stop: CancellationToken,
}

/// A hint whose looks are awaited.
#[derive(Debug)]
struct InHand<R> {
    receipt: R,
    looks: Vec<oneshot::Receiver<Seen>>,
    seen: Vec<Seen>,
    place: OwnedSemaphorePermit,
}

/// What was said of a door.
#[derive(Debug, Default)]
struct Said {
    /// Whether the last word was that hints are taken.
    open: bool,
    reasons: BTreeSet<String>,
    reminder: Reminder,
    malformed: Reminder,
    withheld: u64,
}

impl Intake {
    pub(super) fn new(hints: &Hints, wanted: Vec<RuleName>, rules: watch::Receiver<Vec<Listening>>, stop: CancellationToken) -> Self {
        Self {
            name: hints.name.to_string(),
            place: hints.door().map(|door| door.place()).unwrap_or_default(),
            wanted,
            rules,
            room: Arc::new(Semaphore::new(hints.prefetch)),
            prefetch: hints.prefetch,
            said: Said::default(),
            stop,
        }
    }

    /// Takes hints until the daemon stops.
    pub(super) async fn run(mut self, mut door: impl Door) {
        let stop = self.stop.clone();
        stop.run_until_cancelled(self.hold_open(&mut door)).await;
        metric::DOOR_OPEN.set(0.0, &[&self.name]);
        tokio::time::timeout(LAST_WORDS, door.close()).await.ok();
    }

    async fn hold_open(&mut self, door: &mut impl Door) {
        let pauses = ExponentialBuilder::default().with_min_delay(PAUSES.0).with_max_delay(PAUSES.1).without_max_times().with_jitter();
        let mut pause = pauses.build();
        metric::DOOR_OPEN.set(0.0, &[&self.name]);
        let rules = self.rules_begin().await;
        loop {
            let fault = match door.open().await {
                Err(fault) => fault,
                Ok(()) => {
                    metric::DOOR_OPEN.set(1.0, &[&self.name]);
                    if !std::mem::replace(&mut self.said.open, true) {
                        info!(door = self.name, from = self.place, "hints are taken");
                    }
                    let began = Instant::now();
                    let fault = self.take_and_settle(door, &rules).await;
                    metric::DOOR_OPEN.set(0.0, &[&self.name]);
                    // A door that can be opened and gives nothing fails again and again.
                    if began.elapsed() > GOOD_SESSION {
                        (self.said.reasons, pause) = (BTreeSet::new(), pauses.build());
                    }
                    fault
                }
            };
            self.say(&fault);
            tokio::time::sleep(pause.next().unwrap_or(PAUSES.1)).await;
        }
    }

    /// Waits until each rule has begun that hints are for.
    async fn rules_begin(&mut self) -> Vec<Listening> {
        let wanted = &self.wanted;
        let have = |rules: &Vec<Listening>| {
            wanted.iter().all(|name| rules.iter().any(|rule| rule.inbox().is_some_and(|inbox| inbox.rule() == name)))
        };
        if self.rules.wait_for(have).await.is_err() {
            // Whoever tells of them ends with the daemon.
            return std::future::pending().await;
        }
        self.rules.borrow().iter().filter(|rule| rule.inbox().is_some_and(|inbox| wanted.contains(inbox.rule()))).cloned().collect()
    }

    /// Takes hints, and settles those whose looks have been taken, until the door fails.
    async fn take_and_settle<D: Door>(&mut self, door: &D, rules: &[Listening]) -> Fault {
        let (in_hand, looking) = mpsc::channel(self.prefetch);
        let (name, room) = (self.name.clone(), Arc::clone(&self.room));
        tokio::select! {
            fault = self.take(door, rules, &in_hand, room) => fault,
            fault = settle(door, &name, looking) => fault,
        }
    }

    async fn take<D: Door>(
        &mut self,
        door: &D,
        rules: &[Listening],
        looks: &mpsc::Sender<InHand<D::Receipt>>,
        room: Arc<Semaphore>,
    ) -> Fault {
        loop {
            // Never closed.
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return std::future::pending().await };
            let (most, mut first) = (room.available_permits() + 1, Some(place));
            let taken = match door.take(most).await {
                Ok(taken) => taken,
                Err(fault) => return fault,
            };
            let mut malformed = Vec::new();
            for Taken { receipt, id } in taken {
                match id.and_then(|id| wanted_by(rules, &id)) {
                    Ok(orders) => {
                        let (looks_at, seen) = offer(orders).await;
                        // Nobody else takes places, so there are as many as there were.
                        let Some(place) = first.take().or_else(|| Arc::clone(&room).try_acquire_owned().ok()) else { break };
                        looks.send(InHand { receipt, looks: looks_at, seen, place }).await.ok();
                    }
                    Err(what) => {
                        self.say_malformed(&receipt, &what);
                        malformed.push(receipt);
                    }
                }
            }
            if !malformed.is_empty()
                && let Err(fault) = door.set_aside(malformed).await
            {
                return fault;
            }
        }
    }

    /// Says each reason once; what nobody mends, each minute again.
    fn say(&mut self, Fault { reason, fix, needs_a_hand }: &Fault) {
        let (is_news, now) = (self.said.reasons.insert(reason.clone()), Instant::now());
        let (door, from) = (&self.name, &self.place);
        let is_due = is_news || (*needs_a_hand && self.said.reminder.is_due(now));
        self.said.open &= !is_due;
        if *needs_a_hand && is_due {
            self.said.reminder = Reminder::said(now);
            error!(
                door,
                from, reason, fix, "no hints come in through this door; trying again, and orders are found in their table meanwhile"
            );
        } else if is_news {
            warn!(
                door,
                from, reason, fix, "no hints come in through this door; trying again, and orders are found in their table meanwhile"
            );
        }
    }

    /// Says that a hint names no order: the first, and each minute another.
    fn say_malformed(&mut self, receipt: &impl std::fmt::Display, what: &str) {
        metric::HINTS.add(1, &[&self.name, "malformed"]);
        let now = Instant::now();
        if self.said.withheld == 0 || self.said.malformed.is_due(now) {
            self.said.malformed = Reminder::said(now);
            warn!(
                door = self.name, from = self.place, hint = %receipt, reason = %Printable(what), others = self.said.withheld.saturating_sub(1),
                "a hint names no order, and is set aside"
            );
            self.said.withheld = 0;
        }
        self.said.withheld += 1;
        debug!(door = self.name, hint = %receipt, reason = %Printable(what), "a hint names no order");
    }
}

/// The orders of which a hint may speak: one of each rule whose ids look like that.
fn wanted_by<'r>(rules: &'r [Listening], id: &[u8]) -> Result<Vec<(&'r Listening, OrderId)>, String> {
    let mut reason = None;
    let read = |rule: &'r Listening| match rule.keys.id(id) {
        Ok(id) => Some((rule, id)),
        Err(error) => {
            reason = Some(format!("{} {error}", Printable(&String::from_utf8_lossy(id))));
            None
        }
    };
    let orders: Vec<_> = rules.iter().filter_map(read).collect();
    if orders.is_empty() { Err(reason.unwrap_or_default()) } else { Ok(orders) }
}

/// Offers a hint to each rule that it may be for, as soon as there is space.
async fn offer(orders: Vec<(&Listening, OrderId)>) -> (Vec<oneshot::Receiver<Seen>>, Vec<Seen>) {
    let (mut looks, mut seen) = (Vec::new(), Vec::new());
    for (rule, id) in orders {
        let Some(inbox) = rule.inbox() else { continue };
        loop {
            match inbox.look_at(&id, Trigger::Hint) {
                Look::Awaited(look) => break looks.push(look),
                Look::Taken(before) => break seen.push(before),
                Look::Full => tokio::time::sleep(FULL).await,
            }
        }
    }
    (looks, seen)
}

/// Settles hints as their looks end, until the door fails.
async fn settle<D: Door>(door: &D, name: &str, mut taken: mpsc::Receiver<InHand<D::Receipt>>) -> Fault {
    let mut looking = FuturesUnordered::new();
    loop {
        let mut done = tokio::select! {
            Some(in_hand) = taken.recv() => {
                looking.push(seen(in_hand));
                continue;
            }
            Some(done) = looking.next() => vec![done],
        };
        while done.len() < TOGETHER
            && let Some(Some(one)) = looking.next().now_or_never()
        {
            done.push(one);
        }
        let mut receipts = Vec::with_capacity(done.len());
        let mut places = Vec::with_capacity(done.len());
        for InHand { receipt, seen, place, .. } in done.into_iter().flatten() {
            seen.iter().for_each(|seen| metric::HINTS.add(1, &[name, seen.name()]));
            receipts.push(receipt);
            places.push(place);
        }
        if !receipts.is_empty()
            && let Err(fault) = door.settle(receipts).await
        {
            return fault;
        }
    }
}

/// Waits until every look at a hint's orders has been taken; nothing where one was not.
async fn seen<R>(mut in_hand: InHand<R>) -> Option<InHand<R>> {
    for look in std::mem::take(&mut in_hand.looks) {
        in_hand.seen.push(look.await.ok()?);
    }
    Some(in_hand)
}
