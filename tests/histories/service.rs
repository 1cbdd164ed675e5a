//! An order service that creates, extends, pays and cancels, and keeps an account of it.

use std::time::{Duration, SystemTime};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::time::Instant;

use super::history::{CANCELLED, Event, Histories};
use crate::support::{
    Redis, Shop,
    redis::unix_millis,
    shop::{PAID, UNPAID, key},
};

/// The pause between two things that it does.
const PAUSE: Duration = Duration::from_millis(10);

/// An order whose key outlives its deadline by this much waits for its key.
const OUTLIVES: i64 = 90_000;

/// A key is asked for when its row is seen ahead, and no deadline waits for the answer: so long is enough on a busy machine.
const SEEN: i64 = 2_500;

/// The service; it reaches Redis and the database itself, whatever is done to the daemon's connections.
#[derive(Debug)]
pub struct Service<'a> {
    shop: &'a Shop,
    redis: &'a Redis,
    random: StdRng,
    histories: Histories,
    last: i64,
}

fn now() -> i64 {
    unix_millis(SystemTime::now())
}

impl<'a> Service<'a> {
    /// Whose choices follow from this seed.
    pub fn new(shop: &'a Shop, redis: &'a Redis, seed: u64) -> Self {
        Self { shop, redis, random: StdRng::seed_from_u64(seed), histories: Histories::new(), last: 0 }
    }

    /// Works for so long, and returns its account.
    pub async fn run(mut self, time: Duration) -> Histories {
        let end = Instant::now() + time;
        while Instant::now() < end {
            match self.random.random_range(0..10) {
                0 => self.extend().await,
                1 => self.settle(PAID, Event::Paid).await,
                2 => self.settle(CANCELLED, Event::Cancelled).await,
                _ => self.create().await,
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.histories
    }

    async fn create(&mut self) {
        self.last += 1;
        let (number, at) = (self.last, now());
        let mut deadline = at + self.random.random_range(300..4_000);
        let expires = match self.random.random_range(0..20) {
            0 | 1 => None,
            2 => {
                deadline = deadline.max(at + SEEN);
                Some(deadline + OUTLIVES)
            }
            _ => Some(deadline),
        };
        // Before the row, as a service does that lets the key be wrong rather than missing.
        if let Some(expires) = expires {
            self.write_key(number, expires);
        }
        self.shop.orders(&[(number, 3_600_000)]).await;
        let set = format!("UPDATE orders SET expires_at = to_timestamp({deadline}::numeric / 1000) WHERE order_no = {number}");
        self.shop.database.execute(&set).await;
        self.note(number, at, Event::Created { deadline, key: expires });
    }

    async fn extend(&mut self) {
        let Some(number) = self.any() else { return };
        let (at, deadline) = (now(), now() + self.random.random_range(300..4_000));
        // The key first: it may only outlive its row.
        self.write_key(number, deadline);
        let set = format!(
            "UPDATE orders SET expires_at = to_timestamp({deadline}::numeric / 1000) WHERE order_no = {number} AND status = {UNPAID}"
        );
        let changed = self.shop.database.execute(&set).await;
        self.note(number, at, if changed == 1 { Event::Extended { deadline } } else { Event::TooLate });
    }

    async fn settle(&mut self, status: i64, event: Event) {
        let Some(number) = self.any() else { return };
        let at = now();
        let set = format!("UPDATE orders SET status = {status} WHERE order_no = {number} AND status = {UNPAID}");
        let changed = self.shop.database.execute(&set).await;
        self.note(number, at, if changed == 1 { event } else { Event::TooLate });
    }

    /// One of the last hundred.
    fn any(&mut self) -> Option<i64> {
        (self.last > 0).then(|| self.random.random_range((self.last - 100).max(1)..=self.last))
    }

    /// A Redis that is away gets no key, as in any shop.
    fn write_key(&self, number: i64, expires: i64) {
        self.redis.try_command(&["SET", &key(number), "1", "PXAT", &expires.to_string()]).ok();
    }

    fn note(&mut self, number: i64, at: i64, event: Event) {
        self.histories.entry(number).or_default().add(at, event);
    }
}
