//! The closures of the last minutes: an order that is found unpaid again with the deadline for which it was closed is not
//! closed again and again.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{close::Spare, order::OrderId};

/// How long a closure is remembered, and how many of them.
const MEMORY: Duration = Duration::from_mins(10);
const SIZE: usize = 200_000;

/// How exactly it is known when they were.
const SECOND: Duration = Duration::from_secs(1);

/// Closures by the hash of order and deadline. Two that share one would need 2^32 closures to be likely, and cost a call
/// for a hand.
#[derive(Debug, Default)]
pub(super) struct Closures(Mutex<Memory>);

/// Some twenty bytes for each closure.
#[derive(Debug, Default)]
struct Memory {
    known: HashSet<u64, foldhash::fast::RandomState>,
    oldest_first: VecDeque<u64>,
    /// How many of them came within the second that began then.
    seconds: VecDeque<(Instant, usize)>,
}

impl Memory {
    fn remember(&mut self, hash: u64, now: Instant) {
        if !self.known.insert(hash) {
            return;
        }
        self.oldest_first.push_back(hash);
        match self.seconds.back_mut() {
            Some((began, count)) if now - *began < SECOND => *count += 1,
            _ => self.seconds.push_back((now, 1)),
        }
    }

    /// Forgets the oldest ones for as long as that is so of when their second began, and of how many there are.
    fn forget_while(&mut self, is_over: impl Fn(Instant, usize) -> bool) {
        while let Some((began, count)) = self.seconds.front_mut() {
            if *count == 0 {
                self.seconds.pop_front();
            } else if is_over(*began, self.oldest_first.len()) {
                *count -= 1;
                if let Some(hash) = self.oldest_first.pop_front() {
                    self.known.remove(&hash);
                }
            } else {
                break;
            }
        }
        self.known.spare();
        self.oldest_first.spare();
    }
}

impl Closures {
    /// Remembers closures, each an order with its deadline.
    pub(super) fn remember<'a>(&self, closed: impl Iterator<Item = (&'a OrderId, i64)>) {
        let now = Instant::now();
        let mut memory = self.memory();
        for (id, deadline) in closed {
            memory.remember(hash(id, deadline), now);
        }
        memory.forget_while(|began, count| now - began > MEMORY || count > SIZE);
    }

    /// Which of these orders were closed for these deadlines.
    pub(super) fn undone<'a>(&self, found: impl Iterator<Item = (&'a OrderId, i64)>) -> Vec<OrderId> {
        let memory = self.memory();
        if memory.known.is_empty() {
            return Vec::new();
        }
        found.filter(|(id, deadline)| memory.known.contains(&hash(id, *deadline))).map(|(id, _)| id.clone()).collect()
    }

    /// Forgets all: the database was away, and may be another or an older one now.
    pub(super) fn forget(&self) {
        *self.memory() = Memory::default();
    }

    /// Forgets those before this: the database's server was started then, and its files may be those of a backup.
    pub(super) fn forget_before(&self, start: Instant) {
        self.memory().forget_while(|began, _| began + SECOND <= start);
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[tokio::test(start_paused = true)]
    async fn of_too_many_the_oldest_are_forgotten_and_the_others_in_their_time() {
        let closures = Closures::default();
        let all: Vec<OrderId> = (0..SIZE + 10).map(|number| id(&number.to_string())).collect();
        let known = |range: std::ops::Range<usize>| closures.undone(all[range].iter().map(|id| (id, 7))).len();
        let (early, late) = all.split_at(SIZE / 2);
        closures.remember(early.iter().chain(early).map(|id| (id, 7)));
        tokio::time::advance(MEMORY / 2).await;
        closures.remember(late.iter().map(|id| (id, 7)));
        assert_eq!((known(0..10), known(10..all.len())), (0, SIZE));
        tokio::time::advance(MEMORY / 2 + Duration::from_secs(1)).await;
        closures.remember([(&all[0], 7)].into_iter());
        assert_eq!((known(0..1), known(1..SIZE / 2), known(SIZE / 2..all.len())), (1, 0, SIZE / 2 + 10));
    }

    #[tokio::test(start_paused = true)]
    async fn those_before_a_start_of_the_server_are_forgotten() {
        let closures = Closures::default();
        let all = ["1", "2", "3"].map(id);
        for one in &all {
            closures.remember([(one, 7)].into_iter());
            tokio::time::advance(3 * SECOND).await;
        }
        closures.forget_before(Instant::now() - 4 * SECOND);
        assert_eq!(closures.undone(all.iter().map(|id| (id, 7))), all[2..]);
    }
}
