//! Tables through which orders never close, though every statement is accepted.

use super::{Report, good_redis};
use crate::support::{Daemon, Kind, Settings, Shop, order_closer};

/// An order that is due does not close; `check` warns of it, and so does the daemon when it starts.
async fn assert_warned(shop: &Shop, settings: &Settings, name: &str, text: &str) {
    order_closer(settings, &["close", "1"]).await;
    assert_eq!(shop.status(1).await, 0);
    let report = Report::of(settings, 0).await;
    report.assert(name, "warn", text);
    let daemon = Daemon::start(settings);
    daemon.until_logged("listening for expired keys").await;
    let said = daemon.said("orders may never close");
    assert!(said.iter().any(|line| line.to_string().contains(text)), "{text:?} is missing in: {said:?}");
    daemon.stop().await;
}

/// Nobody is warned.
async fn assert_not_warned(settings: &Settings, name: &str) {
    let report = Report::of(settings, 0).await;
    assert!(!report.wrong().contains(&name), "{:#?}", report.findings);
}

/// What is closed through it is not to be seen any more.
#[tokio::test]
async fn a_view_that_hides_closed_orders() {
    let redis = good_redis();
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let shop = Shop::open(kind).await;
        shop.order(1, -1_000).await;
        shop.database.execute("CREATE VIEW unpaid_orders AS SELECT * FROM orders WHERE status = 0").await;
        shop.database.execute("CREATE VIEW all_orders AS SELECT * FROM orders").await;
        let settings = shop.settings_with(&redis);
        assert_warned(&shop, &settings.clone().set("orders.table", "unpaid_orders"), "view", "the view unpaid_orders").await;
        assert_not_warned(&settings.clone().set("orders.table", "all_orders"), "view").await;
        assert_not_warned(&settings, "view").await;
    }
}

/// SQLite does not count what such triggers change.
#[tokio::test]
async fn a_view_with_triggers_in_sqlite() {
    let redis = good_redis();
    let shop = Shop::open(Kind::Sqlite).await;
    shop.order(1, -1_000).await;
    shop.database
        .execute(
            "CREATE VIEW all_orders AS SELECT * FROM orders;
             CREATE TRIGGER closing INSTEAD OF UPDATE ON all_orders
             BEGIN UPDATE orders SET status = new.status, closed_at = new.closed_at WHERE order_no = new.order_no; END",
        )
        .await;
    let settings = shop.settings_with(&redis);
    assert_warned(&shop, &settings.clone().set("orders.table", "all_orders"), "view", "INSTEAD OF").await;
    assert_not_warned(&settings, "view").await;
}

/// Rows that a policy shows and does not let change look as if somebody held them.
#[tokio::test]
async fn policies_that_show_more_than_may_be_changed() {
    let redis = good_redis();
    let shop = Shop::open(Kind::Postgres).await;
    shop.order(1, -1_000).await;
    let name = shop.database.url.rsplit('/').next().expect("a name").replace("test_", "q_")[..20].to_owned();
    let policy = |name: &str, command: &str, using: &str| format!("CREATE POLICY {name} ON orders FOR {command} USING ({using})");
    shop.database
        .execute(&format!(
            "CREATE ROLE {name} LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO {name};
             ALTER TABLE orders ENABLE ROW LEVEL SECURITY; {}; {}",
            policy("seen", "SELECT", "true"),
            policy("changed", "UPDATE", "order_no > 100")
        ))
        .await;
    let settings = shop.settings_with(&redis).set("database.url", shop.database.url.replace("postgres@", &format!("{name}@")));
    assert_warned(&shop, &settings, "policies", "have different conditions").await;
    // The same twice, for all commands, or for another user.
    for policies in [
        policy("changed", "UPDATE", "true"),
        policy("changed", "ALL", "true"),
        format!("{}; CREATE POLICY other ON orders FOR UPDATE TO postgres USING (false)", policy("changed", "ALL", "true")),
    ] {
        shop.database.execute(&format!("DROP POLICY changed ON orders; {policies}")).await;
        let report = Report::of(&settings, 0).await;
        assert!(!report.finished.stdout.contains("have different conditions"), "{policies}: {:#?}", report.findings);
    }
    shop.database.execute(&format!("DROP OWNED BY {name}; DROP ROLE {name}")).await;
}
