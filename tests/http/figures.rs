use std::{process::Stdio, time::Duration};

use reqwest::{Method, StatusCode};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Asked, TOKEN};
use crate::support::{Daemon, Kind, OneShot, Redis, Settings, Shop, daemon::order_closer, ports, wait};

/// Asked again where that was too often.
async fn figures(asked: &Asked) -> Value {
    wait::some("there are figures", async || {
        let (status, figures) = asked.json(Method::GET, "/figures").await;
        (status == StatusCode::OK).then_some(figures)
    })
    .await
}

#[tokio::test]
async fn they_say_what_is_due_and_overdue_and_what_was_closed() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings_with(&redis);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    // Half a minute from the edges of each five minutes.
    shop.orders_due_in(1..=7, 150_000).await;
    shop.orders_due_in(8..=10, 3_450_000).await;
    shop.orders_due_in(11..=12, 86_400_000).await;
    shop.orders_due_in(13..=17, -2_000).await;
    let mut payment = shop.database.begin().await;
    payment.execute("UPDATE orders SET paid_at = NULL WHERE order_no = 13").await;
    let asked = Asked::with(settings).await;
    wait::until("all figures are there", async || {
        let rule = figures(&asked).await["rules"][0].clone();
        rule["recent"]["hour"] == 4 && rule["overdue"]["held"] == 1 && rule["dead_letters"] == 0
    })
    .await;
    let figures = figures(&asked).await;
    let rule = &figures["rules"][0];
    assert_eq!((rule["name"].as_str(), rule["pending"].as_u64(), rule["pause"].is_null()), (Some("orders"), Some(12), true), "{figures}");
    assert_eq!(rule["due"], serde_json::json!([7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3]), "{figures}");
    assert_eq!(rule["recent"]["triggers"]["sweep"], 4, "{figures}");
    assert!(rule["recent"]["hour_ms"]["p50"].as_f64().unwrap() >= 2_000.0, "{figures}");
    assert_eq!(rule["recent"]["latest"].as_array().unwrap().len(), 4);
    let parts: Vec<_> =
        figures["parts"].as_array().unwrap().iter().map(|part| (part["name"].as_str().unwrap(), part["ok"].clone())).collect();
    assert_eq!(parts, [("database", Value::Bool(true)), ("Redis", Value::Bool(true)), ("notifications", Value::Bool(true))]);
    payment.rollback().await;
    asked.daemon.stop().await;
}

#[tokio::test]
async fn whoever_has_no_token_sees_them_without_ids_and_only_if_that_is_wanted() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings_with(&redis);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let marked = 424_242_424_242;
    shop.orders_due_in([marked], -1_000).await;
    let asked = Asked::with(settings.clone()).await;
    let paths = ["/figures", "/figures/stream"];
    for path in paths {
        assert_eq!(asked.get(path).await.0, StatusCode::UNAUTHORIZED, "{path}");
    }
    shop.until_all_settled().await;
    let all = figures(&asked).await;
    assert!(all.to_string().contains(&marked.to_string()), "{all}");
    asked.daemon.stop().await;

    shop.orders_due_in([marked + 1], -1_000).await;
    let asked = Asked::with(settings.set("http.read_only_page", true)).await;
    shop.until_all_settled().await;
    asked.post("/pause", &format!(r#"{{"reason": "because of {}"}}"#, marked + 1)).await;
    let is_told = async || figures(&asked).await["rules"][0]["pause"]["since"].as_str().is_some_and(|since| !since.is_empty());
    wait::until("the pause is told of", is_told).await;
    let (status, without) = asked.get("/figures").await;
    assert_eq!(status, StatusCode::OK);
    assert!(!without.contains(&(marked + 1).to_string()) && without.contains("\"hour\":1"), "{without}");
    assert!(!without.contains("127.0.0.1"), "no addresses: {without}");
    let all = figures(&asked).await;
    assert!(all.to_string().contains(&format!("because of {}", marked + 1)), "{all}");
    for path in paths {
        assert_eq!(asked.ask(Method::GET, path, Some("wrong")).await.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    assert_eq!(asked.ask(Method::POST, "/resume", None).await.status(), StatusCode::UNAUTHORIZED);
    asked.daemon.stop().await;
}

/// More watchers than there are places for: others are still answered, and a place that is left is there again.
#[tokio::test]
async fn many_who_watch_keep_nobody_from_asking() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let asked = Asked::start(&shop, &redis).await;
    let mut watching = Vec::new();
    for _ in 0..16 {
        let mut stream = asked.ask(Method::GET, "/figures/stream", Some(TOKEN)).await;
        assert_eq!(stream.status(), StatusCode::OK);
        let event = stream.chunk().await.unwrap().expect("figures");
        assert!(event.starts_with(b"data: {"), "{event:?}");
        watching.push(stream);
    }
    assert_eq!(asked.ask(Method::GET, "/figures/stream", Some(TOKEN)).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(asked.get("/livez").await.0, StatusCode::OK);
    watching.pop();
    wait::until("a place is free", async || asked.json(Method::GET, "/figures").await.0 == StatusCode::OK).await;
    // They hold nothing up.
    tokio::time::timeout(Duration::from_secs(20), asked.daemon.stop()).await.expect("it stops");
}

#[tokio::test]
async fn the_page_is_for_everybody_and_may_do_nothing_else() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let asked = Asked::start(&shop, &redis).await;
    let page = asked.ask(Method::GET, "/", None).await;
    assert_eq!(page.status(), StatusCode::OK);
    let header = |name: &str| page.headers()[name].to_str().unwrap().to_owned();
    let policy = header("content-security-policy");
    for part in [
        "default-src 'none'",
        "script-src 'sha256-",
        "style-src 'sha256-",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "trusted-types 'none'",
    ] {
        assert!(policy.contains(part), "{part}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!((header("x-frame-options"), header("x-content-type-options")), ("DENY".into(), "nosniff".into()));
    let text = page.text().await.unwrap();
    assert!(text.contains("data-access=\"token\"") && !text.contains(TOKEN));
    for outside in ["http://", "https://", "//cdn", "onclick=", "innerHTML", "eval("] {
        let mentioned = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!mentioned.contains(outside), "{outside}");
    }
    asked.daemon.stop().await;
}

fn at(settings: Settings, port: u16) -> Settings {
    settings.set("http.listen", format!("127.0.0.1:{port}"))
}

#[tokio::test]
async fn top_prints_them_once() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings_with(&redis);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let unset = order_closer(&settings, &["top", "--once"]).await.expect_code(78);
    assert!(unset.stderr.contains("http.listen"), "{}", unset.stderr);
    let settings = at(settings, ports::free());
    let away = order_closer(&settings, &["top", "--once"]).await.expect_code(69);
    assert!(away.stderr.contains("does not answer") && away.stderr.contains("http.listen"), "{}", away.stderr);
    shop.orders_due_in(1..=3, -2_000).await;
    shop.orders_due_in(4..=1_503, 150_000).await;
    let daemon = Daemon::start(&settings.clone().set("http.token", TOKEN));
    daemon.until_logged("answering over HTTP").await;
    shop.until_status(3, crate::support::shop::CLOSED).await;
    let refused = order_closer(&settings, &["top", "--once"]).await.expect_code(78);
    assert!(refused.stderr.contains("token"), "{}", refused.stderr);
    let settings = settings.set("http.token", TOKEN);
    let once = async || order_closer(&settings, &["top", "--once"]).await.expect_code(0).stdout;
    let printed =
        wait::some("all was looked at", async || Some(once().await).filter(|text| text.contains("0 open") && text.contains("on time")))
            .await;
    for text in ["orders close on time", "1,500 in the next hour", "3 in 1 h", "sweep 3 (100.0 %)", "latest closures", "✓ works"] {
        assert!(printed.contains(text), "{text}:\n{printed}");
    }
    assert!(!printed.contains('\x1b'));
    let json = order_closer(&settings, &["top", "--json"]).await.expect_code(0).json();
    assert_eq!(json["rules"][0]["pending"], 1_500, "{json}");
    daemon.stop().await;
}

/// On a terminal it draws until it is told to stop, and leaves the terminal as it was.
#[tokio::test]
async fn top_draws_on_a_terminal() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = at(shop.settings_with(&redis), ports::free()).set("http.token", TOKEN);
    let daemon = Daemon::start(&settings);
    daemon.until_logged("answering over HTTP").await;
    let command = OneShot::with(&settings, &["top"]).on_terminal();
    let mut top = command.command().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut keys, mut screen) = (top.stdin.take().unwrap(), top.stdout.take().unwrap());
    let (mut drawn, mut wants_to_leave) = (Vec::new(), false);
    while tokio::time::timeout(wait::LIMIT, screen.read_buf(&mut drawn)).await.expect("it goes on drawing").unwrap() > 0 {
        let times = String::from_utf8_lossy(&drawn).matches("members").count();
        if times >= 3 && !std::mem::replace(&mut wants_to_leave, true) {
            keys.write_all(b"q").await.unwrap();
        }
    }
    assert!(top.wait().await.unwrap().success());
    let drawn = String::from_utf8(drawn).unwrap();
    assert!(drawn.trim_start().starts_with("\x1b[?1049h") && drawn.trim_end().ends_with("\x1b[?25h\x1b[?1049l"), "{drawn:?}");
    daemon.stop().await;
}

/// Nobody pays for figures that nobody looks at, and many who look pay for one.
#[tokio::test]
async fn the_table_is_counted_only_for_those_who_watch_and_rarely() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings_with(&redis).set("log.level", "info,sqlx::query=debug");
    let asked = Asked::with(settings).await;
    let counts = || asked.daemon.lines().iter().filter(|line| line.contains("some_of_them") && line.contains("expires_at")).count();
    shop.orders_due_in(1..=3, -1_000).await;
    shop.until_all_settled().await;
    assert_eq!(counts(), 0, "nobody watches");
    for _ in 0..20 {
        assert_eq!(asked.json(Method::GET, "/figures").await.0, StatusCode::OK);
    }
    assert_eq!(counts(), 13, "twelve stretches and what comes later, once");
    asked.daemon.stop().await;
}
