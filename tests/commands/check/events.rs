//! What `check` says about events; it sends none.

use super::{Report, good_redis};
use crate::support::{Daemon, Kind, Shop, order_closer, process, receiver::Receiver, wait};

#[tokio::test]
async fn tables_and_targets() {
    let (redis, receiver) = (good_redis(), Receiver::start().await);
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        let settings = shop.settings_with(&redis).add(&receiver.webhook("till", ""));
        let report = Report::of(&settings, 78).await;
        report.assert("own tables", "fail", "no tables order_closer_*");
        assert!(report.fix("own tables").contains("order-closer migrate"));
        order_closer(&settings, &["migrate"]).await.expect_code(0);
        shop.order(1, -1_000).await;
        order_closer(&settings, &["close", "1"]).await.expect_code(0);
        let report = Report::of(&settings, 0).await;
        report.assert("own tables", "ok", "version 8");
        report.assert("webhook", "ok", "till: http://127.0.0.1:");
        report.assert("webhook", "ok", "1 waiting, 0 dead letters");
        // Under another name, what waits for the old one will wait for ever.
        let renamed = shop.settings_with(&redis).add(&receiver.webhook("desk", ""));
        let report = Report::of(&renamed, 0).await;
        assert_eq!(report.wrong(), ["targets"], "{kind:?}");
        report.assert("targets", "warn", "till is not in the configuration, 1 waiting");
        let (_, command) = report.fix("targets").split_once("order-closer ").expect("a command");
        order_closer(&renamed, &command.split_whitespace().collect::<Vec<_>>()).await.expect_code(0);
        assert_eq!(Report::of(&renamed, 0).await.wrong(), [] as [&str; 0], "{kind:?}");
        // Named, but told nothing, with or without tables.
        let off = renamed.clone().set("events.enabled", false);
        let told_nothing = async |tables: &str| {
            let report = Report::of(&off, 0).await;
            assert_eq!(report.wrong(), ["events"], "{kind:?}");
            report.assert("own tables", "ok", tables);
            report.assert("events", "warn", "are told nothing: desk");
            assert!(report.fix("events").contains("enabled = true"));
        };
        told_nothing("version 8").await;
        shop.database.execute("DELETE FROM order_closer_migrations WHERE version > 1").await;
        Report::of(&renamed, 78).await.assert("own tables", "fail", "have version 1");
        Report::of(&shop.settings_with(&redis), 0).await.assert("own tables", "warn", "upgrade them with: order-closer migrate");
        shop.database.execute("DROP TABLE order_closer_migrations").await;
        told_nothing("none; ").await;
    }
    assert_eq!(receiver.received().len(), 0);
}

/// Who may not read the tables is told so before an order that was given up comes back.
#[tokio::test]
async fn tables_that_may_not_be_read() {
    let redis = good_redis();
    let shop = Shop::open(Kind::Postgres).await;
    order_closer(&shop.settings_with(&redis), &["migrate"]).await.expect_code(0);
    let name = shop.database.url.rsplit('/').next().expect("a name").replace("test_", "e_")[..20].to_owned();
    let role = format!(
        "CREATE ROLE {name} LOGIN; GRANT SELECT, UPDATE ON orders, inventory, order_items TO {name}; GRANT INSERT ON closures TO {name}"
    );
    shop.database.execute(&role).await;
    let settings = shop.settings_with(&redis).set("database.url", shop.database.url.replace("postgres@", &format!("{name}@")));
    let report = Report::of(&settings, 78).await;
    report.assert("mapping", "fail", "this user can't read them");
    report.assert("mapping", "fail", "grant it SELECT, INSERT, UPDATE and DELETE");
    let tables = "order_closer_events, order_closer_deliveries, order_closer_dead_letters, order_closer_facts, order_closer_pauses, \
                  order_closer_targets, order_closer_batches";
    let grant = format!("GRANT SELECT ON order_closer_migrations TO {name}; GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {name}");
    shop.database.execute(&grant).await;
    assert_eq!(Report::of(&settings.set("events.enabled", true), 0).await.wrong(), [] as [&str; 0]);
    shop.database.execute(&format!("DROP OWNED BY {name}; DROP ROLE {name}")).await;
}

/// A cron job by a configuration of its own closes what the daemon would have told of.
#[tokio::test]
async fn events_that_only_somebody_else_writes() {
    let redis = good_redis();
    let shop = Shop::open(Kind::Sqlite).await;
    let plain = shop.settings_with(&redis);
    order_closer(&plain, &["migrate"]).await.expect_code(0);
    assert_eq!(Report::of(&plain, 0).await.wrong(), [] as [&str; 0]);
    shop.order(1, -1_000).await;
    order_closer(&plain.clone().set("events.enabled", true), &["close", "1"]).await.expect_code(0);
    let report = Report::of(&plain, 0).await;
    report.assert("events", "warn", "somebody has recorded closures of this table within the last day");
    assert!(report.fix("events").contains("enabled = true"));
}

#[tokio::test]
async fn a_webhook_that_can_not_work() {
    let redis = good_redis();
    let shop = Shop::open(Kind::Sqlite).await;
    let folder = process::folder();
    let file = folder.path().join("secret");
    let webhook = |url: &str, more: &str| format!("[events]\nenabled = true\n[[events.webhooks]]\nname = 'till'\nurl = '{url}'\n{more}");
    let with_file = |url: &str| shop.settings_with(&redis).add(&webhook(url, &format!("secret_files = ['{}']", file.display())));
    order_closer(&shop.settings_with(&redis), &["migrate"]).await.expect_code(0);
    let report = Report::of(&with_file("https://shop.example/"), 78).await;
    report.assert("webhook", "fail", "secret_files: ");
    std::fs::write(&file, "hunter2\n").expect("a file can be written");
    let report = Report::of(&with_file("https://shop.example/"), 78).await;
    report.assert("webhook", "fail", "doesn't begin with whsec_");
    assert!(!report.finished.stdout.contains("hunter2"));
    std::fs::write(&file, "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3\n").expect("a file can be written");
    let report = Report::of(&with_file("http://shop.example/"), 0).await;
    report.assert("webhook", "warn", "can be read on its way");
}

/// What somebody has left who was killed is told of by whoever comes next, be it a command.
#[tokio::test]
async fn batches_that_somebody_has_left() {
    let (redis, receiver) = (good_redis(), Receiver::start().await);
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings_with(&redis).add(&receiver.webhook("till", ""));
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let leave = async |order: u32| {
        let id = format!("01900000-0000-7000-8000-{order:012}");
        let events = format!(r#"[["{id}","{order}",1,"sweep","{{}}",null,null,null]]"#);
        let batch = format!("VALUES ('{id}', 'orders', 'orders', 1, 'somebody', '[\"till\"]', '{events}')");
        shop.database.execute(&format!("INSERT INTO order_closer_batches {batch}")).await;
    };
    let left = async || shop.database.number("SELECT count(*) FROM order_closer_batches").await;
    let told = || receiver.taken().keys().copied().collect::<Vec<_>>();
    leave(1).await;
    let report = Report::of(&settings, 0).await;
    report.assert("events", "warn", "has not been told to anybody since 1970-01-01");
    assert!(report.fix("events").contains("order-closer deliver"));
    order_closer(&settings, &["reconcile", "--dry-run"]).await.expect_code(0);
    assert_eq!(left().await, 1, "neither changes anything");
    order_closer(&settings, &["deliver"]).await.expect_code(0);
    assert_eq!((left().await, told()), (0, vec![1]));
    assert_eq!(Report::of(&settings, 0).await.wrong(), [] as [&str; 0]);
    leave(2).await;
    order_closer(&settings, &["reconcile"]).await.expect_code(0);
    assert_eq!(left().await, 0);
    leave(3).await;
    assert!(order_closer(&settings, &["events", "--order", "3"]).await.expect_code(0).stdout.contains("order 3  closed"));
    leave(4).await;
    order_closer(&settings, &["explain", "4"]).await;
    assert_eq!(left().await, 0);
    leave(5).await;
    let daemon = Daemon::start(&settings);
    wait::until("all were told", async || told() == [1, 2, 3, 4, 5]).await;
    daemon.stop().await;
}
