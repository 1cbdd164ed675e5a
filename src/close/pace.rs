//! How long a lock is waited for, and how long a statement may take before it is taken for one that waits for a lock, where
//! the database can't tell.
//!
//! By what closures have taken of late: what is locked for as long as they last is not held, it is contended; and a
//! database that is slow must not be taken for one whose rows are held. What was too strict is found out by an order that
//! waits patiently, and closes.

use std::{
    future::Future,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    config::RuleName,
    metric,
    store::{Limits, LockWait},
};

/// A batch of so many orders tells what each takes; a smaller one, what the rest does.
const MANY: usize = 20;

/// A lock is waited for so long, at the least and at the most.
const SHORTEST_LOCK: Duration = Duration::from_millis(1);
const BRIEF_LOCK: Duration = Duration::from_millis(20);
const LONGEST_LOCK: Duration = Duration::from_millis(200);

/// No statement gets more.
const LONGEST: Duration = Duration::from_secs(1);

/// The time for whatever is not done for each order, and for each.
#[derive(Debug, Clone, Copy)]
struct Time {
    at_all: Duration,
    per_order: Duration,
}

impl Time {
    const ZERO: Self = Self { at_all: Duration::ZERO, per_order: Duration::ZERO };

    /// What a statement that waits briefly has at the least: several times what most take.
    const BRIEFLY: Self = Self { at_all: Duration::from_millis(30), per_order: Duration::from_micros(100) };

    /// What one has that hardly waits.
    const NEVER: Self = Self { at_all: Duration::from_millis(10), per_order: Duration::from_micros(50) };

    fn for_orders(self, orders: usize) -> Duration {
        self.at_all + self.per_order.saturating_mul(u32::try_from(orders).unwrap_or(u32::MAX))
    }

    fn max(self, other: Self) -> Self {
        Self { at_all: self.at_all.max(other.at_all), per_order: self.per_order.max(other.per_order) }
    }
}

/// What closures have taken of late.
#[derive(Debug)]
pub(super) struct Pace(Mutex<Taken>);

#[derive(Debug, Clone, Copy)]
struct Taken {
    mostly: Time,
    at_most: Time,
    longest: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self(Mutex::new(Taken { mostly: Time::ZERO, at_most: Time::ZERO, longest: Duration::ZERO }))
    }
}

impl Pace {
    /// The limits of a closure of so many orders.
    pub(super) fn limits(&self, wait: LockWait, orders: usize) -> Limits {
        let Taken { mostly, longest, .. } = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = match wait {
            LockWait::Never => mostly.at_all.clamp(SHORTEST_LOCK, LONGEST_LOCK / 4),
            LockWait::Briefly | LockWait::Patiently => longest.mul_f64(1.5).clamp(BRIEF_LOCK, LONGEST_LOCK),
        };
        Limits { wait, lock, statement: self.limit(wait, orders) }
    }

    /// How long a statement may take for so many orders.
    fn limit(&self, wait: LockWait, orders: usize) -> Duration {
        let Taken { mostly, at_most, .. } = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let time = match wait {
            // A closure is several statements, so this leaves each of them some time to wait.
            LockWait::Never => mostly.max(Time::NEVER),
            LockWait::Briefly | LockWait::Patiently => {
                Time { at_all: at_most.at_all * 3, per_order: at_most.per_order * 3 }.max(Time::BRIEFLY)
            }
        };
        time.for_orders(orders).min(LONGEST)
    }

    /// Runs a closure of so many orders, and learns from one that succeeds.
    pub(super) async fn measured<T, E>(&self, rule: &RuleName, orders: usize, closure: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let began = Instant::now();
        let result = closure.await;
        metric::BATCH_ORDERS.record(orders as f64, &[rule.label()]);
        metric::BATCH_SECONDS.record(began.elapsed().as_secs_f64(), &[rule.label()]);
        if result.is_ok() {
            self.learn(orders, began.elapsed());
        }
        result
    }

    fn learn(&self, orders: usize, took: Duration) {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.longest = taken.longest.mul_f64(0.9).max(took);
        let Taken { mostly, at_most, .. } = &mut *taken;
        let (mostly, at_most, took) = if orders < MANY {
            (&mut mostly.at_all, &mut at_most.at_all, took)
        } else {
            (&mut mostly.per_order, &mut at_most.per_order, took / u32::try_from(orders).unwrap_or(u32::MAX))
        };
        *mostly = mostly.mul_f64(0.8) + took.mul_f64(0.2);
        // The slowest is forgotten by and by.
        *at_most = at_most.mul_f64(0.9).max(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn close(pace: &Pace, orders: usize, took: Duration) {
        let closure = async {
            tokio::time::advance(took).await;
            Ok::<(), ()>(())
        };
        assert_eq!(pace.measured(&RuleName::default(), orders, closure).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_database_is_given_time_and_a_quick_one_is_not() {
        let pace = Pace::default();
        let quick = [Time::NEVER.for_orders(1), Time::BRIEFLY.for_orders(1)];
        let limits = || [LockWait::Never, LockWait::Briefly].map(|wait| pace.limit(wait, 1));
        assert_eq!(limits(), quick);
        close(&pace, 1, Duration::from_millis(100)).await;
        assert!(limits()[1] >= Duration::from_millis(300) && limits()[0] < Duration::from_millis(30), "{:?}", limits());
        for _ in 0..50 {
            close(&pace, 1, Duration::from_millis(2)).await;
        }
        assert_eq!(limits(), quick);
        for _ in 0..50 {
            close(&pace, 100, Duration::from_millis(100)).await;
        }
        assert!(pace.limit(LockWait::Briefly, 200) >= Duration::from_millis(600));
        assert!(pace.limit(LockWait::Never, 200) >= Duration::from_millis(190));
        assert_eq!(pace.limit(LockWait::Briefly, 100_000), LONGEST);
    }
}
