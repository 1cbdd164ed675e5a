//! Several hosts in one URL: the one that takes writes is used, whichever it is, and no other holds it up.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use order_closer::store::{Limits, OpenError, Store, StoreError};

use super::{Database, close, open, overdue_orders, plain_orders, settings, try_open};
use crate::support::{mariadb::MariaDb, postgres::Postgres, wait};

/// One that takes connections and never answers.
fn black_hole() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let place = listener.local_addr().expect("it has an address").to_string();
    (listener, place)
}

/// The URL of these places instead of its own.
fn at(url: &str, places: &[&str]) -> String {
    let (login, rest) = url.split_once('@').expect("a login");
    let (_, database) = rest.split_once('/').expect("a database");
    format!("{login}@{}/{database}", places.join(","))
}

fn place(url: &str) -> String {
    let (_, rest) = url.split_once('@').expect("a login");
    rest.split('/').next().expect("a host").to_owned()
}

async fn in_use(store: &dyn Store) -> String {
    let hosts = store.look_at_hosts().await;
    hosts.into_iter().find(|host| host.in_use).expect("one is in use").place
}

/// Whoever is first, down or black-holed, holds up nobody.
pub async fn the_one_that_answers(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=2).await;
    let (_listener, hole) = black_hole();
    let own = place(&database.url);
    let url = at(&database.url, &[&hole, "127.0.0.1:1", &own]);
    let began = Instant::now();
    let store = open(&settings(&database).set("database.url", url.as_str())).await;
    // A limit on the wait for one host, and not for each in turn, is two seconds.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(close(&*store, &["1", "2"]).await, 2);
    let hosts = store.look_at_hosts().await;
    let seen: Vec<_> = hosts.iter().map(|host| (host.place.as_str(), host.in_use, host.takes_writes, host.answers)).collect();
    assert_eq!(seen, [(hole.as_str(), false, false, false), ("127.0.0.1:1", false, false, false), (own.as_str(), true, true, true)]);
    assert!(hosts[0].standing.contains("no answer"), "{hosts:?}");
    assert!(hosts[1].standing.contains("refused"), "{hosts:?}");
}

/// An error names all hosts, why none is taken, and no password.
pub async fn none_of_them(database: Database) {
    let (_listener, hole) = black_hole();
    let url = at(&database.url, &[&hole, "127.0.0.1:1"]).replacen("@", ":s3cret@", 1);
    let settings = settings(&database).set("database.url", url.as_str());
    let error = match try_open(&settings).await {
        Err(OpenError::Store(StoreError::Unavailable(reason))) => reason,
        other => panic!("{other:?}"),
    };
    for part in [hole.as_str(), "no answer within", "127.0.0.1:1: ", "refused", "none of the hosts can be written to"] {
        assert!(error.contains(part), "{part} is missing: {error}");
    }
    assert!(!error.contains("s3cret"), "{error}");
}

/// The store moves to a standby that is promoted, and stays away from the primary before while that, too, takes writes.
pub async fn a_postgres_that_is_promoted(_: Database) {
    let primary = Postgres::options().start();
    let database = Database::on_postgres(&primary).await;
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3).await;
    let standby = primary.standby();
    let name = database.url.rsplit('/').next().expect("a name").to_owned();
    let promoted = Database::existing(&standby.url(&name));
    wait::until("the standby has it all", async || promoted.try_rows("SELECT 1 FROM orders").await.is_ok_and(|rows| rows.len() == 3)).await;
    let places = [place(&promoted.url), place(&database.url)];
    let store = open(&settings(&database).set("database.url", at(&database.url, &places.each_ref().map(String::as_str)))).await;
    assert_eq!(in_use(&*store).await, places[1], "the standby stands first, and takes no writes");
    assert_eq!((close(&*store, &["1"]).await, store.turn()), (1, 0));
    let before = store.identity().await.expect("it may be asked");
    wait::until("the closure is there", async || promoted.number("SELECT count(*) FROM orders WHERE status = 4").await == 1).await;
    // One transaction is open when its host is no longer the right one.
    let mut transaction = store.begin(Limits::BRIEF).await.expect("it takes writes");
    promoted.execute("SELECT pg_promote(true)").await;
    wait::until("the store has moved", async || store.turn() == 1).await;
    let cut = transaction.lock(&super::ids(&*store, &["2"])).await;
    assert!(matches!(&cut, Err(StoreError::Unavailable(reason)) if reason.contains("another host")), "{cut:?}");
    drop(transaction);
    assert_eq!(in_use(&*store).await, places[0], "of two that take writes the one that was promoted later");
    assert_ne!(store.identity().await.expect("it may be asked"), before, "another timeline");
    assert_eq!(store.is_another().await, Ok(true));
    assert_eq!(close(&*store, &["2", "3"]).await, 2);
    assert_eq!(database.number("SELECT count(*) FROM orders WHERE status = 4").await, 1, "nothing more on the one before");
    // A store that is opened now finds the same.
    let late = open(&settings(&database).set("database.url", at(&database.url, &[&places[1], &places[0]]))).await;
    assert_eq!(in_use(&*late).await, places[0]);
    primary.kill();
    assert_eq!(store.reach().await, Ok(()));
    assert_eq!(store.turn(), 1);
}

/// `read_only` is heeded whatever the account may do in spite of it, and flips while connections stay open.
pub async fn a_mariadb_that_is_made_read_only(_: Database) {
    let servers = [MariaDb::options().start(), MariaDb::options().argument("--read-only=1").start()];
    let first = Database::on_mariadb(&servers[0]).await;
    let name = first.url.rsplit('/').next().expect("a name").to_owned();
    Database::existing(&servers[1].url("mysql")).execute(&format!("CREATE DATABASE {name}")).await;
    let second = Database::existing(&servers[1].url(&name));
    for database in [&first, &second] {
        plain_orders(database).await;
        overdue_orders(database, 1..=3).await;
    }
    let places = [place(&first.url), place(&second.url)];
    let store = open(&settings(&first).set("database.url", at(&first.url, &places.each_ref().map(String::as_str)))).await;
    assert_eq!(close(&*store, &["1"]).await, 1);
    first.execute("SET GLOBAL read_only = 1").await;
    wait::until("no transaction begins", async || store.begin(Limits::BRIEF).await.is_err()).await;
    wait::until("all are named", async || {
        let Err(error) = store.reach().await else { return false };
        let error = error.to_string();
        places.iter().all(|place| error.contains(&format!("{place}: takes no writes")))
    })
    .await;
    second.execute("SET GLOBAL read_only = 0").await;
    wait::until("the store has moved", async || store.turn() == 1).await;
    assert_eq!(store.is_another().await, Ok(true));
    assert_eq!(close(&*store, &["2"]).await, 1);
    assert_eq!(second.number("SELECT count(*) FROM orders WHERE status = 4").await, 1);
    // Both take writes, and nobody can tell which is right: the one in use stays.
    first.execute("SET GLOBAL read_only = 0").await;
    wait::until("both take writes", async || store.look_at_hosts().await.iter().all(|host| host.takes_writes)).await;
    assert_eq!((in_use(&*store).await, store.turn()), (places[1].clone(), 1));
    // And back.
    second.execute("SET GLOBAL read_only = 1").await;
    wait::until("the store has moved back", async || store.turn() == 2).await;
    assert_eq!(close(&*store, &["2", "3"]).await, 2);
}
