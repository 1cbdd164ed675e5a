//! Timers: a row is told to its own target at its time, never early, at least once, and not at all when it was cancelled or
//! moved in time.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::on_each_database;
use crate::support::{
    Daemon, Database, Kind, Redis, Settings, order_closer,
    receiver::{Behaviour, Received, Receiver},
    wait,
};

on_each_database! {
    a_timer_is_told_to_its_own_target
    a_registration_counts_if_it_is_no_older
    what_changes_before_it_fires_counts
    a_target_says_what_becomes_of_its_timer
}

#[tokio::test]
async fn an_entry_of_the_stream_is_a_timer() {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (database, settings) = open(Kind::Postgres, &redis, &receiver).await;
    let settings = settings.set("timers.intake", "order-closer:timers").set("sweep.oldest", "none");
    let add = |id: &str, key: &str, rest: &[&str]| {
        let entry = [&["XADD", "order-closer:timers", id, "kind", "reminder", "key", key, "target", "a"], rest].concat();
        redis.command(&entry).text()
    };
    // `in` counts from when an entry was added: these have waited for longer than that.
    add("1700000000000-1", "1", &["in", "1h"]);
    add("1700000000000-2", "2", &["due", "2023-11-14T22:13:20.000001Z", "generation", "2", "data", "{\"a\":1}"]);
    let daemon = started(&settings).await;
    until_received(&receiver, 2).await;
    let due = "SELECT due_at FROM order_closer_timers ORDER BY key";
    assert_eq!(database.column(due).await, [1_700_003_600_000_000_i64, 1_700_000_000_000_001].map(|due| Some(due.to_string())));
    let told: BTreeMap<i64, Value> = receiver.received().iter().map(|one| (one.order(), one.json()["data"]["data"].clone())).collect();
    assert_eq!(told, [(1, json!({})), (2, json!({ "a": 1 }))].into());

    // What is no timer is moved aside, and is in nobody's way.
    let nobody = ["XADD", "order-closer:timers", "*", "kind", "reminder", "key", "8", "in", "0s", "target", "nobody"];
    redis.command(&nobody);
    for wrong in [&["in", "soon"][..], &["in", "1h", "data", "[]"], &["in", "1h", "when", "now"], &["in", "1h", "generation", "x"], &[]] {
        add("*", "7", wrong);
    }
    add("*", "3", &["in", "200ms"]);
    add("*", "4", &["in", "1h"]);
    until_received(&receiver, 3).await;
    wait::until("those that are none are moved aside", async || redis.command(&["XLEN", "order-closer:timers:rejected"]).integer() == 6)
        .await;
    wait::until("nothing is left", async || redis.command(&["XLEN", "order-closer:timers"]).integer() == 0).await;
    assert_eq!(states(&database).await.len(), 4, "and none of the others");
    let aside = format!("{:?}", redis.command(&["XRANGE", "order-closer:timers:rejected", "-", "+"]));
    assert!(
        ["in is not a length of time", "no JSON object", "no field", "no whole number", "due is missing", "which has a, stream"]
            .iter()
            .all(|why| aside.contains(why)),
        "{aside}"
    );
    assert_eq!(daemon.logged("target \\\"nobody\\\" is not in the configuration"), 1);
    let checked = order_closer(&settings, &["check"]).await;
    assert!(checked.stdout.contains("! timers           6 entries of order-closer:timers were no timers"), "{}", checked.stdout);

    // One that was committed, and not acknowledged, comes again and changes nothing.
    until_told(&database).await;
    daemon.kill();
    let again = |key: &str, rest: &[&str]| {
        add("*", key, rest);
        redis.command(&["XREADGROUP", "GROUP", "order-closer", "somebody-else", "STREAMS", "order-closer:timers", ">"]);
    };
    again("2", &["due", "2023-11-14T22:13:20.000001Z", "generation", "2"]);
    again("5", &["in", "0s"]);
    let daemon = started(&settings).await;
    until_received(&receiver, 4).await;
    wait::until("nothing is left", async || redis.command(&["XLEN", "order-closer:timers"]).integer() == 0).await;
    until_told(&database).await;
    let told: Vec<(String, String)> = receiver.received().into_iter().map(|one| (one.id(), one.body)).collect();
    assert_eq!(receiver.taken(), [(1, 1), (2, 1), (3, 1), (5, 1)].into(), "each once: {told:#?}");
    daemon.stop().await;
}

/// What the database refuses of all is no entry's fault; of one among others, it is that one's.
#[tokio::test]
async fn entries_of_the_stream_that_the_database_refuses() {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (database, settings) = open(Kind::Postgres, &redis, &receiver).await;
    let daemon = started(&settings.set("timers.intake", "order-closer:timers")).await;
    let rejected = || redis.command(&["XLEN", "order-closer:timers:rejected"]).integer();
    database.execute("ALTER TABLE order_closer_timers ADD CONSTRAINT refusing CHECK (false)").await;
    for key in ["1", "2", "3"] {
        redis.command(&["XADD", "order-closer:timers", "*", "kind", "reminder", "key", key, "target", "a", "in", "1h"]);
    }
    let line = daemon.until_logged("the database refuses every timer of the stream").await;
    assert!(line.contains("refusing") && line.contains("order_closer_timers"), "{line}");
    assert_eq!((redis.command(&["XLEN", "order-closer:timers"]).integer(), rejected()), (3, 0), "all are kept");
    database.execute("ALTER TABLE order_closer_timers DROP CONSTRAINT refusing, ADD CONSTRAINT refusing CHECK (key <> '2')").await;
    wait::until("the others are registered", async || states(&database).await.len() == 2).await;
    wait::until("the one is moved aside", async || rejected() == 1).await;
    wait::until("nothing is left", async || redis.command(&["XLEN", "order-closer:timers"]).integer() == 0).await;
    daemon.stop().await;
}

/// A database for timers alone.
pub(super) async fn open(kind: Kind, redis: &Redis, receiver: &Receiver) -> (Database, Settings) {
    let database = Database::fresh(kind).await;
    let settings = Settings::new()
        .set("orders.table", "none")
        .set("database.url", database.url.as_str())
        .set("redis.url", redis.url())
        .set("log.format", "json")
        .add(&receiver.timer_webhook("a", ""))
        .add("[timers.stream]\nkey = 'fired'");
    let checked = order_closer(&settings, &["check"]).await.expect_code(78);
    assert!(checked.stdout.contains("run `order-closer migrate`"), "{checked:?}");
    let migrated = order_closer(&settings, &["migrate"]).await.expect_code(0);
    assert!(migrated.stdout.contains("created"), "{migrated:?}");
    (database, settings)
}

/// A daemon that sees timers half a minute ahead.
pub(super) async fn started(settings: &Settings) -> Daemon {
    let daemon = Daemon::start(&settings.clone().set("sweep.ahead", "30s").set("sweep.every", "200ms"));
    daemon.until_logged("listening for expired keys").await;
    daemon
}

/// Registers a timer as the documentation does: the next `millis` from now.
pub(super) async fn register(database: &Database, key: &str, millis: i64, target: &str, generation: i64) {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/timers.md")).expect("a page");
    let (name, half_an_hour, then) = match database.kind {
        Kind::Postgres => ("PostgreSQL", "interval '30 minutes'", format!("interval '{millis} milliseconds'")),
        Kind::MariaDb => ("MySQL, MariaDB", "INTERVAL 30 MINUTE", format!("INTERVAL {millis} * 1000 MICROSECOND")),
        Kind::Sqlite => ("SQLite", "'+30 minutes'", format!("'{:+} seconds'", millis as f64 / 1_000.0)),
    };
    let statement = page.split(&format!("```sql\n-- {name}\nINSERT")).nth(1).and_then(|rest| rest.split("```").next());
    let statement = format!("INSERT{}", statement.expect("the page has the statement"));
    for part in ["'1001'", half_an_hour, "'reminders'", ", 7)"] {
        assert!(statement.contains(part), "{part}: {statement}");
    }
    let statement = statement.replace("'1001'", &format!("'{key}'")).replace(half_an_hour, &then);
    database.execute(&statement.replace("'reminders'", &format!("'{target}'")).replace(", 7)", &format!(", {generation})"))).await;
}

/// `key` as a column.
pub(super) fn key_column(kind: Kind) -> &'static str {
    if kind == Kind::MariaDb { "`key`" } else { "key" }
}

/// The state of each timer.
pub(super) async fn states(database: &Database) -> BTreeMap<String, String> {
    let rows = database.rows(&format!("SELECT {}, state FROM order_closer_timers", key_column(database.kind))).await;
    rows.into_iter().map(|mut row| (row.swap_remove(0).expect("a key"), row.swap_remove(0).expect("a state"))).collect()
}

pub(super) async fn until_told(database: &Database) {
    database.until_unpacked().await;
    let sql = "SELECT count(*) FROM order_closer_deliveries";
    wait::until_eq("what is to be told", 0, async || database.number(sql).await).await;
}

/// Waits until this many requests have come.
pub(super) async fn until_received(receiver: &Receiver, count: usize) -> Vec<Received> {
    wait::until(&format!("{count} requests have come"), async || receiver.received().len() >= count).await;
    receiver.received()
}

fn assert_not_early(data: &Value) {
    let text = |name: &str| data[name].as_str().unwrap_or_else(|| panic!("{name}: {data}"));
    assert!(text("fired_at") >= text("due"), "{data}");
    let lateness = data["lateness_ms"].as_f64().or_else(|| data["lateness_ms"].as_str()?.parse().ok());
    assert!(lateness.is_some_and(|lateness| lateness >= 0.0), "{data}");
}

async fn a_timer_is_told_to_its_own_target(kind: Kind) {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (database, settings) = open(kind, &redis, &receiver).await;
    let daemon = started(&settings).await;
    for key in 1..=20 {
        register(&database, &key.to_string(), 50 * key, "a", 0).await;
        register(&database, &(100 + key).to_string(), 50 * key, "stream", 3).await;
    }
    register(&database, "999", 3_600_000, "a", 0).await;
    register(&database, "1000", 3_600_000, "nobody", 0).await;
    let checked = order_closer(&settings, &["check"]).await.expect_code(0);
    let wrong: Vec<&str> = checked.stdout.lines().filter(|line| line.starts_with(['!', '✗']) && !line.contains(" persistence ")).collect();
    assert!(matches!(wrong.as_slice(), [only] if only.contains("nobody")), "{}", checked.stdout);
    wait::until("all have fired", async || states(&database).await.values().filter(|state| *state == "fired").count() == 40).await;
    until_told(&database).await;
    let received = receiver.received();
    assert_eq!(receiver.taken(), (1..=20).map(|key| (key, 1)).collect(), "each once, and none of the stream's");
    for one in &received {
        let event = one.json();
        one.assert_signed_with(crate::support::receiver::SECRETS[0]);
        assert_eq!((&event["type"], &event["rule"]), (&json!("order-closer.timer.fired"), &json!("timers")));
        assert_eq!(event["subject"], json!(format!("reminder/{}", one.order())));
        let data = &event["data"];
        assert_eq!((&data["kind"], &data["generation"], &data["data"]), (&json!("reminder"), &json!(0), &json!({ "order": 1001 })));
        assert_eq!(data["fired_at"], event["time"]);
        assert_not_early(data);
    }
    let entries = redis.command(&["XRANGE", "fired", "-", "+"]);
    let fields = |entry: &crate::support::redis::Reply| -> BTreeMap<String, Value> {
        let fields: Vec<String> = entry.array()[1].array().iter().map(|field| field.text()).collect();
        fields.chunks(2).map(|pair| (pair[0].clone(), json!(pair[1]))).collect()
    };
    let mut entries: Vec<_> = entries.array().iter().map(fields).collect();
    entries.sort_by_key(|entry| entry["key"].as_str().and_then(|key| key.parse::<i64>().ok()));
    assert_eq!(entries.len(), 20);
    for (entry, key) in entries.iter().zip(101..) {
        assert_eq!((&entry["key"], &entry["generation"]), (&json!(key.to_string()), &json!("3")));
        let data: Value = serde_json::from_str(entry["data"].as_str().expect("a text")).expect("JSON");
        assert_eq!(data, json!({ "order": 1001 }));
        assert_not_early(&json!(entry));
    }
    assert_eq!(states(&database).await["999"], "armed");
    assert_eq!(database.number("SELECT count(*) FROM order_closer_timers WHERE fired_at IS NULL").await, 2);
    daemon.stop().await;
    let listed = order_closer(&settings, &["events", "--rule", "timers", "--json"]).await.expect_code(0);
    assert_eq!(listed.stdout.lines().count(), 40, "{}", listed.stdout);
}

async fn a_registration_counts_if_it_is_no_older(kind: Kind) {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (database, settings) = open(kind, &redis, &receiver).await;
    let hour = 3_600_000;
    for (key, generations) in [("1", [5, 6]), ("2", [6, 5]), ("3", [5, 5])] {
        register(&database, key, hour, "a", generations[0]).await;
        register(&database, key, -1_000, "a", generations[1]).await;
    }
    let daemon = started(&settings).await;
    let received = until_received(&receiver, 2).await;
    let told: BTreeMap<i64, Value> = received.iter().map(|one| (one.order(), one.json()["data"]["generation"].clone())).collect();
    assert_eq!(told, [(1, json!(6)), (3, json!(5))].into(), "and not the one whose later registration came first");
    // What has fired is armed again, also for the very time for which it has fired; but not by an older registration.
    let due = database.number(&format!("SELECT due_at FROM order_closer_timers WHERE {} = '1'", key_column(kind))).await;
    register(&database, "1", hour, "a", 5).await;
    assert_eq!(states(&database).await["1"], "fired");
    register(&database, "1", hour, "a", 7).await;
    database.execute(&format!("UPDATE order_closer_timers SET due_at = {due} WHERE {} = '1'", key_column(kind))).await;
    let received = until_received(&receiver, 3).await;
    assert_eq!((received[2].order(), &received[2].json()["data"]["generation"]), (1, &json!(7)));
    let first = received.iter().find(|one| one.order() == 1).expect("it was told").id();
    assert_ne!(received[2].id(), first, "another firing");
    until_told(&database).await;
    assert_eq!(
        states(&database).await,
        [("1", "fired"), ("2", "armed"), ("3", "fired")].map(|(key, state)| (key.into(), state.into())).into()
    );
    assert!(daemon.said("undone").is_empty());
    daemon.stop().await;
}

/// What the daemon has seen ahead and then changes.
async fn what_changes_before_it_fires_counts(kind: Kind) {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (database, settings) = open(kind, &redis, &receiver).await;
    let daemon = started(&settings).await;
    for key in 1..=40 {
        register(&database, &key.to_string(), 6_000, "a", 0).await;
    }
    // One that is due before all of them tells when they have been seen.
    register(&database, "50", 1_000, "a", 0).await;
    until_received(&receiver, 1).await;
    let column = key_column(kind);
    let number = format!("CAST({column} AS {})", if kind == Kind::MariaDb { "SIGNED" } else { "INTEGER" });
    let moved = database.execute(&format!("UPDATE order_closer_timers SET due_at = due_at + 1500000 WHERE {number} <= 10")).await;
    let cancelled = database.execute(&format!("UPDATE order_closer_timers SET state = 'cancelled' WHERE {number} BETWEEN 11 AND 20")).await;
    let deleted = database.execute(&format!("DELETE FROM order_closer_timers WHERE {number} BETWEEN 21 AND 30 AND state = 'armed'")).await;
    assert_eq!((moved, cancelled, deleted), (10, 10, 10), "in time");
    assert_eq!(receiver.received().len(), 1, "none of them has fired before it was changed");
    until_received(&receiver, 21).await;
    until_told(&database).await;
    assert_eq!(receiver.taken().into_keys().collect::<Vec<_>>(), (1..=10).chain(31..=40).chain([50]).collect::<Vec<_>>());
    for one in receiver.received() {
        assert_not_early(&one.json()["data"]);
    }
    daemon.stop().await;
}

async fn a_target_says_what_becomes_of_its_timer(kind: Kind) {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (database, settings) = open(kind, &redis, &receiver).await;
    receiver.by_order(|key| match key {
        1 => Some(Behaviour::Status(410)),
        2 => Some(Behaviour::Says("{\"in\": \"300ms\"}")),
        3 => Some(Behaviour::Says("{\"due\": \"2999-01-31T13:00:00Z\"}")),
        4 => Some(Behaviour::Says("{\"in\": \"soon\"}")),
        5 => Some(Behaviour::Says("thank you")),
        7 => Some(Behaviour::Says("{\"due\": \"1970-01-01T00:00:00Z\"}")),
        _ => None,
    });
    receiver.next([Behaviour::Status(500), Behaviour::Later("1".into()), Behaviour::Drop]);
    let daemon = started(&settings).await;
    register(&database, "6", -1_000, "a", 0).await;
    wait::until("it is taken in the end", async || receiver.taken().contains_key(&6)).await;
    let ids: Vec<String> = receiver.received().iter().map(Received::id).collect();
    assert!(ids.len() == 4 && ids.iter().all(|id| *id == ids[0]), "one id for all attempts: {ids:?}");
    for key in 1..=5 {
        register(&database, &key.to_string(), -1_000, "a", 0).await;
    }
    register(&database, "7", -1_000, "a", 0).await;
    wait::until("a time that has passed is as good as now", async || receiver.taken().get(&7).is_some_and(|times| *times >= 2)).await;
    wait::until("one is told again and again", async || receiver.taken().get(&2).is_some_and(|times| *times >= 3)).await;
    // Whoever registers it anew has the last word.
    for key in ["2", "7"] {
        wait::until("it is moved", async || {
            register(&database, key, 3_600_000, "a", 1).await;
            states(&database).await[key] == "armed"
        })
        .await;
    }
    until_told(&database).await;
    let times = receiver.taken();
    assert_eq!([1, 3, 4, 5].map(|key| times.get(&key).copied()), [None, Some(1), Some(1), Some(1)], "410 takes nothing, and is no failure");
    assert_eq!(receiver.received().iter().filter(|one| one.order() == 1).count(), 1, "told once");
    let due = format!("SELECT due_at FROM order_closer_timers WHERE {} = '3'", key_column(kind));
    assert_eq!(database.number(&due).await, 32_474_782_800_000_000);
    let fired: Vec<String> = states(&database).await.into_iter().filter(|(_, state)| state == "fired").map(|(key, _)| key).collect();
    assert_eq!(fired, ["1", "4", "5", "6"]);
    assert_eq!(daemon.logged("its wish to be told again can't be read"), 1);
    assert_eq!(daemon.said("wants no more events").len(), 0);
    let told: BTreeMap<String, usize> = receiver.received().iter().filter(|one| one.order() == 2).fold(BTreeMap::new(), |mut ids, one| {
        *ids.entry(one.id()).or_default() += 1;
        ids
    });
    assert!(told.len() >= 3, "each firing has an id of its own: {told:?}");
    daemon.stop().await;
}
