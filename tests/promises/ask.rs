//! Somebody is asked before an order closes: what was answered counts, for its deadline alone, and whoever does not answer
//! holds up nobody but those about whom it was asked.

mod liars;
mod race;
mod reload;

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::{assert_on_time, listening, on_each_database};
use crate::support::{
    Daemon, Kind, Redis, Settings, Shop, order_closer, ports, process,
    receiver::SECRETS,
    shop::{CLOSED, UNPAID},
    till::{Manner, Question, Till},
    wait,
};

on_each_database! {
    each_answer_counts
    a_deadline_that_has_moved_is_asked_about_again
}

/// A shop whose daemon asks this till, with Redis.
async fn shop_that_asks(kind: Kind, redis: &Redis, till: &Till, more: &str) -> (Shop, Settings) {
    let shop = Shop::open(kind).await;
    let settings = shop.settings_with(redis).add(&till.settings(more)).set("log.summary", "100ms");
    (shop, settings)
}

/// A count that the daemon has said last.
fn said(daemon: &Daemon, count: &str) -> u64 {
    daemon.said("summary").last().and_then(|summary| summary[count].as_u64()).unwrap_or(0)
}

async fn each_answer_counts(kind: Kind) {
    let (redis, till) = (Redis::start(), Till::start().await);
    let (shop, settings) = shop_that_asks(kind, &redis, &till, "include = ['order_no', 'status']").await;
    till.says(1, "paid");
    till.says(2, json!({ "answer": "later", "retry_after": 3600 }));
    till.says(3, json!({ "answer": "later", "retry_after": 0.3 }));
    till.says(4, Value::Null);
    for (order, nonsense) in (5..).zip([json!("Close"), json!(["close"]), json!(1), json!({ "answer": "later", "retry_after": -1 })]) {
        till.says(order, nonsense);
    }
    till.says(10, json!({ "answer": "close", "note": "expired" }));
    shop.orders_due_in(1..=100, 1_000).await;
    shop.write_keys(&redis, 0).await;
    shop.orders_due_in(101..=110, 3_600_000).await;
    assert!(shop.pay(11).await);
    let daemon = listening(&settings).await;
    wait::until_eq("the number of closed orders", 91, async || shop.closed().await).await;
    wait::until("the third was asked about again", async || till.asked().get(&3).is_some_and(|asked| *asked > 2)).await;
    till.says(3, "close");
    shop.until_status(3, CLOSED).await;
    let waits = |record: &Value| (record["paid"].as_u64(), record["later"].as_u64(), record["unanswered"].as_u64());
    wait::until_eq("what waits", Some((Some(1), Some(1), Some(5))), async || daemon.said("summary").last().map(waits)).await;
    assert_eq!(daemon.said("an order is paid, says whoever was asked").len(), 1);
    daemon.stop().await;
    let outcome = shop.assert_outcome_except(&[1, 2, 4, 5, 6, 7, 8]).await;
    assert_eq!(outcome.closed.len(), 92);
    let summary = daemon.summary();
    assert_eq!((summary.count("said_close"), summary.count("said_paid")), (92, 1));
    assert!(summary.count("said_later") >= 3 && summary.count("said_nothing") >= 5);
    assert!(till.orders().iter().all(|order| *order <= 100 && *order != 11), "asked is only who is unpaid and due");
    for question in till.questions() {
        question.assert_signed_with(SECRETS[0]);
        let body = question.json();
        assert_eq!((&body["type"], &body["rule"]), (&json!("order-closer.ask"), &json!("orders")));
        assert_eq!(question.headers["content-type"], "application/json");
        for order in body["orders"].as_array().expect("a list") {
            assert_eq!(order["order"], json!({ "order_no": order["id"].as_str().unwrap().parse::<i64>().unwrap(), "status": 0 }));
            let deadline = order["deadline"].as_str().unwrap();
            assert!(deadline.ends_with('Z') && deadline.contains('.'), "{deadline}");
        }
    }
    let once = till.asked().into_iter().filter(|(order, asked)| *order > 10 && *asked != 1).count();
    assert_eq!(once, 0, "each order once: {:?}", till.asked());
    assert!(!daemon.lines().join("\n").contains("whsec_"));
}

/// The answer was for the deadline that the row had: another one is another question.
async fn a_deadline_that_has_moved_is_asked_about_again(kind: Kind) {
    let (redis, till) = (Redis::start(), Till::start().await);
    let (shop, settings) = shop_that_asks(kind, &redis, &till, "ahead = '2s'").await;
    shop.orders_due_in(1..=20, 4_000).await;
    let deadlines = shop.deadlines().await;
    let daemon = listening(&settings).await;
    wait::until_eq("the number of orders asked about", 20, async || till.orders().len()).await;
    assert_eq!(shop.closed().await, 0, "asked ahead of their deadlines");
    // Earlier by a moment, and due now: what was answered was about another deadline.
    till.usually_says("paid");
    for order in 1..=10 {
        shop.postpone(order, -500).await;
    }
    wait::until("they are asked about again", async || (1..=10).all(|order| till.asked()[&order] == 2)).await;
    wait::until_eq("the number of closed orders", 10, async || shop.closed().await).await;
    daemon.stop().await;
    let asked: Vec<i64> = (1..=10).collect();
    let outcome = shop.assert_outcome_except(&asked).await;
    assert_on_time(&outcome);
    let questions: Vec<Value> = till.questions().iter().flat_map(|one| one.json()["orders"].as_array().cloned().unwrap()).collect();
    let of_first: Vec<&Value> = questions.iter().filter(|order| order["id"] == "1").map(|order| &order["deadline"]).collect();
    assert_eq!(of_first.len(), 2);
    assert_ne!(of_first[0], of_first[1]);
    assert!(deadlines.len() == 20 && till.asked().values().filter(|asked| **asked == 1).count() == 10);
}

/// With `ahead` an order is asked about so long before its deadline, and not earlier; and closes on time though the receiver
/// is slow.
#[tokio::test]
async fn asked_ahead_orders_close_on_time() {
    let (redis, till) = (Redis::start(), Till::start().await);
    till.is(Manner::Slow(Duration::from_millis(700)));
    let (shop, settings) = shop_that_asks(Kind::Postgres, &redis, &till, "ahead = '1s'\nbatch = 10").await;
    let settings = settings.set("sweep.ahead", "3s").set("sweep.every", "1h");
    let daemon = listening(&settings).await;
    let orders: Vec<(i64, i64)> = (1..=60).map(|number| (number, 3_500 + 20 * number)).collect();
    shop.orders(&orders).await;
    let offset = i64::try_from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let began = std::time::Instant::now();
    shop.until_all_settled().await;
    daemon.stop().await;
    let deadlines = shop.deadlines().await;
    for question in till.questions() {
        for order in question.orders() {
            let at = offset + i64::try_from((question.at.saturating_duration_since(began)).as_millis()).unwrap();
            let before = deadlines[&order] - at;
            assert!(before <= 1_050, "order {order} was asked about {before} ms before its deadline");
        }
    }
    let outcome = shop.assert_outcome().await;
    assert!(outcome.lateness(0.5) < 500, "half are later than {} ms: nobody waits for the receiver", outcome.lateness(0.5));
    assert!(till.asked().values().all(|asked| *asked == 1));
}

/// One order upsets the receiver, so that no request with it is answered.
async fn one_order_upsets_the_receiver(hangs: bool) {
    let (redis, till) = (Redis::start(), Till::start().await);
    let (shop, settings) = shop_that_asks(Kind::Postgres, &redis, &till, "timeout = '300ms'").await;
    till.upset_by(77, hangs);
    shop.orders_due_in(1..=150, -1_000).await;
    let daemon = listening(&settings).await;
    wait::until_eq("the number of closed orders", 149, async || shop.closed().await).await;
    wait::until("it is asked about alone", async || till.questions().iter().any(|question| question.orders() == [77])).await;
    // Whatever comes later is in a request without it.
    let before = till.questions().len();
    shop.orders_due_in(201..=220, -1_000).await;
    wait::until_eq("the number of closed orders", 169, async || shop.closed().await).await;
    for question in &till.questions()[before..] {
        let orders = question.orders();
        assert!(orders == [77] || !orders.contains(&77), "{orders:?}");
    }
    wait::until("it is asked about again", async || till.asked()[&77] > 10).await;
    till.calm_about(77);
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
    let alone: Vec<_> = till.questions().into_iter().filter(|question| question.orders() == [77]).collect();
    let pauses: Vec<u128> = alone.windows(2).map(|pair| (pair[1].at - pair[0].at).as_millis()).collect();
    assert!(pauses.iter().all(|pause| *pause >= 900), "it backs off: {pauses:?}");
}

#[tokio::test]
async fn an_order_on_which_the_receiver_hangs_holds_up_no_other() {
    one_order_upsets_the_receiver(true).await;
}

#[tokio::test]
async fn an_order_that_the_receiver_refuses_holds_up_no_other() {
    one_order_upsets_the_receiver(false).await;
}

/// Nothing is answered, in every way: nothing closes, one question at a time goes out, and the first answer wakes all.
#[tokio::test]
async fn without_answers_nothing_closes_and_the_first_one_wakes_all() {
    let (redis, till) = (Redis::start(), Till::start().await);
    let (shop, settings) = shop_that_asks(Kind::Postgres, &redis, &till, "timeout = '200ms'\nbatch = 10").await;
    let daemon = listening(&settings).await;
    let mut first = 1;
    let manners = [
        Manner::Status(500),
        Manner::Hang,
        Manner::Drop,
        Manner::Status(204),
        Manner::Body("close".into()),
        Manner::Body(r#"{"orders": {}}"#.into()),
        Manner::Body(format!(r#"{{"orders": {{}}, "x": "{}"}}"#, "x".repeat(2_000_000))),
    ];
    for manner in manners {
        till.is(manner.clone());
        shop.orders_due_in(first..first + 200, -1_000).await;
        let silences = daemon.logged("nobody answers who is asked before closing");
        wait::until("it is said", async || daemon.logged("nobody answers who is asked before closing") > silences || silences == 0).await;
        wait::until_eq("the number of orders that wait", 200, async || said(&daemon, "unanswered")).await;
        // Those before the silence may still be in hand.
        wait::until("one is asked about alone", async || till.questions().last().is_some_and(|last| last.orders().len() == 1)).await;
        let asked = till.questions().len();
        wait::until("another is", async || till.questions().len() > asked).await;
        till.most_under_way();
        let asked = till.questions().len();
        wait::until("it goes on", async || till.questions().len() > asked + 3).await;
        let later = till.questions();
        assert!(later[asked + 1..].iter().all(|question| question.orders().len() == 1), "{manner:?}");
        assert_eq!(till.most_under_way(), 1, "{manner:?}");
        assert_eq!(shop.closed().await, first - 1, "{manner:?}");
        till.is(Manner::Honest);
        first += 200;
        wait::until_eq("the number of closed orders", first - 1, async || shop.closed().await).await;
    }
    // There is no receiver at all.
    till.stop().await;
    shop.orders_due_in(first..first + 200, -1_000).await;
    wait::until_eq("the number of orders that wait", 200, async || said(&daemon, "unanswered")).await;
    assert_eq!(shop.closed().await, first - 1);
    till.start_again().await;
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
    assert_eq!(daemon.summary().count("rejected"), 0);
}

/// Whoever wants that closes them after a while; but never one that was said to be paid.
#[tokio::test]
async fn what_nobody_answers_closes_after_a_while_if_that_is_wanted() {
    let (redis, till) = (Redis::start(), Till::start().await);
    let more = "timeout = '200ms'\nunanswered = 'close'\nmax_wait = '3s'\nbatch = 5";
    let (shop, settings) = shop_that_asks(Kind::Postgres, &redis, &till, more).await;
    till.says(1, "paid");
    shop.orders_due_in(1..=1, -1_000).await;
    let daemon = listening(&settings).await;
    wait::until_eq("the number of paid orders", 1, async || said(&daemon, "paid")).await;
    till.is(Manner::Status(500));
    shop.orders_due_in(2..=101, 0).await;
    wait::until_eq("the number of closed orders", 100, async || shop.closed().await).await;
    daemon.stop().await;
    let outcome = shop.assert_outcome_except(&[1]).await;
    assert!(outcome.closed.values().all(|millis| *millis >= 3_000), "{outcome:?}");
}

/// Two daemons that see each other ask about an order once between them; and when one dies, the other asks about all.
#[tokio::test]
async fn two_daemons_ask_once_between_them() {
    let (redis, till) = (Redis::start(), Till::start().await);
    let (shop, settings) = shop_that_asks(Kind::Postgres, &redis, &till, "").await;
    till.is(Manner::Slow(Duration::from_millis(1_500)));
    let daemons = [listening(&settings).await, listening(&settings).await];
    for daemon in &daemons {
        daemon.until_logged("other instances close orders of this table").await;
    }
    shop.orders_due_in(1..=100, 2_000).await;
    till.says(1, "paid");
    till.says(2, json!({ "answer": "later", "retry_after": 3600 }));
    wait::until_eq("the number of closed orders", 98, async || shop.closed().await).await;
    wait::until("both have found what waits", async || daemons.iter().all(|daemon| said(daemon, "asking") == 2)).await;
    let twice: Vec<_> = till.asked().into_iter().filter(|(_, asked)| *asked != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    till.is(Manner::Honest);
    daemons[0].kill();
    till.says(1, "close");
    till.says(2, "close");
    shop.orders_due_in(101..=150, 500).await;
    wait::until("the other closes what was the first one's, as far as it is its own", async || shop.closed().await >= 148).await;
    daemons[1].stop().await;
}

/// While closing is paused, nobody is asked.
#[tokio::test]
async fn a_pause_asks_nothing() {
    let (redis, till) = (Redis::start(), Till::start().await);
    let (shop, settings) = shop_that_asks(Kind::Postgres, &redis, &till, "ahead = '1s'").await;
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    order_closer(&settings, &["pause", "--reason", "the provider is down"]).await.expect_code(0);
    let daemon = listening(&settings).await;
    daemon.until_logged("closing is paused").await;
    shop.orders_due_in(1..=20, -1_000).await;
    shop.orders_due_in(21..=40, 1_500).await;
    wait::until_eq("the number of overdue orders", 40, async || shop.overdue().await).await;
    order_closer(&settings, &["reconcile"]).await.expect_code(0);
    assert_eq!(till.questions().len(), 0);
    order_closer(&settings, &["resume"]).await.expect_code(0);
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
    assert!(till.asked().values().all(|asked| *asked == 1));
}

/// An order that its database refuses is tried again and again: it is asked about before each try that comes late, and holds up
/// no other.
#[tokio::test]
async fn a_rejected_order_is_asked_about_before_it_is_tried_again() {
    let (redis, till) = (Redis::start(), Till::start().await);
    let (shop, settings) = shop_that_asks(Kind::Postgres, &redis, &till, "").await;
    shop.database
        .execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF NEW.order_no = 3 THEN RAISE ''refused''; END IF; RETURN NEW; END';
             CREATE TRIGGER refuse BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION refuse()",
        )
        .await;
    let settings = settings.set("close.retry.initial", "6s").set("close.retry.attempts", 5);
    shop.orders_due_in(1..=50, -1_000).await;
    let daemon = listening(&settings).await;
    wait::until_eq("the number of closed orders", 49, async || shop.closed().await).await;
    wait::until("it was asked about again", async || till.asked()[&3] >= 2).await;
    assert!(till.asked().iter().all(|(order, asked)| *order == 3 || *asked == 1), "{:?}", till.asked());
    shop.database.execute("DROP TRIGGER refuse ON orders").await;
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
}

/// Every other way of closing asks as well, says what came, and how that is counted.
#[tokio::test]
async fn commands_ask_too() {
    let (redis, till) = (Redis::start(), Till::start().await);
    let (shop, settings) = shop_that_asks(Kind::Postgres, &redis, &till, "timeout = '300ms'").await;
    shop.orders_due_in(1..=300, -1_000).await;
    till.says(1, "paid");
    till.says(2, "later");
    till.says(3, Value::Null);
    till.says(4, Value::Null);
    let reconciled = order_closer(&settings, &["reconcile", "--json"]).await.expect_code(75);
    let count = |name: &str| reconciled.json()[name].as_i64();
    assert_eq!([count("closed"), count("failed"), count("disputed")], [Some(296), Some(0), Some(0)], "{reconciled:?}");
    assert_eq!([count("paid"), count("later"), count("unanswered")], [Some(1), Some(1), Some(2)], "{reconciled:?}");
    let closed = order_closer(&settings, &["close", "1", "2", "3"]).await.expect_code(75);
    for line in
        ["1: due by its row, but it is paid", "2: due, but whoever was asked wants", "3: due, but whoever was asked has not answered"]
    {
        assert!(closed.stdout.contains(line), "{closed:?}");
    }
    let counted = order_closer(&settings, &["close", "--json", "1", "2", "3"]).await.expect_code(75).json();
    assert_eq!([&counted["paid"], &counted["later"], &counted["unanswered"], &counted["closed"]], [1, 1, 1, 0]);
    till.stop().await;
    let unanswered = order_closer(&settings, &["reconcile", "--json"]).await.expect_code(75).json();
    assert_eq!((&unanswered["unanswered"], &unanswered["closed"]), (&json!(4), &json!(0)));
    let closed = order_closer(&settings, &["close", "--without-asking", "3"]).await.expect_code(0);
    assert!(closed.stdout.starts_with("3: closed"), "{closed:?}");
    till.start_again().await;
    till.says(4, "close");
    order_closer(&settings, &["close", "4"]).await.expect_code(0);
    shop.assert_outcome_except(&[1, 2]).await;
    drop(redis);
}

/// Events, the audit log among them, carry what was answered, and when.
#[tokio::test]
async fn events_carry_the_answer() {
    let (redis, till) = (Redis::start(), Till::start().await);
    for kind in [Kind::Postgres, Kind::MariaDb, Kind::Sqlite] {
        let (shop, settings) = shop_that_asks(kind, &redis, &till, "unanswered = 'close'\nmax_wait = '100ms'").await;
        let settings = settings.set("events.enabled", true);
        order_closer(&settings, &["migrate"]).await.expect_code(0);
        shop.orders_due_in(1..=3, -1_000).await;
        till.says(3, Value::Null);
        order_closer(&settings, &["close", "1"]).await.expect_code(0);
        order_closer(&settings, &["close", "--without-asking", "2"]).await.expect_code(0);
        let daemon = listening(&settings).await;
        shop.until_all_settled().await;
        daemon.stop().await;
        let events = order_closer(&settings, &["events", "--json"]).await.expect_code(0);
        let said: Vec<Value> = events.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let answers: Vec<(&str, Option<&str>)> =
            said.iter().map(|event| (event["order_id"].as_str().unwrap(), event["answer"].as_str())).collect();
        assert_eq!(answers, [("1", Some("close")), ("2", Some("not asked")), ("3", Some("unanswered"))]);
        let (asked, closed) = (said[0]["asked_at"].as_str().unwrap(), said[0]["closed_at"].as_str().unwrap());
        assert!(said[0]["deadline"].as_str().unwrap() < asked && asked <= closed, "{}", said[0]);
        assert!(said[1].get("asked_at").is_none() && said[2].get("asked_at").is_none(), "{said:?}");
        shop.assert_outcome().await;
    }
}

/// `check` asks about no order, and says what came.
#[tokio::test]
async fn check_asks_a_harmless_question() {
    let (redis, till) = (Redis::start(), Till::start().await);
    let (shop, settings) = shop_that_asks(Kind::Sqlite, &redis, &till, "timeout = '300ms'").await;
    shop.orders_due_in(1..=5, -1_000).await;
    let checked = order_closer(&settings, &["check"]).await;
    assert!(checked.stdout.contains("✓ ask") && checked.stdout.contains("answers a question about no order"), "{checked:?}");
    assert_eq!(till.questions().iter().map(Question::orders).collect::<Vec<_>>(), [Vec::<i64>::new()]);
    till.is(Manner::Status(404));
    let checked = order_closer(&settings, &["check"]).await;
    assert!(checked.stdout.contains("✗ ask") && checked.stdout.contains("404") && checked.code != Some(0), "{checked:?}");
    let checked = order_closer(&settings.add("[close.ask]\nca_file = '/no/file'"), &["check"]).await.expect_code(78);
    assert!(checked.stdout.contains("close.ask: ca_file: /no/file can't be used"), "{checked:?}");
    assert_eq!(shop.closed().await, 0);
}

/// The receiver of docs/ask.md does what the page says.
#[tokio::test]
async fn the_receiver_of_the_documentation_answers() {
    let page = include_str!("../../docs/ask.md");
    let block = |language: &str| page.split(&format!("```{language}\n")).nth(1).and_then(|rest| rest.split("```").next()).expect("a block");
    let answers = order_closer::ask::read(block("json-answer").as_bytes()).expect("an answer");
    assert_eq!(answers.len(), 3);
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let port = ports::free();
    let folder = process::folder();
    let file = folder.path().join("receiver.py");
    std::fs::write(&file, block("python")).unwrap();
    let mut command = process::mortal("python3");
    command.arg(&file).env("PORT", port.to_string()).env("SECRET", SECRETS[0]);
    let receiver = process::Process::spawn("the receiver", command);
    let ask = format!("[close.ask]\nurl = 'http://127.0.0.1:{port}/'\nsecrets = ['{}']\ninclude = ['order_no']", SECRETS[0]);
    let settings = shop.settings_with(&redis).add(&ask);
    wait::until("it listens", async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()).await;
    shop.orders_due_in(1..=9, -1_000).await;
    // Those that its stand-in of a provider knows to be paid: each third.
    let reconciled = order_closer(&settings, &["reconcile", "--json"]).await.expect_code(75).json();
    assert_eq!((&reconciled["closed"], &reconciled["paid"]), (&json!(6), &json!(3)), "{reconciled}");
    let forged = settings.set("close.ask.secrets", vec![SECRETS[1]]);
    let refused = order_closer(&forged, &["reconcile", "--json"]).await.expect_code(75).json();
    assert_eq!(refused["unanswered"], json!(3), "it answers nobody without the secret: {refused}");
    shop.assert_outcome_except(&[3, 6, 9]).await;
    drop(receiver);
}

/// A caller over HTTP hears what was answered; and what an order waits for.
#[tokio::test]
async fn callers_over_http_hear_what_was_answered() {
    let (redis, till) = (Redis::start(), Till::start().await);
    let (shop, settings) = shop_that_asks(Kind::Postgres, &redis, &till, "timeout = '300ms'").await;
    let (address, token) = (format!("127.0.0.1:{}", ports::free()), "0123456789abcdef-a-token-of-tests");
    // So that nobody but the caller looks at them.
    let settings = settings.set("sweep.every", "1h").set("sweep.ahead", "0s").set("http.listen", address.as_str()).set("http.token", token);
    let daemon = listening(&settings).await;
    shop.orders_due_in(1..=4, 2_000).await;
    wait::until_eq("the number of overdue orders", 4, async || shop.overdue().await).await;
    till.says(1, "paid");
    till.says(2, json!({ "answer": "later", "retry_after": 600 }));
    till.says(3, Value::Null);
    rustls::crypto::ring::default_provider().install_default().ok();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().expect("a client");
    let ask = async |method: Method, path: &str| {
        let response = client.request(method, format!("http://{address}{path}")).bearer_auth(token).send().await.expect("an answer");
        let (status, after) =
            (response.status().as_u16(), response.headers().get("retry-after").map(|after| after.to_str().unwrap().to_owned()));
        (status, after, serde_json::from_str::<Value>(&response.text().await.unwrap()).unwrap())
    };
    for (order, status, outcome) in [(1, 409, "paid"), (2, 409, "later"), (3, 503, "unanswered"), (4, 200, "closed")] {
        let (answered, after, body) = ask(Method::POST, &format!("/orders/{order}/close")).await;
        assert_eq!((answered, body["outcome"].as_str()), (status, Some(outcome)), "{body}");
        assert_eq!(after.is_some(), status != 200);
    }
    daemon.stop().await;
    // In a daemon that looks at them itself, each says what it waits for.
    let daemon = listening(&settings.set("sweep.every", "1s")).await;
    for (order, why) in [(1, "it is paid"), (2, "wants to be asked again"), (3, "has not answered")] {
        wait::until("it is said what it waits for", async || {
            ask(Method::GET, &format!("/orders/{order}")).await.2["waits"].as_str().is_some_and(|waits| waits.contains(why))
        })
        .await;
    }
    let metrics = async || client.get(format!("http://{address}/metrics")).send().await.unwrap().text().await.unwrap();
    for sample in [
        r#"order_closer_overdue_orders{rule="orders",state="asked"} 3"#,
        r#"order_closer_asked_orders{rule="orders",state="paid"} 1"#,
        r#"order_closer_asked_orders{rule="orders",state="unanswered"} 1"#,
        r#"order_closer_inbox_orders{rule="orders",state="asked"} 3"#,
        r#"order_closer_asks_total{rule="orders",answer="paid"} 1"#,
    ] {
        wait::until(sample, async || metrics().await.contains(sample)).await;
    }
    daemon.stop().await;
    shop.assert_outcome_except(&[1, 2, 3]).await;
    assert_eq!(shop.status(1).await, UNPAID);
}

/// Rows that contradict their keys are disputed, and nobody is asked about them: the receiver would expire what can still be
/// paid.
#[tokio::test]
async fn nobody_is_asked_about_a_disputed_order() {
    let (redis, till) = (Redis::start(), Till::start().await);
    let (shop, settings) = shop_that_asks(Kind::Postgres, &redis, &till, "ahead = '1s'").await;
    shop.orders_due_in(1..=20, 3_000).await;
    shop.write_keys(&redis, 3_600_000).await;
    shop.orders_due_in(21..=40, 3_000).await;
    let daemon = listening(&settings).await;
    wait::until_eq("the number of closed orders", 20, async || shop.closed().await).await;
    wait::until_eq("the number of disputed orders", 20, async || said(&daemon, "disputed")).await;
    assert!(till.orders().iter().all(|order| *order > 20), "{:?}", till.orders());
    daemon.stop().await;
    let disputed: Vec<i64> = (1..=20).collect();
    shop.assert_outcome_except(&disputed).await;
}
