//! The stage is set: tables and keys are filled, daemons listen, and the first order falls due when all is ready.

use std::time::Duration;

use crate::{
    orders,
    orders::{Millis, Orders},
    servers,
    shop::Shop,
    support::{Daemon, Redis, shop::key, wait},
};

/// How long before the first deadline everything is ready: the daemon's sweep looks two seconds ahead.
const HEAD_START: Millis = 4_000;

/// How long the last order may take.
const PATIENCE: Duration = Duration::from_mins(5);

/// What is to be closed, and by how many.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How many orders.
    pub orders: u32,
    /// Over how many milliseconds their deadlines are spread; 0: all are due at once.
    pub over: Millis,
    /// Of how many articles.
    pub articles: u32,
    /// How many daemons close them.
    pub daemons: u32,
    /// What the daemons log.
    pub log: &'static str,
}

/// Fills the shop and Redis anew, and starts the daemons.
pub async fn set(shop: &mut Shop, redis: &Redis, plan: Plan) -> (Orders, Vec<Daemon>) {
    let mut preparation = 1_000 + Millis::from(plan.orders) / 20;
    loop {
        shop.reset(Some(plan.articles)).await;
        redis.command(&["FLUSHALL"]);
        let settings = shop.settings(redis).set("log.level", plan.log);
        let mut daemons = Vec::new();
        for _ in 0..plan.daemons {
            daemons.push(servers::daemon(&settings).await);
        }
        let due_from = orders::now() + preparation + HEAD_START;
        let orders = Orders { numbers: 1..i64::from(plan.orders) + 1, due_from, over: plan.over };
        shop.take(&orders).await;
        write_keys(redis, &orders);
        shop.settle().await;
        if orders::now() + HEAD_START <= due_from {
            return (orders, daemons);
        }
        preparation *= 2;
    }
}

/// Writes the keys of orders as an order service does.
pub fn write_keys(redis: &Redis, orders: &Orders) {
    for part in orders.parts() {
        let keys: Vec<(String, Millis)> = part.into_iter().map(|(number, deadline)| (key(number), deadline)).collect();
        redis.set_all_until(&keys);
    }
}

/// Waits until every order that falls due until then is closed. Asks once a second, for which the index is enough.
pub async fn until_closed(shop: &Shop, moment: Millis) {
    orders::sleep_until(moment).await;
    wait::within(PATIENCE, "every order that fell due is closed", async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        shop.unpaid_due_until(moment).await == 0
    })
    .await;
}

/// Stops daemons, and adds up how often they looked at an order.
pub async fn stop(daemons: &[Daemon]) -> u64 {
    let mut looks = 0;
    for daemon in daemons {
        daemon.stop().await;
        let summary = daemon.summary();
        looks += ["closed", "settled", "not_due", "not_found", "locked", "rejected"].map(|count| summary.count(count)).iter().sum::<u64>();
    }
    looks
}
