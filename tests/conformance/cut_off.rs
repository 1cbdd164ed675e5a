//! A statement that takes too long is ended by another connection, in MySQL: the one at this server, and none elsewhere.

use std::time::Duration;

use order_closer::store::{Limits, LockWait, StoreError};
use sqlx::{ConnectOptions, MySqlConnection, mysql::MySqlConnectOptions};

use super::{Database, change, ids, open, overdue_orders, plain_orders, settings};
use crate::support::{
    Proxy,
    mariadb::{self, MariaDb},
    proxy::Existing,
    wait,
};

/// A new connection, and its number at its server.
async fn connection(url: &str) -> (MySqlConnection, i64) {
    let options: MySqlConnectOptions = url.parse().expect("a good URL");
    let mut connection = options.connect().await.expect("the server takes connections");
    let number = sqlx::query_scalar("SELECT CAST(CONNECTION_ID() AS SIGNED)").fetch_one(&mut connection).await;
    (connection, number.expect("each has one"))
}

/// The connection of this number, of a server that has given out smaller ones only.
async fn connection_of(url: &str, wanted: i64) -> MySqlConnection {
    loop {
        let (connection, number) = connection(url).await;
        assert!(number <= wanted, "this server is at {number}, and {wanted} is gone");
        if number == wanted {
            return connection;
        }
    }
}

/// The address of a closure's connection leads to another server meanwhile, where somebody else's has the same number.
pub async fn whoever_is_led_elsewhere_ends_nothing_there(_: Database) {
    if !mariadb::is_mysql() {
        eprintln!("MariaDB ends statements by itself; left out");
        return;
    }
    let (server, other) = (MariaDb::options().start(), MariaDb::options().start());
    let database = Database::on_mariadb(&server).await;
    let name = database.url.rsplit('/').next().expect("a name");
    for each in [&server, &other] {
        Database::existing(&each.url("mysql")).execute("CREATE USER closer; GRANT ALL ON *.* TO closer").await;
    }
    Database::existing(&other.url("mysql")).execute(&format!("CREATE DATABASE {name}")).await;
    let stranger = Database::existing(&other.url(name));
    for _ in 0..60 {
        drop(connection(&database.url).await);
    }
    plain_orders(&database).await;
    overdue_orders(&database, [1]).await;
    database.execute("CREATE TABLE stock (sku integer PRIMARY KEY, n integer); INSERT INTO stock VALUES (1, 0)").await;
    let proxy = Proxy::before(&database.url);
    let url = proxy.url(&database.url).replace("root@", "closer@");
    let statement = "UPDATE stock SET n = n + 1 WHERE sku IN (SELECT order_no FROM orders WHERE order_no IN (:ids))";
    let store = open(&settings(&database).set("database.url", url).set("close.sql", vec![statement])).await;
    let mut payment = database.begin().await;
    payment.execute("UPDATE stock SET n = 10").await;

    let limits = Limits { wait: LockWait::Briefly, lock: Duration::from_millis(20), statement: Duration::from_millis(200) };
    let mut transaction = store.begin(limits).await.expect("a transaction can begin");
    let ids = ids(&*store, &["1"]);
    assert_eq!(transaction.lock(&ids).await.expect("the row is free").len(), 1);
    let closers = "FROM information_schema.processlist WHERE user = 'closer' AND id";
    let ours = "IN (SELECT trx_mysql_thread_id FROM information_schema.innodb_trx)";
    let number = database.number(&format!("SELECT id {closers} {ours}")).await;
    for idle in database.column(&format!("SELECT id {closers} NOT {ours}")).await.into_iter().flatten() {
        database.execute(&format!("KILL {idle}")).await;
    }
    proxy.lead_to(&other.url("mysql"), Existing::Stay);

    // There the same number waits for something that has nothing to do with orders.
    let (mut till, _) = connection(&stranger.url).await;
    sqlx::query("SELECT GET_LOCK('till', 0)").execute(&mut till).await.expect("it is free");
    let mut bystander = connection_of(&stranger.url, number).await;
    let waits =
        tokio::spawn(async move { sqlx::query_scalar::<_, Option<i64>>("SELECT GET_LOCK('till', 60)").fetch_one(&mut bystander).await });
    let waiting = format!("SELECT count(*) FROM information_schema.processlist WHERE id = {number} AND state = 'User lock'");
    wait::until("the bystander waits", async || stranger.number(&waiting).await == 1).await;

    let closed = change(&mut *transaction, &ids).await;
    assert!(matches!(closed, Err(StoreError::Locked(_))), "{closed:?}");
    transaction.rollback().await;
    let asked = stranger.rows("SHOW GLOBAL STATUS LIKE 'Com_prepare_sql'").await;
    assert_ne!(asked[0][1].as_deref(), Some("0"), "it was led there, and asked who that is");
    sqlx::query("SELECT RELEASE_LOCK('till')").execute(&mut till).await.expect("it can be released");
    assert_eq!(waits.await.expect("no panic").expect("it was not ended"), Some(1), "it has waited to the end");
    payment.rollback().await;
}
