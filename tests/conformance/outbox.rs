//! Events: written with the closure or not at all, claimed by one at a time, kept until they are delivered.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use order_closer::{
    close::{Looked, Outcome},
    config::EventSource,
    order::{OrderId, Trigger},
    outbox::{Address, Claimed, DeadLetter, DeadOrder, Event, EventQuery, Failed, Note, Pick, Place, Settled, Want, cloud_event},
    store::{Outbox, Store, tables_for},
};
use serde_json::json;
use uuid::Uuid;

use super::{
    Database, Settings, by_kind, closing::look, host_now, ids, load, open, overdue, overdue_orders, plain_orders, settings, try_open,
};
use crate::support::{mariadb::MariaDb, wait};

pub(super) const LONG: Duration = Duration::from_mins(10);

/// Two webhooks, to which nothing is sent here.
pub(super) fn with_events(database: &Database) -> Settings {
    let webhook = |name: &str| {
        format!("[[events.webhooks]]\nname = '{name}'\nurl = 'http://127.0.0.1:1/'\nsecrets = ['whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3']\n")
    };
    settings(database).set("events.enabled", true).add(&(webhook("one") + &webhook("two")))
}

/// The store with its tables.
pub(super) async fn migrated(settings: &Settings) -> Arc<dyn Store> {
    open(settings).await.outbox().migrate().await.expect("the tables can be created");
    let store = open(settings).await;
    assert!(store.outbox().is_ready());
    assert_eq!(tables_for(&load(settings).events, &*store), Ok(()));
    store
}

/// Closes orders as the daemon does.
pub(super) async fn close(store: &Arc<dyn Store>, texts: &[&str], trigger: Trigger) -> Vec<Looked> {
    look(store, ids(&**store, texts), trigger).await.expect("the database is well")
}

pub(super) async fn events(store: &dyn Store) -> Vec<Event> {
    store.outbox().unpack_all(LONG).await.expect("batches can be unpacked");
    store.outbox().events(&EventQuery { limit: 1_000, ..EventQuery::default() }).await.expect("events can be read")
}

pub(super) async fn claim(store: &dyn Store, target: &str, lease: Duration, limit: usize) -> Vec<Claimed> {
    store.outbox().unpack_all(LONG).await.expect("batches can be unpacked");
    // What is claimed for a moment only may be due again before the end.
    let wants = [Pick::Again, Pick::Oldest].map(|pick| Want { pick, total: limit });
    let claimed = store.outbox().exchange(target, "me", lease, &Settled::default(), &wants).await;
    claimed.expect("deliveries can be claimed").concat()
}

pub(super) async fn settle(outbox: &Outbox, target: &str, delivered: &[Uuid], failed: &[Failed]) {
    let settled =
        Settled { delivered: delivered.to_vec(), failed: failed.to_vec(), notes: vec![Note::Took { recovered: true }], again: Vec::new() };
    outbox.settle(target, &settled).await.expect("claims can be settled");
}

/// All dead letters, page by page.
pub(super) async fn dead_letters(store: &dyn Store) -> Vec<DeadLetter> {
    let (mut letters, mut place) = (Vec::new(), Some(Place::FIRST));
    while let Some(begin) = place {
        let (page, next) = store.outbox().dead_letters(&begin, 2).await.expect("they can be read");
        assert!(page.len() <= 2);
        letters.extend(page);
        place = next;
    }
    letters
}

pub(super) fn orders<'e>(events: impl IntoIterator<Item = &'e Event>) -> Vec<&'e str> {
    let mut orders: Vec<&str> = events.into_iter().map(|event| event.order_id.as_str()).collect();
    orders.sort_unstable();
    orders
}

pub(super) fn claimed_orders(claimed: &[Claimed]) -> Vec<&str> {
    orders(claimed.iter().map(|claimed| &claimed.event))
}

pub async fn an_event_for_each_closure(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=4).await;
    database.execute("UPDATE orders SET note = 'it''s \"é\"' WHERE order_no = 1; UPDATE orders SET status = 1 WHERE order_no = 4").await;
    let store = migrated(&with_events(&database).set("events.include", vec!["note", "status"]).set("orders.filter", "status < 4")).await;
    let before = host_now();
    close(&store, &["1", "2"], Trigger::Expired).await;
    close(&store, &["1", "3", "4", "5"], Trigger::Sweep).await;
    let after = host_now();
    let events = events(&*store).await;
    assert_eq!(orders(&events), ["1", "2", "3"]);
    for event in &events {
        assert_eq!(event.deadline, 1_577_836_800_000_000);
        assert_eq!(event.lateness, event.closed_at - event.deadline);
        // SQLite's clock counts milliseconds.
        assert!((before - 1_000..=after).contains(&event.closed_at), "{event:?} is not now");
        assert_eq!(event.trigger, if event.order_id == "3" { "sweep" } else { "expired" });
        assert!(event.instance.ends_with(&format!("/{}", std::process::id())), "{event:?}");
        let data: serde_json::Value = serde_json::from_str(event.data.get()).expect("JSON");
        let note = (event.order_id == "1").then_some("it's \"é\"");
        assert_eq!(data, json!({ "note": note, "status": 4 }), "the row as it was closed");
    }
    assert!(events.iter().map(|event| event.id).is_sorted());
    assert_eq!(events[2].order_id, "3", "later events have greater ids");
    for target in ["one", "two"] {
        assert_eq!(claimed_orders(&claim(&*store, target, LONG, 10).await), ["1", "2", "3"]);
    }
}

pub async fn no_event_without_its_closure(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3).await;
    database.execute("CREATE TABLE coupons (order_no bigint CHECK (order_no <> 2))").await;
    let sql = vec!["INSERT INTO coupons SELECT order_no FROM orders WHERE order_no IN (:ids)"];
    let store = migrated(&with_events(&database).set("close.sql", sql)).await;
    let looked = close(&store, &["1", "2", "3"], Trigger::Expired).await;
    let rejected: Vec<&str> =
        looked.iter().filter(|one| matches!(one.outcome, Outcome::Rejected { .. })).map(|one| one.pending.id.as_str()).collect();
    assert_eq!(rejected, ["2"]);
    assert_eq!(orders(&events(&*store).await), ["1", "3"], "one each, whatever was rolled back on the way");
    assert_eq!(claim(&*store, "one", LONG, 10).await.len(), 2);
}

/// Recording is part of the closure: when it fails, nothing is closed.
pub async fn no_closure_without_its_event(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=2).await;
    let store = migrated(&with_events(&database)).await;
    database.execute("DROP TABLE order_closer_deliveries").await;
    let looked = close(&store, &["1", "2"], Trigger::Expired).await;
    assert!(looked.iter().all(|one| matches!(one.outcome, Outcome::Rejected { .. })) && looked.len() == 2, "{looked:?}");
    assert_eq!(database.number("SELECT count(*) FROM orders WHERE status = 0").await, 2);
    assert_eq!(database.number("SELECT count(*) FROM order_closer_events").await, 0);
}

pub async fn nothing_is_recorded_unless_asked_for(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, [1]).await;
    migrated(&with_events(&database)).await;
    let store = open(&settings(&database)).await;
    close(&store, &["1"], Trigger::Expired).await;
    assert_eq!(events(&*store).await.len(), 0);
}

pub async fn an_included_column_must_exist(database: Database) {
    plain_orders(&database).await;
    let error = try_open(&with_events(&database).set("events.include", vec!["notte"])).await.expect_err("there is no such column");
    assert!(error.to_string().contains("events.include is \"notte\"") && error.to_string().contains("expires_at"), "{error}");
}

/// Ids as columns of other types print them, and text ids that only bytes tell apart.
pub async fn events_name_orders_exactly(database: Database) {
    let id = by_kind(database.kind, "varchar(40)", "varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "text");
    super::create_orders(&database, id, "integer", super::time_type(database.kind)).await;
    let texts = ["a", "A", "ä-1", "a'b\\c\""];
    for text in texts {
        let quoted = text.replace('\'', "''");
        let quoted = if database.kind == super::Kind::MariaDb { quoted.replace('\\', "\\\\") } else { quoted };
        database
            .execute(&format!("INSERT INTO orders (order_no, status, expires_at, note) VALUES ('{quoted}', 0, {}, 'x')", super::PAST))
            .await;
    }
    let store = migrated(&with_events(&database).set("events.include", vec!["order_no"])).await;
    close(&store, &texts, Trigger::Expired).await;
    let events = events(&*store).await;
    assert_eq!(events.len(), 4);
    for event in &events {
        let data: serde_json::Value = serde_json::from_str(event.data.get()).expect("JSON");
        assert_eq!(data["order_no"], event.order_id.as_str());
    }
    let query = EventQuery { order: ids(&*store, &["A"]).pop(), limit: 10, ..EventQuery::default() };
    assert_eq!(orders(&store.outbox().events(&query).await.expect("events can be read")), ["A"]);
}

pub async fn events_are_read_in_pages_and_by_age(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=25).await;
    let store = migrated(&with_events(&database)).await;
    let numbers: Vec<String> = (1..=25).map(|number| number.to_string()).collect();
    close(&store, &numbers.iter().map(String::as_str).collect::<Vec<_>>(), Trigger::Reconcile).await;
    let mut query = EventQuery { limit: 10, since: Some(LONG), ..EventQuery::default() };
    let mut read = Vec::new();
    loop {
        let page = store.outbox().events(&query).await.expect("events can be read");
        query.after = page.last().map(|event| event.id);
        if page.is_empty() {
            break;
        }
        read.extend(page);
    }
    assert_eq!(read.len(), 25);
    assert!(read.iter().map(|event| event.id).is_sorted());
    let none = EventQuery { limit: 10, since: Some(Duration::ZERO), ..EventQuery::default() };
    wait::until("the events are older than nothing", async || store.outbox().events(&none).await.expect("events can be read").is_empty())
        .await;
}

pub async fn old_events_are_pruned_once_delivered(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=5).await;
    let store = migrated(&with_events(&database)).await;
    close(&store, &["1", "2", "3", "4", "5"], Trigger::Expired).await;
    let outbox = store.outbox();
    for target in ["one", "two"] {
        let claimed = claim(&*store, target, LONG, 10).await;
        let delivered: Vec<_> = claimed.iter().filter(|claimed| claimed.event.order_id != "3").map(|claimed| claimed.event.id).collect();
        settle(outbox, target, &delivered, &[]).await;
    }
    let prune = async |keep, after: Uuid| outbox.prune(keep, after, 3).await.expect("events can be pruned");
    let first = Uuid::nil();
    assert_eq!(prune(LONG, first).await.events.len(), 0, "they are young");
    let pruned = wait::some("three are looked at", async || Some(prune(Duration::ZERO, first).await).filter(|pruned| pruned.more)).await;
    assert_eq!(prune(Duration::ZERO, Uuid::max()).await.events.len(), 0, "none comes after the last");
    let rest = prune(Duration::ZERO, pruned.last).await;
    assert_eq!((pruned.events.len() + rest.events.len(), rest.more), (4, false));
    assert_eq!(prune(Duration::ZERO, rest.last).await.events.len(), 0);
    assert_eq!(orders(&events(&*store).await), ["3"], "what is not delivered stays");
}

/// CloudEvents' subject is never empty, and an id may be.
pub async fn an_order_with_an_empty_id(database: Database) {
    let id = by_kind(database.kind, "varchar(40)", "varchar(40)", "text");
    super::create_orders(&database, id, "integer", super::time_type(database.kind)).await;
    database.execute(&format!("INSERT INTO orders (order_no, status, expires_at) VALUES ('', 0, {})", super::PAST)).await;
    let store = migrated(&with_events(&database)).await;
    assert_eq!(look(&store, vec![OrderId::from_database("")], Trigger::Sweep).await.expect("the database is well").len(), 1);
    let events = events(&*store).await;
    let event: serde_json::Value = serde_json::from_str(&cloud_event(&events[0], &EventSource::default()).expect("JSON")).expect("JSON");
    assert_eq!((event.get("subject"), &event["data"]["order_id"]), (None, &json!("")), "{event}");
    assert_eq!((event.get("traceparent"), &event["source"], &event["rule"]), (None, &json!("order-closer"), &json!("orders")), "{event}");
}

/// What a batch carries may be more than a server takes at once.
pub async fn events_with_much_to_carry(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=100).await;
    database
        .execute(&format!(
            "UPDATE orders SET note = {}",
            by_kind(database.kind, "repeat('x', 20000)", "repeat('x', 20000)", "replace(hex(zeroblob(10000)), '0', 'x')")
        ))
        .await;
    let store = migrated(&with_events(&database).set("events.include", vec!["note"])).await;
    let numbers: Vec<String> = (1..=100).map(|number| number.to_string()).collect();
    let looked = close(&store, &numbers.iter().map(String::as_str).collect::<Vec<_>>(), Trigger::Sweep).await;
    assert!(looked.iter().all(|one| matches!(one.outcome, Outcome::Closed(_))), "{looked:?}");
    let events = events(&*store).await;
    assert_eq!(events.len(), 100);
    assert!(events.iter().all(|event| event.data.get().len() > 20_000));
    assert_eq!(claim(&*store, "two", LONG, 1_000).await.len(), 100);
}

pub async fn packets_of_a_megabyte(_: Database) {
    let server = MariaDb::options().argument("--max-allowed-packet=1M").start();
    events_with_much_to_carry(Database::on_mariadb(&server).await).await;
}

/// The order whose event would be too much for the server closes with one that carries nothing.
pub async fn an_event_larger_than_a_packet(_: Database) {
    let server = MariaDb::options().argument("--max-allowed-packet=1M").start();
    let database = Database::on_mariadb(&server).await;
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3).await;
    // Each quote takes four bytes: in a JSON object within a JSON text.
    database.execute("ALTER TABLE orders MODIFY note LONGTEXT; UPDATE orders SET note = REPEAT('\"', 400000) WHERE order_no = 2").await;
    let store = migrated(&with_events(&database).set("events.include", vec!["note"])).await;
    let looked = close(&store, &["1", "2", "3"], Trigger::Sweep).await;
    assert!(looked.iter().all(|one| matches!(one.outcome, Outcome::Closed(_))), "{looked:?}");
    let carried = |event: &Event| (event.order_id.clone(), event.data.get().replace(' ', ""));
    let carried: BTreeMap<String, String> = events(&*store).await.iter().map(carried).collect();
    assert_eq!(carried, super::texts([("1", r#"{"note":null}"#), ("2", "{}"), ("3", r#"{"note":null}"#)]));
}

/// An event belongs to the order as it was closed, wherever the user's statements take its row.
pub async fn an_event_carries_what_close_sql_moves(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3).await;
    database.execute("UPDATE orders SET note = 'x'; CREATE TABLE archive AS SELECT * FROM orders WHERE 1 = 0").await;
    let sql = vec![
        "INSERT INTO archive SELECT * FROM orders WHERE order_no IN (:ids) AND order_no < 3",
        "DELETE FROM orders WHERE order_no IN (:ids) AND order_no < 3",
        "UPDATE orders SET status = 9 WHERE order_no IN (:ids)",
    ];
    let store = migrated(&with_events(&database).set("close.sql", sql).set("events.include", vec!["note", "status"])).await;
    close(&store, &["1", "2", "3"], Trigger::Sweep).await;
    assert_eq!(database.number("SELECT count(*) FROM archive").await, 2);
    for event in events(&*store).await {
        let data: serde_json::Value = serde_json::from_str(event.data.get()).expect("JSON");
        assert_eq!(data, json!({ "note": "x", "status": 4 }), "of order {}", event.order_id);
    }
}

pub async fn a_delivery_is_claimed_by_one_at_a_time(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=9).await;
    let settings = with_events(&database);
    let (one, other) = (migrated(&settings).await, open(&settings).await);
    close(&one, &["1", "2", "3", "4", "5", "6", "7", "8", "9"], Trigger::Expired).await;
    let (first, second) = tokio::join!(claim(&*one, "one", LONG, 4), claim(&*other, "one", LONG, 4));
    let third = claim(&*other, "one", LONG, 10).await;
    assert_eq!(claim(&*one, "one", LONG, 10).await.len(), 0);
    let mut all = [claimed_orders(&first), claimed_orders(&second), claimed_orders(&third)].concat();
    all.sort_unstable();
    assert_eq!(all, ["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    assert!([first, second, third].iter().flatten().all(|claimed| claimed.attempt == 1));
    assert_eq!(claim(&*other, "two", LONG, 10).await.len(), 9, "another target has claims of its own");
}

pub async fn a_claim_ends_by_itself(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, [1]).await;
    let store = migrated(&with_events(&database)).await;
    close(&store, &["1"], Trigger::Expired).await;
    let crashed = claim(&*store, "one", Duration::from_millis(20), 10).await;
    assert_eq!(crashed.len(), 1);
    let heir = wait::some("the claim has run out", async || claim(&*store, "one", LONG, 10).await.pop()).await;
    assert_eq!((heir.event.id, heir.attempt), (crashed[0].event.id, 2));
    // Whoever lost the claim can't put off what is another's now, or bury it.
    let failed = [crashed[0].failed("too late", None)];
    settle(store.outbox(), "one", &[], &failed).await;
    assert_eq!(dead_letters(&*store).await, []);
    // But what was delivered is delivered.
    settle(store.outbox(), "one", &[crashed[0].event.id], &[]).await;
    settle(store.outbox(), "one", &[], &[heir.failed("no answer", Some(Duration::ZERO))]).await;
    assert_eq!(claim(&*store, "one", LONG, 10).await.len(), 0);
}

pub async fn a_failed_delivery_waits_or_dies(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3).await;
    let store = migrated(&with_events(&database)).await;
    close(&store, &["1", "2", "3"], Trigger::Expired).await;
    let claimed = claim(&*store, "one", LONG, 10).await;
    let of = |order: &str| claimed.iter().find(|claimed| claimed.event.order_id == order).expect("it was claimed");
    let failed = [of("1").failed("a", Some(Duration::ZERO)), of("2").failed("b", Some(LONG)), of("3").failed("it's c", None)];
    let outbox = store.outbox();
    settle(outbox, "one", &[], &failed).await;
    let again = wait::some("the first is due again", async || claim(&*store, "one", LONG, 10).await.pop()).await;
    assert_eq!((again.event.order_id.as_str(), again.attempt), ("1", 2));
    assert_eq!(claim(&*store, "one", LONG, 10).await.len(), 0);
    let backlog: Vec<_> = outbox.backlog().await.expect("it can be read").into_iter().map(|b| (b.target, b.waiting, b.dead)).collect();
    assert_eq!(backlog, [("one".into(), 2, 1), ("two".into(), 3, 0)]);
    let dead = dead_letters(&*store).await;
    let [DeadLetter::Event { id, order_id, target, death, .. }] = &dead[..] else { panic!("{dead:?}") };
    let address = Address { order: ids(&*store, &[order_id]).remove(0), event: Some(*id) };
    assert_eq!((order_id.as_str(), target.as_str(), death.attempts, death.error.as_str()), ("3", "one", 1, "it's c"));
    assert!((host_now() - death.failed_at).abs() < 60_000_000);
    // Put back, it begins anew; given up again and dropped, it is gone.
    assert_eq!(outbox.revive(&address, None).await, Ok(true));
    assert_eq!(outbox.revive(&address, None).await, Ok(false));
    let revived = claim(&*store, "one", LONG, 10).await;
    assert_eq!((claimed_orders(&revived), revived[0].attempt), (vec!["3"], 1));
    settle(outbox, "one", &[], &[revived[0].failed("d", None)]).await;
    assert_eq!(outbox.discard(&address).await, Ok(true));
    assert_eq!(dead_letters(&*store).await, []);
    assert_eq!(events(&*store).await.len(), 3, "the audit log keeps it");
}

pub async fn dead_orders_are_passed_over(database: Database) {
    let id = by_kind(database.kind, "varchar(40)", "varchar(40) CHARACTER SET latin1 COLLATE latin1_swedish_ci", "text COLLATE NOCASE");
    let time = super::time_type(database.kind);
    // No unique index: to the column's own collation these ids are one.
    database.execute(&format!("CREATE TABLE orders (order_no {id}, status integer, expires_at {time}, note text)")).await;
    for text in ["a", "A", "b", "c"] {
        database.execute(&format!("INSERT INTO orders (order_no, status, expires_at) VALUES ('{text}', 0, {})", super::PAST)).await;
    }
    let store = migrated(&settings(&database)).await;
    let outbox = store.outbox();
    let dead = |id: &str, attempts| DeadOrder { id: ids(&*store, &[id]).remove(0), attempts, error: "it's refused".into(), undone: None };
    let named = |id: &str| Address { order: ids(&*store, &[id]).remove(0), event: None };
    outbox.bury(&[dead("a", 7), dead("b", 8)]).await.expect("orders can be buried");
    outbox.bury(&[dead("b", 9)]).await.expect("an order can be buried twice");
    assert_eq!(overdue(&*store).await, ["A", "c"]);
    assert_eq!(store.count_overdue().await, Ok(2));
    let letters = dead_letters(&*store).await;
    let listed: Vec<_> = letters
        .iter()
        .map(|letter| match letter {
            DeadLetter::Order { id, dropped, death, .. } => (id.as_str(), *dropped, death.attempts, death.error.as_str()),
            DeadLetter::Event { .. } => panic!("{letters:?}"),
        })
        .collect();
    assert_eq!(listed, [("a", false, 7, "it's refused"), ("b", false, 9, "it's refused")]);
    assert_eq!(outbox.discard(&named("a")).await, Ok(true));
    assert_eq!(outbox.discard(&named("nobody")).await, Ok(false));
    assert_eq!(overdue(&*store).await, ["A", "c"], "dropped, it stays passed over");
    outbox.bury(&[dead("a", 10)]).await.expect("orders can be buried");
    let letters = dead_letters(&*store).await;
    assert_eq!(letters.len(), 2);
    let dropped = outbox.dead_letters_of(&named("a")).await.expect("it can be read");
    assert!(
        matches!(&dropped[..], [DeadLetter::Order { dropped: true, death, .. }] if death.attempts == 10),
        "given up again, it stays dropped: {dropped:?}"
    );
    let page = async |after: Option<&str>| {
        let after = after.map(|id| ids(&*store, &[id]).remove(0));
        outbox.dead_orders(after.as_ref(), 1).await.expect("they can be read").into_iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    assert_eq!((page(None).await, page(Some("a")).await, page(Some("b")).await), (ids(&*store, &["a"]), ids(&*store, &["b"]), vec![]));
    assert_eq!(outbox.revive_some_orders(10).await, Ok(1), "b");
    assert_eq!(outbox.revive(&named("a"), None).await, Ok(true));
    assert_eq!(overdue(&*store).await, ["A", "a", "b", "c"]);
    outbox.bury(&[dead("c", 1)]).await.expect("orders can be buried");
    outbox.forget_dead_orders(&ids(&*store, &["c"])).await.expect("orders can be forgotten");
    assert_eq!(overdue(&*store).await.len(), 4);
}

/// Each daemon's own, for each group.
pub async fn heartbeats_of_a_group(database: Database) {
    plain_orders(&database).await;
    let store = migrated(&settings(&database)).await;
    let outbox = store.outbox();
    let seen = async |group: &str, name: &str, said: &str| {
        let seen: BTreeMap<String, String> =
            outbox.exchange_heartbeats(group, name, said).await.expect("it can be written").into_iter().collect();
        seen.iter().map(|(name, said)| format!("{name} {said}")).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(seen("a", "one", "beat=1").await, "one beat=1");
    assert_eq!(seen("a", "two", "beat=7").await, "one beat=1, two beat=7");
    assert_eq!(seen("b", "one", "beat=3").await, "one beat=3", "another group");
    assert_eq!(seen("a", "one", "beat=2").await, "one beat=2, two beat=7");
    outbox.remove_heartbeats("a", &["two".into(), "nobody".into()]).await.expect("they can be removed");
    assert_eq!(seen("a", "one", "beat=3").await, "one beat=3");
    // What a group has left behind that has another name now goes with the next daemon's first.
    database.execute("UPDATE order_closer_members SET seen_at = seen_at - 3700000000 WHERE group_key = 'b'").await;
    assert_eq!(seen("a", "three", "beat=1").await, "one beat=3, three beat=1");
    assert_eq!(database.number("SELECT count(*) FROM order_closer_members").await, 2);
}
