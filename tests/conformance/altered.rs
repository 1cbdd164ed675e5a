//! Tables that are altered while orders are being closed.

use std::sync::Arc;

use order_closer::{
    close::{Closer, Outcome, Pending},
    order::{OrderId, Trigger},
    store::Store,
};

use super::{Database, create_orders, open, overdue, overdue_orders, plain_orders, settings, time_type};

/// Closes this order, which a sweep has found, as the daemon does.
async fn closed(store: &Arc<dyn Store>, id: &str) -> Outcome {
    let pending = Pending { id: OrderId::from_database(id), trigger: Trigger::Sweep, rejections: 0 };
    let mut looked = Vec::new();
    Closer::new(Arc::clone(store)).close(vec![pending], &mut looked).await.expect("the table is there");
    looked.remove(0).outcome
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
    // It is too large for the cast; then the table is looked at anew.
    assert!(matches!(closed(&store, "3000000000").await, Outcome::Rejected { .. }));
    assert!(matches!(closed(&store, "3000000000").await, Outcome::Closed(_)));
    // From now on such ids are known in keys, too.
    assert!(store.id_kind().parse(b"3000000000").is_ok());
}
