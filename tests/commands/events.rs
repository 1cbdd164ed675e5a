//! `order-closer migrate` and `order-closer events`: the tables are made, and tell what was closed.

use super::reconcile::on_every_database;
use crate::support::{Daemon, Kind, Shop, order_closer, ports};

on_every_database! {
    closures_are_listed => closures_are_listed_in_postgres, closures_are_listed_in_mariadb, closures_are_listed_in_sqlite;
}

async fn closures_are_listed(kind: Kind) {
    let shop = Shop::open(kind).await;
    // Neither command needs Redis.
    let settings = shop.settings().set("redis.url", format!("redis://127.0.0.1:{}", ports::free())).set("events.enabled", true);
    let settings = settings.set("events.include", vec!["order_no", "status"]);
    let missing = order_closer(&settings, &["events"]).await.expect_code(78);
    assert!(missing.stderr.contains("order-closer migrate"), "{missing:#?}");
    let made = order_closer(&settings, &["migrate"]).await.expect_code(0);
    assert_eq!((made.stdout.as_str(), made.stderr.as_str()), ("the tables order_closer_* are created, version 8\n", ""));
    let again = order_closer(&settings, &["migrate"]).await.expect_code(0);
    assert_eq!(again.stdout, "the tables order_closer_* are up to date, version 8\n");
    assert_eq!(order_closer(&settings, &["events"]).await.expect_code(0).stdout, "");

    shop.orders(&[(1, -60_000), (2, -60_000), (3, 600_000)]).await;
    order_closer(&settings, &["close", "1", "3"]).await.expect_code(0);
    order_closer(&settings, &["reconcile"]).await.expect_code(0);
    let listed = order_closer(&settings, &["events", "--json"]).await.expect_code(0);
    let lines: Vec<serde_json::Value> = listed.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON on each line")).collect();
    assert_eq!(lines.len(), 2, "{listed:#?}");
    for (line, (order, trigger)) in lines.iter().zip([("1", "request"), ("2", "reconcile")]) {
        assert_eq!((&line["order_id"], &line["trigger"]), (&order.into(), &trigger.into()), "{line}");
        assert_eq!(line["order"], serde_json::json!({ "order_no": order.parse::<i64>().expect("a number"), "status": 4 }));
        let lateness = line["lateness_ms"].as_f64().expect("a number");
        assert!((60_000.0..120_000.0).contains(&lateness), "{line}");
    }
    let one = order_closer(&settings, &["events", "--order", "2"]).await.expect_code(0);
    assert!(one.stdout.lines().count() == 1 && one.stdout.contains("order 2  closed 6"), "{one:#?}");
    let none = order_closer(&settings, &["events", "--since", "1ms"]).await.expect_code(0);
    assert_eq!(none.stdout, "");
    shop.assert_outcome().await;
}

/// Nothing is closed without its event when events were asked for: a daemon waits for the tables, a command does not.
#[tokio::test]
async fn nothing_is_closed_without_the_tables_that_it_needs() {
    let shop = Shop::open(Kind::Postgres).await;
    shop.order(1, -60_000).await;
    let settings = shop.settings().set("redis.url", format!("redis://127.0.0.1:{}", ports::free())).set("events.enabled", true);
    let daemon = Daemon::start(&settings);
    daemon.until_logged("order-closer migrate").await;
    for command in [&["reconcile"][..], &["close", "1"]] {
        let refused = order_closer(&settings, command).await.expect_code(78);
        assert!(refused.stderr.contains("events.enabled is true, but there are no tables order_closer_*"), "{refused:#?}");
    }
    shop.assert_outcome_except(&[1]).await;
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
}

/// What a webhook's settings have to be, and that none of its secrets is told.
#[tokio::test]
async fn a_webhook_that_can_not_be() {
    const URL: &str = "https://user:hunter2@shop.example/hunter2/events?token=hunter2";
    const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";
    let webhook = |name: &str, url: &str, rest: &str| format!("[[events.webhooks]]\nname = '{name}'\nurl = '{url}'\n{rest}\n");
    let good = webhook("a", URL, &format!("secrets = ['{SECRET}']"));
    for (toml, needle) in [
        (webhook("a", URL, ""), "secrets are missing"),
        (webhook("a", "ftp://shop.example/hunter2", "secrets = []"), "begins with https://"),
        (webhook("stream", URL, ""), "is the name of the Redis Stream"),
        (webhook("a b", URL, ""), "is not a name"),
        (webhook("a", URL, "secrets = 'hunter2'"), "takes a list"),
        (webhook("a", URL, "secrets = ['hunter2']"), "doesn't begin with whsec_"),
        (webhook("a", URL, "secrets = ['whsec_hunter2!']"), "is not in base64"),
        (webhook("a", URL, "secrets = ['whsec_aHVudGVyMg==']"), "has 7 bytes"),
        (format!("{good}concurrency = 0"), "concurrency must be from 1 to 256"),
        (format!("{good}timeout = '0s'"), "timeout is 0s"),
        (format!("{good}{good}"), "name another one has"),
        (format!("{good}secret = 'x'"), "secret_files"),
    ] {
        let refused = order_closer(&crate::support::Settings::new().add(&toml), &["config"]).await.expect_code(78);
        assert!(refused.stderr.contains(needle) && refused.stderr.contains("order-closer.toml"), "{needle:?}: {refused:#?}");
        assert!(!refused.stderr.contains("hunter2"), "{refused:#?}");
    }
    let shown = order_closer(&crate::support::Settings::new().add(&good), &["config"]).await.expect_code(0);
    assert!(shown.stdout.contains("https://shop.example/***") && shown.stdout.contains("whsec_***"), "{shown:#?}");
    assert!(!shown.stdout.contains("hunter2") && !shown.stdout.contains(SECRET), "{shown:#?}");
}

/// With several tables what is said is what helps, whichever of them comes last.
#[tokio::test]
async fn a_target_of_one_of_several_tables_is_known() {
    let shop = Shop::open(Kind::Sqlite).await;
    let webhook = |list: &str, name: &str| {
        let secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";
        format!("[[{list}.webhooks]]\nname = '{name}'\nurl = 'http://127.0.0.1:1'\nsecrets = ['{secret}']\n")
    };
    let both = [webhook("events", "till"), webhook("timers", "bell")].concat();
    let settings = shop.settings().add(&both).set("events.enabled", true).set("timers.enabled", true);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    for (verb, name, said) in [
        ("drop", "till", "till is in the configuration; remove it there first"),
        ("drop", "bell", "bell is in the configuration; remove it there first"),
        ("drop", "tilll", "no target is called \"tilll\", and no event waits for one; did you mean till?"),
        ("resume", "tilll", "no target is called \"tilll\", and no event waits for one; did you mean till?"),
        ("resume", "bel", "no target is called \"bel\", and no event waits for one; did you mean bell?"),
    ] {
        let refused = order_closer(&settings, &["targets", verb, name]).await.expect_code(64);
        assert!(refused.stderr.contains(said), "{verb} {name}: {refused:#?}");
    }
    order_closer(&settings, &["targets", "resume", "till"]).await.expect_code(0);
}
