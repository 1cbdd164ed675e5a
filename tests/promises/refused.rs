//! The database refuses every order, for a while; or a closure is undone behind our back.

use std::time::Duration;

use super::{Role, listening, on_each_database};
use crate::support::{Kind, Redis, Shop, order_closer, shop::CLOSED, wait};

/// A history in partitions lacks the one of today: no order is to blame, and all close when it is there.
#[tokio::test]
async fn a_partition_is_missing() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.database.execute("CREATE TABLE history (order_no bigint, at timestamptz DEFAULT now()) PARTITION BY RANGE (at)").await;
    let settings = shop
        .settings_with(&redis)
        .after_close_sql("INSERT INTO history (order_no) SELECT order_no FROM orders WHERE order_no IN (:ids)")
        .add("[close.retry]\nattempts = 2\ninitial = '50ms'\nmax = '100ms'");
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    shop.orders_due_in(1..=100, -1_000).await;
    let daemon = listening(&settings).await;
    // Tried once before the first order is due.
    let tried = daemon.until_logged("a closure was tried on this order").await;
    assert!(tried.contains("\"ERROR\"") && tried.contains("no partition"), "{tried}");
    let error = daemon.until_logged("no order can be closed").await;
    assert!(error.contains("\"ERROR\"") && error.contains("no partition"), "{error}");
    // More fall due meanwhile, and each is tried.
    shop.orders_due_in(101..=200, 500).await;
    wait::until("all are overdue", async || shop.overdue().await == 200).await;
    let dead = || async { shop.database.number("SELECT count(*) FROM order_closer_dead_letters").await };
    assert!(dead().await <= 2, "only what failed before it was known can have used up its attempts");
    shop.database.execute("CREATE TABLE history_default PARTITION OF history DEFAULT").await;
    wait::within(Duration::from_secs(20), "all close", async || shop.closed().await + dead().await == 200).await;
    daemon.until_logged("orders can be closed again").await;
    daemon.stop().await;
    assert!(shop.closed().await >= 198, "what did not fail before that was known closes");
    assert_eq!(daemon.logged("no order can be closed"), 1, "said once");
}

on_each_database! {
    a_closure_is_undone
}

/// A program that has read the order before saves it again, as unpaid: closing it again would release its stock again.
async fn a_closure_is_undone(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let settings = shop.settings_with(&redis);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    shop.orders_due_in(1..=3, -1_000).await;
    let daemon = listening(&settings).await;
    shop.until_all_settled().await;
    let stock = shop.stock().await;
    shop.database.execute("UPDATE orders SET status = 0 WHERE order_no = 2").await;
    let error = daemon.until_logged("its closure was undone").await;
    assert!(error.contains("\"ERROR\"") && error.contains("\"2\""), "{error}");
    let letters = order_closer(&settings, &["dead-letters", "list"]).await.expect_code(0);
    assert!(letters.stdout.contains("undone"), "{letters:?}");
    // Others close, and this one stays as it is.
    shop.order(4, -1_000).await;
    shop.until_status(4, CLOSED).await;
    assert_eq!((shop.status(2).await, shop.database.number("SELECT count(*) FROM closures WHERE order_no = 2").await), (0, 1));
    assert_eq!(shop.stock().await[&2], stock[&2], "given back once");
    // As the log says: by its id it closes.
    assert!(error.contains("order-closer close"), "{error}");
    order_closer(&settings, &["close", "2"]).await.expect_code(0);
    assert_eq!(shop.status(2).await, CLOSED);
    // Another deadline closes it, too, which is looked for at the start and each minute.
    shop.database.execute("UPDATE orders SET status = 0 WHERE order_no = 3").await;
    wait::until("the other one is given up, too", async || daemon.logged("its closure was undone") == 2).await;
    daemon.stop().await;
    shop.database.execute(&format!("UPDATE orders SET expires_at = {} WHERE order_no = 3", shop.moment(-9_000))).await;
    let daemon = listening(&settings).await;
    shop.until_status(3, CLOSED).await;
    daemon.stop().await;
    assert_eq!(daemon.logged("its closure was undone"), 0);
}

/// The right to read orders is withdrawn while nothing announces them: that is said with its cure, and all close when it is back.
#[tokio::test]
async fn a_right_to_read_is_withdrawn() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let role = Role::of(&shop, "r").await;
    let daemon = listening(&shop.settings_with(&redis).set("database.url", role.url.as_str())).await;
    shop.database.execute(&format!("REVOKE SELECT ON orders FROM {}", role.name)).await;
    let said = daemon.until_logged("the orders table can't be read").await;
    assert!(said.contains("\"ERROR\"") && said.contains("grant this user SELECT"), "{said}");
    shop.orders_due_in(1..=20, -1_000).await;
    shop.database.execute(&format!("GRANT SELECT ON orders TO {}", role.name)).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    assert_eq!(shop.assert_outcome().await.closed.len(), 20);
    role.drop_from(&shop).await;
}

/// A trigger that runs at the end of the transaction puts the status back; the closure is not repeated.
#[tokio::test]
async fn a_deferred_trigger_undoes_each_closure() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings_with(&redis);
    shop.database
        .execute(&format!(
            "CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 UPDATE orders SET status = 0 WHERE order_no = NEW.order_no AND NEW.order_no = 2; RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER undo AFTER UPDATE ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
                 WHEN (NEW.status = {CLOSED}) EXECUTE FUNCTION undo()"
        ))
        .await;
    shop.orders_due_in(1..=3, -1_000).await;
    let daemon = listening(&settings).await;
    daemon.until_logged("its closure was undone").await;
    shop.order(4, -1_000).await;
    shop.until_status(4, CLOSED).await;
    assert_eq!(shop.database.number("SELECT count(*) FROM closures WHERE order_no = 2").await, 1);
    daemon.stop().await;
    let finished = order_closer(&settings, &["reconcile"]).await.expect_code(75);
    assert!(finished.stderr.contains("order 2") && finished.stderr.contains("undone"), "{finished:#?}");
}
