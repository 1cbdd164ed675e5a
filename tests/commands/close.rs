//! `order-closer close ID…`: each order is told apart, and closed if it is due.

use super::reconcile::on_every_database;
use crate::support::{Kind, Shop, order_closer, ports};

on_every_database! {
    each_is_told_apart => each_is_told_apart_in_postgres, each_is_told_apart_in_mariadb, each_is_told_apart_in_sqlite;
    in_the_order_of_their_ids => in_the_order_of_their_ids_in_postgres, in_the_order_of_their_ids_in_mariadb, in_the_order_of_their_ids_in_sqlite;
}

async fn each_is_told_apart(kind: Kind) {
    let shop = Shop::open(kind).await;
    shop.orders(&[(1, -60_000), (2, -60_000), (3, 600_000), (4, 600_000), (5, -60_000)]).await;
    shop.database.execute("UPDATE orders SET expires_at = NULL WHERE order_no = 4").await;
    assert!(shop.pay(2).await);
    // It needs no Redis.
    let settings = shop.settings().set("redis.url", format!("redis://127.0.0.1:{}", ports::free()));
    let finished = order_closer(&settings, &["close", "1", "2", "3", "4", "99"]).await.expect_code(0);
    assert_eq!(finished.stderr, "");
    for (id, text) in [
        ("1", "closed, 6"),
        ("2", "left as it is, its status is 1"),
        ("3", "not due for another 5"),
        ("4", "has no deadline, and so is never due"),
        ("99", "no such order"),
    ] {
        let line = finished.stdout.lines().find(|line| line.starts_with(&format!("{id}: "))).unwrap_or_else(|| panic!("{finished:#?}"));
        assert!(line.contains(text), "{line:?}");
    }
    assert_eq!(finished.stdout.lines().count(), 5, "{finished:#?}");
    shop.assert_outcome_except(&[5]).await;
    // Once more, and it is closed already; an id that is named twice is one order.
    let finished = order_closer(&settings, &["close", "1", "5", "5"]).await.expect_code(0);
    assert!(finished.stdout.contains("1: left as it is, its status is 4\n"), "{finished:#?}");
    assert_eq!(finished.stdout.matches("5: closed, ").count(), 1, "{finished:#?}");
    shop.assert_outcome().await;
}

/// A statement that is run for each order goes from the least number to the greatest.
async fn in_the_order_of_their_ids(kind: Kind) {
    let shop = Shop::open(kind).await;
    shop.orders_due_in(8..=11, -1_000).await;
    shop.order(100, -1_000).await;
    shop.database.execute("CREATE TABLE visits (place bigint, order_no bigint)").await;
    let visit = "INSERT INTO visits SELECT (SELECT count(*) FROM visits), order_no FROM orders WHERE order_no IN (:ids)";
    let counted = toml::Table::from_iter([("sql".to_owned(), visit.into()), ("rows".to_owned(), toml::Value::Integer(1))]);
    let settings = shop.settings().set("redis.url", format!("redis://127.0.0.1:{}", ports::free())).after_close_sql(counted);
    order_closer(&settings, &["close", "100", "9", "11", "8", "10"]).await.expect_code(0);
    let visited = shop.database.rows("SELECT order_no FROM visits ORDER BY place").await;
    assert_eq!(visited.concat(), [8, 9, 10, 11, 100].map(|number| Some(number.to_string())));
    shop.assert_outcome().await;
}

#[tokio::test]
async fn a_locked_order_is_left_alone_in_postgres() {
    a_locked_order_is_left_alone(Kind::Postgres).await;
}

#[tokio::test]
async fn a_locked_order_is_left_alone_in_mariadb() {
    a_locked_order_is_left_alone(Kind::MariaDb).await;
}

async fn a_locked_order_is_left_alone(kind: Kind) {
    let shop = Shop::open(kind).await;
    shop.orders_due_in(1..=2, -1_000).await;
    let payment = shop.begin_payment(1).await;
    let finished = order_closer(&shop.settings(), &["close", "1", "2"]).await.expect_code(75);
    assert!(finished.stdout.contains("1: due, but locked by another transaction"), "{finished:#?}");
    assert!(finished.stdout.contains("2: closed, "), "{finished:#?}");
    payment.commit().await;
    let finished = order_closer(&shop.settings(), &["close", "1"]).await.expect_code(0);
    assert!(finished.stdout.contains("1: left as it is, its status is 1"), "{finished:#?}");
    shop.assert_outcome().await;
}

#[tokio::test]
async fn an_order_that_its_database_rejects() {
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders_due_in(1..=3, -1_000).await;
    shop.database.execute("ALTER TABLE orders ADD CONSTRAINT cursed CHECK (status <> 4 OR order_no <> 2)").await;
    let finished = order_closer(&shop.settings(), &["close", "1", "2", "3"]).await.expect_code(75);
    assert!(
        finished.stdout.contains("2: due, but its database rejects the closure: ") && finished.stdout.contains("cursed"),
        "{finished:#?}"
    );
    assert_eq!(finished.stdout.matches(": closed, ").count(), 2, "{finished:#?}");
    shop.assert_outcome_except(&[2]).await;
    shop.database.execute("ALTER TABLE orders DROP CONSTRAINT cursed").await;
    order_closer(&shop.settings(), &["close", "2"]).await.expect_code(0);
    shop.assert_outcome().await;
}

#[tokio::test]
async fn what_is_no_id_is_64_and_closes_nothing() {
    let shop = Shop::open(Kind::Sqlite).await;
    shop.order(1, -1_000).await;
    for (id, text) in [("lock_77", "not a whole number"), ("007", "not a whole number"), ("", "is empty"), ("9223372036854775808", "range")]
    {
        let finished = order_closer(&shop.settings(), &["close", "1", id]).await.expect_code(64);
        assert!(finished.stdout.is_empty(), "{finished:#?}");
        assert!(
            finished.stderr.contains(&format!("{id:?} can't be an order of orders")) && finished.stderr.contains(text),
            "{finished:#?}"
        );
    }
    shop.assert_outcome_except(&[1]).await;
}

/// A timer's id is a text in some databases, and takes no word for an id that the orders don't take.
#[tokio::test]
async fn what_is_no_id_is_64_with_timers_too() {
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        shop.order(1, -1_000).await;
        let settings = shop.settings().set("redis.url", format!("redis://127.0.0.1:{}", ports::free())).add(
            "[timers]\nenabled = true\n[[timers.webhooks]]\nname = 'till'\nurl = 'http://127.0.0.1:1'\n\
             secrets = ['whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3']\n[events]\nenabled = true",
        );
        order_closer(&settings, &["migrate"]).await.expect_code(0);
        for arguments in [&["close", "abc"][..], &["explain", "abc"], &["events", "--order", "abc"]] {
            let refused = order_closer(&settings, arguments).await.expect_code(64);
            assert!(refused.stderr.contains("\"abc\" can't be an order of orders: it is not a whole number"), "{kind:?}: {refused:#?}");
        }
        let closed = order_closer(&settings, &["close", "1"]).await.expect_code(0);
        assert!(closed.stdout.starts_with("1: closed, "), "{closed:#?}");
        let listed = order_closer(&settings, &["events", "--order", "1"]).await.expect_code(0);
        assert_eq!(listed.stdout.lines().count(), 1, "{kind:?}: {listed:#?}");
    }
}

/// Its row is there, and is none to this rule.
#[tokio::test]
async fn an_order_that_the_filter_hides_is_said_to_be_there() {
    let shop = Shop::open(Kind::Sqlite).await;
    shop.orders_due_in(1..=2, -1_000).await;
    let settings = shop.settings().set("orders.filter", "order_no <> 2");
    let finished = order_closer(&settings, &["close", "1", "2", "3"]).await.expect_code(0);
    let lines: Vec<&str> = finished.stdout.lines().collect();
    assert!(lines[0].starts_with("1: closed, "), "{finished:#?}");
    assert_eq!(lines[1..], ["2: no order to be closed, orders.filter hides its row", "3: no such order"]);
    shop.assert_outcome_except(&[2]).await;
}

/// As `explain` takes it: fired if it is due, as the daemon would, and said in a timer's words.
#[tokio::test]
async fn a_timer_by_its_name() {
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        shop.orders_due_in(1..=2, -1_000).await;
        let settings = shop.settings().set("redis.url", format!("redis://127.0.0.1:{}", ports::free())).add(
            "[timers]\nenabled = true\n[[timers.webhooks]]\nname = 'till'\nurl = 'http://127.0.0.1:1'\n\
             secrets = ['whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3']",
        );
        order_closer(&settings, &["migrate"]).await.expect_code(0);
        let now = shop.clock().await * 1_000;
        let key = if kind == Kind::MariaDb { "`key`" } else { "key" };
        for (number, due, state) in [(1, now - 1_000_000, "armed"), (2, now + 3_600_000_000, "armed"), (3, now - 1_000_000, "cancelled")] {
            let insert = format!("INSERT INTO order_closer_timers (kind, {key}, due_at, target, state)");
            shop.database.execute(&format!("{insert} VALUES ('reminder', '{number}', {due}, 'till', '{state}')")).await;
        }
        let closed = order_closer(&settings, &["close", "reminder/1", "reminder/2", "1", "reminder/3", "reminder/77"]).await.expect_code(0);
        let line = |begins: &str| {
            let found = closed.stdout.lines().filter(|line| line.starts_with(begins)).count();
            assert_eq!(found, 1, "{kind:?}, {begins}: {closed:#?}");
        };
        line("reminder/1: fired, 1");
        line("reminder/2: not due for another 3");
        line("reminder/3: left as it is, it is cancelled");
        line("reminder/77: no such timer");
        line("1: closed, 1");
        let told = "SELECT count(*) FROM order_closer_deliveries WHERE target = 'till'";
        assert_eq!(shop.database.number(told).await, 1, "{kind:?}");

        let alone = settings.clone().set("orders.table", "none");
        let again = order_closer(&alone, &["close", "reminder/1", "--json"]).await.expect_code(0).json();
        assert_eq!(again["settled"], 1, "{again}");
        let refused = order_closer(&alone, &["close", "abc"]).await.expect_code(64);
        assert!(refused.stderr.contains("\"abc\" can't be a timer: that is named by its kind and key"), "{refused:#?}");
        for settings in [&settings, &alone] {
            let refused = order_closer(settings, &["explain", "reminder/77"]).await.expect_code(64);
            assert!(refused.stderr.contains("there is no timer \"reminder/77\""), "{refused:#?}");
        }
        // Without timers it is a wrong id.
        let refused = order_closer(&shop.settings(), &["close", "2", "reminder/1"]).await.expect_code(64);
        assert!(refused.stderr.contains("can't be an order of orders") && refused.stdout.is_empty(), "{refused:#?}");
        shop.assert_outcome_except(&[2]).await;
    }
}
