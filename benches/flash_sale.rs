//! A flash sale: orders that all fall due at one instant, closed by the bound or by daemons.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::{
    bound, lateness, orders,
    orders::Orders,
    shop::Shop,
    stage,
    stage::Plan,
    support::{Daemon, Kind, Redis, wait},
    usage,
};

/// How long daemons may take.
const PATIENCE: Duration = Duration::from_mins(5);

/// How daemons closed a flash sale.
#[derive(Debug, Clone, Copy)]
pub struct Closing {
    /// From the deadline to the last commit.
    pub took: Duration,
    /// How often the daemons looked at an order.
    pub looks: u64,
    /// The processor time of all daemons, from before they see what will be due.
    pub used: Duration,
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
    let plan = Plan { orders, over: 0, articles, daemons, log: "info,order_closer::close=debug" };
    let (orders, daemons) = stage::set(shop, redis, plan).await;
    let used = || -> Duration { daemons.iter().map(|daemon| usage::processor_time(daemon.pid())).sum() };
    let before = used();
    orders::sleep_until(orders.due_from).await;
    // The daemons' logs tell, so that nobody asks the database while it is busy.
    wait::within(PATIENCE, "the daemons have closed every order", async || {
        tokio::time::sleep(Duration::from_millis(100)).await;
        daemons.iter().flat_map(batches).map(|(closed, _)| closed).sum::<i64>() >= orders.count()
    })
    .await;
    let used = used() - before;
    let looks = stage::stop(&daemons).await;
    shop.assert_all_closed("order-closer").await;
    let deadline = SystemTime::UNIX_EPOCH + Duration::from_millis(orders.due_from.unsigned_abs());
    let last = if shop.database.kind == Kind::Postgres {
        let due = lateness::fell_due(shop, orders.due_from, orders.due_from + 1).await;
        let last = due.iter().filter_map(|due| due.committed).max().expect("orders were closed");
        SystemTime::UNIX_EPOCH + Duration::from_micros(last.unsigned_abs())
    } else {
        daemons.iter().flat_map(batches).map(|(_, at)| at).max().expect("batches were closed")
    };
    Closing { took: last.duration_since(deadline).expect("no order is closed early"), looks, used }
}

/// The batches in which a daemon closed orders: how many, and when it was done with them.
fn batches(daemon: &Daemon) -> impl Iterator<Item = (i64, SystemTime)> {
    let time = |record: &Value| {
        let text = record["timestamp"].as_str().expect("a line has its time");
        humantime::parse_rfc3339(text).expect("a time as in RFC 3339")
    };
    let batch = move |record: Value| (record["closed"].as_i64().expect("a batch counts its orders"), time(&record));
    daemon.said("batch done").into_iter().map(batch).filter(|(closed, _)| *closed > 0)
}
