//! Two orders tables in one schema share our tables and nothing else.

use std::{sync::Arc, time::Duration};

use order_closer::{
    order::Trigger,
    outbox::{Address, DeadOrder},
    store::Store,
};
use uuid::Uuid;

use super::{
    Database, ids,
    keeping::pruner,
    open,
    outbox::{LONG, claim, claimed_orders, close, dead_letters, events, migrated, orders, settle, with_events},
    overdue, overdue_orders, plain_orders, time_type,
};

/// The stores of `orders`, and of `tickets` beside it, whose ids are the same.
async fn neighbours(database: &Database) -> (Arc<dyn Store>, Arc<dyn Store>) {
    plain_orders(database).await;
    overdue_orders(database, 5..=8).await;
    let time = time_type(database.kind);
    database.execute(&format!("CREATE TABLE tickets (order_no bigint PRIMARY KEY, status integer, expires_at {time})")).await;
    database.execute("INSERT INTO tickets SELECT order_no, status, expires_at FROM orders").await;
    let settings = with_events(database);
    (migrated(&settings).await, open(&settings.set("orders.table", "tickets")).await)
}

pub async fn dead_letters_are_their_own_tables(database: Database) {
    let (shop, tickets) = neighbours(&database).await;
    let dead = |id: &str| DeadOrder { id: ids(&*shop, &[id]).remove(0), attempts: 1, error: "refused".into(), undone: None };
    shop.outbox().bury(&[dead("5"), dead("6")]).await.expect("orders can be buried");
    assert_eq!(overdue(&*shop).await, ["7", "8"]);
    assert_eq!(overdue(&*tickets).await, ["5", "6", "7", "8"]);
    assert_eq!((shop.count_overdue().await, tickets.count_overdue().await), (Ok(2), Ok(4)));
    tickets.outbox().bury(&[dead("5"), dead("7")]).await.expect("orders can be buried");
    database.execute("UPDATE tickets SET status = 1 WHERE order_no IN (5, 6)").await;
    pruner(&tickets).run_once().await.expect("it can be tidied up");
    assert_eq!(overdue(&*shop).await, ["7", "8"], "a ticket that was paid is no order");
    assert_eq!(tickets.outbox().dead_orders(None, 10).await, Ok(vec![(ids(&*shop, &["7"]).remove(0), Some("refused".into()))]));
    let named = Address { order: ids(&*shop, &["6"]).remove(0), event: None };
    assert_eq!((tickets.outbox().discard(&named).await, tickets.outbox().revive(&named, None).await), (Ok(false), Ok(false)));
    assert_eq!(tickets.outbox().revive_some_orders(10).await, Ok(1));
    assert_eq!(overdue(&*shop).await, ["7", "8"]);
}

pub async fn events_are_their_own_tables(database: Database) {
    let (shop, tickets) = neighbours(&database).await;
    close(&shop, &["5", "6"], Trigger::Sweep).await;
    close(&tickets, &["6", "7", "8"], Trigger::Sweep).await;
    assert_eq!(orders(&events(&*shop).await), ["5", "6"]);
    assert_eq!(orders(&events(&*tickets).await), ["6", "7", "8"]);
    let backlog = |store: &Arc<dyn Store>| {
        let store = Arc::clone(store);
        async move { store.outbox().backlog().await.expect("it can be read").iter().map(|of| (of.waiting, of.dead)).collect::<Vec<_>>() }
    };
    assert_eq!((backlog(&shop).await, backlog(&tickets).await), (vec![(2, 0), (2, 0)], vec![(3, 0), (3, 0)]));

    let claimed = claim(&*tickets, "one", LONG, 10).await;
    assert_eq!(claimed_orders(&claimed), ["6", "7", "8"], "to the same target, but not of the same table");
    let failed = [claimed[0].failed("no", None)];
    settle(tickets.outbox(), "one", &[claimed[1].event.id], &failed).await;
    assert_eq!(dead_letters(&*shop).await, []);
    assert_eq!(shop.outbox().revive_some_events("one", 10).await, Ok(0));
    let event = Address { order: ids(&*shop, &["6"]).remove(0), event: Some(claimed[0].event.id) };
    assert_eq!((shop.outbox().revive(&event, None).await, shop.outbox().discard(&event).await), (Ok(false), Ok(false)));
    assert_eq!(claimed_orders(&claim(&*shop, "one", LONG, 10).await), ["5", "6"]);

    let delivered = [claimed[1].event.id];
    settle(tickets.outbox(), "two", &delivered, &[]).await;
    for (store, pruned) in [(&shop, &[][..]), (&tickets, &delivered)] {
        assert_eq!(store.outbox().prune(Duration::ZERO, Uuid::nil(), 10).await.expect("events can be pruned").events, pruned);
    }
}
