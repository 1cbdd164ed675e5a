//! What every order passes before its transaction, whoever brought it.
//!
//! The row decides whether an order is due; a [`Clearance`] may know of a reason to wait all the same, from elsewhere than
//! the orders database. What it knows already it says at once. What it has to ask for is asked off the workers, so that
//! no answer that is slow to come delays an order that needs none.
//!
//! Guarantees:
//!
//! - The [`crate::close::Closer`] takes only what is [`Cleared`], and only a clearance makes that.
//! - An order that is to wait is in no batch, no lane and no worker's way. The inbox keeps it until its time has come, or
//!   until its row is found with another deadline, and then it passes here once more.
//! - Several clearances compose: an order goes on when all let it, and later ones aren't asked about one that waits.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{sync::watch, time::Instant};

use crate::{close::Pending, order::OrderId, store::Asked};

/// Why an order waits that its row calls due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its key is to expire later: the two contradict each other.
    Disputed,
    /// Somebody is being asked about it.
    Asked,
    /// Whoever was asked knows of a payment of which its row does not know.
    Paid,
    /// Whoever was asked wants to be asked again.
    Later,
    /// Whoever was asked has not answered.
    Unanswered,
    /// Another daemon asks about it.
    Elsewhere,
}

impl Why {
    /// How many there are.
    pub(super) const COUNT: usize = 6;

    /// Those that have to do with a question to somebody.
    pub const ASKED: [Self; 5] = [Self::Asked, Self::Paid, Self::Later, Self::Unanswered, Self::Elsewhere];

    /// What it is, for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Disputed => "its key contradicts its row, and it waits for its key",
            Self::Asked => "somebody is being asked whether it may be closed",
            Self::Paid => "it is paid, says whoever was asked, and its row does not say so yet",
            Self::Later => "whoever was asked whether it may be closed wants to be asked again",
            Self::Unanswered => "whoever was asked whether it may be closed has not answered",
            Self::Elsewhere => "another daemon asks whether it may be closed",
        }
    }
}

/// That an order may be closed: for one deadline, and for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    /// The deadline about which somebody was asked, in microseconds since 1970 UTC.
    pub deadline: i64,
    /// Until when it is good.
    pub until: Instant,
    /// When that was, by the database's clock, likewise; nothing where there was no answer.
    pub asked_at: Option<i64>,
    /// What was answered; or why there was no answer.
    pub answer: &'static str,
}

/// What a transaction may do with an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum May {
    /// Look at it.
    Look,
    /// Close it.
    Close,
    /// Close it for one deadline.
    CloseFor(Permit),
    /// Close it without the question that is asked of all others.
    CloseUnasked,
}

impl May {
    /// Whether it may be closed for this deadline at this time.
    pub(super) fn close(self, deadline: Option<i64>, now: Instant) -> bool {
        match self {
            Self::Look => false,
            Self::Close | Self::CloseUnasked => true,
            Self::CloseFor(permit) => deadline == Some(permit.deadline) && now < permit.until,
        }
    }

    /// What was answered.
    pub(super) fn asked(self) -> Option<Asked> {
        match self {
            Self::Look | Self::Close => None,
            Self::CloseFor(Permit { asked_at, answer, .. }) => Some(Asked { at: asked_at, answer }),
            Self::CloseUnasked => Some(Asked { at: None, answer: "not asked" }),
        }
    }

    /// Whether it will never be so again.
    fn is_over(self, now: Instant) -> bool {
        matches!(self, Self::CloseFor(permit) if permit.until <= now)
    }
}

/// What becomes of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// It may be closed, if its row says so under its lock.
    Go,
    /// The same, for one deadline alone: where its row has another by then, it passes here once more.
    GoFor(Permit),
    /// The same, without the question that is asked of all others.
    GoUnasked,
    /// It is paid, not due, or no order. Its row says so under its lock; where it does not, the order passes here once more.
    Look,
    /// It is to wait until then, and to pass here again.
    Wait {
        /// Until when, at the latest.
        until: Instant,
        /// Why.
        why: Why,
    },
}

/// Lets orders go on to their transaction, or wait.
#[async_trait]
pub trait Clearance: fmt::Debug + Send + Sync {
    /// What is known of each of these orders, in their order, without asking anybody; `None` for those to be asked about.
    fn known(&self, orders: &[Pending]) -> Vec<Option<Leave>>;

    /// Asks about each of these orders, and says of each, in their order, what becomes of it: within a limit of its own, whoever
    /// does not answer.
    async fn ask(&self, orders: &[Pending]) -> Vec<Leave>;

    /// Changes when something is known of orders that wait as [`Why::Asked`].
    fn answers(&self) -> Option<watch::Receiver<()>> {
        None
    }
}

/// Who asks about orders before they are due.
pub trait Foresight: fmt::Debug + Send + Sync {
    /// How long before their deadlines.
    fn ahead(&self) -> Duration;

    /// Asks about these orders, which are that near, and waits for nothing.
    fn foresee(&self, orders: Vec<OrderId>);
}

/// Our share of the work, where several instances close the orders of one table.
pub trait Share: fmt::Debug + Send + Sync {
    /// Whether it is for us to ask about an order.
    fn is_ours(&self, id: &OrderId) -> bool;

    /// How many have a share, this one among them.
    fn instances(&self) -> u32;
}

/// Nobody else has a share.
#[derive(Debug)]
pub struct Alone;

impl Share for Alone {
    fn is_ours(&self, _: &OrderId) -> bool {
        true
    }

    fn instances(&self) -> u32 {
        1
    }
}

/// Orders that have passed.
#[derive(Debug, Clone, Default)]
pub struct Cleared(Vec<Pending>);

impl Cleared {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The orders, each with the word that it has passed.
    pub(super) fn into_cleared(mut self) -> Vec<Pending> {
        self.0.iter_mut().for_each(|pending| pending.cleared = true);
        self.0
    }

    /// The orders, for one transaction: whichever of them needs another passes once more.
    pub(super) fn into_orders(mut self) -> Vec<Pending> {
        self.0.iter_mut().for_each(|pending| pending.cleared = false);
        self.0
    }
}

/// An order that waits.
#[derive(Debug, Clone)]
pub struct PutOff {
    /// The order.
    pub pending: Pending,
    /// Until when, at the latest.
    pub until: Instant,
    /// Why.
    pub why: Why,
}

/// A batch, sorted by what becomes of its orders.
#[derive(Debug, Default)]
pub struct Sorted {
    /// These may go on.
    pub go: Cleared,
    /// These wait.
    pub wait: Vec<PutOff>,
    /// These are to be asked about.
    pub ask: Vec<Pending>,
}

impl Sorted {
    /// Sorts a batch by what is known at once.
    #[must_use]
    pub fn by_knowledge(clearance: &dyn Clearance, batch: Vec<Pending>) -> Self {
        let mut sorted = Self::default();
        let now = Instant::now();
        let (cleared, batch): (Vec<_>, Vec<_>) = batch.into_iter().partition(|pending| pending.cleared && !pending.may.is_over(now));
        sorted.go.0 = cleared;
        let known = clearance.known(&batch);
        batch.into_iter().zip(known).for_each(|(pending, leave)| sorted.add(pending, leave));
        sorted
    }

    /// Asks about these orders, and sorts them by the answers.
    pub async fn by_asking(clearance: &dyn Clearance, batch: Vec<Pending>) -> Self {
        let mut sorted = Self::default();
        if !batch.is_empty() {
            let leaves = clearance.ask(&batch).await;
            batch.into_iter().zip(leaves).for_each(|(pending, leave)| sorted.add(pending, Some(leave)));
        }
        sorted
    }

    /// Sorts a batch, and waits for whatever has to be asked; nothing is left to ask.
    pub async fn wholly(clearance: &dyn Clearance, batch: Vec<Pending>) -> Self {
        let mut sorted = Self::by_knowledge(clearance, batch);
        let asked = Self::by_asking(clearance, std::mem::take(&mut sorted.ask)).await;
        sorted.go.0.extend(asked.go.0);
        sorted.wait.extend(asked.wait);
        sorted
    }

    fn add(&mut self, pending: Pending, leave: Option<Leave>) {
        let may = match leave {
            Some(Leave::Go) => May::Close,
            Some(Leave::GoFor(permit)) => May::CloseFor(permit),
            Some(Leave::GoUnasked) => May::CloseUnasked,
            Some(Leave::Look) => May::Look,
            Some(Leave::Wait { until, why }) => return self.wait.push(PutOff { pending, until, why }),
            None => return self.ask.push(pending),
        };
        self.go.0.push(Pending { may, ..pending });
    }
}

/// Several clearances, one after the other; none lets everything go.
#[derive(Debug, Clone, Default)]
pub struct Clearances(Vec<Arc<dyn Clearance>>);

impl Clearances {
    /// One more, after the others.
    #[must_use]
    pub fn and(mut self, clearance: Option<Arc<impl Clearance + 'static>>) -> Self {
        self.0.extend(clearance.map(|clearance| clearance as Arc<dyn Clearance>));
        self
    }
}

#[async_trait]
impl Clearance for Clearances {
    fn known(&self, orders: &[Pending]) -> Vec<Option<Leave>> {
        let mut known = vec![Some(Leave::Go); orders.len()];
        for clearance in &self.0 {
            for (so_far, here) in known.iter_mut().zip(clearance.known(orders)) {
                *so_far = match (*so_far, here) {
                    (Some(wait @ Leave::Wait { .. }), _) | (_, Some(wait @ Leave::Wait { .. })) => Some(wait),
                    (None, _) | (_, None) => None,
                    (Some(so_far), Some(here)) => Some(both(so_far, here)),
                };
            }
        }
        known
    }

    async fn ask(&self, orders: &[Pending]) -> Vec<Leave> {
        let mut leaves = vec![Leave::Go; orders.len()];
        for clearance in &self.0 {
            let going: Vec<usize> = (0..orders.len()).filter(|at| !matches!(leaves[*at], Leave::Wait { .. })).collect();
            let asked: Vec<Pending> = going.iter().map(|at| orders[*at].clone()).collect();
            let mut unknown = Vec::new();
            for (at, known) in going.into_iter().zip(clearance.known(&asked)) {
                match known {
                    Some(leave) => leaves[at] = both(leaves[at], leave),
                    None => unknown.push(at),
                }
            }
            if !unknown.is_empty() {
                let asked: Vec<Pending> = unknown.iter().map(|at| orders[*at].clone()).collect();
                unknown.into_iter().zip(clearance.ask(&asked).await).for_each(|(at, leave)| leaves[at] = both(leaves[at], leave));
            }
        }
        leaves
    }

    fn answers(&self) -> Option<watch::Receiver<()>> {
        self.0.iter().find_map(|clearance| clearance.answers())
    }
}

/// What two say of one order: a wait before all, then the narrower.
fn both(one: Leave, other: Leave) -> Leave {
    match (one, other) {
        (Leave::Wait { .. }, _) | (_, Leave::Go) => one,
        (_, Leave::Wait { .. }) | (Leave::Go, _) => other,
        (Leave::Look, _) | (_, Leave::Look) => Leave::Look,
        (Leave::GoFor(_) | Leave::GoUnasked, Leave::GoFor(_) | Leave::GoUnasked) => one,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashMap,
        sync::{Mutex, PoisonError},
    };

    use super::*;
    use crate::order::{OrderId, Trigger};

    /// Knows of some orders, and answers for all others that they may go; notes whom it was asked about.
    #[derive(Debug, Default)]
    struct Knows {
        known: HashMap<&'static str, Leave>,
        asked: Mutex<Vec<String>>,
    }

    impl Knows {
        fn asked(&self) -> Vec<String> {
            self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
        }
    }

    #[async_trait]
    impl Clearance for Knows {
        fn known(&self, orders: &[Pending]) -> Vec<Option<Leave>> {
            orders.iter().map(|order| self.known.get(order.id.as_str()).copied()).collect()
        }

        async fn ask(&self, orders: &[Pending]) -> Vec<Leave> {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.extend(orders.iter().map(|order| order.id.as_str().to_owned()));
            vec![Leave::Go; orders.len()]
        }
    }

    fn batch(ids: &[&str]) -> Vec<Pending> {
        ids.iter().map(|id| Pending::new(OrderId::from_database(id), Trigger::Sweep)).collect()
    }

    fn ids(orders: &[Pending]) -> Vec<&str> {
        orders.iter().map(|order| order.id.as_str()).collect()
    }

    #[tokio::test]
    async fn an_order_goes_when_all_let_it_and_nobody_is_asked_about_one_that_waits() {
        let wait = Leave::Wait { until: Instant::now(), why: Why::Disputed };
        let first = Arc::new(Knows { known: HashMap::from([("1", Leave::Go), ("2", wait), ("3", Leave::Go)]), ..Knows::default() });
        let second = Arc::new(Knows { known: HashMap::from([("1", Leave::Go), ("4", wait)]), ..Knows::default() });
        let all = Clearances::default().and(Some(first.clone())).and(Some(second.clone()));
        let mut sorted = Sorted::by_knowledge(&all, batch(&["1", "2", "3", "4", "5"]));
        assert_eq!((ids(&sorted.go.0), ids(&sorted.ask)), (vec!["1"], vec!["3", "5"]));
        assert_eq!(sorted.wait.iter().map(|held| held.pending.id.as_str()).collect::<Vec<_>>(), ["2", "4"]);

        let asked = Sorted::by_asking(&all, std::mem::take(&mut sorted.ask)).await;
        assert_eq!(ids(&asked.go.0), ["3", "5"]);
        assert_eq!((first.asked(), second.asked()), (vec!["5".to_owned()], vec!["3".to_owned(), "5".to_owned()]));
    }

    #[tokio::test]
    async fn where_nobody_objects_all_go() {
        let sorted = Sorted::wholly(&Clearances::default(), batch(&["1", "2"])).await;
        assert_eq!((sorted.go.0.len(), sorted.wait.len(), sorted.ask.len()), (2, 0, 0));
    }
}
