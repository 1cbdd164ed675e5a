//! Our own tables are kept small, in pieces, and in nobody's way.

use std::{sync::Arc, time::Duration};

use order_closer::{
    outbox::{Address, DeadOrder, Pruner},
    store::Store,
};
use tokio_util::sync::CancellationToken;

use super::{
    Database, by_kind, ids,
    outbox::{migrated, with_events},
    overdue, overdue_orders, plain_orders,
};

pub(super) fn pruner(store: &Arc<dyn Store>) -> Pruner {
    Pruner::new(Arc::clone(store), Duration::from_hours(1), CancellationToken::new())
}

/// The numbers 1 to `last` as a table `n(n)`.
fn numbers(database: &Database, last: u32) -> String {
    match by_kind(database.kind, "generate_series", "seq", "recursive") {
        "generate_series" => format!("generate_series(1, {last}) AS n(n)"),
        "seq" => format!("(SELECT seq AS n FROM seq_1_to_{last}) AS n"),
        _ => format!("(WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {last}) SELECT n FROM n) AS n"),
    }
}

pub async fn dead_letters_of_settled_orders_are_forgotten(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=1_300).await;
    let store = migrated(&with_events(&database)).await;
    let text = by_kind(database.kind, "text", "char", "text");
    let bury = format!(
        "INSERT INTO order_closer_dead_letters (order_id, attempts, failed_at, error, dropped) SELECT CAST(n AS {text}), 1, 1, 'x', 0 FROM {}",
        numbers(&database, 1_300)
    );
    database.execute(&bury).await;
    database.execute("UPDATE orders SET status = 1 WHERE order_no % 2 = 0; DELETE FROM orders WHERE order_no % 5 = 0").await;
    pruner(&store).run_once().await.expect("it can be tidied up");
    let left = "SELECT count(*) FROM order_closer_dead_letters";
    assert_eq!(database.number(left).await, 520, "those that are neither paid nor gone");
    // Nothing is left to be written, and a payment that holds a whole SQLite file is not in the way.
    let payment = database.begin().await;
    pruner(&store).run_once().await.expect("it can be looked at");
    payment.rollback().await;
    assert_eq!(database.number(left).await, 520);
}

/// What the filter hides for a while is neither settled nor gone.
pub async fn dead_letters_of_hidden_orders_are_kept(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=4).await;
    database.execute("UPDATE orders SET note = 'shown'").await;
    let settings = with_events(&database).set("orders.filter", "note = 'shown'");
    let store = migrated(&settings).await;
    let given_up: Vec<DeadOrder> =
        ids(&*store, &["1", "2", "3"]).into_iter().map(|id| DeadOrder { id, attempts: 8, error: "x".into(), undone: None }).collect();
    store.outbox().bury(&given_up).await.expect("they can be given up");
    for id in ids(&*store, &["1", "3"]) {
        assert_eq!(store.outbox().discard(&Address { order: id, event: None }).await, Ok(true));
    }
    database.execute("UPDATE orders SET note = NULL; UPDATE orders SET status = 1 WHERE order_no = 3").await;
    pruner(&store).run_once().await.expect("it can be tidied up");
    database.execute("UPDATE orders SET note = 'shown'").await;
    let left = store.outbox().dead_orders(None, 10).await.expect("they can be read");
    let left: Vec<_> = left.into_iter().map(|(id, _)| id).collect();
    assert_eq!(left, ids(&*store, &["1", "2"]), "3 is settled");
    assert_eq!(overdue(&*store).await, ["4"]);
}

/// An order whose closure was undone is closed for another deadline, unless it was dropped; for the same one it is not.
pub async fn dead_letters_of_undone_orders_with_another_deadline_are_forgotten(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=4).await;
    let store = migrated(&with_events(&database)).await;
    let rows = store.look(&ids(&*store, &["1", "2", "3"])).await.expect("they can be read");
    let mut given_up: Vec<DeadOrder> = rows.into_iter().map(|row| DeadOrder::undone(row.id, 1, row.deadline)).collect();
    given_up.push(DeadOrder { id: ids(&*store, &["4"]).remove(0), attempts: 8, error: "x".into(), undone: None });
    store.outbox().bury(&given_up).await.expect("they can be given up");
    let dropped = Address { order: ids(&*store, &["3"]).remove(0), event: None };
    assert_eq!(store.outbox().discard(&dropped).await, Ok(true));
    pruner(&store).run_once().await.expect("it can be tidied up");
    assert_eq!(overdue(&*store).await, Vec::<String>::new(), "their deadlines are those for which they were closed");
    let earlier = by_kind(
        database.kind,
        "expires_at - interval '1 second'",
        "expires_at - INTERVAL 1 SECOND",
        "strftime('%Y-%m-%d %H:%M:%f', expires_at, '-1 second')",
    );
    database.execute(&format!("UPDATE orders SET expires_at = {earlier} WHERE order_no IN (1, 3, 4)")).await;
    pruner(&store).run_once().await.expect("it can be tidied up");
    assert_eq!(overdue(&*store).await, ["1"]);
}

/// Where an id stands in two rows, both have to be settled.
pub async fn a_dead_letter_with_two_rows(database: Database) {
    plain_orders(&database).await;
    database.execute(by_kind(database.kind, "DROP INDEX orders_id", "DROP INDEX orders_id ON orders", "DROP INDEX orders_id")).await;
    for row in ["second", "first"] {
        overdue_orders(&database, [1]).await;
        database.execute(&format!("UPDATE orders SET note = '{row}' WHERE note IS NULL")).await;
    }
    let store = migrated(&with_events(&database)).await;
    let id = ids(&*store, &["1"]).swap_remove(0);
    store.outbox().bury(&[DeadOrder { id, attempts: 8, error: "x".into(), undone: None }]).await.expect("it can be given up");
    for (row, left) in [("first", 1), ("second", 0)] {
        database.execute(&format!("UPDATE orders SET status = 1 WHERE note = '{row}'")).await;
        pruner(&store).run_once().await.expect("it can be tidied up");
        assert_eq!(store.outbox().dead_orders(None, 10).await.expect("they can be read").len(), left);
    }
}

/// More than any pause between the pieces would allow for.
pub async fn old_events_are_pruned_as_fast_as_they_come(database: Database) {
    plain_orders(&database).await;
    let store = migrated(&with_events(&database)).await;
    let id = by_kind(
        database.kind,
        "('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid",
        "CONCAT('00000000-0000-7000-8000-', LPAD(n, 12, '0'))",
        "printf('00000000-0000-7000-8000-%012d', n)",
    );
    let events = format!(
        "INSERT INTO order_closer_events (id, order_id, deadline, closed_at, lateness, triggered_by, instance, data)
         SELECT {id}, 'x', 1, 1, 0, 'sweep', 'me', '{{}}' FROM {}",
        numbers(&database, 30_000)
    );
    database.execute(&events).await;
    let undelivered = format!(
        "INSERT INTO order_closer_deliveries (event_id, target, attempts, due_at) SELECT {id}, 'one', 0, 1 FROM {}",
        numbers(&database, 3)
    );
    database.execute(&undelivered).await;
    // Some seconds, at thousands of events a second. A statement for each would take minutes.
    let pruned = tokio::time::timeout(Duration::from_mins(1), pruner(&store).run_once()).await;
    pruned.expect("30,000 events are pruned in time").expect("events can be pruned");
    assert_eq!(database.number("SELECT count(*) FROM order_closer_events").await, 3, "what is not delivered stays");
}

/// Old events that wait for a target, in their hundreds of thousands, are looked at once, and not each minute.
pub async fn nothing_to_prune(database: Database) {
    plain_orders(&database).await;
    let store = migrated(&with_events(&database)).await;
    let id = "('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid";
    let numbers = numbers(&database, 300_000);
    database
        .execute(&format!(
            "INSERT INTO order_closer_events (id, order_id, deadline, closed_at, lateness, triggered_by, instance, data)
             SELECT {id}, 'x', 1, 1, 0, 'sweep', 'me', '{{}}' FROM {numbers};
             INSERT INTO order_closer_deliveries (event_id, target, attempts, due_at) SELECT {id}, 'one', 0, NULL FROM {numbers}"
        ))
        .await;
    let mut pruner = pruner(&store);
    let mut run = async || {
        let began = std::time::Instant::now();
        pruner.run_once().await.expect("events can be pruned");
        began.elapsed()
    };
    let first = run().await;
    let second = run().await;
    assert!(second * 10 < first, "{first:?}, then {second:?}");
    assert_eq!(database.number("SELECT count(*) FROM order_closer_events").await, 300_000);
}
