//! Several rules: each request is about one of them, and what one is in trouble with is said with its name.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::Asked;
use crate::support::{Daemon, Database, Kind, Redis, Settings, daemon::order_closer, ports, receiver::webhook, wait};

/// A table of orders that are paid in two ways, and one of reviews: three rules.
pub(super) struct Rules {
    pub(super) database: Database,
    redis: Redis,
    more: String,
}

impl Rules {
    pub(super) async fn open() -> Self {
        let rules = Self { database: Database::fresh(Kind::Postgres).await, redis: Redis::start(), more: String::new() };
        rules.create("orders").await;
        rules.create("reviews").await;
        order_closer(&rules.settings(), &["migrate"]).await.expect_code(0);
        rules
    }

    async fn create(&self, table: &str) {
        let columns = "order_no text PRIMARY KEY, status integer NOT NULL DEFAULT 0, kind integer, expires_at timestamptz";
        self.database.execute(&format!("CREATE TABLE {table} ({columns})")).await;
        self.database.execute(&format!("CREATE INDEX ON {table} (status, expires_at)")).await;
    }

    pub(super) fn settings(&self) -> Settings {
        let rule = |name: &str, orders: &str| {
            format!(
                "[[rules]]\nname = '{name}'\nkey_prefix = 'a_'\norders = {{ {orders} }}\nclose.retry = {{ attempts = 1, initial = '100ms' }}\n"
            )
        };
        let rules = [
            rule("card", "filter = 'kind = 1'"),
            rule("transfer", "filter = 'kind = 2', closed = 5"),
            rule("reviews", "table = 'reviews'"),
        ];
        Settings::new()
            .set("database.url", self.database.url.as_str())
            .set("redis.url", self.redis.url())
            .set("log.format", "json")
            .add(&format!("{}\n{}", rules.concat(), self.more))
    }

    /// Takes an order, due in so many seconds.
    pub(super) async fn take(&self, table: &str, id: &str, kind: i32, seconds: i64) {
        let due = format!("clock_timestamp() + interval '{seconds} seconds'");
        self.database.execute(&format!("INSERT INTO {table} VALUES ('{id}', 0, {kind}, {due})")).await;
    }

    pub(super) async fn until_status(&self, table: &str, id: &str, status: i64) {
        let statement = format!("SELECT status FROM {table} WHERE order_no = '{id}'");
        wait::until_eq(&format!("the status of {id}"), status, async || self.database.number(&statement).await).await;
    }
}

#[tokio::test]
async fn each_request_is_about_one_rule() {
    let shop = Rules::open().await;
    for (table, id, kind) in [("orders", "1", 1), ("orders", "2", 2), ("reviews", "1", 0)] {
        shop.take(table, id, kind, 1_800).await;
    }
    let asked = Asked::with(shop.settings()).await;
    wait::until("all rules are ready", async || asked.get("/readyz").await.0 == StatusCode::OK).await;
    for (method, path) in [
        (Method::GET, "/orders"),
        (Method::GET, "/orders/1"),
        (Method::POST, "/orders/1/close"),
        (Method::GET, "/dead-letters"),
        (Method::GET, "/dead-letters/1"),
        (Method::POST, "/dead-letters/1/retry"),
        (Method::GET, "/targets"),
        (Method::GET, "/status"),
    ] {
        let (status, answer) = asked.json(method.clone(), path).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{method} {path}: {answer}");
        assert_eq!(answer["error"], "there are several rules; add ?rule= with one of card, reviews, transfer", "{method} {path}");
        let (status, answer) = asked.json(method.clone(), &format!("{path}?rule=cash")).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{method} {path}: {answer}");
        assert_eq!(answer["error"], "there is no rule \"cash\", but card, reviews, transfer", "{method} {path}");
    }
    for (rule, id, state) in [("card", "1", "not_due"), ("reviews", "1", "not_due"), ("transfer", "2", "not_due")] {
        let (status, shown) = asked.json(Method::GET, &format!("/orders/{id}?rule={rule}")).await;
        assert_eq!((status, shown["rule"].as_str(), shown["state"].as_str()), (StatusCode::OK, Some(rule), Some(state)), "{shown}");
        let (status, closed) = asked.json(Method::POST, &format!("/orders/{id}/close?rule={rule}")).await;
        assert_eq!((status, closed["outcome"].as_str()), (StatusCode::CONFLICT, Some("not_due")), "{closed}");
        let (status, coming) = asked.json(Method::GET, &format!("/orders?rule={rule}&due=1h")).await;
        let ids: Vec<&str> =
            coming["orders"].as_array().expect("orders").iter().map(|order| order["id"].as_str().expect("an id")).collect();
        assert_eq!((status, ids), (StatusCode::OK, vec![id]), "{coming}");
    }
    // Another rule's order is not closed through this one.
    shop.database.execute("UPDATE orders SET kind = 9, expires_at = now() - interval '1 hour' WHERE order_no = '2'").await;
    let (_, strange) = asked.json(Method::POST, "/orders/2/close?rule=card").await;
    assert_ne!(strange["outcome"], "closed", "{strange}");
    assert_eq!(shop.database.number("SELECT status FROM orders WHERE order_no = '2'").await, 0);
    asked.daemon.stop().await;
}

#[tokio::test]
async fn one_rule_is_paused_or_all_are() {
    let shop = Rules::open().await;
    let asked = Asked::with(shop.settings()).await;
    let paused = async || {
        let mut paused = Vec::new();
        for rule in ["card", "reviews", "transfer"] {
            let (_, status) = asked.json(Method::GET, &format!("/status?rule={rule}")).await;
            assert_eq!(status["rule"], rule);
            paused.extend((status["paused"] == true).then_some(rule));
        }
        paused
    };
    let (_, status) = asked.post("/pause", r#"{"rule": "transfer", "reason": "the bank is away", "for": "1h"}"#).await;
    assert_eq!((status["rule"].as_str(), status["paused"].as_bool()), (Some("transfer"), Some(true)), "{status}");
    assert_eq!(paused().await, ["transfer"]);
    asked.until_sample("order_closer_paused{rule=\"transfer\"}", |value| value == 1.0).await;
    shop.take("orders", "waits", 2, -1).await;
    for (table, kind) in [("orders", 1), ("reviews", 0)] {
        shop.take(table, "closes", kind, -1).await;
        shop.until_status(table, "closes", 4).await;
    }
    asked.until_sample("order_closer_overdue_orders{rule=\"transfer\",state=\"paused\"}", |orders| orders == 1.0).await;
    let samples = asked.samples().await;
    assert_eq!(samples.get("order_closer_paused{rule=\"card\"}"), Some(&0.0), "{samples:#?}");
    let (_, degraded) = asked.json(Method::GET, "/readyz").await;
    let degraded: Vec<&str> = degraded["degraded"].as_array().expect("a list").iter().map(|what| what.as_str().expect("a text")).collect();
    assert!(degraded.contains(&"transfer: closing is paused: order-closer status"), "{degraded:?}");

    asked.post("/pause", r#"{"reason": "all of it"}"#).await;
    assert_eq!(paused().await, ["card", "reviews", "transfer"], "of both tables");
    let (_, status) = asked.post("/resume", r#"{"rule": "transfer"}"#).await;
    assert_eq!(status["paused"], true, "all are paused still: {status}");
    assert_eq!(shop.database.number("SELECT status FROM orders WHERE order_no = 'waits'").await, 0);
    asked.post("/resume", "").await;
    assert!(paused().await.is_empty());
    shop.until_status("orders", "waits", 5).await;
    assert_eq!(asked.post("/pause", r#"{"rule": "cash", "reason": "x"}"#).await.0, StatusCode::NOT_FOUND);
    asked.daemon.stop().await;
}

#[tokio::test]
async fn dead_letters_and_targets_are_those_of_a_rule_and_its_table() {
    let mut shop = Rules::open().await;
    shop.more = webhook("till", &format!("http://127.0.0.1:{}/", ports::free()), "");
    for table in ["orders", "reviews"] {
        shop.database
            .execute(&format!("ALTER TABLE {table} ADD CONSTRAINT cursed CHECK (status = 0 OR order_no NOT LIKE 'cursed%')"))
            .await;
    }
    let asked = Asked::with(shop.settings()).await;
    for (table, id, kind) in [("orders", "cursed 1", 1), ("orders", "cursed 2", 2), ("reviews", "cursed 1", 0)] {
        shop.take(table, id, kind, -1).await;
    }
    for (table, id, kind) in [("orders", "one", 1), ("orders", "two", 2), ("reviews", "one", 0)] {
        shop.take(table, id, kind, -1).await;
    }
    let listed = async |rule: &str| -> Vec<Value> {
        let (status, listed) = asked.json(Method::GET, &format!("/dead-letters?rule={rule}")).await;
        assert_eq!(status, StatusCode::OK, "{listed}");
        let letters = listed["dead_letters"].as_array().expect("a list").clone();
        letters.into_iter().filter(|letter| letter["kind"] == "order").collect()
    };
    for (rule, id) in [("card", "cursed 1"), ("transfer", "cursed 2"), ("reviews", "cursed 1")] {
        wait::until(&format!("the dead letter of {rule} is listed"), async || !listed(rule).await.is_empty()).await;
        let letters = listed(rule).await;
        assert!(letters.len() == 1 && letters[0]["id"] == id && letters[0]["rule"] == rule, "{letters:#?}");
    }
    // Retried in one rule alone.
    for table in ["orders", "reviews"] {
        shop.database.execute(&format!("ALTER TABLE {table} DROP CONSTRAINT cursed")).await;
    }
    let (status, done) = asked.json(Method::POST, "/dead-letters/cursed%201/retry?rule=card").await;
    assert_eq!((status, done["outcome"].as_str()), (StatusCode::OK, Some("put_back")), "{done}");
    shop.until_status("orders", "cursed 1", 4).await;
    assert_eq!(shop.database.number("SELECT status FROM reviews WHERE order_no = 'cursed 1'").await, 0);
    assert_eq!((listed("card").await.len(), listed("transfer").await.len(), listed("reviews").await.len()), (0, 1, 1));

    // Two orders of one table and one review were closed, and one more order; nobody is told of any.
    let name = "order_closer_events_waiting{target=\"till\"}";
    asked.until_sample(name, |events| events == 4.0).await;
    let figures = wait::some("the target's figures", async || {
        let (status, figures) = asked.json(Method::GET, "/figures").await;
        (status == StatusCode::OK && figures["targets"][0]["waiting"] == 4).then_some(figures)
    })
    .await;
    assert_eq!(figures["targets"].as_array().map(Vec::len), Some(1), "{figures:#}");
    let waiting = async |rule: &str| asked.json(Method::GET, &format!("/targets?rule={rule}")).await.1;
    assert_eq!(waiting("card").await, waiting("transfer").await, "of one table");
    assert_ne!(waiting("card").await, waiting("reviews").await);
    asked.daemon.stop().await;
}

/// A rule whose table is not there closes nothing, and that is said wherever others are asked.
#[tokio::test]
async fn a_rule_that_has_not_begun_is_missed() {
    let shop = Rules::open().await;
    shop.database.execute("DROP TABLE reviews").await;
    let asked = Asked::with(shop.settings()).await;
    let missing = "reviews: its orders are not closed: its table is waited for, as the log says";
    let (_, ready) = asked.json(Method::GET, "/readyz").await;
    assert!(ready["ready"] == false && ready["missing"].as_array().is_some_and(|all| all.contains(&json!(missing))), "{ready}");
    let (status, answer) = asked.json(Method::GET, "/status?rule=reviews").await;
    assert_eq!((status, answer["error"].as_str()), (StatusCode::SERVICE_UNAVAILABLE, Some(missing)));
    shop.take("orders", "1", 1, -1).await;
    shop.until_status("orders", "1", 4).await;
    shop.create("reviews").await;
    wait::until("all rules are ready", async || asked.get("/readyz").await.0 == StatusCode::OK).await;
    assert_eq!(asked.json(Method::GET, "/status?rule=reviews").await.0, StatusCode::OK);
    asked.daemon.stop().await;
}

#[tokio::test]
async fn top_and_status_show_all_rules() {
    let shop = Rules::open().await;
    let port = ports::free();
    let settings = shop.settings().set("http.listen", format!("127.0.0.1:{port}")).set("http.token", super::TOKEN);
    let daemon = Daemon::start(&settings);
    daemon.until_logged("answering over HTTP").await;
    shop.take("orders", "closed by transfer", 2, -1).await;
    shop.until_status("orders", "closed by transfer", 5).await;
    let shown = wait::some("all rules are shown", async || {
        let shown = order_closer(&settings, &["top", "--once"]).await;
        ["card", "transfer", "reviews", "closed by transfer"].iter().all(|text| shown.stdout.contains(text)).then_some(shown)
    })
    .await;
    assert_eq!(shown.code, Some(0), "{shown:#?}");
    daemon.stop().await;
}
