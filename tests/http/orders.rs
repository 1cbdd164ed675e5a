use reqwest::{Method, StatusCode};

use super::Asked;
use crate::support::{Kind, Redis, Shop, daemon::order_closer, wait};

#[tokio::test]
async fn an_order_is_shown_as_its_row_has_it() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders_due_in(1..=1, 600_000).await;
    let asked = Asked::start(&shop, &redis).await;
    let (status, shown) = asked.json(Method::GET, "/orders/1").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!((shown["id"].as_str(), shown["status"].as_str(), shown["unpaid"].as_bool()), (Some("1"), Some("0"), Some(true)));
    let left = shown["seconds_left"].as_f64().unwrap();
    assert!((500.0..=600.0).contains(&left), "{shown}");
    assert_eq!(asked.json(Method::GET, "/orders/2").await.0, StatusCode::NOT_FOUND);
    assert_eq!(asked.json(Method::GET, "/orders/two").await.0, StatusCode::BAD_REQUEST);
    asked.daemon.stop().await;
}

/// A client that sees its countdown end asks, again and again.
#[tokio::test]
async fn an_order_is_closed_when_it_is_due_and_not_before() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders_due_in(1..=1, 600_000).await;
    shop.orders(&[(2, 1_500)]).await;
    // So that nobody but the caller looks at it.
    let settings = shop.settings_with(&redis).set("sweep.every", "10m").set("sweep.ahead", "0s");
    let asked = Asked::with(settings).await;
    let (status, answer) = asked.json(Method::POST, "/orders/1/close").await;
    assert_eq!((status, answer["outcome"].as_str()), (StatusCode::CONFLICT, Some("not_due")), "{answer}");
    assert!(answer["seconds_left"].as_f64().unwrap() > 500.0);
    let mut outcome = (StatusCode::OK, serde_json::Value::Null);
    wait::until("the second is closed", async || {
        outcome = asked.json(Method::POST, "/orders/2/close").await;
        outcome.0 == StatusCode::OK
    })
    .await;
    assert_eq!(outcome.1["outcome"], "closed", "{outcome:?}");
    let again = asked.json(Method::POST, "/orders/2/close").await;
    assert_eq!((again.0, again.1["outcome"].as_str(), again.1["status"].as_str()), (StatusCode::OK, Some("settled"), Some("4")));
    assert_eq!(asked.json(Method::POST, "/orders/3/close").await.0, StatusCode::NOT_FOUND);
    asked.daemon.stop().await;
    shop.assert_outcome().await;
}

/// It waits for its key, however often somebody asks.
#[tokio::test]
async fn a_disputed_order_is_not_closed() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders_due_in(1..=1, -1_000).await;
    redis.command(&["SET", "order_1", "1", "PX", "600000"]);
    let asked = Asked::start(&shop, &redis).await;
    for _ in 0..3 {
        let (status, answer) = asked.json(Method::POST, "/orders/1/close").await;
        assert_eq!((status, answer["outcome"].as_str()), (StatusCode::CONFLICT, Some("disputed")), "{answer}");
    }
    wait::until("it is said what it waits for", async || {
        asked.json(Method::GET, "/orders/1").await.1["waits"].as_str().is_some_and(|why| why.contains("key"))
    })
    .await;
    // The daemon remembers when its key was to expire, whatever becomes of that.
    redis.command(&["DEL", "order_1"]);
    let said = asked.json(Method::GET, "/orders/1").await.1;
    assert_eq!((said["state"].as_str(), said["key"]["state"].as_str()), (Some("disputed"), Some("none")), "{said:#}");
    assert!(said["sentence"].as_str().unwrap().contains("was to expire later") && said["next"]["at"].is_string(), "{said:#}");
    asked.daemon.stop().await;
    assert_eq!(shop.closed().await, 0);
}

#[tokio::test]
async fn closing_is_paused_and_resumed() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings_with(&redis);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let asked = Asked::with(settings).await;
    for (body, status) in [
        ("", 400),
        ("{}", 400),
        (r#"{"reason": "x", "for": "soon"}"#, 400),
        (r#"{"reason": " "}"#, 400),
        (r#"{"reason": "x", "rule": "y"}"#, 404),
    ] {
        assert_eq!(asked.post("/pause", body).await.0.as_u16(), status, "{body}");
    }
    let (status, paused) = asked.post("/pause", r#"{"reason": "the provider is down", "for": "1h"}"#).await;
    assert_eq!((status, paused["paused"].as_bool(), paused["who"].as_str()), (StatusCode::OK, Some(true), Some("http")), "{paused}");
    asked.until_sample(r#"order_closer_paused{rule="orders"}"#, |value| value == 1.0).await;
    shop.orders_due_in(1..=5, -1_000).await;
    let (status, answer) = asked.json(Method::POST, "/orders/1/close").await;
    assert_eq!((status, answer["outcome"].as_str()), (StatusCode::SERVICE_UNAVAILABLE, Some("paused")));
    asked.until_sample(r#"order_closer_overdue_orders{rule="orders",state="paused"}"#, |value| value == 5.0).await;
    // For longer than a daemon may do nothing that closes what is its.
    let sampled = r#"order_closer_overdue_sampled_timestamp_seconds{rule="orders"}"#;
    let before = asked.samples().await[sampled];
    asked.until_sample(sampled, |value| value > before + 3.0).await;
    assert_eq!(asked.samples().await[r#"order_closer_fit{rule="orders"}"#], 1.0, "it does not leave them to others");
    let ready = asked.get("/readyz").await;
    assert!(ready.0 == StatusCode::OK && ready.1.contains("closing is paused") && !ready.1.contains("unfit"), "{ready:?}");
    let (status, resumed) = asked.post("/resume", "").await;
    assert_eq!((status, resumed["paused"].as_bool()), (StatusCode::OK, Some(false)));
    shop.until_all_settled().await;
    asked.daemon.stop().await;
    shop.assert_outcome().await;
}

/// A daemon knows of its own tries what nobody else can.
#[tokio::test]
async fn what_keeps_an_order_from_closing_is_said() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders_due_in(1..=2, -60_000).await;
    shop.database.execute("ALTER TABLE orders ADD CONSTRAINT cursed CHECK (status <> 4 OR order_no <> 2)").await;
    let payment = shop.begin_payment(1).await;
    let asked = Asked::start(&shop, &redis).await;
    let explained = async |id: &str| asked.json(Method::GET, &format!("/orders/{id}")).await.1;
    for (id, state, says) in [("1", "held", "another transaction holds it"), ("2", "refused", "cursed")] {
        wait::until(&format!("order {id} is {state}"), async || {
            let said = explained(id).await;
            let sentence = said["sentence"].as_str().unwrap_or_default();
            said["state"] == state && sentence.contains(says) && said["last_error"].is_string() && said["next"]["trigger"] == "sweep"
        })
        .await;
    }
    payment.commit().await;
    wait::until("its payment is seen", async || explained("1").await["state"] == "settled").await;
    shop.database.execute("ALTER TABLE orders DROP CONSTRAINT cursed").await;
    shop.until_all_settled().await;
    asked.daemon.stop().await;
}

#[tokio::test]
async fn what_falls_due_is_listed_in_postgres() {
    what_falls_due_is_listed(Kind::Postgres).await;
}

#[tokio::test]
async fn what_falls_due_is_listed_in_mariadb() {
    what_falls_due_is_listed(Kind::MariaDb).await;
}

#[tokio::test]
async fn what_falls_due_is_listed_in_sqlite() {
    what_falls_due_is_listed(Kind::Sqlite).await;
}

/// Page by page, each order once; what is not within the time asked for is none of it.
async fn what_falls_due_is_listed(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let orders: Vec<(i64, i64)> = (1..=25).map(|number| (number, 600_000 + (number / 3) * 1_000)).collect();
    shop.orders(&orders).await;
    shop.orders(&[(100, 7_200_000), (101, 600_000)]).await;
    assert!(shop.pay(101).await);
    let asked = Asked::start(&shop, &redis).await;
    let (mut found, mut path) = (Vec::new(), "/orders?due=1h&limit=4".to_owned());
    loop {
        let (status, page) = asked.json(Method::GET, &path).await;
        assert_eq!((status, page["coming"].as_u64(), page["overdue"].as_u64()), (StatusCode::OK, Some(25), Some(0)), "{page:#}");
        found.extend(page["orders"].as_array().unwrap().iter().map(|order| order["id"].as_str().unwrap().parse::<i64>().unwrap()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/orders?due=1h&limit=4&after={next}");
    }
    assert_eq!(found, (1..=25).collect::<Vec<_>>());
    let (_, later) = asked.json(Method::GET, "/orders?due=3h&limit=1000").await;
    assert_eq!((later["coming"].as_u64(), later["orders"].as_array().unwrap().len()), (Some(26), 26));
    asked.daemon.stop().await;
}
