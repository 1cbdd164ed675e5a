//! Several rules in one daemon: each closes its own orders, and trouble of one is none of the others'.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{listening, on_each_database};
use crate::support::{
    Daemon, Kind, Redis, Settings, Shop,
    daemon::order_closer,
    shop::UNPAID,
    till::{Manner, Till},
    wait,
};

on_each_database! {
    each_closes_its_own
    a_table_that_is_missing_keeps_no_other_rule_waiting
    what_two_rules_claim_neither_closes
}

/// How a customer pays.
const CARD: i64 = 1;
const TRANSFER: i64 = 3;

/// What the rules of [`settings`] set.
const CLOSED: i64 = 4;
const GIVEN_UP: i64 = 5;
const SHIPPED: i64 = 2;
const RECEIVED: i64 = 6;

/// What notes each closure, and when.
const NOTED: &str = "INSERT INTO closures (order_no) SELECT order_no FROM orders WHERE order_no IN (:ids)";

/// A shop whose orders are paid in several ways, and shipped.
async fn open(kind: Kind) -> Shop {
    let shop = Shop::open(kind).await;
    let time = match kind {
        Kind::Postgres => "timestamptz",
        Kind::MariaDb => "datetime(6)",
        Kind::Sqlite => "text",
    };
    shop.database.execute(&format!("ALTER TABLE orders ADD COLUMN pay_type integer NOT NULL DEFAULT {CARD}")).await;
    shop.database.execute(&format!("ALTER TABLE orders ADD COLUMN shipped_at {time} NULL")).await;
    shop
}

/// Those paid by card close at their deadline, the others an hour later, and what was shipped an hour ago has been received.
fn rules() -> String {
    format!(
        "[[rules]]
         name = 'online'
         key_prefix = 'order_'
         include = ['pay_type']
         orders = {{ unpaid = [{UNPAID}], closed = {CLOSED}, filter = 'pay_type IN (1, 2)' }}
         close = {{ sql = ['{NOTED}'] }}

         [[rules]]
         name = 'transfer'
         key_prefix = 'order_'
         orders = {{ closed = {GIVEN_UP}, filter = 'pay_type = {TRANSFER}', deadline = {{ column = 'expires_at', plus = '1h' }} }}

         [[rules]]
         name = 'auto-receive'
         key_prefix = 'none'
         orders = {{ unpaid = [{SHIPPED}], closed = {RECEIVED}, deadline = {{ column = 'shipped_at', plus = '1h' }} }}
"
    )
}

/// One more, of another table.
const REVIEWS: &str = "
         [[rules]]
         name = 'reviews'
         key_prefix = 'review_'
         orders = { table = 'reviews', id = 'id', deadline = { column = 'closes_at' } }";

fn settings(shop: &Shop, redis: &Redis, rules: &str) -> Settings {
    Settings::new().set("database.url", shop.database.url.as_str()).set("redis.url", redis.url()).set("log.format", "json").add(rules)
}

/// Orders 1 and 2 by card, 3 and 4 by transfer, 5 and 6 shipped; the first of each is due.
async fn take_orders(shop: &Shop) {
    const HOUR: i64 = 3_600_000;
    // None of them falls due before it is what it is: a daemon may run.
    shop.orders(&[(1, -1_000), (2, HOUR), (3, HOUR), (4, HOUR), (5, HOUR), (6, HOUR)]).await;
    for (number, due_in_millis, what) in [
        (3, -HOUR - 1_000, format!("pay_type = {TRANSFER}")),
        (4, -1_000, format!("pay_type = {TRANSFER}")),
        (5, -HOUR - 1_000, format!("pay_type = 0, status = {SHIPPED}")),
        (6, -1_000, format!("pay_type = 0, status = {SHIPPED}")),
    ] {
        let moment = shop.moment(due_in_millis);
        shop.database
            .execute(&format!("UPDATE orders SET {what}, expires_at = {moment}, shipped_at = {moment} WHERE order_no = {number}"))
            .await;
    }
}

const WHEN_ALL_IS_DONE: [(i64, i64); 6] = [(1, CLOSED), (2, UNPAID), (3, GIVEN_UP), (4, UNPAID), (5, RECEIVED), (6, SHIPPED)];

async fn each_closes_its_own(kind: Kind) {
    let (redis, shop) = (Redis::start(), open(kind).await);
    let settings = settings(&shop, &redis, &rules()).set("events.enabled", true);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let daemon = listening(&settings).await;
    take_orders(&shop).await;
    let all_done = BTreeMap::from(WHEN_ALL_IS_DONE);
    wait::until_eq("all statuses", all_done.clone(), async || shop.statuses().await).await;
    // A hint goes to each rule with that prefix, and none of them takes another's.
    for order in 1..=6 {
        redis.publish_expired(0, format!("order_{order}").as_bytes());
    }
    shop.order(7, 500).await;
    shop.database.execute("UPDATE orders SET pay_type = 2 WHERE order_no = 7").await;
    shop.until_status(7, CLOSED).await;
    daemon.stop().await;
    let mut expected = all_done;
    expected.insert(7, CLOSED);
    assert_eq!(shop.statuses().await, expected);
    assert_eq!(shop.closures().await, BTreeMap::from([(1, 1), (7, 1)]), "each rule runs its own SQL");
    let lines = order_closer(&settings, &["events", "--json"]).await.expect_code(0).stdout;
    let events: BTreeMap<String, (String, Value)> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .map(|event| {
            let text = |name: &str| event[name].as_str().expect("a text").to_owned();
            (text("order_id"), (text("rule"), event["order"].clone()))
        })
        .collect();
    let rules: Vec<_> = events.iter().map(|(order, (rule, _))| (order.as_str(), rule.as_str())).collect();
    assert_eq!(rules, [("1", "online"), ("3", "transfer"), ("5", "auto-receive"), ("7", "online")]);
    assert_eq!((&events["1"].1["pay_type"], &events["3"].1), (&CARD.into(), &serde_json::json!({})), "each includes its own columns");
    let summaries = daemon.said("order-closer stopped");
    let closed: BTreeMap<_, _> =
        summaries.iter().map(|line| (line["span"]["rule"].as_str().expect("a rule"), line["closed"].as_u64().expect("a number"))).collect();
    assert_eq!(closed, BTreeMap::from([("auto-receive", 1), ("online", 2), ("transfer", 1)]));
}

async fn a_table_that_is_missing_keeps_no_other_rule_waiting(kind: Kind) {
    let (redis, shop) = (Redis::start(), open(kind).await);
    let settings = settings(&shop, &redis, &(rules() + REVIEWS));
    take_orders(&shop).await;
    let daemon = Daemon::start(&settings);
    wait::until_eq("all statuses", BTreeMap::from(WHEN_ALL_IS_DONE), async || shop.statuses().await).await;
    let waiting = daemon.said("no order can be closed; waiting for the database");
    assert_eq!(waiting[0]["span"]["rule"], "reviews", "{waiting:?}");
    shop.database.execute("CREATE TABLE reviews (id bigint PRIMARY KEY, status integer NOT NULL, closes_at bigint NULL)").await;
    daemon.until_logged("no order of this rule is closed; it is tried again").await;
    shop.order(8, 300).await;
    shop.until_status(8, CLOSED).await;
    daemon.stop().await;
}

/// What was changed while its table was missing holds for a rule that comes late, too.
#[tokio::test]
async fn a_rule_that_comes_late_has_the_configuration_as_it_is_by_then() {
    let (redis, shop) = (Redis::start(), open(Kind::Postgres).await);
    shop.database
        .execute("CREATE TABLE reviews (id bigint PRIMARY KEY, status integer NOT NULL DEFAULT 0, closes_at timestamptz NULL)")
        .await;
    let settings = settings(&shop, &redis, &(rules() + REVIEWS)).set("events.enabled", true);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    shop.database.execute("ALTER TABLE reviews RENAME TO reviews_to_come").await;
    let daemon = listening(&settings).await;
    daemon.until_logged("no order can be closed; waiting for the database").await;
    assert!(daemon.reload(&settings.clone().set("events.stream.key", "closed").toml()).await);
    shop.database.execute("ALTER TABLE reviews_to_come RENAME TO reviews").await;
    shop.database.execute("INSERT INTO reviews (id, closes_at) VALUES (8, now())").await;
    wait::until("its closure was told", async || format!("{:?}", redis.command(&["XRANGE", "closed", "-", "+"])).contains("reviews")).await;
    daemon.stop().await;
}

async fn what_two_rules_claim_neither_closes(kind: Kind) {
    let (redis, shop) = (Redis::start(), open(kind).await);
    let overlapping = settings(&shop, &redis, &rules().replace("pay_type = 3", "pay_type >= 2"));
    let daemon = listening(&overlapping).await;
    shop.orders(&[(1, -3_700_000), (2, -3_700_000), (3, -3_700_000)]).await;
    shop.database.execute("UPDATE orders SET pay_type = order_no").await;
    shop.until_status(1, CLOSED).await;
    shop.until_status(3, GIVEN_UP).await;
    redis.publish_expired(0, b"order_2");
    let sentence = "two rules claim an order, and neither closes it: see that no row passes the filters of both";
    daemon.until_logged(sentence).await;
    daemon.stop().await;
    let said = daemon.said(sentence);
    assert_eq!((&said[0]["order"], &said[0]["also"], &said[0]["span"]["rule"]), (&"2".into(), &"transfer".into(), &"online".into()));
    assert_eq!(shop.status(2).await, UNPAID);
    let explained = async |id: &str| -> Vec<Value> {
        let said = order_closer(&overlapping, &["explain", id, "--json"]).await.expect_code(0).stdout;
        said.lines().map(|line| serde_json::from_str(line).expect("JSON on each line")).collect()
    };
    let both = explained("2").await;
    assert!(both.len() == 2 && both.iter().all(|said| said["state"] == "claimed_twice"), "{both:#?}");
    // Whoever starts it like that is told at once.
    let again = Daemon::start(&overlapping);
    assert_eq!(again.wait().await.code(), Some(78));
    let lines = again.lines().join("\n");
    assert!(lines.contains("online") && lines.contains("transfer") && lines.contains("the order 2"), "{lines}");
}

/// What another transaction holds for one rule is waited for by that rule alone.
#[tokio::test]
async fn a_held_table_delays_no_other_rule() {
    let (redis, shop) = (Redis::start(), open(Kind::Postgres).await);
    shop.database
        .execute("CREATE TABLE reviews (id bigint PRIMARY KEY, status integer NOT NULL DEFAULT 0, closes_at timestamptz NULL)")
        .await;
    let settings = settings(&shop, &redis, &(rules() + REVIEWS)).set("database.connections", 8);
    let daemon = listening(&settings).await;
    let mut transaction = shop.database.begin().await;
    transaction.execute("LOCK TABLE reviews IN ACCESS EXCLUSIVE MODE").await;
    for order in 1..=20 {
        redis.publish_expired(0, format!("review_{order}").as_bytes());
    }
    for order in 1..=10 {
        shop.order(order, 200).await;
        shop.until_status(order, CLOSED).await;
    }
    transaction.rollback().await;
    daemon.stop().await;
    let late = shop
        .database
        .number("SELECT count(*) FROM orders o JOIN closures c USING (order_no) WHERE c.closed_at > o.expires_at + interval '1 second'")
        .await;
    assert_eq!(late, 0, "closed on time beside the held table");
}

/// Cron has one line for all rules, and whoever knows an order's id need not know its rule.
#[tokio::test]
async fn commands_are_about_all_rules_or_about_one() {
    let (redis, shop) = (Redis::start(), open(Kind::Postgres).await);
    let settings = settings(&shop, &redis, &(rules() + REVIEWS));
    shop.database
        .execute("CREATE TABLE reviews (id bigint PRIMARY KEY, status integer NOT NULL DEFAULT 0, closes_at timestamptz NULL)")
        .await;
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    take_orders(&shop).await;
    let by_rule = |stdout: &str| -> BTreeMap<String, u64> {
        let reports = stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        reports.map(|report| (report["rule"].as_str().expect("a rule").to_owned(), report["closed"].as_u64().expect("a number"))).collect()
    };
    let named = order_closer(&settings, &["reconcile", "--json", "--rule", "transfer"]).await.expect_code(0);
    assert_eq!(by_rule(&named.stdout), BTreeMap::from([("transfer".into(), 1)]));
    let all = order_closer(&settings, &["reconcile", "--json"]).await.expect_code(0);
    let expected = [("auto-receive", 1), ("online", 1), ("reviews", 0), ("transfer", 0)];
    assert_eq!(by_rule(&all.stdout), expected.map(|(rule, closed)| (rule.to_owned(), closed)).into());
    assert_eq!(shop.statuses().await, BTreeMap::from(WHEN_ALL_IS_DONE));
    // By its id alone: of the rules of that table the one that it is an order of.
    shop.order(9, -3_700_000).await;
    shop.database.execute(&format!("UPDATE orders SET pay_type = {TRANSFER} WHERE order_no = 9")).await;
    let closed = order_closer(&settings, &["close", "9", "6", "77"]).await.expect_code(0).stdout;
    let lines: Vec<&str> = closed.lines().collect();
    let [six, nine, unknown] = &lines[..] else { panic!("{closed}") };
    assert!(six.starts_with("6: not due") && unknown.starts_with("77: no such order") && nine.starts_with("9: closed"), "{closed}");
    assert_eq!(shop.status(9).await, GIVEN_UP);
    // A pause of one rule is none of the others'.
    order_closer(&settings, &["pause", "--rule", "auto-receive", "--reason", "the parcels are late"]).await.expect_code(0);
    shop.orders(&[(10, -1_000), (11, -3_700_000)]).await;
    shop.database
        .execute(&format!("UPDATE orders SET status = {SHIPPED}, shipped_at = expires_at, pay_type = 0 WHERE order_no = 11"))
        .await;
    let closed = order_closer(&settings, &["close", "10", "11"]).await.expect_code(75).stdout;
    assert!(closed.contains("10: closed") && closed.contains("11: not looked at, closing is paused"), "{closed}");
    order_closer(&settings, &["resume", "--rule", "auto-receive"]).await.expect_code(0);
    // Not where two tables have it.
    shop.database.execute("INSERT INTO reviews (id, closes_at) VALUES (4, now() - interval '1 hour')").await;
    let several = order_closer(&settings, &["close", "4"]).await.expect_code(64).stderr;
    assert!(several.contains("reviews") && several.contains("--rule"), "{several}");
    order_closer(&settings, &["close", "4", "--rule", "reviews"]).await.expect_code(0);
    assert_eq!(shop.database.number("SELECT status FROM reviews WHERE id = 4").await, CLOSED);
    let unknown = order_closer(&settings, &["reconcile", "--rule", "card"]).await.expect_code(64).stderr;
    assert!(unknown.contains("auto-receive, online, reviews, transfer"), "{unknown}");
}

/// A rule that can't be closed keeps no other waiting, and is what cron hears of.
#[tokio::test]
async fn a_rule_that_fails_in_reconcile_is_named() {
    let (redis, shop) = (Redis::start(), open(Kind::Postgres).await);
    let settings = settings(&shop, &redis, &(rules() + REVIEWS));
    take_orders(&shop).await;
    let failed = order_closer(&settings, &["reconcile"]).await.expect_code(78);
    assert!(failed.stderr.contains("reviews: ") && failed.stderr.contains("no such table"), "{}", failed.stderr);
    assert_eq!(shop.statuses().await, BTreeMap::from(WHEN_ALL_IS_DONE));
}

/// Those that are given up are one rule's, and back with it.
#[tokio::test]
async fn a_dead_letter_is_one_rules() {
    let (redis, shop) = (Redis::start(), open(Kind::Postgres).await);
    let once = rules().replace("name = 'transfer'", "name = 'transfer'\n close = { retry = { attempts = 1 } }");
    let settings = settings(&shop, &redis, &once);
    shop.database.execute("ALTER TABLE orders ADD CONSTRAINT never_given_up CHECK (NOT (order_no = 3 AND status = 5))").await;
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let daemon = listening(&settings).await;
    take_orders(&shop).await;
    let given_up = daemon.until_logged("is a dead letter").await;
    shop.until_status(1, CLOSED).await;
    daemon.stop().await;
    assert!(given_up.contains("transfer"), "{given_up}");
    let rule = shop.database.text("SELECT rule FROM order_closer_dead_letters WHERE order_id = '3'").await;
    assert_eq!(rule.as_deref(), Some("transfer"));
}

/// Whoever a rule asks is asked for that rule alone: while one receiver hangs, refuses, lies or is gone, the rule that asks
/// another closes on time, and so does the one that asks nobody.
#[tokio::test]
async fn a_receiver_in_trouble_delays_no_other_rule() {
    let (redis, shop, till, troubled) = (Redis::start(), open(Kind::Postgres).await, Till::start().await, Till::start().await);
    let asks = |till: &Till| till.settings("timeout = '15s'").replace("[close.ask]", "[rules.close.ask]");
    let rule = |name: &str, orders: &str| {
        format!("[[rules]]\nname = '{name}'\nkey_prefix = 'order_'\norders = {{ {orders} }}\n[rules.close]\nsql = ['{NOTED}']\n")
    };
    let rules = [
        rule("online", "filter = 'pay_type = 1'") + &asks(&till),
        rule("transfer", "filter = 'pay_type = 3'") + &asks(&troubled),
        rule("auto-receive", &format!("unpaid = [{SHIPPED}], closed = {RECEIVED}")),
    ];
    let daemon = listening(&settings(&shop, &redis, &rules.concat())).await;
    let manners = [Manner::Status(500), Manner::Body("{\"orders\": \"close\"}".into()), Manner::Drop, Manner::Hang];
    let mut waiting = Vec::new();
    for (first, manner) in (1..).step_by(30).zip(manners) {
        let asked = troubled.questions().len();
        troubled.is(manner);
        shop.orders_due_in(first..first + 30, 500).await;
        let change = |what: &str, from: i64| format!("UPDATE orders SET {what} WHERE order_no BETWEEN {from} AND {}", from + 9);
        shop.database.execute(&change(&format!("pay_type = {TRANSFER}"), first + 10)).await;
        shop.database.execute(&change(&format!("status = {SHIPPED}, pay_type = 0"), first + 20)).await;
        for order in first..first + 10 {
            shop.until_status(order, CLOSED).await;
            shop.until_status(order + 20, RECEIVED).await;
            waiting.push(order + 10);
        }
        wait::until("the other receiver is asked", async || troubled.questions().len() > asked).await;
    }
    let late = "SELECT count(*) FROM orders o JOIN closures c USING (order_no) WHERE c.closed_at > o.expires_at + interval '10 seconds'";
    assert_eq!(shop.database.number(late).await, 0, "whoever waited for the receiver in trouble would be later");
    for order in &waiting {
        assert_eq!(shop.status(*order).await, UNPAID, "{order} closes without an answer");
    }
    assert!(till.orders().iter().all(|order| !waiting.contains(order)), "each receiver is asked about its own rule's orders");
    assert!(till.questions().iter().all(|question| question.json()["rule"] == "online"));
    troubled.is(Manner::Honest);
    for order in waiting {
        shop.until_status(order, CLOSED).await;
    }
    daemon.stop().await;
}

/// Each rule has a connection that no other uses: one whose statements all hang does not delay those that close crowds.
#[tokio::test]
async fn crowds_of_other_rules_close_beside_one_whose_statements_hang() {
    let (redis, shop) = (Redis::start(), open(Kind::Postgres).await);
    let hangs = rules()
        .replace("name = 'transfer'", "name = 'transfer'\n close = { sql = ['SELECT pg_sleep(30) FROM orders WHERE order_no IN (:ids)'] }");
    let settings = settings(&shop, &redis, &hangs).set("database.connections", 7).set("database.timeout", "3s");
    let daemon = listening(&settings).await;
    shop.orders_due_in(1..=200, -3_700_000).await;
    shop.database.execute(&format!("UPDATE orders SET pay_type = {TRANSFER}")).await;
    shop.orders_due_in(1_001..=3_000, 1_500).await;
    shop.orders_due_in(3_001..=4_000, -3_700_000).await;
    shop.database
        .execute(&format!("UPDATE orders SET status = {SHIPPED}, shipped_at = expires_at, pay_type = 0 WHERE order_no > 3000"))
        .await;
    let closed = "SELECT count(*) FROM orders WHERE (order_no BETWEEN 1001 AND 3000 AND status = 4) OR (order_no > 3000 AND status = 6)";
    wait::until_eq("the number of closed orders", 3_000, async || shop.database.number(closed).await).await;
    let late = "SELECT count(*) FROM orders o JOIN closures c USING (order_no) WHERE c.closed_at > o.expires_at + interval '5 seconds'";
    assert_eq!(shop.database.number(late).await, 0, "closed on time beside statements that hang");
    daemon.stop().await;
}
