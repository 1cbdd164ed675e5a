//! Makes things happen at their time: a timing wheel of the next seconds.
//!
//! Redis by itself expires a key late, when its background cycle comes across it. A read of the key
//! just after its deadline makes it expire, and its notification come, at once; so the pacer reads the
//! key of every order that the sweep saw coming. If no notification follows (the key was never written,
//! was evicted, or Redis is away), it offers the order itself, and so it does at once for a crowd.

use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map::Entry},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    close::{Inbox, Later},
    order::{OrderId, Trigger},
    redis::Commands,
    trigger::{key::KeyReader, membership::Membership},
};

/// How many orders may be on the wheel; beyond that the sweep finds them when they are overdue.
const CAPACITY: usize = 200_000;

/// How long after its deadline a key is touched. Redis takes it for expired a millisecond after it (once its clock, which
/// counts whole ones, is past the deadline: `keyIsExpired` in its `db.c`), and our timer adds half a one on average.
const EXPIRY: Duration = Duration::from_micros(500);

/// How long after the touch the notification may take, before the order is offered without it.
const GRACE: Duration = Duration::from_millis(20);

/// How long a touch may take; after that, or any failure, Redis is left alone for [`REST`].
const TOUCH_LIMIT: Duration = Duration::from_millis(300);
const REST: Duration = Duration::from_secs(1);

/// How many appointments are kept at a time.
const GROUP: usize = 5_000;

/// More orders than this at one instant are offered at once: the way through Redis would cost the crowd more
/// time than it takes to close it, and Redis finds so many expired keys by itself.
const CROWD: usize = 100;

/// A deadline that the sweep saw coming.
#[derive(Debug, Clone)]
pub struct Upcoming {
    /// The order.
    pub id: OrderId,
    /// Its deadline, in microseconds since 1970 UTC.
    pub deadline: i64,
    /// The same on this host's steady clock.
    pub at: Instant,
}

/// What the wheel does with an order when its time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Touch its key.
    Touch,
    /// Offer it to the inbox.
    Offer(Trigger),
}

/// Keeps appointments until it is told to stop.
#[derive(Debug)]
pub struct Pacer {
    /// The sweep's look ahead.
    pub upcoming: mpsc::Receiver<Vec<Upcoming>>,
    /// Orders to be looked at again.
    pub later: mpsc::Receiver<Later>,
    /// Who closes them.
    pub inbox: Arc<Inbox>,
    /// Whose orders are not for us.
    pub peers: Arc<Membership>,
    /// How keys are touched.
    pub touch: Toucher,
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
        (keys, commands, subscribed): (KeyReader, Commands, watch::Receiver<bool>),
        stop: CancellationToken,
    ) -> Self {
        let touch = Toucher { keys, commands, subscribed, inbox: Arc::clone(&inbox), rest_until: Arc::default() };
        Self { upcoming, later, inbox, peers, touch, stop }
    }

    /// Keeps appointments.
    pub async fn run(mut self) {
        let mut wheel = Wheel::default();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                Some(orders) = self.upcoming.recv() => {
                    for Upcoming { id, deadline, at } in orders {
                        wheel.insert(id, Appointment { at: at + EXPIRY, deadline: Some(deadline) }, Step::Touch);
                    }
                }
                Some(Later { id, trigger, at }) = self.later.recv() => {
                    wheel.insert(id, Appointment { at, deadline: None }, Step::Offer(trigger));
                }
                ready = wheel.ready() => {
                    self.act(ready);
                    // The runtime runs whom this has woken next on this very thread: now, not after the whole crowd.
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    fn act(&self, ready: Vec<(OrderId, Step)>) {
        let mut touched = Vec::new();
        for (id, step) in ready {
            match step {
                // Its instance does it; and if not, the sweep finds it.
                Step::Touch if !self.peers.is_ours(&id) => {}
                Step::Touch => touched.push(id),
                Step::Offer(trigger) => {
                    self.inbox.offer_due([&id], trigger);
                }
            }
        }
        if touched.len() > CROWD {
            self.inbox.offer_due(&touched, Trigger::Pacer);
        } else if !touched.is_empty() {
            // Not awaited: a slow Redis must not delay the next deadline.
            tokio::spawn(self.touch.clone().run(touched));
        }
    }
}

/// The timing wheel, with each order on it once.
#[derive(Debug, Default)]
struct Wheel {
    /// Who has an appointment when; and who had, and has another one now.
    moments: BTreeMap<Instant, VecDeque<OrderId>>,
    places: HashMap<OrderId, (Appointment, Step), foldhash::quality::RandomState>,
}

/// When something is to be done, and for which deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Appointment {
    at: Instant,
    deadline: Option<i64>,
}

impl Appointment {
    /// Whether this is news: a sweep sees the same deadline again and again, each time a little later or earlier
    /// on this host's clock, and never too early.
    fn overrides(self, before: Self) -> bool {
        self.deadline != before.deadline || self.at + Duration::from_millis(1) < before.at
    }
}

impl Wheel {
    fn insert(&mut self, id: OrderId, appointment: Appointment, step: Step) {
        if let Some((before, _)) = self.places.get_mut(&id) {
            if !appointment.overrides(*before) {
                return;
            }
            *before = appointment;
        } else if self.places.len() < CAPACITY {
            self.places.insert(id.clone(), (appointment, step));
        } else {
            return;
        }
        self.moments.entry(appointment.at).or_default().push_back(id);
    }

    /// Waits for the next appointment, and returns it with others whose time has come, at most a group.
    async fn ready(&mut self) -> Vec<(OrderId, Step)> {
        let Some((next, _)) = self.moments.first_key_value() else {
            // An empty wheel waits for the other branches of the select.
            return std::future::pending().await;
        };
        tokio::time::sleep_until(*next).await;
        let (now, mut ready) = (Instant::now(), Vec::new());
        while let Some(mut moment) = self.moments.first_entry()
            && *moment.key() <= now
            && ready.len() < GROUP
        {
            let Some(id) = moment.get_mut().pop_front() else {
                moment.remove();
                continue;
            };
            if let Entry::Occupied(place) = self.places.entry(id)
                && place.get().0.at == *moment.key()
            {
                let (id, (_, step)) = place.remove_entry();
                ready.push((id, step));
            }
        }
        ready
    }
}

/// Touches keys at their deadlines.
#[derive(Debug, Clone)]
pub struct Toucher {
    keys: KeyReader,
    commands: Commands,
    subscribed: watch::Receiver<bool>,
    inbox: Arc<Inbox>,
    rest_until: Arc<Mutex<Option<Instant>>>,
}

impl Toucher {
    /// Touches the keys of these orders, and sees to it that each order reaches the inbox.
    async fn run(self, ids: Vec<OrderId>) {
        if *self.subscribed.borrow() && !self.resting() {
            let keys = ids.iter().map(|id| self.keys.key(id)).collect();
            match self.commands.touch(keys, TOUCH_LIMIT).await {
                // The keys are gone, and their notifications on the way.
                Ok(0) => tokio::time::sleep(GRACE).await,
                // Keys outlive their rows' deadlines: the rows decide, and nobody else will speak of them now.
                Ok(_) => {}
                Err(error) => {
                    debug!(%error, orders = ids.len(), "keys could not be touched; closing their orders without notification");
                    *self.rest_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + REST);
                }
            }
        }
        self.inbox.offer_due(&ids, Trigger::Pacer);
    }

    fn resting(&self) -> bool {
        self.rest_until.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| until > Instant::now())
    }
}
