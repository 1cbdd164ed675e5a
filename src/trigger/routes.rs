//! Who takes an expired key's order: its rule, or the shard that it is in.
//!
//! No key says in which shard its order is. The pacer of the one that has it expects it, since the look-ahead has read its row;
//! so a notification goes there. One that nobody expects is dropped: looking for its order in every shard would let anybody who
//! can publish keep all databases busy. The look-ahead or the sweep of its shard finds what was written too late to be seen ahead.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use super::membership::Membership;
use crate::{
    close::{Inbox, Stats},
    order::OrderId,
};

/// Who takes the orders of one table.
#[derive(Debug, Clone)]
pub struct Taker {
    /// Who takes the ids.
    pub inbox: Arc<Inbox>,
    /// Whose orders are not for us.
    pub peers: Arc<Membership>,
    /// What has been heard.
    pub stats: Arc<Stats>,
}

/// Who takes the orders of a rule.
#[derive(Debug, Clone)]
pub enum Takers {
    /// Its only table.
    Table(Taker),
    /// The shard that expects an order.
    Shards(Arc<Routes>),
}

/// The shards of a rule, and which of them expects which order.
#[derive(Debug, Default)]
pub struct Routes {
    shards: RwLock<Vec<Taker>>,
    /// Two shards may have an order of one id.
    expected: Mutex<HashMap<OrderId, Vec<usize>>>,
}

/// What one shard expects.
#[derive(Debug, Clone)]
pub struct Expected {
    routes: Arc<Routes>,
    shard: usize,
}

impl Takers {
    /// Does it for each table.
    pub(super) fn each(&self, mut act: impl FnMut(&Taker)) {
        match self {
            Self::Table(taker) => act(taker),
            Self::Shards(routes) => routes.shards().iter().for_each(act),
        }
    }

    /// The one that counts what belongs to none.
    pub(super) fn first(&self, mut act: impl FnMut(&Taker)) {
        match self {
            Self::Table(taker) => act(taker),
            Self::Shards(routes) => routes.shards().first().into_iter().for_each(act),
        }
    }

    /// Does it for each that takes this order.
    pub(super) fn each_of(&self, id: &OrderId, mut act: impl FnMut(&Taker)) {
        match self {
            Self::Table(taker) => act(taker),
            Self::Shards(routes) => {
                let expecting = routes.expected().get(id).cloned().unwrap_or_default();
                let shards = routes.shards();
                expecting.into_iter().filter_map(|shard| shards.get(shard)).for_each(act);
            }
        }
    }
}

impl Routes {
    /// One more shard; whether it is the first.
    pub fn add(self: &Arc<Self>, taker: Taker) -> (Expected, bool) {
        let mut shards = self.shards.write().unwrap_or_else(PoisonError::into_inner);
        shards.push(taker);
        (Expected { routes: Arc::clone(self), shard: shards.len() - 1 }, shards.len() == 1)
    }

    fn shards(&self) -> std::sync::RwLockReadGuard<'_, Vec<Taker>> {
        self.shards.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn expected(&self) -> MutexGuard<'_, HashMap<OrderId, Vec<usize>>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Expected {
    /// From now on a notification of this order is for this shard.
    pub(super) fn add(&self, id: &OrderId) {
        let mut expected = self.routes.expected();
        let shards = expected.entry(id.clone()).or_default();
        if !shards.contains(&self.shard) {
            shards.push(self.shard);
        }
    }

    /// And no more.
    pub(super) fn forget(&self, id: &OrderId) {
        let mut expected = self.routes.expected();
        if let Some(shards) = expected.get_mut(id) {
            shards.retain(|shard| *shard != self.shard);
            if shards.is_empty() {
                expected.remove(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Retry;

    fn taker() -> Taker {
        Taker { inbox: Arc::new(Inbox::new(8, Retry::default())), peers: Arc::default(), stats: Arc::default() }
    }

    #[test]
    fn a_notification_goes_to_whoever_expects_its_order() {
        let (routes, id) = (Arc::new(Routes::default()), OrderId::from_database("7"));
        let ((one, first), (other, second)) = (routes.add(taker()), routes.add(taker()));
        assert!(first && !second);
        let takers = Takers::Shards(Arc::clone(&routes));
        let expecting = || {
            let mut expecting = Vec::new();
            takers.each_of(&id, |taker| expecting.push(Arc::as_ptr(&taker.inbox)));
            expecting
        };
        let inboxes: Vec<_> = routes.shards().iter().map(|taker| Arc::as_ptr(&taker.inbox)).collect();
        assert!(expecting().is_empty());
        one.add(&id);
        one.add(&id);
        assert_eq!(expecting(), inboxes[..1]);
        other.add(&id);
        assert_eq!(expecting(), inboxes);
        one.forget(&id);
        assert_eq!(expecting(), inboxes[1..]);
        other.forget(&id);
        assert!(expecting().is_empty() && routes.expected().is_empty(), "nothing is left behind");
    }
}
