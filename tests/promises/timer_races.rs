//! Timers that are registered, moved and cancelled over HTTP while they fire; several daemons, and one that dies.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    on_each_database,
    timers::{key_column, open, started, states, until_received, until_told},
};
use crate::support::{
    Daemon, Database, Kind, Redis, Settings, order_closer, ports,
    receiver::{Behaviour, Received, Receiver},
    wait,
};

on_each_database! {
    a_cancellation_races_a_firing
    a_registration_races_a_firing
    what_is_strange_is_told_as_it_is_or_refused
}

const TOKEN: &str = "0123456789abcdef-a-token-of-tests";

/// Whoever asks a daemon over HTTP.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    client: Client,
    address: String,
}

impl Caller {
    /// One, and the daemon's settings with an address.
    pub(super) fn of(settings: Settings) -> (Self, Settings) {
        rustls::crypto::ring::default_provider().install_default().ok();
        let address = format!("127.0.0.1:{}", ports::free());
        let settings = settings.set("http.listen", address.as_str()).set("http.token", TOKEN);
        (Self { client: Client::builder().no_proxy().tls_certs_only([]).build().expect("a client"), address }, settings)
    }

    /// The status of the answer, and what it says.
    pub(super) async fn ask(&self, method: Method, path: &str, body: impl Into<String>) -> (u16, Value) {
        let request = self.client.request(method, format!("http://{}{path}", self.address)).bearer_auth(TOKEN).body(body.into());
        let answer = request.send().await.expect("an answer");
        let (status, text) = (answer.status().as_u16(), answer.text().await.expect("a whole answer"));
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    async fn batch(&self, timers: &[Value]) -> Vec<Value> {
        let (status, answer) = self.ask(Method::POST, "/timers:batch", json!({ "timers": timers }).to_string()).await;
        assert_eq!(status, 200, "{answer}");
        answer["timers"].as_array().expect("a list").clone()
    }
}

/// A database for timers, and a daemon that is asked about them over HTTP.
async fn asked(kind: Kind, redis: &Redis, receiver: &Receiver) -> (Database, Settings, Daemon, Caller) {
    let (database, settings) = open(kind, redis, receiver).await;
    let (caller, settings) = Caller::of(settings);
    let daemon = started(&settings).await;
    daemon.until_logged("answering over HTTP").await;
    (database, settings, daemon, caller)
}

/// What was told of each timer: the ids of its firings.
fn told(receiver: &Receiver) -> BTreeMap<i64, BTreeSet<String>> {
    let mut told: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
    for one in receiver.received() {
        told.entry(one.order()).or_default().insert(one.id());
    }
    told
}

/// 204: it is never told. 409: it is.
async fn a_cancellation_races_a_firing(kind: Kind) {
    const RACES: u64 = 100;
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (database, _settings, daemon, caller) = asked(kind, &redis, &receiver).await;
    let due = |key: u64| 1_500 + 20 * key;
    let timers: Vec<Value> =
        (0..RACES).map(|key| json!({ "kind": "race", "key": key.to_string(), "in": format!("{}ms", due(key)), "target": "a" })).collect();
    let began = Instant::now();
    caller.batch(&timers).await;
    // At about its time; the first in good time, and the last when it has fired.
    let cancel = |key: u64| {
        let caller = caller.clone();
        tokio::spawn(async move {
            match key {
                0 => {}
                key if key == RACES - 1 => {
                    while caller.ask(Method::GET, &format!("/timers/race/{key}"), "").await.1["state"] != "fired" {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
                key => tokio::time::sleep_until(began + Duration::from_millis(due(key) + key % 10 * 4) - Duration::from_millis(8)).await,
            }
            (key, caller.ask(Method::DELETE, &format!("/timers/race/{key}"), "").await)
        })
    };
    let (mut cancelled, mut fired) = (BTreeSet::new(), BTreeSet::new());
    for cancelling in (0..RACES).map(cancel).collect::<Vec<_>>() {
        match cancelling.await.expect("an answer") {
            (key, (204, _)) => assert!(cancelled.insert(key.cast_signed())),
            (key, (409, answer)) => {
                assert!(answer["fired_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{answer}");
                assert!(fired.insert(key.cast_signed()));
            }
            (key, other) => panic!("{key}: {other:?}"),
        }
    }
    assert!(cancelled.contains(&0) && fired.contains(&(RACES.cast_signed() - 1)), "{cancelled:?}");
    until_told(&database).await;
    wait::until_eq("those that were told of", fired.clone(), async || told(&receiver).into_keys().collect()).await;
    let states = states(&database).await;
    assert!(cancelled.iter().all(|key| states[&key.to_string()] == "cancelled"), "{states:?}");
    daemon.stop().await;
    assert!(told(&receiver).into_keys().eq(fired), "and nothing came later");
}

/// A later one counts from the answer on, an earlier one never; none fails because timers fire meanwhile.
async fn a_registration_races_a_firing(kind: Kind) {
    const TIMERS: usize = 300;
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (database, _settings, daemon, caller) = asked(kind, &redis, &receiver).await;
    let timers = |after: &str, generation: i64| -> Vec<Value> {
        let timer = |key| json!({ "kind": "race", "key": key, "in": after, "target": "a", "generation": generation });
        (0..TIMERS).map(|key| timer(key.to_string())).collect()
    };
    let began = Instant::now();
    caller.batch(&timers("2s", 1)).await;
    let older = || async {
        for one in caller.batch(&timers("1h", 0)).await {
            assert_eq!((&one["status"], &one["timer"]["generation"]), (&json!(409), &json!(1)), "{one}");
        }
    };
    older().await;
    // Some halves before, some while they fire, and some after.
    tokio::time::sleep_until(began + Duration::from_millis(1_900)).await;
    let mut generation = 1;
    let later = |generation: i64| timers("1h", generation);
    for half in (0..).take(6) {
        generation += 1;
        let all = later(generation);
        let (first, second) = all.split_at(TIMERS / 2);
        let mut half = if half % 2 == 0 { first.to_vec() } else { second.to_vec() };
        half.reverse();
        for one in caller.batch(&half).await {
            assert_eq!((&one["status"], &one["timer"]["state"]), (&json!(200), &json!("armed")), "{one}");
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    wait::until("all are armed once more", async || states(&database).await.values().all(|state| state == "armed")).await;
    until_told(&database).await;
    let fired = database.number("SELECT count(*) FROM order_closer_events").await;
    wait::until_eq("what was told", fired, async || told(&receiver).len() as i64).await;
    for one in receiver.received() {
        assert_eq!(one.json()["data"]["generation"], 1, "a later one is due in an hour");
    }
    assert!(told(&receiver).values().all(|ids| ids.len() == 1), "none fired twice");
    daemon.stop().await;
}

/// Each has fired once, whoever did it, and all attempts have one id.
#[tokio::test]
async fn several_daemons_on_one_table_one_of_which_is_killed() {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (database, settings) = open(Kind::Postgres, &redis, &receiver).await;
    let settings = settings.add(&receiver.timer_webhook("a", "timeout = '1s'"));
    let mut daemons = Vec::new();
    for _ in 0..3 {
        daemons.push(started(&settings).await);
    }
    database
        .execute(
            "INSERT INTO order_closer_timers (kind, key, due_at, target)
             SELECT 'crowd', n::text, extract(epoch FROM clock_timestamp() + interval '2 seconds' + n * interval '5 milliseconds') * 1000000,
                 CASE n % 2 WHEN 0 THEN 'a' ELSE 'stream' END FROM generate_series(1, 600) n",
        )
        .await;
    wait::until("half of them have fired", async || states(&database).await.values().filter(|state| *state == "fired").count() >= 300)
        .await;
    daemons.remove(1).kill();
    wait::until("all have fired", async || states(&database).await.values().all(|state| state == "fired")).await;
    until_told(&database).await;
    assert_eq!(database.number("SELECT count(*) FROM order_closer_events").await, 600);
    assert_eq!(database.number("SELECT count(DISTINCT order_id) FROM order_closer_events").await, 600);
    assert!(database.number("SELECT count(DISTINCT instance) FROM order_closer_events").await >= 2, "they share the work");
    let told = told(&receiver);
    assert_eq!(told.keys().copied().collect::<Vec<_>>(), (1..=300).map(|key| 2 * key).collect::<Vec<_>>());
    assert!(told.values().all(|ids| ids.len() == 1), "{told:?}");
    let entries = redis.command(&["XRANGE", "fired", "-", "+"]);
    let ids: BTreeSet<String> = entries.array().iter().map(|entry| entry.array()[1].array()[1].text()).collect();
    assert_eq!(ids.len(), 300);
    for daemon in daemons {
        daemon.stop().await;
    }
}

/// What was fired is in its table, whatever becomes of the daemon.
#[tokio::test]
async fn a_daemon_is_killed_between_a_firing_and_its_delivery() {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (database, settings) = open(Kind::Postgres, &redis, &receiver).await;
    let settings = settings.add(&receiver.timer_webhook("a", "timeout = '1s'"));
    receiver.usually(Behaviour::Hang);
    let daemon = started(&settings).await;
    super::timers::register(&database, "1", -1_000, "a", 0).await;
    let first = until_received(&receiver, 1).await.remove(0);
    daemon.kill();
    assert_eq!(database.number("SELECT count(*) FROM order_closer_deliveries").await, 1);
    receiver.usually(Behaviour::Status(200));
    let daemon = started(&settings).await;
    wait::until("it is taken", async || receiver.taken().contains_key(&1)).await;
    until_told(&database).await;
    assert!(receiver.received().iter().all(|one| one.id() == first.id() && one.body == first.body), "the same, word for word");
    daemon.stop().await;
}

#[tokio::test]
async fn nothing_fires_while_timers_are_paused() {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (database, settings, daemon, caller) = asked(Kind::Sqlite, &redis, &receiver).await;
    order_closer(&settings, &["pause", "--rule", "timers", "--reason", "the receiver moves"]).await.expect_code(0);
    daemon.until_logged("closing is paused").await;
    let (status, made) = caller.ask(Method::PUT, "/timers/reminder/1", r#"{"in": "0s", "target": "a"}"#).await;
    assert_eq!((status, &made["state"]), (201, &json!("armed")));
    // Whoever cancels meanwhile is in time.
    assert_eq!(caller.ask(Method::PUT, "/timers/reminder/2", r#"{"in": "0s", "target": "a"}"#).await.0, 201);
    assert_eq!(caller.ask(Method::DELETE, "/timers/reminder/2", "").await.0, 204);
    let explained = order_closer(&settings, &["explain", "reminder/1"]).await.expect_code(0).stdout;
    assert!(
        explained.starts_with("Timer ") && explained.contains("firing is paused") && explained.contains("the receiver moves"),
        "{explained}"
    );
    order_closer(&settings, &["resume", "--rule", "timers"]).await.expect_code(0);
    until_received(&receiver, 1).await;
    until_told(&database).await;
    assert_eq!(told(&receiver).into_keys().collect::<Vec<_>>(), [1]);
    let explained = order_closer(&settings, &["explain", "reminder/1"]).await.expect_code(0).stdout;
    assert!(
        explained.contains(" was fired at ") && explained.contains("after its time, by ") && !explained.contains("closed"),
        "{explained}"
    );
    let explained = order_closer(&settings, &["explain", "reminder/2"]).await.expect_code(0).stdout;
    assert!(explained.contains(" is cancelled, and does not fire."), "{explained}");
    daemon.stop().await;
}

/// What the table holds is told, letter by letter; what it can't hold is said, and is in nobody's way.
async fn what_is_strange_is_told_as_it_is_or_refused(kind: Kind) {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (database, settings, daemon, caller) = asked(kind, &redis, &receiver).await;
    let put = async |path: &str, body: String| caller.ask(Method::PUT, path, body).await;
    let body = |data: &str| format!(r#"{{"in": "0s", "target": "a", "data": {data}}}"#);
    let deep = |depth: usize| format!(r#"{{"a": {}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    let strange = [
        r#"{"a": "\u0000 \ud83d\ude00 \\ \" ' \n ; DROP TABLE orders", "a b": null, "": -0.0, "big": 123456789012345678901234567890}"#
            .to_owned(),
        "{}".into(),
        format!(r#"{{"long": "{}"}}"#, "x".repeat(65_000)),
        deep(25),
        r#"{"kind": "another", "key": 7, "target": "stream", "data": 1}"#.into(),
    ];
    for (key, data) in strange.iter().enumerate() {
        let (status, answer) = put(&format!("/timers/strange/{key}"), body(data)).await;
        assert_eq!(status, 201, "{data:.100}: {answer}");
    }
    let wide = "\u{1F600}".repeat(251);
    let (status, answer) = put(&format!("/timers/strange/{wide}%2F100"), body("{}")).await;
    assert_eq!((status, answer["key"].as_str()), (201, Some(format!("{wide}/100").as_str())), "{answer}");
    for (path, data) in [
        ("/timers/strange/%00", "{}"),
        ("/timers/stra%0Ange/7", "{}"),
        ("/timers/strange/%FF", "{}"),
        (&format!("/timers/{}/7", "\u{e9}".repeat(65)), "{}"),
        (&format!("/timers/strange/{}", "x".repeat(256)), "{}"),
        ("/timers/strange/7", "[]"),
        ("/timers/strange/7", "{\"a\": }"),
        ("/timers/strange/7", &format!(r#"{{"long": "{}"}}"#, "x".repeat(65_536))),
        ("/timers/strange/7", &deep(30_000)),
        ("/timers/strange/7", &deep(126)),
        ("/timers/strange/7", r#"{"a": "\ud800"}"#),
    ] {
        let (status, answer) = put(path, body(data)).await;
        assert_eq!(status, 400, "{path:.100} {data:.100}: {answer}");
    }
    for (method, path) in [(Method::GET, "/timers/strange/%00"), (Method::DELETE, "/timers/strange/%00")] {
        let (status, answer) = caller.ask(method.clone(), path, "").await;
        assert!([400, 404].contains(&status), "{method} {status}: {answer}");
    }
    let received = until_received(&receiver, strange.len() + 1).await;
    let of = |key: i64| received.iter().find(|one| one.order() == key).map(Received::json).expect("it was told");
    for (key, data) in (0..).zip(&strange) {
        assert_eq!(of(key)["data"]["data"], serde_json::from_str::<Value>(data).expect("JSON"), "{key}");
    }
    assert_eq!(of(100)["subject"], json!(format!("strange/{wide}/100")));

    // Nobody checks what is inserted in SQL: what is no time never fires, and keeps no other from firing.
    let column = key_column(kind);
    for (key, due) in [("201", i64::MAX), ("202", i64::MIN), ("203", 0), ("204", -1)] {
        let insert = "INSERT INTO order_closer_timers (kind, KEY, due_at, target) VALUES".replace("KEY", column);
        database.execute(&format!("{insert} ('strange', '{key}', {due}, 'a')")).await;
    }
    super::timers::register(&database, "205", 0, "a", i64::MAX).await;
    wait::until("the other is told", async || told(&receiver).contains_key(&205)).await;
    until_told(&database).await;
    let states = states(&database).await;
    assert!(["201", "202", "203", "204"].iter().all(|key| states[*key] == "armed"), "{states:?}");
    for key in ["201", "202", "203", "204"] {
        assert_eq!(caller.ask(Method::GET, &format!("/timers/strange/{key}"), "").await.0, 200);
        order_closer(&settings, &["explain", &format!("strange/{key}")]).await.expect_code(0);
    }
    daemon.stop().await;
}

/// A time that has passed is as good as now, unless it is so long ago that nothing of that age fires.
#[tokio::test]
async fn a_time_that_has_passed() {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (_database, settings) = open(Kind::Sqlite, &redis, &receiver).await;
    let (caller, settings) = Caller::of(settings.set("timers.intake", "order-closer:timers"));
    let daemon = started(&settings).await;
    daemon.until_logged("answering over HTTP").await;
    let ago = |days: u64| humantime::format_rfc3339_seconds(std::time::SystemTime::now() - Duration::from_hours(24 * days)).to_string();
    let body = |due: &str| json!({ "due": due, "target": "a" }).to_string();
    assert_eq!(caller.ask(Method::PUT, "/timers/past/1", body(&ago(1))).await.0, 201);
    let told = until_received(&receiver, 1).await.remove(0).json();
    assert!(told["data"]["lateness_ms"].as_f64().is_some_and(|late| late > 86_000_000.0), "{told}");
    for due in [ago(31).as_str(), "1970-01-01T00:00:00Z"] {
        let (status, answer) = caller.ask(Method::PUT, "/timers/past/2", body(due)).await;
        assert!(status == 400 && answer["error"].as_str().is_some_and(|why| why.contains("sweep.oldest")), "{answer}");
    }
    redis.command(&["XADD", "order-closer:timers", "*", "kind", "past", "key", "3", "due", &ago(31), "target", "a"]);
    let line = daemon.until_logged("an entry is no timer and was moved aside").await;
    assert!(line.contains("sweep.oldest"), "{line}");
    daemon.stop().await;
}
