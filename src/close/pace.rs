//! How long a statement may take before it is taken for one that waits for a lock, where the database can't tell.
//!
//! Generous by what closures have taken of late: a database that is slow must not be taken for one whose rows are held. What
//! was too strict is found out by an order that waits patiently, and closes.

use std::{
    future::Future,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// What a statement may take, whatever its orders, at the least.
const AT_ALL: Duration = Duration::from_millis(30);

/// What it may take for each order, at the least.
const PER_ORDER: Duration = Duration::from_micros(100);

/// No statement gets more.
const LONGEST: Duration = Duration::from_secs(1);

/// A batch of so many orders tells what each takes; a smaller one, what the rest does.
const MANY: usize = 20;

/// What closures have taken of late.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<Taken>);

#[derive(Debug, Default, Clone, Copy)]
struct Taken {
    at_all: Duration,
    per_order: Duration,
}

impl Pace {
    /// How long a statement may take for so many orders.
    pub(super) fn limit(&self, orders: usize) -> Duration {
        let taken = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let orders = u32::try_from(orders).unwrap_or(u32::MAX);
        (AT_ALL.max(taken.at_all * 3) + PER_ORDER.max(taken.per_order * 3).saturating_mul(orders)).min(LONGEST)
    }

    /// Runs a closure of so many orders, and learns from one that succeeds.
    pub(super) async fn measured<T, E>(&self, orders: usize, closure: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let began = Instant::now();
        let result = closure.await;
        if result.is_ok() {
            self.learn(orders, began.elapsed());
        }
        result
    }

    /// The slowest of late counts, and is forgotten by and by.
    fn learn(&self, orders: usize, took: Duration) {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if orders < MANY {
            taken.at_all = took.max(taken.at_all.mul_f64(0.9));
        } else {
            let each = took / u32::try_from(orders).unwrap_or(u32::MAX);
            taken.per_order = each.max(taken.per_order.mul_f64(0.9));
        }
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
        assert_eq!(pace.measured(orders, closure).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_database_is_given_time_and_a_quick_one_is_not() {
        let pace = Pace::default();
        assert_eq!(pace.limit(1), AT_ALL + PER_ORDER);
        close(&pace, 1, Duration::from_millis(100)).await;
        assert!(pace.limit(1) >= Duration::from_millis(300));
        for _ in 0..50 {
            close(&pace, 1, Duration::from_millis(2)).await;
        }
        assert_eq!(pace.limit(1), AT_ALL + PER_ORDER);
        close(&pace, 100, Duration::from_millis(100)).await;
        assert!(pace.limit(200) >= Duration::from_millis(600));
        assert_eq!(pace.limit(100_000), LONGEST);
    }
}
