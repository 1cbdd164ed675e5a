//! Events of crowds: one row for all of them in the transaction that closes their orders, a row for each soon after.

use std::{sync::Arc, time::Duration};

use order_closer::{
    order::Trigger,
    outbox::{Claimed, Event, EventQuery, Pick, Settled, Want},
    store::{Store, Unpacked},
};
use serde_json::json;

use super::{
    Database, open,
    outbox::{LONG, claim, claimed_orders, close, events, migrated, orders, with_events},
    overdue_orders, plain_orders,
};

const BATCHES: &str = "SELECT count(*) FROM order_closer_batches";

async fn close_all(store: &Arc<dyn Store>, last: u32) {
    let numbers: Vec<String> = (1..=last).map(|number| number.to_string()).collect();
    assert_eq!(close(store, &numbers.iter().map(String::as_str).collect::<Vec<_>>(), Trigger::Expired).await.len(), numbers.len());
}

/// What a relay gets that unpacks nothing.
async fn claim_only(store: &dyn Store, limit: usize) -> Vec<Claimed> {
    let wants = [Want { pick: Pick::Oldest, total: limit }];
    store.outbox().exchange("one", "me", LONG, &Settled::default(), &wants).await.expect("deliveries can be claimed").concat()
}

/// Those of which there are rows.
async fn listed(store: &dyn Store) -> Vec<Event> {
    store.outbox().events(&EventQuery { limit: 1_000, ..EventQuery::default() }).await.expect("events can be read")
}

/// What is in a batch becomes what each event would have been by itself.
pub async fn a_crowd_is_recorded_in_a_batch(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=101).await;
    database.execute("UPDATE orders SET note = 'it''s \"é\"' WHERE order_no = 7").await;
    let store = migrated(&with_events(&database).set("events.include", vec!["note"])).await;
    close(&store, &["101"], Trigger::Expired).await;
    let alone = listed(&*store).await.pop().expect("one is no crowd");
    close_all(&store, 100).await;
    assert_eq!((database.number(BATCHES).await, listed(&*store).await.len()), (1, 1));
    let waits = store.outbox().batches_wait_since(Duration::ZERO).await.expect("it can be read");
    assert_eq!(store.outbox().unpack(LONG).await, Ok(Unpacked::Waits), "it is young");
    assert_eq!(store.outbox().unpack(Duration::ZERO).await, Ok(Unpacked::Events(100)));
    assert_eq!(store.outbox().unpack(Duration::ZERO).await, Ok(Unpacked::Nothing));
    let events = listed(&*store).await;
    assert_eq!((database.number(BATCHES).await, events.len()), (0, 101));
    for event in &events[1..] {
        let of_alone = (&alone.rule, alone.deadline, &alone.trigger, &alone.instance, &alone.traceparent, &alone.answer);
        assert_eq!((&event.rule, event.deadline, &event.trigger, &event.instance, &event.traceparent, &event.answer), of_alone);
        assert_eq!((event.closed_at, event.lateness), (waits.expect("a time"), event.closed_at - event.deadline));
        let data: serde_json::Value = serde_json::from_str(event.data.get()).expect("JSON");
        assert_eq!(data, json!({ "note": (event.order_id == "7").then_some("it's \"é\"") }));
    }
    for target in ["one", "two"] {
        assert_eq!(claim(&*store, target, LONG, 1_000).await.len(), 101);
    }
}

/// A few are rows at once, and are told of after what was recorded before, so that events of one order stay in their order.
pub async fn what_comes_after_a_batch_is_told_after_it(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=41).await;
    let store = migrated(&with_events(&database)).await;
    close(&store, &["41"], Trigger::Sweep).await;
    close_all(&store, 40).await;
    database.execute("UPDATE orders SET status = 0 WHERE order_no = 5").await;
    close(&open(&with_events(&database)).await, &["5"], Trigger::Sweep).await;
    assert_eq!((database.number(BATCHES).await, orders(&listed(&*store).await)), (1, vec!["41", "5"]));
    assert_eq!(claimed_orders(&claim_only(&*store, 100).await), ["41"], "the batch comes before the fifth order's second closure");
    assert_eq!(store.outbox().unpack(Duration::ZERO).await, Ok(Unpacked::Events(40)));
    let claimed = claim_only(&*store, 100).await;
    let fifth: Vec<&str> = claimed.iter().filter(|one| one.event.order_id == "5").map(|one| one.event.trigger.as_str()).collect();
    assert_eq!((claimed.len(), &fifth[..]), (40, &["expired"][..]), "and its first one before that");
}

/// Two that come at once make each row once.
pub async fn two_unpack_at_once(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=300).await;
    let store = migrated(&with_events(&database)).await;
    for hundred in 0..3 {
        let numbers: Vec<String> = (1..=100).map(|number| (100 * hundred + number).to_string()).collect();
        close(&store, &numbers.iter().map(String::as_str).collect::<Vec<_>>(), Trigger::Sweep).await;
    }
    let other = open(&with_events(&database)).await;
    let unpack = async |store: &Arc<dyn Store>| {
        while database.number(BATCHES).await > 0 {
            // Whoever meets another may be told so.
            store.outbox().unpack_what_is_left().await;
        }
    };
    tokio::join!(unpack(&store), unpack(&other));
    assert_eq!(events(&*store).await.len(), 300);
    assert_eq!(claim(&*store, "two", LONG, 1_000).await.len(), 300);
}

/// Of a table that this user may not read, as of one that is not there, nothing is needed.
pub async fn without_their_table_rows_are_written(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=40).await;
    migrated(&with_events(&database)).await;
    database.execute("DROP TABLE order_closer_batches").await;
    let store = open(&with_events(&database)).await;
    close_all(&store, 40).await;
    assert_eq!(events(&*store).await.len(), 40);
    assert_eq!(claim(&*store, "one", LONG, 100).await.len(), 40);
}
