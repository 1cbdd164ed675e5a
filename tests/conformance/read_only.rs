//! A server that takes no writes any more, as after a failover: nobody closes there, everybody may read.

use order_closer::store::{DueQuery, Limits, Store, StoreError, Window};

use super::{Database, Kind, begin, close, ids, open, overdue_orders, plain_orders, settings};
use crate::support::{mariadb::MariaDb, postgres::Postgres, wait};

/// What a standby answers, too.
async fn reads(store: &dyn Store) {
    assert_eq!(store.count_overdue().await, Ok(2));
    assert_eq!(store.look(&ids(store, &["2", "3"])).await.expect("rows can be read").len(), 2);
    let query = DueQuery { window: Window::overdue(None), limit: 10, after: None };
    assert_eq!(store.due(&query).await.expect("what is due can be read").rows.len(), 2);
    assert!(store.catalogue().await.is_ok());
}

fn is_away<T>(result: Result<T, StoreError>) -> bool {
    matches!(result.map(drop), Err(StoreError::Unavailable(_) | StoreError::Refused { .. }))
}

/// Both workers' connections are idle in the pool when the server becomes read-only.
async fn fill_pool(store: &dyn Store) {
    let (one, other) = (begin(store).await, begin(store).await);
    one.rollback().await;
    other.rollback().await;
}

pub async fn a_postgres_that_became_read_only(_: Database) {
    let server = Postgres::options().start();
    let database = Database::on_postgres(&server).await;
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3).await;
    let store = open(&settings(&database)).await;
    fill_pool(&*store).await;
    assert_eq!(close(&*store, &["1"]).await, 1);
    let set = async |to: &str| {
        database.execute(&format!("ALTER SYSTEM SET default_transaction_read_only = {to}")).await;
        database.execute("SELECT pg_reload_conf()").await;
    };
    set("on").await;
    wait::until("no transaction begins", async || is_away(store.begin(Limits::BRIEF).await)).await;
    // A reload reaches each session by itself.
    wait::until("it is not reached either", async || is_away(store.reach().await)).await;
    never_begins(&*store).await;
    reads(&*store).await;
    set("off").await;
    wait::until("it is reached again", async || store.reach().await.is_ok()).await;
    wait::until("a transaction begins again", async || match store.begin(Limits::BRIEF).await {
        Ok(transaction) => {
            transaction.rollback().await;
            true
        }
        Err(_) => false,
    })
    .await;
    assert_eq!(close(&*store, &["2", "3"]).await, 2);
}

/// However often it is tried: no connection of the pool leads elsewhere.
async fn never_begins(store: &dyn Store) {
    for _ in 0..8 {
        assert!(is_away(store.begin(Limits::BRIEF).await));
    }
}

pub async fn a_mariadb_that_became_read_only(_: Database) {
    let server = MariaDb::options().start();
    let database = Database::on_mariadb(&server).await;
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3).await;
    database.execute("CREATE USER shop; GRANT ALL ON *.* TO shop; REVOKE SUPER, READ ONLY ADMIN ON *.* FROM shop").await;
    let settings = settings(&database);
    let admin = open(&settings).await;
    let store = open(&settings.set("database.url", database.url.replace("root@", "shop@"))).await;
    fill_pool(&*store).await;
    database.execute("SET GLOBAL read_only = 1").await;
    // What its account may do all the same, it does.
    assert_eq!(close(&*admin, &["1"]).await, 1);
    // The first refusal tells.
    let mut transaction = begin(&*store).await;
    let mut refused = transaction.lock(&ids(&*store, &["2"])).await.map(drop);
    if refused.is_ok() {
        refused = transaction.update(&ids(&*store, &["2"])).await.map(drop);
    }
    assert!(is_away(refused));
    transaction.rollback().await;
    never_begins(&*store).await;
    assert!(is_away(store.reach().await));
    reads(&*store).await;
    database.execute("SET GLOBAL read_only = 0").await;
    assert_eq!(store.reach().await, Ok(()));
    assert_eq!(close(&*store, &["2", "3"]).await, 2);
}

/// Whoever holds the database shows that it is there.
pub async fn is_reached_while_it_is_locked(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, [1]).await;
    let store = open(&settings(&database)).await;
    assert_eq!(store.reach().await, Ok(()));
    let mut payment = database.begin().await;
    payment.execute("UPDATE orders SET status = 1").await;
    assert_eq!(store.reach().await, Ok(()));
    payment.commit().await;
    if database.kind == Kind::Sqlite {
        let path = database.url.trim_start_matches("sqlite://").split('?').next().expect("a path").to_owned();
        std::fs::remove_file(path).expect("the file can be removed");
        let gone = store.reach().await;
        assert!(matches!(&gone, Err(StoreError::Refused { cure, .. }) if cure.contains("put the file")), "{gone:?}");
    }
}
