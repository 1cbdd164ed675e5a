//! The order service: takes orders, writes the row and then what a contestant needs to hear of it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    orders,
    orders::{Millis, Orders},
    shop::Shop,
    stage,
    support::{Redis, shop::key},
};

/// The sorted set of the delay queue.
pub const QUEUE: &str = "delayed";

/// How long customers have to pay.
pub const LIFETIME: Millis = 30 * 60 * 1_000;

/// How often new orders are written.
const TICK: Duration = Duration::from_millis(50);

/// Where orders are written.
#[derive(Debug, Clone)]
pub struct Intake {
    /// The rows.
    pub shop: Arc<Shop>,
    /// What comes besides.
    pub signal: Signal,
}

/// What is written besides the row.
#[derive(Debug, Clone)]
pub enum Signal {
    /// Nothing.
    None,
    /// A key that expires at the deadline.
    Key(Arc<Redis>),
    /// A member of a sorted set, scored by the deadline.
    Member(Arc<Redis>),
}

impl Intake {
    /// Takes orders by the thousand.
    pub async fn take(&self, orders: &Orders) {
        self.shop.take(orders).await;
        match &self.signal {
            Signal::None => {}
            Signal::Key(redis) => stage::write_keys(redis, orders),
            Signal::Member(redis) => add_members(redis, orders, 1_000),
        }
    }

    /// Takes the few orders that have come just now. Redis hears of each by itself, as from an order service, so that
    /// its load is the one that a shop would see.
    pub async fn take_each(&self, orders: &Orders) {
        self.shop.take(orders).await;
        match &self.signal {
            Signal::None => {}
            Signal::Key(redis) => {
                for number in orders.numbers.clone() {
                    redis.command(&["SET", &key(number), "1", "PXAT", &orders.deadline(number).to_string()]);
                }
            }
            Signal::Member(redis) => add_members(redis, orders, 1),
        }
    }
}

fn add_members(redis: &Redis, orders: &Orders, together: usize) {
    for part in orders.parts() {
        let members: Vec<[String; 2]> = part.into_iter().map(|(number, deadline)| [deadline.to_string(), number.to_string()]).collect();
        for some in members.chunks(together) {
            let words = ["ZADD", QUEUE].into_iter().chain(some.iter().flatten().map(String::as_str));
            redis.command(&words.collect::<Vec<_>>());
        }
    }
}

/// Takes new orders at a steady rate until it is stopped.
#[derive(Debug)]
pub struct Feeder {
    stop: CancellationToken,
    task: AbortOnDropHandle<i64>,
}

impl Feeder {
    /// Takes so many orders a second, the first with this number.
    pub fn start(intakes: Vec<Intake>, per_second: f64, first: i64) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(feed(intakes, per_second, first, stop.clone()));
        Self { stop, task: AbortOnDropHandle::new(task) }
    }

    /// Stops; returns the number that the next order would have had.
    pub async fn stop(self) -> i64 {
        self.stop.cancel();
        self.task.await.expect("the feeder does not fail")
    }
}

async fn feed(intakes: Vec<Intake>, per_second: f64, first: i64, stop: CancellationToken) -> i64 {
    let began = Instant::now();
    let mut next = first;
    let mut due_from = orders::now() + LIFETIME;
    while !stop.is_cancelled() {
        tokio::time::sleep(TICK).await;
        let target = first + (began.elapsed().as_secs_f64() * per_second) as i64;
        let due_until = orders::now() + LIFETIME;
        if target > next {
            let orders = Orders { numbers: next..target, due_from, over: due_until - due_from };
            for intake in &intakes {
                intake.take_each(&orders).await;
            }
            (next, due_from) = (target, due_until);
        }
    }
    next
}
