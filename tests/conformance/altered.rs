//! What a batch of orders meets at its server: a table that was altered, a packet that is too large.

use std::sync::Arc;

use order_closer::{
    close::{Looked, Outcome},
    order::{OrderId, Trigger},
    store::Store,
};

use super::{Database, PAST, closing::look, create_orders, open, overdue, overdue_orders, plain_orders, settings, time_type};
use crate::support::mariadb::MariaDb;

/// Closes these orders, which a sweep has found, as the daemon does.
async fn close(store: &Arc<dyn Store>, ids: &[String]) -> Vec<Looked> {
    let ids = ids.iter().map(|id| OrderId::from_database(id)).collect();
    look(store, ids, Trigger::Sweep).await.expect("the database is well")
}

async fn closed(store: &Arc<dyn Store>, id: &str) -> Outcome {
    close(store, &[id.to_owned()]).await.remove(0).outcome
}

/// Statements name an index for the ids.
pub async fn the_ids_index_is_renamed(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3).await;
    let store = open(&settings(&database)).await;
    assert!(matches!(closed(&store, "1").await, Outcome::Closed(_)));
    database.execute("ALTER TABLE orders RENAME INDEX orders_id TO orders_number").await;
    assert!(matches!(closed(&store, "2").await, Outcome::Closed(_)));
    database.execute("DROP INDEX orders_number ON orders").await;
    assert!(matches!(closed(&store, "3").await, Outcome::Closed(_)));
}

/// Ids are cast to the type of their column.
pub async fn the_ids_column_is_widened(database: Database) {
    create_orders(&database, "integer", "integer", time_type(database.kind)).await;
    let store = open(&settings(&database)).await;
    database.execute("ALTER TABLE orders ALTER COLUMN order_no TYPE bigint").await;
    overdue_orders(&database, [1, 3_000_000_000]).await;
    assert_eq!(overdue(&*store).await, ["1", "3000000000"]);
    // It is too large for the cast, and so the table is looked at anew.
    assert!(matches!(closed(&store, "3000000000").await, Outcome::Closed(_)));
    // From now on such ids are known in keys, too.
    assert!(store.id_kind().parse(b"3000000000").is_ok());
}

/// A list of ids that the server does not take at once.
pub async fn a_packet_that_is_too_large(_: Database) {
    let server = MariaDb::options().argument("--max-allowed-packet=64K").start();
    let database = Database::on_mariadb(&server).await;
    create_orders(&database, "varchar(250)", "integer", time_type(database.kind)).await;
    let order = |number: u32| format!("{number}{}", "x".repeat(240));
    for number in 0..500 {
        database.execute(&format!("INSERT INTO orders (order_no, status, expires_at) VALUES ('{}', 0, {PAST})", order(number))).await;
    }
    let store = open(&settings(&database)).await;
    let looked = close(&store, &(0..500).map(order).collect::<Vec<_>>()).await;
    assert_eq!(looked.iter().filter(|one| matches!(one.outcome, Outcome::Closed(_))).count(), 500);
}
