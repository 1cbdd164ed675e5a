//! The database away when the daemon starts, killed in the middle of a batch, frozen: what was not
//! committed is done again, what was committed is not.

use std::path::PathBuf;

use super::{assert_on_time, listening};
use crate::support::{Daemon, Database, Kind, Redis, Shop, mariadb::MariaDb, order_closer, postgres::Postgres, process, wait};

/// A server of the test's own, of either kind.
enum Server {
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl Server {
    fn start(kind: Kind) -> Self {
        match kind {
            Kind::Postgres => Self::Postgres(Postgres::options().start()),
            Kind::MariaDb => Self::MariaDb(MariaDb::options().start()),
            Kind::Sqlite => panic!("SQLite has no server"),
        }
    }

    async fn shop(&self) -> Shop {
        Shop::in_database(match self {
            Self::Postgres(server) => Database::on_postgres(server).await,
            Self::MariaDb(server) => Database::on_mariadb(server).await,
        })
        .await
    }

    fn kill(&self) {
        match self {
            Self::Postgres(server) => server.kill(),
            Self::MariaDb(server) => server.kill(),
        }
    }

    fn start_again(&mut self) {
        match self {
            Self::Postgres(server) => server.start_again(),
            Self::MariaDb(server) => server.start_again(),
        }
    }

    fn data(&self) -> PathBuf {
        match self {
            Self::Postgres(server) => server.data(),
            Self::MariaDb(server) => server.data(),
        }
    }

    fn freeze(&self) {
        match self {
            Self::Postgres(server) => server.freeze(),
            Self::MariaDb(server) => server.freeze(),
        }
    }

    fn thaw(&self) {
        match self {
            Self::Postgres(server) => server.thaw(),
            Self::MariaDb(server) => server.thaw(),
        }
    }
}

async fn killed_in_the_middle_of_a_batch(kind: Kind) {
    const COUNT: i64 = 3_000;
    let redis = Redis::start();
    let mut server = Server::start(kind);
    let mut shop = server.shop().await;
    let settings = shop.settings_with(&redis).set("close.batch_size", 40);
    shop.orders_due_in(1..=COUNT, -1_000).await;
    let daemon = Daemon::start(&settings);
    for round in 1..=3 {
        wait::until("it has closed some more", async || shop.closed().await >= round * 200).await;
        server.kill();
        daemon.until_line("it waits", |line| line.contains("database unavailable") || line.contains("the sweep failed")).await;
        // It stands still while we count.
        daemon.freeze();
        server.start_again();
        shop.database.disconnect().await;
        let closed = shop.closed().await;
        assert!(closed < COUNT, "killed too late to matter");
        daemon.thaw();
    }
    shop.until_all_settled().await;
    shop.orders_due_in(COUNT + 1..=COUNT + 20, 2_500).await;
    shop.write_keys(&redis, 0).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    let outcome = shop.assert_outcome().await;
    assert_eq!(outcome.closed.len(), 3_020);
    let late = outcome.closed.iter().find(|(number, millis)| **number > COUNT && **millis > super::ON_TIME_MILLIS);
    assert_eq!(late, None, "on time again after its return");
}

#[tokio::test]
async fn killed_in_the_middle_of_a_batch_in_postgres() {
    killed_in_the_middle_of_a_batch(Kind::Postgres).await;
}

#[tokio::test]
async fn killed_in_the_middle_of_a_batch_in_mariadb() {
    killed_in_the_middle_of_a_batch(Kind::MariaDb).await;
}

/// Away at first, then frozen while orders fall due, with statements on their way.
async fn absent_then_frozen(kind: Kind) {
    let redis = Redis::start();
    let mut server = Server::start(kind);
    let mut shop = server.shop().await;
    shop.orders_due_in(1..=100, -1_000).await;
    server.kill();
    let daemon = Daemon::start(&shop.settings_with(&redis).set("database.timeout", "1s").set("close.batch_size", 20));
    let warning = daemon.until_logged("waiting for the database").await;
    assert!(warning.contains("WARN"), "{warning}");
    server.start_again();
    shop.database.disconnect().await;
    daemon.until_logged("orders table fits").await;
    daemon.until_logged("listening for expired keys").await;
    shop.until_all_settled().await;

    let orders: Vec<(i64, i64)> = (101..=600).map(|number| (number, 1_000 + number * 5)).collect();
    shop.orders(&orders).await;
    shop.write_keys(&redis, 0).await;
    wait::until("some more orders are closed", async || shop.closed().await >= 150).await;
    server.freeze();
    daemon.until_logged("database unavailable; waiting for it").await;
    server.thaw();
    shop.until_all_settled().await;
    daemon.until_logged("database available again").await;
    shop.orders_due_in(601..=620, 2_500).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    let outcome = shop.assert_outcome().await;
    assert_eq!(outcome.closed.len(), 620);
    let last = outcome.closed.into_iter().filter(|(number, _)| *number > 600).collect();
    assert_on_time(&crate::support::shop::Outcome { closed: last, ..Default::default() });
    assert_eq!(daemon.logged("\"ERROR\""), 0, "nothing needed a hand");
}

#[tokio::test]
async fn absent_then_frozen_in_postgres() {
    absent_then_frozen(Kind::Postgres).await;
}

#[tokio::test]
async fn absent_then_frozen_in_mariadb() {
    absent_then_frozen(Kind::MariaDb).await;
}

/// Somebody else's long transaction locks the whole file, longer than anybody waits for it.
#[tokio::test]
async fn a_locked_sqlite_file() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let daemon = listening(&shop.settings_with(&redis).set("database.timeout", "500ms")).await;
    shop.orders_due_in(1..=100, 500).await;
    shop.write_keys(&redis, 0).await;
    let transaction = shop.database.begin().await;
    wait::until("all are overdue", async || shop.overdue().await == 100).await;
    // Longer than the daemon waits for a lock.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    transaction.rollback().await;
    wait::within(std::time::Duration::from_secs(4), "all close when the lock is gone", async || shop.closed().await == 100).await;
    daemon.stop().await;
    assert_eq!(shop.assert_outcome().await.closed.len(), 100);
    assert_eq!(daemon.summary().count("rejected"), 0);
}

/// A copy of the server's files is put back while it is down and the daemon has nothing to do: nobody has undone those closures.
async fn a_restored_backup(kind: Kind) {
    let redis = Redis::start();
    let mut server = Server::start(kind);
    let shop = server.shop().await;
    let settings = shop.settings_with(&redis);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    shop.orders_due_in(1..=20, -1_000).await;
    server.kill();
    let (data, backup) = (server.data(), server.data().with_extension("backup"));
    process::copy(&data, &backup);
    server.start_again();
    let daemon = listening(&settings).await;
    shop.until_all_settled().await;
    until_its_closures_are_old(&shop).await;
    server.kill();
    std::fs::remove_dir_all(&data).expect("a folder can be removed");
    std::fs::rename(&backup, &data).expect("a folder can be renamed");
    server.start_again();
    shop.until_all_settled().await;
    daemon.stop().await;
    assert_eq!(daemon.summary().count("closed"), 40, "each once, and again in the backup");
    assert_eq!((shop.assert_outcome().await.closed.len(), daemon.logged("undone")), (20, 0));
}

/// Servers tell in whole seconds for how long they have been running.
async fn until_its_closures_are_old(shop: &Shop) {
    let recent = format!("SELECT count(*) FROM closures WHERE closed_at > {}", shop.moment(-3_000));
    wait::until_eq("closures of the last seconds", 0, async || shop.database.number(&recent).await).await;
}

/// What is closed after a restart, and then undone, is undone.
async fn an_undoing_after_a_restart(kind: Kind) {
    let redis = Redis::start();
    let mut server = Server::start(kind);
    let shop = server.shop().await;
    let daemon = listening(&shop.settings_with(&redis)).await;
    shop.order(4, -1_000).await;
    shop.until_all_settled().await;
    until_its_closures_are_old(&shop).await;
    server.kill();
    server.start_again();
    shop.orders_due_in(1..=3, -1_000).await;
    shop.until_all_settled().await;
    shop.database.execute("UPDATE orders SET status = 0 WHERE order_no = 2").await;
    daemon.until_logged("its closure was undone").await;
    assert_eq!(shop.database.number("SELECT count(*) FROM closures WHERE order_no = 2").await, 1);
    daemon.stop().await;
}

#[tokio::test]
async fn an_undoing_after_a_restart_in_postgres() {
    an_undoing_after_a_restart(Kind::Postgres).await;
}

#[tokio::test]
async fn an_undoing_after_a_restart_in_mariadb() {
    an_undoing_after_a_restart(Kind::MariaDb).await;
}

#[tokio::test]
async fn a_restored_backup_in_postgres() {
    a_restored_backup(Kind::Postgres).await;
}

#[tokio::test]
async fn a_restored_backup_in_mariadb() {
    a_restored_backup(Kind::MariaDb).await;
}

/// A backup takes the file's place while the daemon has the file open.
#[tokio::test]
async fn a_restored_backup_in_sqlite() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    shop.orders_due_in(1..=20, -1_000).await;
    let file = shop.database.url.trim_start_matches("sqlite://");
    let backup = format!("{file}.backup");
    shop.database.execute(&format!("VACUUM INTO '{backup}'")).await;
    let daemon = listening(&shop.settings_with(&redis)).await;
    shop.until_all_settled().await;
    for log in ["-wal", "-shm"] {
        std::fs::remove_file(format!("{file}{log}")).expect("the file is in WAL mode");
    }
    std::fs::rename(&backup, file).expect("a file can be renamed");
    let restored = sqlx::SqlitePool::connect(&shop.database.url).await.expect("the backup can be opened");
    // The daemon opens the file anew every ten seconds.
    wait::within(wait::LIMIT, "the orders of the backup are closed", async || {
        let open: i64 = sqlx::query_scalar("SELECT count(*) FROM orders WHERE status = 0").fetch_one(&restored).await.expect("a number");
        open == 0
    })
    .await;
    daemon.stop().await;
    assert_eq!(daemon.summary().count("closed"), 40, "each in the file and again in its backup");
    let closures: i64 = sqlx::query_scalar("SELECT count(*) FROM closures").fetch_one(&restored).await.expect("a number");
    let sound: String = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&restored).await.expect("a word");
    assert_eq!((closures, sound.as_str()), (20, "ok"));
}
