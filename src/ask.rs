//! The question before closing: is an order really unpaid? Asked of whoever knows what the payment provider knows.
//!
//! ```text
//!   worker: not known ──> its row is read: unpaid and due ──> queue ──> requests, on a thread apart ──> book
//!      ^                                                                                                 │
//!      └── the inbox, where the order waits meanwhile <── something new is known ────────────────────────┘
//! ```
//!
//! Guarantees:
//!
//! - No order closes but for the deadline about which it was asked, and while the answer is good; the judge compares, under the
//!   order's lock. What is in doubt is no answer.
//! - Asked is only who is unpaid and due, or will be within `ahead`, and is not disputed; while closing is paused nobody is.
//! - No worker waits for an answer: a receiver that is slow or dead delays nobody who has one already, nor another rule.
//! - Where several daemons close the orders of one table, one of them asks about an order, while they see each other.
//!
//! When it fails: [`queue`] says how orders are asked about that have no answer, [`book`] for how long they wait.

mod answer;
mod book;
mod queue;
mod receiver;
mod run;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

pub use answer::{Answer, read};
pub use receiver::{Receiver, Way};

use crate::{
    close::{Bounds, Clearance, Foresight, Gate, Inbox, Leave, Pending, Share, Stats, Why},
    config::{self, RuleName, Unanswered},
    order::{OrderId, Row, Trigger, Verdict},
    store::{Store, StoreError},
};
use book::Book;
pub(crate) use queue::Question;
use queue::Queue;

/// How much longer than `ahead` an answer is good.
const GOOD_FOR: Duration = Duration::from_secs(5);

/// When an order is looked at again about which another daemon asks, or whose row could not be read.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How many rows are read at once.
const AT_ONCE: usize = 1_000;

/// What may be seen ahead, in this process: beyond it orders are asked about when they are due.
const FORESEEN: usize = 200_000;

/// Asks about orders, and lets those wait that must not be closed.
#[derive(Debug)]
pub struct Ask {
    parts: Parts,
    ahead: Duration,
    respondent: Box<dyn Respondent>,
    state: Mutex<State>,
    queued: Notify,
    answers: watch::Sender<()>,
}

/// Whoever is asked: a receiver of requests, or what a test has in its place.
#[async_trait]
pub(crate) trait Respondent: fmt::Debug + Send + Sync {
    /// Asks these questions; the answers, by the orders' ids, come within a limit of its own, or not at all.
    async fn ask(&self, questions: &[Question]) -> Result<HashMap<String, Answer>, String>;
}

/// What it works with.
#[derive(Debug)]
pub struct Parts {
    /// Whose orders they are.
    pub rule: RuleName,
    /// The orders.
    pub store: Arc<dyn Store>,
    /// Where they wait.
    pub inbox: Arc<Inbox>,
    /// What is due.
    pub bounds: Arc<Bounds>,
    /// What shuts while closing is paused.
    pub gate: Arc<Gate>,
    /// What was answered.
    pub stats: Arc<Stats>,
    /// Whose orders are for us to ask about.
    pub share: Arc<dyn Share>,
    /// What an order has to pass before it is asked about.
    pub before: Arc<dyn Clearance>,
}

#[derive(Debug)]
struct State {
    book: Book,
    queue: Queue,
}

/// Lets orders be closed without the question.
#[derive(Debug)]
pub struct WithoutAsking;

#[async_trait]
impl Clearance for WithoutAsking {
    fn known(&self, orders: &[Pending]) -> Vec<Option<Leave>> {
        vec![Some(Leave::GoUnasked); orders.len()]
    }

    async fn ask(&self, orders: &[Pending]) -> Vec<Leave> {
        vec![Leave::GoUnasked; orders.len()]
    }
}

/// Asks a question about no order, to see whether it is answered.
#[derive(Debug)]
pub struct Trial(Receiver);

impl Trial {
    /// One of whoever is asked by these settings.
    ///
    /// # Errors
    /// Says which file of the settings can't be used, and why.
    pub fn new(rule: &RuleName, settings: &config::Ask) -> Result<Self, String> {
        Receiver::new(rule, settings).map(Self)
    }

    /// Asks; returns how long the answer took.
    ///
    /// # Errors
    /// Says why there is none.
    pub async fn ask(&self) -> Result<Duration, String> {
        let began = Instant::now();
        self.0.ask(&[]).await.map(|_| began.elapsed())
    }
}

/// What a read of an order's row has shown.
#[derive(Debug)]
struct Seen {
    row: Row,
    /// The columns that a question carries.
    order: String,
    read: Instant,
}

impl Ask {
    /// Whoever asks this receiver, as these settings say; it does so while [`Ask::run`] runs.
    #[must_use]
    pub fn new(settings: &config::Ask, receiver: &Receiver, parts: Parts) -> Arc<Self> {
        Self::of(settings, Box::new(receiver.clone()), parts)
    }

    /// The same of this respondent.
    pub(crate) fn of(settings: &config::Ask, respondent: Box<dyn Respondent>, parts: Parts) -> Arc<Self> {
        let ahead = settings.ahead.get();
        let max_wait = (settings.unanswered == Unanswered::Close).then(|| settings.max_wait.get());
        let state =
            State { book: Book::new(settings.batch, ahead + GOOD_FOR, max_wait), queue: Queue::new(settings.batch, settings.concurrency) };
        Arc::new(Self { ahead, respondent, parts, state: Mutex::new(state), queued: Notify::new(), answers: watch::Sender::new(()) })
    }

    /// Reads the rows of these orders, those left out that are no orders of ours.
    async fn rows(&self, ids: &[OrderId]) -> Result<HashMap<OrderId, Seen>, StoreError> {
        let mut seen = HashMap::with_capacity(ids.len());
        for ids in ids.chunks(AT_ONCE) {
            let read = Instant::now();
            let rows = self.parts.store.asked_about(ids).await?;
            seen.extend(rows.into_iter().map(|(row, order)| (row.id.clone(), Seen { row: Row { locked: true, ..row }, order, read })));
        }
        Ok(seen)
    }

    /// Whether a row is unpaid, and due so soon.
    fn is_due(&self, trigger: Trigger, Seen { row, read, .. }: &Seen, ahead: Duration) -> bool {
        match self.parts.bounds.judge_row(self.parts.store.unpaid(), trigger, Some(row), *read) {
            Verdict::Close { .. } => true,
            Verdict::NotDue { remaining } => remaining.is_some_and(|remaining| remaining <= ahead),
            Verdict::Settled { .. } | Verdict::NotFound | Verdict::Locked | Verdict::Unasked => false,
        }
    }

    /// Puts an order into the queue, unless something is known of it; says what becomes of it for now.
    fn put(&self, state: &mut State, seen: Seen) -> Leave {
        let Seen { row: Row { id, deadline, now, .. }, order, read } = seen;
        let Some(deadline) = deadline else { return Leave::Look };
        let at = Instant::now();
        let silent = state.queue.is_silent();
        match state.book.ask(&id, deadline, silent, at) {
            Err(leave) => leave,
            Ok((size, again)) => {
                let leave = state.book.known(&id, Some(deadline), silent, at);
                state.queue.push(Question { id, deadline, order, now, read, size, again });
                leave.unwrap_or(Leave::Wait { until: at + LOOK_AGAIN, why: Why::Asked })
            }
        }
    }

    /// Asks about those of these orders that fall due within `ahead`.
    async fn ask_ahead(&self, ids: Vec<OrderId>) -> Result<(), StoreError> {
        let mut seen = self.rows(&ids).await?;
        let pending = |seen: &Seen| Pending::new(seen.row.id.clone(), Trigger::Pacer).with_deadline(seen.row.deadline);
        // The timer and the database's clock may differ by a moment.
        seen.retain(|_, seen| self.is_due(Trigger::Pacer, seen, self.ahead * 2));
        let orders: Vec<Pending> = ids.iter().filter_map(|id| seen.get(id)).map(pending).collect();
        for (order, leave) in orders.iter().zip(self.parts.before.ask(&orders).await) {
            if matches!(leave, Leave::Wait { .. }) {
                seen.remove(&order.id);
            }
        }
        let early = seen.values().filter_map(|seen| Some(seen.row.remaining()? - i64::try_from(self.ahead.as_micros()).ok()?)).max();
        if let Some(early) = early.and_then(|early| u64::try_from(early).ok()) {
            tokio::time::sleep(Duration::from_micros(early)).await;
        }
        let mut state = self.lock();
        for seen in ids.iter().filter_map(|id| seen.remove(id)) {
            self.put(&mut state, seen);
        }
        drop(state);
        self.queued.notify_one();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Clearance for Ask {
    fn known(&self, orders: &[Pending]) -> Vec<Option<Leave>> {
        let now = Instant::now();
        let state = self.lock();
        let silent = state.queue.is_silent();
        orders.iter().map(|order| state.book.known(&order.id, order.deadline, silent, now)).collect()
    }

    /// Reads the orders' rows, and queues their questions; no answer is waited for here.
    async fn ask(&self, orders: &[Pending]) -> Vec<Leave> {
        let ids: Vec<OrderId> = orders.iter().map(|order| order.id.clone()).collect();
        let mut seen = match self.rows(&ids).await {
            Ok(seen) => seen,
            // The transaction finds the same, and does what is to be done about it.
            Err(StoreError::Unavailable(_) | StoreError::Refused { .. }) => return vec![Leave::Look; orders.len()],
            Err(error) => {
                tracing::warn!(%error, orders = orders.len(), "orders can't be asked about, since their rows can't be read; trying again");
                return vec![Leave::Wait { until: Instant::now() + LOOK_AGAIN, why: Why::Unanswered }; orders.len()];
            }
        };
        let mut state = self.lock();
        let leave = |order: &Pending| {
            let Some(seen) = seen.remove(&order.id).filter(|seen| self.is_due(order.trigger, seen, Duration::ZERO)) else {
                state.book.forget(&order.id);
                return Leave::Look;
            };
            if order.trigger != Trigger::Request && !self.parts.share.is_ours(&order.id) {
                return Leave::Wait { until: Instant::now() + LOOK_AGAIN, why: Why::Elsewhere };
            }
            self.put(&mut state, seen)
        };
        let leaves = orders.iter().map(leave).collect();
        drop(state);
        self.queued.notify_one();
        leaves
    }

    fn answers(&self) -> Option<watch::Receiver<()>> {
        Some(self.answers.subscribe())
    }
}

/// Asks ahead: as [`Foresight`] has it, by reference to whoever is shared.
#[derive(Clone)]
pub struct Ahead(pub Arc<Ask>);

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ahead").field(&self.0.ahead).finish()
    }
}

impl Foresight for Ahead {
    fn ahead(&self) -> Duration {
        self.0.ahead
    }

    fn foresee(&self, orders: Vec<OrderId>) {
        let ask = Arc::clone(&self.0);
        if ask.parts.gate.is_shut() || ask.lock().queue.len() > FORESEEN {
            return;
        }
        tokio::spawn(async move {
            if let Err(error) = ask.ask_ahead(orders).await {
                tracing::debug!(%error, "orders are not asked about ahead");
            }
        });
    }
}
