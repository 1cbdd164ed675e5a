//! Makes things happen at their time.
//!
//! Redis by itself expires a key late, when its background cycle comes across it. A read of the key just after its deadline
//! makes it expire, and its notification come, at once; so the pacer reads the key of every order that the look-ahead has
//! seen.
//!
//! - 20 ms after its deadline an order is offered to the inbox without a notification, whatever Redis does: the key was
//!   never written, was evicted, or Redis is slow. The answer to a touch is waited for by nobody; one that comes and says
//!   that a key is still there, as one may be for the rest of its last millisecond, has its order offered at once.
//! - Where no notification can follow, orders are offered at their deadlines: without a subscription, for a second after a
//!   touch that failed, and while too many touches have no answer yet. A crowd, too, costs less that way.
//! - Each rule has a pacer of its own, with its wheel: a crowd of one rule takes no other's room on it, and is before no other's
//!   orders when their time comes. One with nothing on its wheel sleeps until something is put there, and costs nothing.
//! - Beside other instances, too, each of which a notification would wake. Keys are touched all the same, a little later and
//!   together, so that Redis announces many at a time.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    close::{Foresight, Inbox, Later},
    metric,
    order::{OrderId, Trigger},
    redis::{Commands, RedisError},
    trigger::{
        key::KeyReader,
        listener::Hearing,
        membership::Membership,
        routes::Expected,
        wheel::{Appointment, Step, Wheel},
    },
};

/// How long after its deadline a key is touched. Redis takes it for expired a millisecond after it (once its clock, which
/// counts whole ones, is past the deadline: `keyIsExpired` in its `db.c`), and our timer adds half a one on average.
const EXPIRY: Duration = Duration::from_micros(500);

/// How long after the touch the notification may take, before the order is offered without it.
const GRACE: Duration = Duration::from_millis(20);

/// How long a touch may take; after that, or any failure, Redis is left alone for [`REST`].
const TOUCH_LIMIT: Duration = Duration::from_millis(300);
const REST: Duration = Duration::from_secs(1);

/// How long keys wait for others to be touched with them, beside other instances.
const TOGETHER: Duration = Duration::from_millis(50);

/// So many at the most: Redis stands still while it reads them, and finds the rest by itself.
const MOST: usize = 1_000;

/// How many touches may be under way.
const UNDER_WAY: usize = 64;

/// More orders than this at one instant are offered at once: the way through Redis would cost the crowd more
/// time than it takes to close it, and Redis finds so many expired keys by itself.
const CROWD: usize = 100;

/// A deadline that the look-ahead saw coming.
#[derive(Debug, Clone)]
pub struct Upcoming {
    /// The order.
    pub id: OrderId,
    /// Its deadline, in microseconds since 1970 UTC.
    pub deadline: i64,
    /// The same on this host's steady clock.
    pub at: Instant,
}

/// Keeps appointments until it is told to stop.
#[derive(Debug)]
pub struct Pacer {
    /// What the look-ahead has seen.
    pub upcoming: mpsc::Receiver<Vec<Upcoming>>,
    /// Orders to be looked at again.
    pub later: mpsc::Receiver<Later>,
    /// Who closes them.
    pub inbox: Arc<Inbox>,
    /// Whose orders are not for us.
    pub peers: Arc<Membership>,
    /// How keys are touched.
    pub touch: Toucher,
    /// Who asks about orders before they are due.
    pub foresight: Option<Arc<dyn Foresight>>,
    /// Where it is known whose notifications are for this one of several shards.
    pub expected: Option<Expected>,
    /// When to stop.
    pub stop: CancellationToken,
}

impl Pacer {
    /// A pacer that offers orders to `inbox`.
    #[must_use]
    pub fn new(
        (upcoming, later): (mpsc::Receiver<Vec<Upcoming>>, mpsc::Receiver<Later>),
        inbox: Arc<Inbox>,
        peers: Arc<Membership>,
        (keys, redis, subscribed): (KeyReader, Arc<dyn Touch>, watch::Receiver<Hearing>),
        stop: CancellationToken,
    ) -> Self {
        let touch = Toucher {
            keys,
            redis,
            subscribed,
            inbox: Arc::clone(&inbox),
            under_way: Arc::new(Semaphore::new(UNDER_WAY)),
            rest_until: Arc::default(),
        };
        Self { upcoming, later, inbox, peers, touch, foresight: None, expected: None, stop }
    }

    /// One that also lets somebody ask about orders before they are due, if that is wanted.
    #[must_use]
    pub fn with_foresight(self, foresight: Option<Arc<dyn Foresight>>) -> Self {
        Self { foresight: foresight.filter(|foresight| !foresight.ahead().is_zero()), ..self }
    }

    /// One that says which orders it expects to hear of.
    #[must_use]
    pub fn expecting(self, expected: Option<Expected>) -> Self {
        Self { expected, ..self }
    }

    /// Keeps appointments.
    pub async fn run(mut self) {
        let (mut wheel, mut overtaken) = (Wheel::default(), Overtaken::default());
        loop {
            metric::WHEEL.set(wheel.len() as f64, &[self.touch.keys.rule().label()]);
            tokio::select! {
                // Whose time has come goes first, however much there is to take in.
                biased;
                () = self.stop.cancelled() => return,
                ready = wheel.ready() => {
                    self.act(ready, &mut wheel, &mut overtaken);
                    // The runtime runs whom this has woken next on this very thread: now, not after the whole crowd.
                    tokio::task::yield_now().await;
                }
                keys = overtaken.together() => drop(self.touch.send(keys)),
                Some(orders) = self.upcoming.recv() => {
                    for Upcoming { id, deadline, at } in orders {
                        let appointment = self.first_appointment(at, deadline);
                        let expected = self.expected.as_ref().map(|expected| (expected, id.clone()));
                        if wheel.insert(id, appointment) && let Some((expected, id)) = expected {
                            expected.add(&id);
                        }
                    }
                }
                Some(Later { id, trigger, deadline, at }) = self.later.recv() => {
                    wheel.insert(id, Appointment { at, deadline, step: Step::Offer(trigger) });
                }
            }
        }
    }

    /// What is done first with an order that is due then.
    fn first_appointment(&self, at: Instant, deadline: i64) -> Appointment {
        let touch = Appointment { at: at + EXPIRY, deadline: Some(deadline), step: Step::Touch };
        let ahead = self.foresight.as_ref().and_then(|foresight| at.checked_sub(foresight.ahead()));
        ahead.map_or(touch, |at| Appointment { at, step: Step::Ask, ..touch })
    }

    fn act(&self, ready: Vec<(OrderId, Appointment)>, wheel: &mut Wheel, overtaken: &mut Overtaken) {
        let (mut touched, mut asked) = (Vec::new(), Vec::new());
        for (id, appointment) in ready {
            match appointment.step {
                Step::Ask => {
                    let at = appointment.at + self.foresight.as_ref().map_or(Duration::ZERO, |foresight| foresight.ahead());
                    if self.peers.is_ours(&id) {
                        asked.push(id.clone());
                    }
                    wheel.insert(id, Appointment { at: at + EXPIRY, step: Step::Touch, ..appointment });
                }
                // Its instance does it; and if not, the sweep finds it.
                Step::Touch if !self.peers.is_ours(&id) => self.forget(&id),
                Step::Touch => touched.push((id, appointment)),
                Step::Offer(trigger) => {
                    self.forget(&id);
                    self.inbox.offer_due_since([(&id, appointment.deadline)], trigger);
                }
            }
        }
        if let Some(foresight) = self.foresight.as_ref().filter(|_| !asked.is_empty()) {
            foresight.foresee(asked);
        }
        if touched.is_empty() {
            return;
        }
        let ((others, _), is_crowd) = (self.peers.seen(), touched.len() > CROWD);
        let is_alone = others == 0;
        if !is_crowd && is_alone && self.touch.send(touched.iter().map(|(id, _)| id.clone()).collect()) {
            let step = Step::Offer(Trigger::Pacer);
            for (id, appointment) in touched {
                wheel.insert(id, Appointment { at: appointment.at + GRACE, step, ..appointment });
            }
        } else {
            touched.iter().for_each(|(id, _)| self.forget(id));
            self.inbox.offer_due_since(touched.iter().map(|(id, appointment)| (id, appointment.deadline)), Trigger::Pacer);
            if !is_crowd && !is_alone {
                overtaken.add(touched.into_iter().map(|(id, _)| id));
            }
        }
    }

    /// What is offered needs no notification any more.
    fn forget(&self, id: &OrderId) {
        if let Some(expected) = &self.expected {
            expected.forget(id);
        }
    }
}

/// Orders that were offered without a notification, and whose keys have still to be touched.
#[derive(Debug, Default)]
struct Overtaken {
    ids: Vec<OrderId>,
    at: Option<Instant>,
}

impl Overtaken {
    fn add(&mut self, ids: impl Iterator<Item = OrderId>) {
        self.ids.extend(ids.take(MOST.saturating_sub(self.ids.len())));
        self.at.get_or_insert_with(|| Instant::now() + TOGETHER);
    }

    /// Waits until their time has come.
    async fn together(&mut self) -> Vec<OrderId> {
        let Some(at) = self.at else { return std::future::pending().await };
        tokio::time::sleep_until(at).await;
        self.at = None;
        std::mem::take(&mut self.ids)
    }
}

/// Who has the keys.
#[async_trait]
pub trait Touch: fmt::Debug + Send + Sync {
    /// Reads keys, so that those whose time has come expire and are announced; returns how many of them are still there.
    ///
    /// # Errors
    /// Says why there was no answer within `limit`.
    async fn touch(&self, keys: Vec<String>, limit: Duration) -> Result<u64, RedisError>;
}

#[async_trait]
impl Touch for Commands {
    async fn touch(&self, keys: Vec<String>, limit: Duration) -> Result<u64, RedisError> {
        Self::touch(self, keys, limit).await
    }
}

/// Touches keys at their deadlines.
#[derive(Debug)]
pub struct Toucher {
    keys: KeyReader,
    redis: Arc<dyn Touch>,
    subscribed: watch::Receiver<Hearing>,
    inbox: Arc<Inbox>,
    under_way: Arc<Semaphore>,
    rest_until: Arc<Mutex<Option<Instant>>>,
}

impl Toucher {
    /// Sends a touch of these orders' keys, and returns whether it did, so that their notifications may follow.
    fn send(&self, ids: Vec<OrderId>) -> bool {
        if !self.subscribed.borrow().any() || self.is_resting() {
            return false;
        }
        let Some(keys) = ids.iter().map(|id| self.keys.key(id)).collect() else { return false };
        let Ok(place) = Arc::clone(&self.under_way).try_acquire_owned() else { return false };
        let (redis, inbox, rest_until) = (Arc::clone(&self.redis), Arc::clone(&self.inbox), Arc::clone(&self.rest_until));
        tokio::spawn(async move {
            match redis.touch(keys, TOUCH_LIMIT).await {
                // The keys are gone, and their notifications on the way.
                Ok(0) => {}
                // Nobody else will speak of those that are there.
                Ok(_) => drop(inbox.offer_due(&ids, Trigger::Pacer)),
                Err(error) => {
                    debug!(%error, "keys could not be touched; offering orders without notification");
                    *rest_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + REST);
                }
            }
            drop(place);
        });
        true
    }

    fn is_resting(&self) -> bool {
        self.rest_until.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| until > Instant::now())
    }
}
