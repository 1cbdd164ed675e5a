//! An order that its database refuses to close harms itself only: its neighbours close on time, it is tried
//! again with growing pauses, and in the end somebody is called.

use super::{assert_on_time, listening, on_each_database};
use crate::support::{Daemon, Kind, Redis, Settings, Shop, order_closer, shop::CLOSED, wait};

pub(super) const POISON: i64 = 150;

on_each_database! {
    rejected_to_the_end
    mended_in_time
    refused_by_the_users_own_sql
    short_of_a_row_that_must_change
}

/// A trigger that rejects one order.
pub(super) async fn poison(shop: &Shop) {
    let sql = match shop.database.kind {
        Kind::Postgres => format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'order % is under dispute', NEW.order_no; END $$;
             CREATE TRIGGER refuse BEFORE UPDATE ON orders FOR EACH ROW WHEN (NEW.order_no = {POISON} AND NEW.status = {CLOSED})
             EXECUTE FUNCTION refuse()"
        ),
        Kind::MariaDb => format!(
            "CREATE TRIGGER refuse BEFORE UPDATE ON orders FOR EACH ROW IF NEW.order_no = {POISON} AND NEW.status = {CLOSED} THEN
             SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'order 150 is under dispute'; END IF"
        ),
        Kind::Sqlite => format!(
            "CREATE TRIGGER refuse BEFORE UPDATE ON orders WHEN NEW.order_no = {POISON} AND NEW.status = {CLOSED}
             BEGIN SELECT RAISE(ABORT, 'order 150 is under dispute'); END"
        ),
    };
    shop.database.execute(&sql).await;
}

pub(super) async fn cure(shop: &Shop) {
    let on = if shop.database.kind == Kind::Postgres { " ON orders" } else { "" };
    shop.database.execute(&format!("DROP TRIGGER refuse{on}")).await;
}

pub(super) fn settings(shop: &Shop, redis: &Redis) -> Settings {
    shop.settings_with(redis).add("[close.retry]\nattempts = 4\ninitial = '150ms'\nmax = '1m'")
}

/// Three hundred orders due at once, and the poison in their middle.
pub(super) async fn three_hundred(shop: &Shop, redis: &Redis) {
    shop.orders_due_in(1..=300, 1_500).await;
    shop.write_keys(redis, 0).await;
    wait::until_eq("the number of closed orders", 299, async || shop.closed().await).await;
}

async fn assert_given_up(shop: &Shop, daemon: &Daemon, reason: &str) {
    let error = daemon.until_line("an error is logged", |line| line.contains("\"ERROR\"")).await;
    assert!(error.contains("order can't be closed") && error.contains("\"150\"") && error.contains(reason), "{error}");
    // It is in nobody's way, now or later.
    shop.orders_due_in(301..=320, 2_500).await;
    wait::until_eq("the number of closed orders", 319, async || shop.closed().await).await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome_except(&[POISON]).await);
    let retries = daemon.said("close failed; will retry this order alone");
    let pauses: Vec<f64> = retries.iter().map(|record| record["retry_in_s"].as_f64().expect("a number")).collect();
    assert_eq!(pauses.len(), 3, "{pauses:?}");
    assert!(pauses.is_sorted() && pauses[2] >= 2.0 * pauses[0], "growing pauses: {pauses:?}");
    assert!(retries.iter().all(|record| record["order"] == "150" && record["reason"].as_str().is_some_and(|said| said.contains(reason))));
    assert_eq!(daemon.logged("\"ERROR\""), 1, "one line is enough");
    assert_eq!(daemon.summary().count("rejected"), 4, "four attempts in all");
}

async fn rejected_to_the_end(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    poison(&shop).await;
    let daemon = listening(&settings(&shop, &redis)).await;
    three_hundred(&shop, &redis).await;
    assert_given_up(&shop, &daemon, "under dispute").await;
    // As the log said: mend the cause, then close it by its id.
    cure(&shop).await;
    let closed = order_closer(&settings(&shop, &redis), &["close", "150"]).await.expect_code(0);
    assert!(closed.stdout.contains("150: closed"), "{closed:?}");
    assert_eq!(shop.assert_outcome().await.closed.len(), 320);
}

async fn mended_in_time(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    poison(&shop).await;
    let daemon = listening(&settings(&shop, &redis)).await;
    three_hundred(&shop, &redis).await;
    daemon.until_logged("close failed; will retry this order alone").await;
    cure(&shop).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    let outcome = shop.assert_outcome().await;
    assert_eq!(outcome.closed.len(), 300);
    assert_eq!(daemon.logged("\"ERROR\""), 0);
}

/// The order's row is innocent; a statement of `close.sql` fails for it.
async fn refused_by_the_users_own_sql(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    shop.database.execute(&format!("CREATE TABLE coupons (order_no bigint CHECK (order_no <> {POISON}))")).await;
    let settings = settings(&shop, &redis);
    let settings = settings.after_close_sql("INSERT INTO coupons (order_no) SELECT order_no FROM orders WHERE order_no IN (:ids)");
    let daemon = listening(&settings).await;
    three_hundred(&shop, &redis).await;
    assert_given_up(&shop, &daemon, "").await;
    assert_eq!(shop.database.number("SELECT count(*) FROM coupons").await, 319, "once for each closure");
}

/// A reservation that is not there is an error and no silent loss: its order stays open, all others close.
async fn short_of_a_row_that_must_change(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    shop.database.execute("CREATE TABLE reservations (order_no bigint PRIMARY KEY)").await;
    let reserved: Vec<String> = (1..=320).filter(|number| *number != POISON).map(|number| format!("({number})")).collect();
    shop.database.execute(&format!("INSERT INTO reservations VALUES {}", reserved.join(", "))).await;
    let release = toml::toml! {
        sql = "DELETE FROM reservations WHERE order_no IN (:ids)"
        rows = 1
    };
    let settings = settings(&shop, &redis).after_close_sql(release);
    let daemon = listening(&settings).await;
    three_hundred(&shop, &redis).await;
    assert_given_up(&shop, &daemon, "statement 3 of close.sql changed 0 rows for order 150, and must change 1").await;
    assert_eq!(shop.database.number("SELECT count(*) FROM reservations").await, 0);
}
