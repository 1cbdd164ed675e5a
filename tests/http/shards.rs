//! Orders in several tables: a request about one order finds the shard that has it.

use reqwest::{Method, StatusCode};

use super::Asked;
use crate::support::{Database, Kind, Redis, Settings, daemon::order_closer, wait};

const HOUR: i64 = 3_600;

async fn shop() -> (Vec<Database>, Redis, Settings) {
    let databases = vec![Database::fresh(Kind::Postgres).await, Database::fresh(Kind::Postgres).await];
    for database in &databases {
        for table in 0..2 {
            let columns = "order_no bigint PRIMARY KEY, status integer NOT NULL DEFAULT 0, expires_at timestamptz";
            database.execute(&format!("CREATE TABLE orders_{table} ({columns})")).await;
            database.execute(&format!("CREATE INDEX ON orders_{table} (status, expires_at)")).await;
        }
    }
    let redis = Redis::start();
    let mut settings =
        Settings::new().set("orders.table", "ds_{0..1}.orders_{0..1}").set("redis.url", redis.url()).set("log.format", "json");
    for (number, database) in databases.iter().enumerate() {
        settings = settings.set(&format!("databases.ds_{number}"), database.url.as_str());
    }
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    (databases, redis, settings)
}

async fn take(database: &Database, table: usize, order: i64, due_in_seconds: i64) {
    let due = format!("clock_timestamp() + interval '{due_in_seconds} seconds'");
    database.execute(&format!("INSERT INTO orders_{table} (order_no, expires_at) VALUES ({order}, {due})")).await;
}

#[tokio::test]
async fn a_request_finds_the_shard_that_has_its_order() {
    let (databases, _redis, settings) = shop().await;
    take(&databases[1], 0, 1, HOUR).await;
    take(&databases[0], 1, 2, HOUR).await;
    take(&databases[1], 1, 2, HOUR).await;
    let asked = Asked::with(settings).await;
    wait::until("all shards are ready", async || asked.get("/readyz").await.0 == StatusCode::OK).await;
    let (status, order) = asked.json(Method::GET, "/orders/1").await;
    assert_eq!((status, &order["table"]), (StatusCode::OK, &"ds_1.orders_0".into()), "{order}");
    assert_eq!(asked.json(Method::GET, "/orders/9").await.0, StatusCode::NOT_FOUND);
    for (method, path) in [(Method::GET, "/orders/2"), (Method::POST, "/orders/2/close")] {
        let (status, refused) = asked.json(method, path).await;
        let error = refused["error"].as_str().expect("an error");
        assert!(status == StatusCode::CONFLICT && error.ends_with("add ?shard= with one of ds_0.orders_1, ds_1.orders_1"), "{refused}");
    }
    let (status, order) = asked.json(Method::GET, "/orders/2?shard=ds_0.orders_1").await;
    assert_eq!((status, &order["table"]), (StatusCode::OK, &"ds_0.orders_1".into()), "{order}");
    let (status, refused) = asked.json(Method::GET, "/orders").await;
    assert!(status == StatusCode::BAD_REQUEST && refused["error"].as_str().expect("an error").contains("several shards"), "{refused}");
    assert_eq!(asked.json(Method::GET, "/orders?shard=ds_1.orders_0&due=2h").await.1["orders"][0]["id"], "1");
    assert_eq!(asked.json(Method::GET, "/orders/2?shard=ds_7.orders_1").await.0, StatusCode::NOT_FOUND);
    assert_eq!(asked.json(Method::GET, "/targets?shard=ds_0.orders_1").await.0, StatusCode::CONFLICT);
    // One that is due is closed where it is.
    take(&databases[1], 1, 3, -1).await;
    wait::until_eq("closed", 4, async || databases[1].number("SELECT status FROM orders_1 WHERE order_no = 3").await).await;
    let (status, closed) = asked.json(Method::POST, "/orders/3/close").await;
    assert_eq!((status, &closed["outcome"]), (StatusCode::OK, &"settled".into()), "{closed}");
    asked.until_sample(r#"order_closer_passes_total{rule="orders",shard="ds_0.orders_1",pass="sweep"}"#, |passes| passes >= 1.0).await;
}

/// A pause over HTTP is one of all shards, and each says so.
#[tokio::test]
async fn a_pause_is_one_of_all_shards() {
    let (databases, _redis, settings) = shop().await;
    let asked = Asked::with(settings).await;
    wait::until("all shards are ready", async || asked.get("/readyz").await.0 == StatusCode::OK).await;
    assert_eq!(asked.post("/pause", r#"{"reason": "a test"}"#).await.0, StatusCode::OK);
    for shard in ["ds_0.orders_0", "ds_0.orders_1", "ds_1.orders_0", "ds_1.orders_1"] {
        let (status, state) = asked.json(Method::GET, &format!("/status?shard={shard}")).await;
        assert_eq!((status, &state["paused"], &state["shard"]), (StatusCode::OK, &true.into(), &shard.into()), "{state}");
    }
    let gate = |shard: &str| format!(r#"order_closer_paused{{rule="orders",shard="{shard}"}}"#);
    asked.until_sample(&gate("ds_1.orders_1"), |value| value == 1.0).await;
    take(&databases[1], 1, 1, -1).await;
    assert_eq!(asked.post("/resume", "{}").await.0, StatusCode::OK);
    wait::until_eq("closed", 4, async || databases[1].number("SELECT status FROM orders_1 WHERE order_no = 1").await).await;
}
