//! Every closure is appended to the Redis Stream, at least once, also when Redis was away.

use std::collections::{BTreeMap, BTreeSet};

use super::{listening, webhooks::until_delivered};
use crate::support::{Kind, Redis, Settings, Shop, order_closer, redis::Keep, wait};

const KEY: &str = "orders:closed";

async fn shop_with(kind: Kind, redis: &Redis, max_len: i64) -> (Shop, Settings) {
    let shop = Shop::open(kind).await;
    let events = "[events]\nenabled = true\ninclude = ['status']\nretry = { attempts = 500, initial = '50ms', max = '100ms' }\n";
    let settings = shop.settings_with(redis).add(&format!("{events}[events.stream]\nkey = '{KEY}'\nmax_len = {max_len}"));
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    (shop, settings)
}

/// The fields of each entry.
fn entries(redis: &Redis) -> Vec<BTreeMap<String, String>> {
    let fields = |entry: &crate::support::redis::Reply| {
        let fields: Vec<String> = entry.array()[1].array().iter().map(|field| field.text()).collect();
        fields.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    };
    redis.command(&["XRANGE", KEY, "-", "+"]).array().iter().map(fields).collect()
}

/// Each closure's event is in the stream, and nothing else.
async fn assert_appended(shop: &Shop, redis: &Redis) {
    let rows = shop.database.rows("SELECT order_id, CAST(id AS CHAR(36)) FROM order_closer_events").await;
    let text = |field: &Option<String>| field.clone().expect("never NULL");
    let events: BTreeSet<(String, String)> = rows.iter().map(|row| (text(&row[0]), text(&row[1]))).collect();
    let appended: BTreeSet<(String, String)> =
        entries(redis).into_iter().map(|entry| (entry["order_id"].clone(), entry["id"].clone())).collect();
    assert_eq!(appended, events);
    assert_eq!(events.len(), shop.assert_outcome().await.closed.len());
}

#[tokio::test]
async fn each_closure_is_appended() {
    let redis = Redis::start();
    let (shop, settings) = shop_with(Kind::MariaDb, &redis, 100_000).await;
    let daemon = listening(&settings).await;
    shop.orders_due_in(1..=500, 1_000).await;
    shop.write_keys(&redis, 0).await;
    shop.until_all_settled().await;
    until_delivered(&shop).await;
    daemon.stop().await;
    assert_appended(&shop, &redis).await;
    let entries = entries(&redis);
    assert_eq!(entries.len(), 500, "nothing failed, so once each");
    for entry in entries {
        let names: Vec<&str> = entry.keys().map(String::as_str).collect();
        assert_eq!(names, ["closed_at", "deadline", "id", "instance", "lateness_ms", "order", "order_id", "rule", "source", "trigger"]);
        assert_eq!(entry["order"].replace(' ', ""), "{\"status\":4}");
        assert!(entry["closed_at"].ends_with('Z') && entry["closed_at"] >= entry["deadline"], "{entry:?}");
        assert!(entry["lateness_ms"].parse::<f64>().is_ok_and(|lateness| lateness >= 0.0), "{entry:?}");
    }
}

#[tokio::test]
async fn a_stream_is_kept_short() {
    let redis = Redis::start();
    let (shop, settings) = shop_with(Kind::Sqlite, &redis, 200).await;
    shop.orders_due_in(1..=1_000, -1_000).await;
    let daemon = listening(&settings).await;
    shop.until_all_settled().await;
    until_delivered(&shop).await;
    daemon.stop().await;
    // Redis cuts whole nodes of a hundred entries.
    let length = redis.command(&["XLEN", KEY]).integer();
    assert!((200..=400).contains(&length), "{length} entries");
}

#[tokio::test]
async fn redis_away_while_orders_close() {
    let mut redis = Redis::start();
    let (shop, settings) = shop_with(Kind::Postgres, &redis, 100_000).await;
    let daemon = listening(&settings.set("events.retry.attempts", 3)).await;
    redis.kill();
    shop.orders_due_in(1..=300, 500).await;
    shop.until_all_settled().await;
    daemon.until_logged("the target fails; asking it less often").await;
    assert_eq!(shop.database.number("SELECT count(*) FROM order_closer_deliveries WHERE due_at IS NULL").await, 0);
    redis.start_again(Keep::Nothing);
    until_delivered(&shop).await;
    daemon.stop().await;
    assert_appended(&shop, &redis).await;
    assert_eq!(entries(&redis).len(), 300, "what was given up while Redis was away is not sent later");
}

#[tokio::test]
async fn a_key_that_is_no_stream() {
    let redis = Redis::start();
    let (shop, settings) = shop_with(Kind::Sqlite, &redis, 100_000).await;
    redis.command(&["SET", KEY, "mine"]);
    shop.orders_due_in(1..=5, -1_000).await;
    let daemon = listening(&settings.set("log.level", "debug")).await;
    let failure = daemon.until_logged("delivery failed; will retry").await;
    assert!(failure.contains("WRONGTYPE"), "{failure}");
    wait::until("all are closed", async || shop.closed().await == 5).await;
    redis.command(&["DEL", KEY]);
    until_delivered(&shop).await;
    daemon.stop().await;
    assert_appended(&shop, &redis).await;
}
