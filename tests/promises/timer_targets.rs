//! Targets of timers that hang, fail, are gone, or are not there yet.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    timer_races::Caller,
    timers::{open, register, started, states, until_received, until_told},
};
use crate::support::{
    Kind, Redis, order_closer,
    receiver::{Behaviour, Received, Receiver},
    wait,
};

/// Twenty thousand that nobody takes are in nobody's way.
#[tokio::test]
async fn a_crowd_for_a_receiver_that_hangs() {
    let (redis, hanging, other) = (Redis::start(), Receiver::start().await, Receiver::start().await);
    hanging.usually(Behaviour::Hang);
    let (database, settings) = open(Kind::Postgres, &redis, &hanging).await;
    let settings = format!("{}\n{}", settings.toml(), other.one_more_webhook("b").replace("[[events.", "[[timers."));
    let daemon = started(&crate::support::Settings::new().add(&settings)).await;
    let insert = |kind: &str, target: &str, count: u32, after: &str| {
        format!(
            "INSERT INTO order_closer_timers (kind, key, due_at, target) \
             SELECT '{kind}', n::text, extract(epoch FROM clock_timestamp() + interval '{after}') * 1000000, '{target}' \
             FROM generate_series(1, {count}) n"
        )
    };
    database.execute(&insert("crowd", "a", 20_000, "2 seconds")).await;
    database.execute(&insert("single", "b", 20, "2 seconds")).await;
    database.execute(&insert("other", "stream", 20, "3 seconds")).await;
    wait::until("the others are told", async || other.taken().len() == 20 && redis.command(&["XLEN", "fired"]).integer() == 20).await;
    wait::until("all have fired", async || database.number("SELECT count(*) FROM order_closer_timers WHERE state = 'armed'").await == 0)
        .await;
    assert_eq!(hanging.taken().len(), 0);
    database.execute(&insert("late", "b", 1, "0 seconds").replace("n::text", "'21'")).await;
    wait::until("another is told while they wait", async || other.taken().len() == 21).await;
    database.until_unpacked().await;
    assert_eq!(database.number("SELECT count(*) FROM order_closer_deliveries WHERE target = 'a'").await, 20_000);
    daemon.kill();
}

/// What a target refuses is a dead letter, is listed, comes again under the same id, or never.
#[tokio::test]
async fn what_a_target_refuses() {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (database, settings) = open(Kind::Sqlite, &redis, &receiver).await;
    let (caller, settings) = Caller::of(settings.add("[events]\nretry = { attempts = 3, initial = '20ms', max = '50ms' }"));
    receiver.by_order(|key| (key <= 2).then_some(Behaviour::Status(500)));
    let daemon = started(&settings).await;
    for key in ["1", "2", "3"] {
        register(&database, key, -1_000, "a", 0).await;
    }
    wait::until("they are given up", async || daemon.logged("event can't be delivered and is a dead letter") == 2).await;
    assert_eq!(receiver.taken().into_keys().collect::<Vec<_>>(), [3], "the other was told meanwhile");
    let id = |key: i64| receiver.received().iter().find(|one| one.order() == key).map(Received::id).expect("it was sent");
    let (mut letters, mut next) = (Vec::new(), String::new());
    loop {
        let (status, page) = caller.ask(Method::GET, &format!("/dead-letters?rule=timers{next}"), "").await;
        assert_eq!(status, 200, "{page}");
        letters.extend(page["dead_letters"].as_array().expect("a list").iter().map(|letter| letter["id"].as_str().map(str::to_owned)));
        let Some(after) = page["next"].as_str() else { break };
        next = format!("&after={after}");
    }
    letters.sort();
    let mut expected = [1, 2].map(|key| Some(id(key)));
    expected.sort();
    assert_eq!(letters, expected);
    let listed = order_closer(&settings, &["dead-letters", "list", "--json", "--rule", "timers"]).await.expect_code(0);
    assert!(listed.stdout.lines().count() == 2 && listed.stdout.contains(&id(1)) && listed.stdout.contains(&id(2)), "{listed:?}");
    // Fired, and not told: a cancellation is too late.
    assert_eq!(caller.ask(Method::DELETE, "/timers/reminder/1", "").await.0, 409);

    let (status, dropped) = caller.ask(Method::POST, &format!("/dead-letters/{}/drop?rule=timers", id(2)), "").await;
    assert_eq!((status, dropped["outcome"].as_str()), (200, Some("dropped")), "{dropped}");
    receiver.by_order(|_| None);
    order_closer(&settings, &["dead-letters", "retry", &id(1), "--rule", "timers"]).await.expect_code(0);
    wait::until("it is taken", async || receiver.taken().contains_key(&1)).await;
    until_told(&database).await;
    assert_eq!(receiver.taken().into_keys().collect::<Vec<_>>(), [1, 3]);
    assert!(receiver.received().iter().filter(|one| one.order() == 1).all(|one| one.id() == id(1)), "one id for all attempts");
    daemon.stop().await;
}

/// What it has to tell waits for a target of that name, and is seen; with SIGHUP there is one, also for whoever asks over HTTP.
#[tokio::test]
async fn a_target_that_comes_and_goes() {
    let (redis, first, second) = (Redis::start(), Receiver::start().await, Receiver::start().await);
    let (database, settings) = open(Kind::Sqlite, &redis, &first).await;
    let (caller, settings) = Caller::of(settings);
    let daemon = started(&settings).await;
    daemon.until_logged("answering over HTTP").await;
    let put = async |key: &str| caller.ask(Method::PUT, &format!("/timers/reminder/{key}"), r#"{"in": "0s", "target": "b"}"#).await;
    let targets = async || -> Vec<(Value, Value, Value)> {
        let (_, answer) = caller.ask(Method::GET, "/targets?rule=timers", "").await;
        let of = |one: &Value| (one["name"].clone(), one["configured"].clone(), one["waiting"].clone());
        answer["targets"].as_array().expect("a list").iter().map(of).collect()
    };
    let (status, refused) = put("1").await;
    assert!(status == 400 && refused["error"].as_str().is_some_and(|why| why.contains("a, stream")), "{refused}");
    register(&database, "2", -1_000, "b", 0).await;
    wait::until("it has fired", async || states(&database).await["2"] == "fired").await;
    wait::until("it is seen", async || targets().await.contains(&(json!("b"), json!(false), json!(1)))).await;
    let checked = order_closer(&settings, &["check"]).await.expect_code(0);
    assert!(checked.stdout.contains("b is not in the configuration, 1 waiting"), "{}", checked.stdout);

    let before = std::fs::read_to_string(daemon.config_file()).expect("a file");
    let both = format!("{before}\n{}", second.one_more_webhook("b").replace("[[events.", "[[timers."));
    assert!(daemon.reload(&both).await);
    until_received(&second, 1).await;
    assert_eq!(put("3").await.0, 201);
    until_received(&second, 2).await;
    until_told(&database).await;
    assert!(targets().await.contains(&(json!("b"), json!(true), json!(0))));
    let drop = async || caller.ask(Method::POST, "/targets/b/drop?rule=timers", "").await.0;
    assert_eq!(drop().await, 409, "it would be told of what comes next");

    assert!(daemon.reload(&before).await);
    assert_eq!(put("4").await.0, 400);
    register(&database, "5", -1_000, "b", 0).await;
    wait::until("what it would be told waits", async || targets().await.contains(&(json!("b"), json!(false), json!(1)))).await;
    assert_eq!(drop().await, 200);
    assert_eq!((first.received().len(), second.received().len()), (0, 2));
    daemon.stop().await;
}
