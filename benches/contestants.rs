//! Other ways of closing orders, each as well as it can be done simply.

use std::time::Duration;

use futures::StreamExt;
use redis::AsyncCommands;
use sqlx::{AssertSqlSafe, PgPool, SqlSafeStr, SqlStr, postgres::PgPoolOptions};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    intake::QUEUE,
    orders,
    shop::{CLOSED, Shop, UNPAID},
};

/// How many orders the listener closes at the same time.
const HANDS: u32 = 8;

/// Closes orders until it is dropped.
pub type Contestant = AbortOnDropHandle<()>;

async fn pool(shop: &Shop, connections: u32) -> PgPool {
    PgPoolOptions::new().max_connections(connections).connect(&shop.database.url).await.expect("PostgreSQL accepts a client")
}

/// Closes the orders that a condition names, if they are unpaid.
fn close(shop: &Shop, condition: &str) -> SqlStr {
    let set: String = shop.set().iter().map(|(column, value)| format!(", {column} = {value}")).collect();
    AssertSqlSafe(format!("UPDATE orders SET status = {CLOSED}{set} WHERE status = {UNPAID} AND {condition}")).into_sql_str()
}

/// The plain listener of the tutorials: one event, one SELECT, one UPDATE. Events wait in a queue without a bound, and
/// several are worked on at the same time.
pub async fn plain_listener(shop: &Shop, redis_url: &str) -> Contestant {
    let pool = pool(shop, HANDS).await;
    let close = close(shop, "order_no = $1");
    let client = redis::Client::open(redis_url).expect("a good URL");
    let mut events = client.get_async_pubsub().await.expect("Redis accepts a client");
    events.psubscribe("__keyevent@*__:expired").await.expect("Redis accepts a subscription");
    AbortOnDropHandle::new(tokio::spawn(async move {
        let closing = events.into_on_message().for_each_concurrent(HANDS as usize, async |event| {
            let key: String = event.get_payload().expect("a key is text");
            let number: i64 = key.trim_start_matches("order_").parse().expect("an order's number");
            let select = sqlx::query_scalar::<_, i32>("SELECT status FROM orders WHERE order_no = $1").bind(number);
            let status = select.fetch_optional(&pool).await.expect("SELECT");
            if status.map(i64::from) == Some(UNPAID) {
                sqlx::query(close.clone()).bind(number).execute(&pool).await.expect("UPDATE");
            }
        });
        closing.await;
    }))
}

/// A poller of the table: one UPDATE of everything that is due, at once and then so often.
pub async fn poller(shop: &Shop, every: Duration) -> Contestant {
    let pool = pool(shop, 1).await;
    let close = close(shop, "expires_at <= now()");
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut timer = tokio::time::interval(every);
        loop {
            timer.tick().await;
            sqlx::query(close.clone()).execute(&pool).await.expect("UPDATE");
        }
    }))
}

/// A delay queue in a sorted set of Redis, polled every second as delayed-job libraries do: what is due is taken
/// from the set in batches, and each batch is one UPDATE.
pub async fn delay_queue(shop: &Shop, redis_url: &str) -> Contestant {
    const BATCH: usize = 1_000;
    let pool = pool(shop, 1).await;
    let close = close(shop, "order_no = ANY($1) AND expires_at <= now()");
    let client = redis::Client::open(redis_url).expect("a good URL");
    let mut queue = client.get_multiplexed_async_connection().await.expect("Redis accepts a client");
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut timer = tokio::time::interval(Duration::from_secs(1));
        loop {
            timer.tick().await;
            let mut full = true;
            while full {
                let due: Vec<i64> =
                    queue.zrangebyscore_limit(QUEUE, "-inf", orders::now(), 0, BATCH as isize).await.expect("ZRANGEBYSCORE");
                full = due.len() == BATCH;
                if !due.is_empty() {
                    sqlx::query(close.clone()).bind(&due).execute(&pool).await.expect("UPDATE");
                    let _taken: usize = queue.zrem(QUEUE, &due).await.expect("ZREM");
                }
            }
        }
    }))
}
