//! What the daemon logs.

use serde_json::Value;

use super::SECRET;
use crate::support::{Daemon, Kind, OneShot, Redis, Shop, order_closer, ports, wait};

/// A daemon whose URLs have passwords, in a shop with a few orders due soon.
async fn daemon(shop: &Shop, redis: &Redis, format: &str, level: &str) -> Daemon {
    let settings = shop.settings_with(redis).set("log.format", format).set("log.level", level).set("log.summary", "200ms");
    let daemon = Daemon::start(&settings);
    redis.until_subscribed().await;
    shop.orders_due_in(1..=5, 300).await;
    shop.until_all_settled().await;
    daemon
}

fn redis_with_secret() -> Redis {
    Redis::options().with_notifications().password(SECRET).start()
}

fn number(record: &Value, field: &str) -> u64 {
    record[field].as_u64().unwrap_or_else(|| panic!("no {field}: {record}"))
}

#[tokio::test]
async fn json_is_one_object_a_line() {
    let redis = redis_with_secret();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = daemon(&shop, &redis, "json", "debug").await;
    let records = |message: &str| -> Vec<Value> { daemon.records().into_iter().filter(|record| record["message"] == message).collect() };
    let total = |message: &str| records(message).iter().map(|record| number(record, "closed")).sum::<u64>();
    // One line a batch, one each log.summary; both have every closure, once.
    wait::until_eq("the closures in batches", 5, async || total("batch done")).await;
    wait::until_eq("the closures in summaries", 5, async || total("summary")).await;
    let known = records("summary").len();
    wait::until("there are more summaries", async || records("summary").len() > known + 1).await;
    daemon.stop().await;
    let lines = daemon.lines();
    for line in &lines {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(record["timestamp"].is_string() && record["level"].is_string() && record["message"].is_string(), "{line}");
        assert!(!line.contains(SECRET), "{line}");
        assert!(record["level"] != "WARN" && record["level"] != "ERROR", "{line}");
    }
    let batch = &records("batch done")[0];
    assert_eq!(batch["level"], "DEBUG");
    assert!(number(batch, "orders") >= 1 && batch["took_ms"].is_number(), "{batch}");
    let last = records("order-closer stopped");
    assert_eq!(last.len(), 1);
    let by_trigger: u64 = ["expired", "pacer", "sweep"].iter().map(|trigger| number(&last[0], trigger)).sum();
    assert_eq!((number(&last[0], "closed"), by_trigger), (5, 5), "{}", last[0]);
    // The start names both servers, without their passwords.
    let start = &records("order-closer starts")[0];
    assert_eq!(start["redis"], redis.url().replace(SECRET, "***"));
    assert_eq!(start["version"], env!("CARGO_PKG_VERSION"));
    shop.assert_outcome().await;
}

#[tokio::test]
async fn text_is_for_people_and_info_has_no_batches() {
    let redis = redis_with_secret();
    let shop = Shop::open(Kind::Sqlite).await;
    let daemon = daemon(&shop, &redis, "text", "info").await;
    daemon.until_logged("summary").await;
    daemon.stop().await;
    assert_eq!(daemon.records().len(), 0);
    assert_eq!(daemon.logged("batch done"), 0);
    assert_eq!(daemon.logged("order-closer stopped closed=5"), 1, "{:#?}", daemon.lines());
    for line in daemon.lines() {
        assert!(line.contains(" INFO "), "{line}");
        // No colours where nobody sees them.
        assert!(!line.contains(SECRET) && !line.contains('\u{1b}'), "{line}");
    }
}

#[tokio::test]
async fn errors_alone() {
    let redis = redis_with_secret();
    let shop = Shop::open(Kind::Sqlite).await;
    let daemon = daemon(&shop, &redis, "json", "error").await;
    daemon.stop().await;
    assert_eq!(daemon.lines(), [] as [&str; 0]);
}

/// A filter for something else leaves our own warnings.
#[tokio::test]
async fn warnings_come_through_a_filter_that_does_not_name_us() {
    let shop = Shop::open(Kind::Sqlite).await;
    let nowhere = format!("redis://127.0.0.1:{}", ports::free());
    let daemon = Daemon::start(&shop.settings().set("redis.url", nowhere).set("log.level", "nonsense=5"));
    daemon.until_logged("no keyspace notifications").await;
    daemon.stop().await;
    assert_eq!(daemon.logged("\"INFO\""), 0, "{:#?}", daemon.lines());
}

/// The error has the command that fixes it.
#[tokio::test]
async fn a_redis_that_may_not_be_told_to_notify() {
    let redis = Redis::options().password(SECRET).start();
    let shop = Shop::open(Kind::Sqlite).await;
    let daemon = Daemon::start(&shop.settings_with(&redis).set("redis.enable_notifications", false));
    let line = daemon.until_logged("Redis does not publish expired keys").await;
    let record: Value = serde_json::from_str(&line).expect("JSON");
    let command = record["fix"].as_str().unwrap_or_else(|| panic!("no fix: {record}"));
    assert_eq!(command, format!("redis-cli -p {} --askpass CONFIG SET notify-keyspace-events Ex", redis.port()));
    daemon.stop().await;
    assert_eq!(daemon.logged(SECRET), 0, "{:#?}", daemon.lines());
}

/// A wrong password: the log says so, and not what it was.
#[tokio::test]
async fn a_refused_login_keeps_its_secret() {
    let redis = Redis::options().with_notifications().password("right").start();
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings().set("redis.url", redis.url_as("default", SECRET)).set("log.level", "trace");
    let daemon = Daemon::start(&settings);
    daemon.until_logged("WRONGPASS").await;
    daemon.stop().await;
    assert_eq!(daemon.logged(SECRET), 0, "{:#?}", daemon.lines());
}

/// An order that its database rejects: each try is a warning, the last an error; others close.
#[tokio::test]
async fn a_rejected_order_ends_as_an_error() {
    let redis = redis_with_secret();
    let shop = Shop::open(Kind::Postgres).await;
    shop.database.execute("ALTER TABLE orders ADD CONSTRAINT cursed CHECK (status <> 4 OR order_no <> 2)").await;
    shop.orders_due_in(1..=3, -1_000).await;
    let settings = shop
        .settings_with(&redis)
        .add("[close]\nretry = { attempts = 3, initial = '20ms', max = '100ms' }")
        .set("sweep.every", "50ms")
        .set("log.level", "info");
    let daemon = Daemon::start(&settings);
    let line = daemon.until_logged("order can't be closed").await;
    let record: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&record["level"], &record["order"], number(&record, "attempts")), (&"ERROR".into(), &"2".into(), 3));
    assert!(record["reason"].as_str().is_some_and(|reason| reason.contains("cursed")), "{record}");
    assert_eq!(daemon.logged("close failed; will retry this order alone"), 2);
    // Mended, it is left to a hand: this daemon does not try it again, `close` does.
    shop.database.execute("ALTER TABLE orders DROP CONSTRAINT cursed").await;
    shop.order(4, -1_000).await;
    shop.until_status(4, crate::support::shop::CLOSED).await;
    shop.assert_outcome_except(&[2]).await;
    order_closer(&settings, &["close", "2"]).await.expect_code(0);
    assert_eq!(daemon.logged("\"ERROR\""), 1);
    daemon.stop().await;
    shop.assert_outcome().await;
}

/// A daemon that can't run says so in its log's own format.
#[tokio::test]
async fn the_last_word_is_a_line_of_the_log() {
    let shop = Shop::open(Kind::Sqlite).await;
    for (format, begins) in [("json", "{"), ("text", "2")] {
        let settings = shop.settings().set("log.format", format).set("orders.deadline.unit", "s");
        let finished = order_closer(&settings, &["run"]).await.expect_code(78);
        let lines: Vec<&str> = finished.stderr.lines().collect();
        assert!(lines.iter().all(|line| line.starts_with(begins)), "{finished:#?}");
        let last = lines.last().expect("it says something");
        assert!(last.contains("ERROR") && last.contains("orders.deadline"), "{last}");
    }
}

/// A summary says what is listened to, what waits and what was given up, and of lateness only where something was closed.
#[tokio::test]
async fn a_summary_of_what_waits_and_what_is_dead() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.database.execute("ALTER TABLE orders ADD CONSTRAINT cursed CHECK (status <> 4 OR order_no <> 1)").await;
    let settings = shop
        .settings_with(&redis)
        .add("[close]\nretry = { attempts = 2, initial = '20ms', max = '100ms' }")
        .set("sweep.every", "50ms")
        .set("log.summary", "100ms");
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let daemon = Daemon::start(&settings);
    let summary =
        async |is_it: fn(&Value) -> bool| wait::some("such a summary", async || daemon.said("summary").into_iter().find(&is_it)).await;
    let quiet = summary(|summary| summary["subscribed"] == true).await;
    assert!(quiet.get("lateness_p50_ms").is_none(), "nothing was closed: {quiet}");
    assert_eq!((number(&quiet, "waiting"), number(&quiet, "held"), number(&quiet, "dead_letters")), (0, 0, 0));
    let payment = {
        // It is held before it is due.
        shop.order(2, 3_000).await;
        shop.begin_payment(2).await
    };
    // Not while it is tried again.
    summary(|summary| summary["held"] == 1 && summary["waiting"] == 1).await;
    payment.commit().await;
    shop.orders(&[(1, -1_000), (3, -1_000)]).await;
    summary(|summary| summary["dead_letters"] == 1).await;
    let closed = summary(|summary| summary["closed"] == 1).await;
    assert!(closed["lateness_p50_ms"].as_f64().is_some_and(|millis| millis >= 1_000.0), "{closed}");
    daemon.stop().await;
    shop.assert_outcome_except(&[1]).await;
}

/// The journal is told how bad each line is; a file is not.
#[tokio::test]
async fn lines_for_the_journal_have_priorities() {
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings().set("orders.deadline.unit", "s");
    for (format, stream, begin) in [
        ("text", "$(stat -c %d:%i log)", ["<6>2", "<3>2"]),
        ("text", "1:2", ["2", "2"]),
        ("text", "", ["2", "2"]),
        ("json", "$(stat -c %d:%i log)", ["{", "{"]),
    ] {
        let line = format!("touch log; JOURNAL_STREAM={stream} order-closer run 2>>log; cat log");
        let finished = OneShot::with(&settings.clone().set("log.format", format), &[]).in_shell(&line).run().await;
        let lines: Vec<&str> = finished.stdout.lines().collect();
        assert_eq!(lines.len(), 2, "{finished:#?}");
        for (line, begin) in lines.iter().zip(begin) {
            assert!(line.starts_with(begin), "{stream}: {line}");
        }
    }
}
