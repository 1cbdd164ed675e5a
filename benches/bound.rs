//! The bound: a single client that knows the ids and closes them in batches, with the fewest statements in which each
//! database can lock, judge, update, say what it closed, and give back the stock.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, SqlSafeStr, SqlStr, SqliteConnection, mysql::MySqlConnectOptions};

use crate::{
    shop::{CLOSED, Shop, UNPAID},
    support::Kind,
};

/// Orders in one transaction; what the daemon has by default.
pub const BATCH: usize = 1_000;

/// Closes these orders, and says how long it took until the last was committed.
pub async fn close_all(shop: &Shop, numbers: std::ops::Range<i64>) -> Duration {
    let numbers: Vec<i64> = numbers.collect();
    let url = &shop.database.url;
    match shop.database.kind {
        Kind::Postgres => postgres(shop, &mut PgConnection::connect(url).await.expect("PostgreSQL accepts a client"), &numbers).await,
        Kind::MariaDb => {
            // The driver would set the session to UTC; a shop's sessions have the server's zone.
            let options: MySqlConnectOptions = url.parse().expect("a good URL");
            let mut connection = MySqlConnection::connect_with(&options.timezone(None)).await.expect("MariaDB accepts a client");
            mariadb(shop, &mut connection, &numbers).await
        }
        Kind::Sqlite => sqlite(shop, &mut SqliteConnection::connect(url).await.expect("SQLite opens its file"), &numbers).await,
    }
}

fn sql(text: String) -> SqlStr {
    AssertSqlSafe(text).into_sql_str()
}

/// What a closure sets besides the status.
fn set(shop: &Shop) -> String {
    shop.set().iter().map(|(column, value)| format!(", {column} = {value}")).collect()
}

/// Changes those of the orders that are unpaid and due, and returns them.
fn update(shop: &Shop, among: &str, now: &str) -> SqlStr {
    sql(format!(
        "UPDATE orders SET status = {CLOSED}{} WHERE order_no {among} AND status = {UNPAID} AND expires_at <= {now} RETURNING order_no",
        set(shop)
    ))
}

async fn postgres(shop: &Shop, connection: &mut PgConnection, numbers: &[i64]) -> Duration {
    let among = "= ANY($1)";
    let update = update(shop, among, "now()");
    let release = shop.release(among).map(sql);
    let began = Instant::now();
    for batch in numbers.chunks(BATCH) {
        let mut transaction = connection.begin().await.expect("BEGIN");
        let closed: Vec<i64> = sqlx::query_scalar(update.clone()).bind(batch).fetch_all(&mut *transaction).await.expect("UPDATE");
        assert_eq!(closed.len(), batch.len(), "the bound closes every order");
        if let Some(release) = &release {
            sqlx::query(release.clone()).bind(closed).execute(&mut *transaction).await.expect("stock is given back");
        }
        transaction.commit().await.expect("COMMIT");
    }
    began.elapsed()
}

/// MariaDB has no `UPDATE ... RETURNING`: what is due is read under its lock before.
async fn mariadb(shop: &Shop, connection: &mut MySqlConnection, numbers: &[i64]) -> Duration {
    let set = set(shop);
    sqlx::query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").execute(&mut *connection).await.expect("SET");
    let statements = |count: usize| {
        let among = format!("IN ({})", vec!["?"; count].join(", "));
        let select =
            format!("SELECT order_no FROM orders WHERE order_no {among} AND status = {UNPAID} AND expires_at <= NOW(6) FOR UPDATE");
        let update = format!("UPDATE orders SET status = {CLOSED}{set} WHERE order_no {among}");
        (sql(select), sql(update), shop.release(&among).map(sql))
    };
    let began = Instant::now();
    for batch in numbers.chunks(BATCH) {
        let (select, update, release) = statements(batch.len());
        let mut transaction = connection.begin().await.expect("BEGIN");
        let select = batch.iter().fold(sqlx::query_scalar::<_, i64>(select), |query, number| query.bind(number));
        let due = select.fetch_all(&mut *transaction).await.expect("SELECT");
        assert_eq!(due.len(), batch.len(), "the bound closes every order");
        for statement in [Some(update), release].into_iter().flatten() {
            let query = due.iter().fold(sqlx::query(statement), |query, number| query.bind(number));
            query.execute(&mut *transaction).await.expect("UPDATE");
        }
        transaction.commit().await.expect("COMMIT");
    }
    began.elapsed()
}

async fn sqlite(shop: &Shop, connection: &mut SqliteConnection, numbers: &[i64]) -> Duration {
    let among = "IN (SELECT value FROM json_each(?1))";
    let update = update(shop, among, "strftime('%Y-%m-%d %H:%M:%f', 'now')");
    let release = shop.release(among).map(sql);
    let list = |numbers: &[i64]| serde_json::to_string(numbers).expect("numbers are JSON");
    let began = Instant::now();
    for batch in numbers.chunks(BATCH) {
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.expect("BEGIN");
        let closed: Vec<i64> = sqlx::query_scalar(update.clone()).bind(list(batch)).fetch_all(&mut *transaction).await.expect("UPDATE");
        assert_eq!(closed.len(), batch.len(), "the bound closes every order");
        if let Some(release) = &release {
            sqlx::query(release.clone()).bind(list(&closed)).execute(&mut *transaction).await.expect("stock is given back");
        }
        transaction.commit().await.expect("COMMIT");
    }
    began.elapsed()
}
