//! A flash sale: orders that all fall due at one instant, closed by the bound or by daemons.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::{
    bound, lateness, orders,
    orders::{Millis, Orders},
    servers,
    shop::Shop,
    support::{Daemon, Kind, Redis, shop::key, wait},
};

/// How long before the deadline everything must be ready: the daemon's sweep looks two seconds ahead.
const HEAD_START: Millis = 4_000;

/// How long the last order may take.
const PATIENCE: Duration = Duration::from_mins(5);

/// How daemons closed a flash sale.
#[derive(Debug, Clone, Copy)]
pub struct Closing {
    /// From the deadline to the last commit.
    pub took: Duration,
    /// How often the daemons looked at an order.
    pub looks: u64,
}

/// The bound closes so many orders of these articles.
pub async fn by_bound(shop: &mut Shop, orders: u32, articles: u32) -> Duration {
    shop.reset(Some(articles)).await;
    let orders = Orders { numbers: 1..i64::from(orders) + 1, due_from: orders::now() - 1, over: 0 };
    shop.take(&orders).await;
    shop.settle().await;
    let took = bound::close_all(shop, orders.numbers).await;
    shop.assert_all_closed("the bound").await;
    took
}

/// So many daemons close so many orders of these articles, which have keys in this Redis.
pub async fn by_daemons(shop: &mut Shop, redis: &Redis, orders: u32, articles: u32, daemons: u32) -> Closing {
    let mut preparation = 1_000 + Millis::from(orders) / 10;
    loop {
        shop.reset(Some(articles)).await;
        redis.command(&["FLUSHALL"]);
        let settings = shop.settings(redis).set("log.level", "info,order_closer::close=debug");
        let mut running = Vec::new();
        for _ in 0..daemons {
            running.push(servers::daemon(&settings).await);
        }
        let orders = Orders { numbers: 1..i64::from(orders) + 1, due_from: orders::now() + preparation + HEAD_START, over: 0 };
        shop.take(&orders).await;
        write_keys(redis, &orders);
        shop.settle().await;
        if orders::now() + HEAD_START <= orders.due_from {
            return until_closed(shop, &orders, running).await;
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

async fn until_closed(shop: &Shop, orders: &Orders, daemons: Vec<Daemon>) -> Closing {
    orders::sleep_until(orders.due_from).await;
    // The daemons' logs tell, so that nobody asks the database while it is busy.
    let closed = || daemons.iter().flat_map(batches).map(|(closed, _)| closed).sum::<i64>();
    wait::within(PATIENCE, "the daemons have closed every order", async || {
        tokio::time::sleep(Duration::from_millis(100)).await;
        closed() >= orders.count()
    })
    .await;
    let looks = stop(&daemons).await;
    shop.assert_all_closed("order-closer").await;
    let deadline = SystemTime::UNIX_EPOCH + Duration::from_millis(orders.due_from.unsigned_abs());
    let last = if shop.database.kind == Kind::Postgres {
        let dues = lateness::fell_due(shop, orders.due_from, orders.due_from + 1).await;
        let last = dues.iter().filter_map(|due| due.committed).max().expect("orders were closed");
        SystemTime::UNIX_EPOCH + Duration::from_micros(last.unsigned_abs())
    } else {
        daemons.iter().flat_map(batches).map(|(_, at)| at).max().expect("batches were closed")
    };
    Closing { took: last.duration_since(deadline).expect("no order is closed early"), looks }
}

/// The batches of a daemon in which it closed orders: how many, and when they were done.
fn batches(daemon: &Daemon) -> impl Iterator<Item = (i64, SystemTime)> {
    let time =
        |record: &Value| record["timestamp"].as_str().and_then(|text| humantime::parse_rfc3339(text).ok()).expect("a line has its time");
    let batch = move |record: Value| (record["closed"].as_i64().expect("a batch counts its orders"), time(&record));
    daemon.said("batch done").into_iter().map(batch).filter(|(closed, _)| *closed > 0)
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
