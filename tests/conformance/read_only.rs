//! A server that takes no writes any more, as after a failover: nobody closes there, everybody may read.

use order_closer::{
    outbox::DeadOrder,
    store::{DueQuery, Limits, Store, StoreError, Window},
};

use super::{
    Database, Kind, begin, change, close, ids, open,
    outbox::{migrated, with_events},
    overdue_orders, plain_orders, settings,
};
use crate::support::{
    Proxy,
    mariadb::{self, MariaDb},
    postgres::Postgres,
    proxy::Existing,
    wait,
};

/// What a standby answers, too.
async fn reads(store: &dyn Store) {
    assert_eq!(store.count_overdue().await, Ok(2));
    assert_eq!(store.look(&ids(store, &["2", "3"])).await.expect("rows can be read").len(), 2);
    let query = DueQuery::of(Window::overdue(None), 10);
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
    assert_eq!(store.takes_writes().await, Ok(false));
    reads(&*store).await;
    database.execute("SET GLOBAL read_only = 0").await;
    assert_eq!((store.reach().await, store.takes_writes().await), (Ok(()), Ok(true)));
    assert_eq!(close(&*store, &["2", "3"]).await, 2);
}

/// A database of the same name and with the same orders on another server.
async fn twin(database: &Database, server: &MariaDb) -> Database {
    let name = database.url.rsplit('/').next().expect("a name");
    Database::existing(&server.url("mysql")).execute(&format!("CREATE DATABASE {name}")).await;
    let twin = Database::existing(&server.url(name));
    for database in [database, &twin] {
        plain_orders(database).await;
        overdue_orders(database, 1..=3).await;
    }
    twin
}

/// Does it until it is done, each time on whatever connection the pool has; returns how often a read-only server was met before.
async fn until_done(mut attempt: impl AsyncFnMut() -> Result<(), StoreError>) -> usize {
    for refused in 0..10 {
        let done = attempt().await;
        if done.is_ok() {
            return refused;
        }
        assert!(is_away(done.clone()), "{done:?}");
    }
    panic!("a connection to a server that takes no writes is used again and again");
}

async fn try_to_close(store: &dyn Store, id: &str) -> Result<(), StoreError> {
    let ids = ids(store, &[id]);
    let mut transaction = store.begin(Limits::BRIEF).await?;
    let closed = match transaction.lock(&ids).await {
        Ok(_) => change(&mut *transaction, &ids).await,
        Err(error) => Err(error),
    };
    match closed {
        Ok(_) => transaction.commit().await,
        Err(error) => {
            transaction.rollback().await;
            Err(error)
        }
    }
}

/// Sessions that write nothing, for as long as they last, and new ones behind the same address that do.
pub async fn sessions_that_are_read_only(database: Database) {
    let server = MariaDb::options().start();
    let twin = twin(&database, &server).await;
    twin.execute("SET GLOBAL TRANSACTION READ ONLY").await;
    let proxy = Proxy::before(&twin.url);
    let store = open(&settings(&database).set("database.url", proxy.url(&twin.url))).await;
    fill_pool(&*store).await;
    wait::until("both are idle again", async || store.pools().iter().any(|pool| pool.name == "closing" && pool.idle == 2)).await;
    proxy.lead_to(&database.url, Existing::Stay);
    let refused = until_done(async || try_to_close(&*store, "1").await).await;
    // Each of the two that were open is given up at its first refusal.
    assert_eq!(refused, 2);
    for _ in 0..5 {
        assert_eq!(try_to_close(&*store, "1").await, Ok(()));
    }
    let closed = "SELECT count(*) FROM orders WHERE status = 4";
    assert_eq!((twin.number(closed).await, database.number(closed).await), (0, 1));
}

/// A server that was started so that it changes nothing: neither orders nor our own tables.
pub async fn a_server_that_was_started_read_only(database: Database) {
    let mut server = MariaDb::options().start();
    let mut twin = twin(&database, &server).await;
    let own = async |database: &Database| drop(migrated(&with_events(database)).await);
    own(&database).await;
    own(&twin).await;
    let bare = Database::on_mariadb(&server).await;
    plain_orders(&bare).await;
    server.start_read_only();
    twin.disconnect().await;
    // MariaDB says no more than that the table can't be created, and why in words.
    match open(&settings(&bare)).await.outbox().migrate().await {
        Err(StoreError::Rejected(reason)) if !mariadb::is_mysql() => assert!(reason.contains("read only"), "{reason}"),
        created => assert!(is_away(created.clone()), "{created:?}"),
    }
    let proxy = Proxy::before(&twin.url);
    let store = open(&with_events(&database).set("database.url", proxy.url(&twin.url))).await;
    assert_eq!(store.count_overdue().await, Ok(3));
    never_begins(&*store).await;
    assert!(is_away(store.reach().await));
    let bury = async || {
        let id = ids(&*store, &["1"]).remove(0);
        store.outbox().bury(&[DeadOrder { id, attempts: 1, error: "refused".into(), undone: None }]).await
    };
    assert!(is_away(bury().await), "{:?}", bury().await);
    proxy.lead_to(&database.url, Existing::Stay);
    until_done(bury).await;
    let dead = "SELECT count(*) FROM order_closer_dead_letters";
    assert_eq!((twin.number(dead).await, database.number(dead).await), (0, 1));
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
