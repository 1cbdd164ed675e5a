//! The server's time zone changes while a store is open, and with it what a time without a zone means.

use std::{sync::Arc, time::Duration};

use order_closer::{
    order::{Verdict, judge},
    store::{Limits, StoreError},
    trigger::ZoneWatch,
};
use tokio_util::sync::CancellationToken;

use super::{Database, Kind, by_kind, create_orders, ids, open, settings, verdict};
use crate::support::{mariadb::MariaDb, order_closer, postgres::Postgres, wait};

/// A server of the test's own, eight hours east of UTC.
enum Server {
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl Server {
    fn start(kind: Kind) -> Self {
        match kind {
            Kind::Postgres => Self::Postgres(Postgres::options().time_zone("Asia/Shanghai").start()),
            Kind::MariaDb => Self::MariaDb(MariaDb::options().time_zone("+08:00").start()),
            Kind::Sqlite => panic!("SQLite has no server"),
        }
    }

    async fn database(&self) -> Database {
        match self {
            Self::Postgres(server) => Database::on_postgres(server).await,
            Self::MariaDb(server) => Database::on_mariadb(server).await,
        }
    }

    /// What an administrator does; new connections have this zone then.
    async fn set_zone(&self, zone: &str) {
        let database = self.database().await;
        match self {
            Self::Postgres(_) => {
                let loaded = database.text("SELECT pg_conf_load_time()").await;
                database.execute(&format!("ALTER SYSTEM SET timezone = '{zone}'")).await;
                database.execute("SELECT pg_reload_conf()").await;
                // The server reads its settings before it tells its sessions to.
                wait::until("the server has read its settings", async || database.text("SELECT pg_conf_load_time()").await != loaded).await;
            }
            Self::MariaDb(_) => drop(database.execute(&format!("SET GLOBAL time_zone = '{zone}'")).await),
        }
    }
}

/// A table with one order that is due in half an hour, in the server's zone.
async fn due_in_half_an_hour(database: &Database, column_type: &str) {
    create_orders(database, "bigint", "integer", column_type).await;
    // The test's own sessions are in UTC in PostgreSQL, and in the server's zone in MariaDB.
    let soon = match column_type {
        "timestamp" => "(now() + interval '30 minutes') AT TIME ZONE 'Asia/Shanghai'",
        "timestamptz" => "now() + interval '30 minutes'",
        _ => "NOW(6) + INTERVAL 30 MINUTE",
    };
    database.execute(&format!("INSERT INTO orders VALUES (1, 0, {soon}, NULL)")).await;
}

fn local_type(kind: Kind) -> &'static str {
    by_kind(kind, "timestamp", "datetime(6)", "")
}

pub async fn a_zone_that_changes(database: Database) {
    let server = Server::start(database.kind);
    let database = server.database().await;
    due_in_half_an_hour(&database, local_type(database.kind)).await;
    let settings = settings(&database);
    let store = open(&settings).await;
    assert_eq!(store.zone_changed().await, Ok(None));
    // Another name for the same.
    if database.kind == Kind::Postgres {
        server.set_zone("PRC").await;
        assert_eq!(store.zone_changed().await, Ok(None));
    }
    server.set_zone(by_kind(database.kind, "Asia/Tokyo", "+09:00", "")).await;
    // What was due in half an hour still is, and nothing closes over a connection that is made now.
    let rows = store.look(&ids(&*store, &["1"])).await.expect("rows can be read");
    let waits = judge(store.unpaid(), rows.first());
    assert!(matches!(waits, Verdict::NotDue { remaining: Some(_) }), "{waits:?}");
    let refused = store.begin(Limits::BRIEF).await.map(drop);
    assert!(matches!(&refused, Err(StoreError::Unavailable(reason)) if reason.contains("set database.time_zone")), "{refused:?}");
    let changed = store.zone_changed().await.expect("it can be asked").expect("it has changed");
    for text in ["UTC+08:00", "UTC+09:00", by_kind(database.kind, "Asia/Tokyo", "+09:00", "")] {
        assert!(changed.contains(text), "{text} is missing in: {changed}");
    }
    // Told what the zone is, nobody has to ask.
    let told = open(&settings.clone().set("database.time_zone", "+08:00")).await;
    assert_eq!(told.zone_changed().await, Ok(None));
    assert!(matches!(verdict(&*told, "1").await, Verdict::NotDue { .. }));
}

/// A column that knows its zone means what it meant.
pub async fn a_zone_that_does_not_matter(database: Database) {
    let server = Server::start(database.kind);
    let database = server.database().await;
    due_in_half_an_hour(&database, by_kind(database.kind, "timestamptz", "timestamp(6)", "")).await;
    let store = open(&settings(&database)).await;
    server.set_zone(by_kind(database.kind, "Asia/Tokyo", "+09:00", "")).await;
    assert_eq!(store.zone_changed().await, Ok(None));
    assert!(matches!(verdict(&*store, "1").await, Verdict::NotDue { .. }));
}

/// Nothing closes until the zone is what it was.
pub async fn closing_stops_while_the_zone_is_another(database: Database) {
    let server = Server::start(database.kind);
    let database = server.database().await;
    due_in_half_an_hour(&database, local_type(database.kind)).await;
    let store = open(&settings(&database)).await;
    let stop = CancellationToken::new();
    let watch = ZoneWatch { store: Arc::clone(&store), every: Duration::from_millis(20), stop: stop.clone() };
    let watching = tokio::spawn(watch.run());
    for _ in 0..2 {
        server.set_zone(by_kind(database.kind, "UTC", "+00:00", "")).await;
        let mut said = String::new();
        wait::until("closing stops", async || match store.begin(Limits::BRIEF).await {
            Err(StoreError::Unavailable(reason)) => {
                said = reason;
                true
            }
            Ok(transaction) => {
                transaction.rollback().await;
                false
            }
            Err(other) => panic!("{other:?}"),
        })
        .await;
        assert!(said.contains("UTC+08:00") && said.contains("set database.time_zone"), "{said}");
        // Whoever waits until closing can go on asks this.
        assert!(matches!(store.reach().await, Err(StoreError::Unavailable(reason)) if reason.contains("set database.time_zone")));
        // Whoever only reads goes on.
        assert!(store.clock().await.is_ok());
        server.set_zone(by_kind(database.kind, "Asia/Shanghai", "+08:00", "")).await;
        wait::until("closing goes on", async || store.reach().await.is_ok()).await;
        assert!(store.begin(Limits::BRIEF).await.is_ok());
    }
    // A server that is away has told nothing.
    match &server {
        Server::Postgres(server) => server.kill(),
        Server::MariaDb(server) => server.kill(),
    }
    assert!(store.zone_changed().await.is_err());
    stop.cancel();
    watching.await.expect("it ends when it is told to");
}

/// A daemon that starts after the change stops, too, as does whoever closes from cron.
pub async fn a_zone_that_changed_meanwhile(database: Database) {
    let server = Server::start(database.kind);
    let database = server.database().await;
    due_in_half_an_hour(&database, local_type(database.kind)).await;
    let settings = settings(&database);
    open(&settings).await.outbox().migrate().await.expect("our tables can be created");
    assert_eq!(open(&settings).await.zone_changed().await, Ok(None));
    server.set_zone(by_kind(database.kind, "UTC", "+00:00", "")).await;
    let said = order_closer(&settings, &["explain", "1", "--json"]).await.expect_code(0).json();
    assert!(said["state"] == "halted" && said["sentence"].as_str().is_some_and(|said| said.contains("UTC+08:00")), "{said:#}");
    let store = open(&settings).await;
    // Whoever only wants to know stops nothing.
    assert!(store.zone_differs().await.is_ok_and(|differs| differs.is_some()));
    assert!(store.halted().borrow().is_none());
    let changed = store.zone_changed().await.expect("it can be asked").expect("it has changed");
    assert!(changed.contains("UTC+08:00"), "{changed}");
    assert!(matches!(store.begin(Limits::BRIEF).await.map(drop), Err(StoreError::Unavailable(_))));
    let reconcile = order_closer(&settings, &["reconcile"]).await.expect_code(78);
    assert!(reconcile.stderr.contains("set database.time_zone"), "{reconcile:#?}");
    // Whoever says what the zone is takes the responsibility, and is not asked again.
    let told = settings.clone().set("database.time_zone", "+08:00");
    order_closer(&told, &["reconcile"]).await.expect_code(0);
    assert_eq!(database.text("SELECT status FROM orders").await.as_deref(), Some("0"));
    assert_eq!(open(&settings).await.zone_changed().await, Ok(None), "it begins anew");
}

/// Nothing closes in the minute until the zone would have been asked for.
pub async fn a_zone_that_changes_while_the_server_is_away(database: Database) {
    let server = Server::start(database.kind);
    let database = server.database().await;
    due_in_half_an_hour(&database, local_type(database.kind)).await;
    let store = open(&settings(&database)).await;
    assert_eq!(store.reach().await, Ok(()));
    server.set_zone(by_kind(database.kind, "Asia/Tokyo", "+09:00", "")).await;
    // Whoever waits for the database asks this before it goes on.
    assert!(matches!(store.reach().await, Err(StoreError::Unavailable(reason)) if reason.contains("UTC+09:00")));
    assert!(matches!(store.begin(Limits::BRIEF).await.map(drop), Err(StoreError::Unavailable(_))));
}
