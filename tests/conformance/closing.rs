//! The whole of a closure, as the daemon makes it: a payment noted in a table of its own is a payment, and what the
//! table does not keep is no closure.

use std::sync::Arc;

use order_closer::{
    close::{Clearances, Cleared, Closer, Ending, Looked, Outcome, Pending, Sorted},
    order::{OrderId, Trigger},
    store::{Store, StoreError},
};

use super::{Database, Kind, Settings, begin, by_kind, change, ids, open, overdue_orders, plain_orders, settings, status_of, texts as map};
use crate::support::wait;

/// Looks at these orders as the daemon does: together, and where that fails, apart.
pub(super) async fn look(store: &Arc<dyn Store>, ids: Vec<OrderId>, trigger: Trigger) -> Result<Vec<Looked>, StoreError> {
    let closer = Closer::new(Arc::clone(store));
    let batch = ids.into_iter().map(|id| Pending::new(id, trigger)).collect();
    let mut looked = Vec::new();
    match closer.together(cleared(batch)).await {
        Ending::Looked(all) => looked.extend(all),
        Ending::Failed { batch, .. } => {
            for pending in batch {
                looked.extend(closer.one(cleared(vec![pending])).await?);
            }
        }
        Ending::Unavailable { fault, .. } => return Err(fault),
    }
    looked.sort_by(|one, other| one.pending.id.cmp(&other.pending.id));
    Ok(looked)
}

/// Nobody is asked about these.
fn cleared(batch: Vec<Pending>) -> Cleared {
    Sorted::by_knowledge(&Clearances::default(), batch).go
}

/// How each look ended, in the order of the ids; what keeps all from being looked at holds them all.
pub async fn outcomes(store: &Arc<dyn Store>, texts: &[&str]) -> Vec<Outcome> {
    match look(store, ids(store.as_ref(), texts), Trigger::Request).await {
        Ok(looked) => looked.into_iter().map(|one| one.outcome).collect(),
        Err(StoreError::Locked(reason)) => texts.iter().map(|_| Outcome::Locked { reason: reason.clone() }).collect(),
        Err(error) => panic!("the database is well: {error}"),
    }
}

fn is_closed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Closed(_))
}

/// Orders 1 and 2, and their payments in a table that refers to them.
async fn payments(database: &Database) -> Settings {
    plain_orders(database).await;
    overdue_orders(database, 1..=2).await;
    database.execute("CREATE TABLE payments (order_no bigint NOT NULL REFERENCES orders (order_no))").await;
    if database.kind == Kind::MariaDb {
        // It overlooks the short form in earlier versions.
        database.execute("ALTER TABLE payments ADD FOREIGN KEY (order_no) REFERENCES orders (order_no)").await;
    }
    settings(database).set("orders.filter", "NOT EXISTS (SELECT 1 FROM payments p WHERE p.order_no = orders.order_no)")
}

/// A payment that is being noted keeps its order open, and one that has been noted hides it.
pub async fn a_payment_in_another_table(database: Database) {
    let store = open(&payments(&database).await).await;
    let mut payment = database.begin().await;
    payment.execute("INSERT INTO payments VALUES (1)").await;
    let during = outcomes(&store, &["1", "2"]).await;
    assert!(matches!(during[0], Outcome::Locked { .. }), "{during:?}");
    // Whoever writes to an SQLite file has locked all of it.
    assert_eq!(is_closed(&during[1]), database.kind != Kind::Sqlite, "{during:?}");
    payment.commit().await;
    let after = outcomes(&store, &["1", "2"]).await;
    assert_eq!(after[0], Outcome::NotFound);
    assert_eq!(status_of(&database).await, map([("1", "0"), ("2", "4")]));
}

/// A payment that comes while its order is being closed waits, and then finds it closed.
pub async fn a_payment_behind_a_closure(database: Database) {
    let store = open(&payments(&database).await).await;
    let mut closure = begin(&*store).await;
    assert_eq!(closure.lock(&ids(&*store, &["1"])).await.expect("rows can be locked").len(), 1);
    let pay = async {
        let mut payment = database.begin().await;
        payment.execute("INSERT INTO payments VALUES (1)").await;
        let still_unpaid = payment.execute("UPDATE orders SET note = 'paid' WHERE order_no = 1 AND status = 0").await;
        payment.rollback().await;
        still_unpaid
    };
    let close = async {
        let waiting = by_kind(
            database.kind,
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'INSERT INTO payments%'",
            "SELECT count(*) FROM information_schema.processlist WHERE db = database() AND info LIKE 'INSERT INTO payments%'",
            // It waits before it begins, and shows itself nowhere.
            "SELECT 1",
        );
        wait::until("the payment waits", async || database.number(waiting).await == 1).await;
        assert_eq!(change(&mut *closure, &ids(&*store, &["1"])).await, Ok(1));
        closure.commit().await.expect("a transaction can be committed");
    };
    let (still_unpaid, ()) = tokio::join!(pay, close);
    assert_eq!(still_unpaid, 0);
    assert_eq!(status_of(&database).await, map([("1", "4"), ("2", "0")]));
}

/// A payment after the lock's snapshot and before the lock itself: the update asks again, and then the order is as good
/// as any that was paid in time.
pub async fn a_payment_between_two_looks(database: Database) {
    let slow = "(SELECT pg_sleep(0.5)) IS NOT NULL AND NOT EXISTS (SELECT 1 FROM payments p WHERE p.order_no = orders.order_no)";
    let store = open(&payments(&database).await.set("orders.filter", slow)).await;
    let pay = async {
        wait::until("the closure has begun to look", async || {
            let sleeping = "SELECT count(*) FROM pg_stat_activity
                            WHERE datname = current_database() AND wait_event = 'PgSleep' AND query LIKE '%SKIP LOCKED%'";
            database.number(sleeping).await == 1
        })
        .await;
        database.execute("INSERT INTO payments VALUES (1)").await;
    };
    let (outcomes, ()) = tokio::join!(outcomes(&store, &["1"]), pay);
    assert_eq!(outcomes, [Outcome::NotFound]);
    assert_eq!(status_of(&database).await, map([("1", "0"), ("2", "0")]));
}

/// Orders 1 and 2, and a table of what was released for them.
async fn releases(database: &Database) -> Settings {
    plain_orders(database).await;
    overdue_orders(database, 1..=2).await;
    database.execute("CREATE TABLE released (order_no bigint)").await;
    settings(database).set("close.sql", vec!["INSERT INTO released SELECT order_no FROM orders WHERE order_no IN (:ids)"])
}

/// Closes them, of which the table does not let 2 become closed.
async fn rejects_the_second(database: &Database, store: &Arc<dyn Store>) {
    let outcomes = outcomes(store, &["1", "2"]).await;
    assert!(is_closed(&outcomes[0]), "{outcomes:?}");
    assert!(matches!(&outcomes[1], Outcome::Rejected { reason, .. } if reason.contains("trigger")), "{outcomes:?}");
    assert_eq!(status_of(database).await, map([("1", "4"), ("2", "0")]));
    assert_eq!(database.column("SELECT order_no FROM released").await, [Some("1".into())]);
}

/// A trigger in PostgreSQL for order 2.
async fn postgres_trigger(database: &Database, when: &str, body: &str) {
    database
        .execute(&format!(
            "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$;
             CREATE TRIGGER keep {when} UPDATE ON orders FOR EACH ROW WHEN (NEW.order_no = 2 AND NEW.status = 4) EXECUTE FUNCTION keep()"
        ))
        .await;
}

/// It would close again with every sweep, and release the stock each time; also if the trigger came after the daemon.
pub async fn a_trigger_that_keeps_the_status(database: Database) {
    let store = open(&releases(&database).await).await;
    match database.kind {
        Kind::Postgres => postgres_trigger(&database, "BEFORE", "NEW.status := OLD.status; RETURN NEW;").await,
        Kind::MariaDb => {
            let keep =
                "CREATE TRIGGER keep BEFORE UPDATE ON orders FOR EACH ROW SET NEW.status = IF(NEW.order_no = 2, OLD.status, NEW.status)";
            database.execute(keep).await;
        }
        Kind::Sqlite => {
            let keep = "CREATE TRIGGER keep AFTER UPDATE ON orders WHEN NEW.order_no = 2 AND NEW.status = 4
                        BEGIN UPDATE orders SET status = OLD.status WHERE order_no = 2; END";
            database.execute(keep).await;
        }
    }
    rejects_the_second(&database, &store).await;
}

pub async fn a_trigger_that_resets_the_status_afterwards(database: Database) {
    let settings = releases(&database).await;
    postgres_trigger(&database, "AFTER", "UPDATE orders SET status = OLD.status WHERE order_no = 2; RETURN NULL;").await;
    rejects_the_second(&database, &open(&settings).await).await;
}

/// The table itself has none.
pub async fn a_trigger_of_a_partition_that_resets_the_status(database: Database) {
    database
        .execute(
            "CREATE TABLE orders (order_no bigint PRIMARY KEY, status integer, expires_at timestamptz) PARTITION BY RANGE (order_no);
             CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM (1) TO (100);
             CREATE TABLE released (order_no bigint);
             CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE orders SET status = OLD.status WHERE order_no = 2; RETURN NULL; END $$;
             CREATE TRIGGER keep AFTER UPDATE ON orders_1 FOR EACH ROW WHEN (NEW.order_no = 2 AND NEW.status = 4) EXECUTE FUNCTION keep()",
        )
        .await;
    overdue_orders(&database, 1..=2).await;
    let released = "INSERT INTO released SELECT order_no FROM orders WHERE order_no IN (:ids)";
    rejects_the_second(&database, &open(&settings(&database).set("close.sql", vec![released])).await).await;
}

pub async fn a_trigger_that_drops_the_update(database: Database) {
    let store = open(&releases(&database).await).await;
    match database.kind {
        Kind::Postgres => postgres_trigger(&database, "BEFORE", "RETURN NULL;").await,
        Kind::MariaDb | Kind::Sqlite => {
            let drop = "CREATE TRIGGER keep BEFORE UPDATE ON orders WHEN NEW.order_no = 2 BEGIN SELECT RAISE(IGNORE); END";
            database.execute(by_kind(database.kind, "", "", drop)).await;
        }
    }
    rejects_the_second(&database, &store).await;
}

/// An id in another spelling is nobody's, whatever the column's type takes for equal.
pub async fn ids_of_a_type_that_folds_case(database: Database) {
    database
        .execute("CREATE EXTENSION citext; CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
        .await;
    for (id_type, other) in [("citext", "ABC"), ("varchar(20) COLLATE loose", "ABC"), ("char(10)", "abc ")] {
        database.execute(&format!("CREATE TABLE orders (order_no {id_type} PRIMARY KEY, status integer, expires_at timestamptz)")).await;
        database.execute(&format!("INSERT INTO orders VALUES ('abc', 0, {})", super::PAST)).await;
        let store = open(&settings(&database)).await;
        assert_eq!(outcomes(&store, &[other]).await, [Outcome::NotFound], "{id_type}");
        assert_eq!(change(&mut *begin(&*store).await, &ids(&*store, &[other])).await, Ok(0), "{id_type}");
        assert_eq!(database.number("SELECT count(*) FROM orders WHERE status = 0").await, 1, "{id_type}");
        assert!(is_closed(&outcomes(&store, &["abc"]).await[0]), "{id_type}");
        store.close().await;
        database.execute("DROP TABLE orders").await;
    }
}
