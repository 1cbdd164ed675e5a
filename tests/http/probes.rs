use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::{Asked, TOKEN, client};
use crate::support::{Daemon, Kind, Redis, Shop, daemon::order_closer, ports, process, proxy::Proxy, wait};

#[tokio::test]
async fn it_is_ready_while_its_database_can_be_written() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let to_database = Proxy::before(&shop.database.url);
    let settings = shop.settings_with(&redis).set("database.url", to_database.url(&shop.database.url));
    let asked = Asked::with(settings).await;
    let all = serde_json::json!({ "ready": true, "missing": [], "degraded": [] });
    wait::until("it is ready, and nothing is wrong", async || {
        let (status, text) = asked.get("/readyz").await;
        status == StatusCode::OK && serde_json::from_str::<Value>(&text).unwrap() == all
    })
    .await;
    redis.freeze();
    wait::until("Redis is missed", async || asked.get("/readyz").await.1.contains("no keyspace notifications")).await;
    assert_eq!(asked.get("/readyz").await.0, StatusCode::OK, "orders close on time all the same");
    redis.thaw();
    to_database.black_hole();
    wait::until("it is not ready", async || asked.get("/readyz").await.0 == StatusCode::SERVICE_UNAVAILABLE).await;
    assert!(asked.get("/readyz").await.1.contains("the database can't be written"));
    assert_eq!(asked.get("/livez").await.0, StatusCode::OK, "no restart would help");
    to_database.pass();
    wait::until("it is ready again", async || asked.get("/readyz").await.0 == StatusCode::OK).await;
    asked.daemon.stop().await;
}

/// Where there is no Redis on purpose, nothing is missed, and no gauge says so.
#[tokio::test]
async fn it_misses_no_redis_that_there_is_not() {
    let shop = Shop::open(Kind::Postgres).await;
    order_closer(&shop.settings().set("redis.url", "none"), &["migrate"]).await.expect_code(0);
    let asked = Asked::with(shop.settings().set("redis.url", "none")).await;
    let all = serde_json::json!({ "ready": true, "missing": [], "degraded": [] });
    wait::until("it is ready, and nothing is wrong", async || {
        let (status, text) = asked.get("/readyz").await;
        status == StatusCode::OK && serde_json::from_str::<Value>(&text).unwrap() == all
    })
    .await;
    asked.until_sample("order_closer_database_up", |up| up == 1.0).await;
    assert_eq!(asked.samples().await.get("order_closer_subscribed"), None);
    asked.daemon.stop().await;
}

#[tokio::test]
async fn a_container_asks_by_a_command() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings_with(&redis);
    let unset = order_closer(&settings, &["healthcheck"]).await.expect_code(78);
    assert!(unset.stderr.contains("http.listen"), "{}", unset.stderr);
    let port = ports::free();
    let settings = settings.set("http.listen", format!("0.0.0.0:{port}"));
    order_closer(&settings, &["healthcheck"]).await.expect_code(69);
    let daemon = Daemon::start(&settings);
    daemon.until_logged("listening for expired keys").await;
    wait::until("it is ready", async || order_closer(&settings, &["healthcheck"]).await.code == Some(0)).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_port_in_use_stops_nothing_and_is_taken_when_it_is_free() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let address = format!("127.0.0.1:{}", ports::free());
    let other = TcpListener::bind(&address).await.unwrap();
    let daemon = Daemon::start(&shop.settings_with(&redis).set("http.listen", address.as_str()));
    let line = daemon.until_logged("this address can't be had").await;
    assert!(line.contains(&address) && line.contains("ERROR"), "{line}");
    shop.orders_due_in(1..=3, -1_000).await;
    shop.until_all_settled().await;
    drop(other);
    daemon.until_logged("answering over HTTP").await;
    daemon.stop().await;
}

#[tokio::test]
async fn without_the_token_there_are_probes_and_metrics_only() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    shop.orders_due_in(1..=1, 3_600_000).await;
    let asked = Asked::start(&shop, &redis).await;
    for path in ["/livez", "/metrics"] {
        assert_eq!(asked.get(path).await.0, StatusCode::OK, "{path}");
    }
    for (method, path) in [(Method::GET, "/orders/1"), (Method::POST, "/orders/1/close")] {
        for token in [None, Some(""), Some("wrong"), Some(&TOKEN[1..]), Some(&*format!("{TOKEN}x"))] {
            let refused = asked.ask(method.clone(), path, token).await;
            assert_eq!(refused.status(), StatusCode::UNAUTHORIZED, "{method} {path} {token:?}");
            assert!(!refused.text().await.unwrap().contains(TOKEN));
        }
    }
    assert_eq!(asked.ask(Method::GET, "/orders/1", Some(TOKEN)).await.status(), StatusCode::OK);
    assert_eq!(asked.ask(Method::GET, "/nothing", Some(TOKEN)).await.status(), StatusCode::NOT_FOUND);
    asked.daemon.stop().await;
    assert_eq!(asked.daemon.logged(TOKEN), 0);
}

#[tokio::test]
async fn without_a_token_in_the_configuration_nothing_else_is_served() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let address = format!("127.0.0.1:{}", ports::free());
    let daemon = Daemon::start(&shop.settings_with(&redis).set("http.listen", address.as_str()));
    daemon.until_logged("answering over HTTP").await;
    let refused = client().post(format!("http://{address}/orders/1/close")).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert!(refused.text().await.unwrap().contains("http.token_file"));
    daemon.stop().await;
}

/// More connections than are answered, none of which ever says what it wants.
#[tokio::test]
async fn silent_callers_keep_nobody_from_asking_for_long() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let asked = Asked::start(&shop, &redis).await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        let mut caller = TcpStream::connect(&asked.address).await.unwrap();
        caller.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n").await.unwrap();
        silent.push(caller);
    }
    shop.orders_due_in(1..=3, -1_000).await;
    shop.until_all_settled().await;
    let answered = asked.client.get(format!("http://{}/livez", asked.address)).timeout(Duration::from_secs(60)).send().await;
    assert_eq!(answered.unwrap().status(), StatusCode::OK);
    let mut first = silent.remove(0);
    let mut end = Vec::new();
    first.read_to_end(&mut end).await.ok();
    asked.daemon.stop().await;
}

/// Before it waits for anything.
#[tokio::test]
async fn a_token_file_that_can_not_be_used() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings_with(&redis).set("http.listen", format!("127.0.0.1:{}", ports::free()));
    for (name, content, says) in [("missing", None, "No such file"), ("short", Some("hunter2"), "16 visible ASCII characters")] {
        let folder = process::folder();
        let file = folder.path().join(name);
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let refused = order_closer(&settings.clone().set("http.token_file", file.display().to_string()), &["run"]).await.expect_code(78);
        assert!(refused.stderr.contains("http.token_file") && refused.stderr.contains(says), "{}", refused.stderr);
        assert!(!refused.stderr.contains("hunter2"));
    }
}
