//! The closures of the last minutes: an order that is found unpaid again with the deadline for which it was closed is not
//! closed again and again.

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::order::OrderId;

/// How long a closure is remembered, and how many of them.
const MEMORY: Duration = Duration::from_mins(10);
const SIZE: usize = 200_000;

/// Closures by the hash of order and deadline. Two that share one would need 2^32 closures to be likely, and cost a call
/// for a hand.
#[derive(Debug, Default)]
pub(super) struct Closures {
    memory: Mutex<(Hashes, VecDeque<(Instant, u64)>)>,
    forgotten: AtomicU64,
}

type Hashes = HashSet<u64, foldhash::fast::RandomState>;

impl Closures {
    /// Remembers closures, each an order with its deadline.
    pub(super) fn remember<'a>(&self, closed: impl Iterator<Item = (&'a OrderId, i64)>) {
        let now = Instant::now();
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, oldest_first) = &mut *memory;
        for (id, deadline) in closed {
            let hash = hash(id, deadline);
            if known.insert(hash) {
                oldest_first.push_back((now, hash));
            }
        }
        while let Some((_, hash)) = oldest_first.pop_front_if(|(at, _)| now - *at > MEMORY) {
            known.remove(&hash);
        }
        while oldest_first.len() > SIZE
            && let Some((_, hash)) = oldest_first.pop_front()
        {
            known.remove(&hash);
        }
    }

    /// Which of these orders were closed for these deadlines.
    pub(super) fn undone<'a>(&self, found: impl Iterator<Item = (&'a OrderId, i64)>) -> Vec<OrderId> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.0.is_empty() {
            return Vec::new();
        }
        found.filter(|(id, deadline)| memory.0.contains(&hash(id, *deadline))).map(|(id, _)| id.clone()).collect()
    }

    /// Forgets all: the database was away, and may be another or an older one now.
    pub(super) fn forget(&self) {
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = Default::default();
        self.forgotten.fetch_add(1, Ordering::AcqRel);
    }

    /// How often all were forgotten.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Acquire)
    }
}

fn hash(id: &OrderId, deadline: i64) -> u64 {
    xxh3_64_with_seed(id.as_str().as_bytes(), deadline.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> OrderId {
        OrderId::from_database(text)
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_is_undone_with_the_same_deadline_for_a_while() {
        let closures = Closures::default();
        let (one, other) = (id("1"), id("2"));
        closures.remember([(&one, 7)].into_iter());
        let undone = |id, deadline| !closures.undone([(id, deadline)].into_iter()).is_empty();
        assert!(undone(&one, 7));
        assert!(!undone(&one, 8), "another deadline");
        assert!(!undone(&other, 7), "another order");
        tokio::time::advance(MEMORY + Duration::from_secs(1)).await;
        closures.remember([(&other, 7)].into_iter());
        assert!(!undone(&one, 7) && undone(&other, 7));
        closures.forget();
        assert!(!undone(&other, 7));
    }
}
