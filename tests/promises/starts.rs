//! A daemon that starts before all that it needs is there: it waits, says what is missing and what a hand can do about it, and
//! goes on when that is done.

use super::{listening, on_each_database};
use crate::support::{Daemon, Kind, Redis, Settings, Shop, order_closer};

on_each_database! {
    before_its_table_is_there
    the_longest_times_are_reckoned_with
    before_its_column_is_there
}

/// Starts a daemon that has to wait, until it has said why with these words, and what cures it with those.
async fn waiting(settings: &Settings, reason: &str, cure: &str) -> Daemon {
    let daemon = Daemon::start(settings);
    daemon.until_logged("no order can be closed; waiting for the database").await;
    let said = daemon.said("no order can be closed; waiting for the database");
    assert_eq!(said[0]["level"], "ERROR");
    for (field, words) in [("reason", reason), ("cure", cure)] {
        assert!(said[0][field].as_str().is_some_and(|text| text.contains(words)), "{words:?} is missing: {}", said[0]);
    }
    daemon
}

/// Now all is there, and orders close.
async fn goes_on(daemon: &Daemon, shop: &Shop) {
    shop.until_all_settled().await;
    daemon.stop().await;
    assert_eq!(daemon.said("waiting for the database").len(), 1, "said once: {:#?}", daemon.lines());
    shop.assert_outcome().await;
}

async fn before_its_table_is_there(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    shop.order(1, -1_000).await;
    shop.database.execute("ALTER TABLE orders RENAME TO orders_to_come").await;
    let daemon = waiting(&shop.settings_with(&redis), "no such table", "create it").await;
    shop.database.execute("ALTER TABLE orders_to_come RENAME TO orders").await;
    goes_on(&daemon, &shop).await;
}

/// A migration of the shop's may be about to add it; or it is a slip of the pen, and the one that is meant is named.
async fn before_its_column_is_there(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    shop.order(1, -1_000).await;
    shop.database.execute("ALTER TABLE orders RENAME COLUMN expires_at TO expire_at").await;
    let daemon = waiting(&shop.settings_with(&redis), "no such column; did you mean expire_at?", "correct the setting").await;
    shop.database.execute("ALTER TABLE orders RENAME COLUMN expire_at TO expires_at").await;
    goes_on(&daemon, &shop).await;
}

#[tokio::test]
async fn before_it_has_its_rights() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.order(1, -1_000).await;
    let role = format!("closer_{}", shop.database.url.rsplit('/').next().expect("a name"));
    shop.database.execute(&format!("CREATE ROLE {role} LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")).await;
    let settings = shop.settings_with(&redis).set("database.url", shop.database.url.replace("postgres@", &format!("{role}@")));
    let daemon = waiting(&settings, "permission denied", "GRANT UPDATE ON public.").await;
    let said = daemon.said("no order can be closed; waiting for the database");
    shop.database.execute(said[0]["cure"].as_str().expect("SQL")).await;
    goes_on(&daemon, &shop).await;
    shop.database.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

/// First its user has another password, then no right to the database.
#[tokio::test]
async fn before_it_may_log_in() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::MariaDb).await;
    shop.order(1, -1_000).await;
    let (rest, name) = shop.database.url.rsplit_once('/').expect("a name");
    let host = rest.rsplit('@').next().expect("a host");
    let host = host.trim_start_matches("mysql://");
    let user = format!("'{name}'@'%'");
    shop.database.execute(&format!("CREATE USER {user} IDENTIFIED BY 'another'")).await;
    let settings = shop.settings_with(&redis).set("database.url", format!("mysql://{name}:right@{host}/{name}"));
    let daemon = waiting(&settings, "Access denied", "the password in database.url, or: ALTER USER").await;
    shop.database.execute(&format!("ALTER USER {user} IDENTIFIED BY 'right'")).await;
    daemon.until_logged(&format!("GRANT SELECT, UPDATE ON `{name}`.* TO {user}")).await;
    shop.database.execute(&format!("GRANT ALL ON {name}.* TO {user}")).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
    shop.database.execute(&format!("DROP USER {user}")).await;
}

/// What no server can mend is not waited for.
#[tokio::test]
async fn a_statement_that_is_no_sql() {
    let redis = Redis::start();
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        let daemon = Daemon::start(&shop.settings_with(&redis).after_close_sql("UPDAET orders SET status = 4 WHERE order_no IN (:ids)"));
        assert_eq!(daemon.wait().await.code(), Some(78), "{:#?}", daemon.lines());
    }
}

/// Whatever length of time the configuration takes, no clock of a server or a host runs over.
async fn the_longest_times_are_reckoned_with(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let every = ["close.retry.initial", "close.retry.max", "sweep.every", "sweep.ahead", "sweep.oldest", "log.summary"];
    let settings = every.iter().fold(shop.settings_with(&redis), |settings, key| settings.set(key, "100y"));
    let settings =
        ["events.keep", "events.retry.initial", "events.retry.max"].iter().fold(settings, |settings, key| settings.set(key, "100y"));
    let settings = settings.set("database.timeout", "1d").set("events.enabled", true).add("[events.stream]\nkey = 'orders:closed'");
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    shop.orders_due_in(1..=10, -1_000).await;
    shop.orders_due_in(11..=20, 1_000).await;
    let daemon = listening(&settings).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.orders_due_in(21..=30, -1_000).await;
    order_closer(&settings, &["reconcile", "--oldest", "100y", "--max-duration", "100y"]).await.expect_code(0);
    order_closer(&settings, &["events", "--since", "100y"]).await.expect_code(0);
    assert_eq!(shop.assert_outcome().await.closed.len(), 30);
}
