//! Our own tables are created, and upgraded with what is in them, by one at a time.

use std::time::Duration;

use order_closer::{
    order::Trigger,
    outbox::DeadLetter,
    store::{StoreError, TABLES_VERSION, tables_for},
};
use uuid::Uuid;

use super::{
    Database, Kind, by_kind, ids, load, open,
    outbox::{LONG, claim, claimed_orders, close, dead_letters, events, orders, settle, with_events},
    overdue, overdue_orders, plain_orders,
};

pub async fn tables_are_created_once(database: Database) {
    plain_orders(&database).await;
    let settings = with_events(&database);
    let store = open(&settings).await;
    assert_eq!((store.outbox().version(), store.outbox().is_ready()), (0, false));
    let misfit = tables_for(&load(&settings).events, &*store).expect_err("there are no tables");
    assert!(misfit.to_string().contains("order-closer migrate"), "{misfit}");
    let others = [open(&settings).await, open(&settings).await, open(&settings).await];
    let runs = futures::future::join_all(others.iter().map(|other| other.outbox().migrate())).await;
    let runs: Vec<_> = runs.into_iter().map(|run| run.expect("those that come at the same time wait for each other")).collect();
    assert_eq!(runs.iter().filter(|run| run.from == 0).count(), 1, "{runs:?}");
    assert!(runs.iter().all(|run| run.to == TABLES_VERSION), "{runs:?}");
    assert!(open(&settings).await.outbox().is_ready());
    let again = store.outbox().migrate().await.expect("nothing is left to do");
    assert_eq!((again.from, again.to), (TABLES_VERSION, TABLES_VERSION));
}

/// Who can't have the right to migrate leaves everything as it is.
pub async fn one_migrates_at_a_time(database: Database) {
    plain_orders(&database).await;
    let store = open(&with_events(&database)).await;
    let mut other = database.begin().await;
    match database.kind {
        Kind::Postgres => drop(other.execute("SELECT pg_advisory_xact_lock(7305805541961425520)").await),
        Kind::MariaDb => drop(other.execute("DO GET_LOCK(CONCAT('order_closer_', LEFT(SHA2(DATABASE(), 256), 32)), 5)").await),
        // The transaction itself has locked everything.
        Kind::Sqlite => {}
    }
    assert!(matches!(store.outbox().migrate().await, Err(StoreError::Conflict(_) | StoreError::Locked(_))));
    assert_eq!(open(&with_events(&database)).await.outbox().version(), 0);
    let (migrated, ()) = tokio::join!(store.outbox().migrate(), async {
        if database.kind == Kind::MariaDb {
            other.execute("DO RELEASE_LOCK(CONCAT('order_closer_', LEFT(SHA2(DATABASE(), 256), 32)))").await;
        }
        other.rollback().await;
    });
    assert_eq!(migrated.map(|migrated| migrated.to), Ok(TABLES_VERSION));
}

/// The tables as version 1 made them.
async fn version_1(database: &Database) {
    let script = by_kind(
        database.kind,
        include_str!("../../src/store/postgres/migrations/1.sql"),
        include_str!("../../src/store/mysql/migrations/1.sql"),
        include_str!("../../src/store/sqlite/migrations/1.sql"),
    );
    database.execute(&script.replace("{schema}", "")).await;
    database.execute("CREATE TABLE order_closer_migrations (version BIGINT NOT NULL PRIMARY KEY, applied_at BIGINT NOT NULL)").await;
    database.execute("INSERT INTO order_closer_migrations VALUES (1, 1)").await;
}

/// An event of order `number` as version 1 writes it, with a delivery to "one".
fn event_of_version_1(number: u32) -> String {
    let id = format!("00000000-0000-7000-8000-{number:012}");
    format!(
        "INSERT INTO order_closer_events (id, order_id, deadline, closed_at, lateness, triggered_by, instance, data)
             VALUES ('{id}', '{number}', 1, 3, 2, 'sweep', 'me/1', '{{}}');
         INSERT INTO order_closer_deliveries (event_id, target, attempts, due_at) VALUES ('{id}', 'one', 0, 1)"
    )
}

pub async fn an_older_version_is_upgraded_with_its_data(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=4).await;
    version_1(&database).await;
    for number in 11..=13 {
        database.execute(&event_of_version_1(number)).await;
    }
    database
        .execute(
            "UPDATE order_closer_deliveries SET due_at = NULL, attempts = 7 WHERE event_id LIKE '%11'"
                .replace("event_id LIKE", by_kind(database.kind, "event_id::text LIKE", "event_id LIKE", "event_id LIKE"))
                .as_str(),
        )
        .await;
    database
        .execute("INSERT INTO order_closer_dead_letters (order_id, attempts, failed_at, error, dropped) VALUES ('1', 8, 1, 'x', 0), ('2', 8, 1, 'x', 1)")
        .await;
    let settings = with_events(&database);
    let old = open(&settings).await;
    assert_eq!((old.outbox().version(), old.outbox().is_ready()), (1, false));
    let misfit = tables_for(&load(&settings).events, &*old).expect_err("the tables are too old");
    assert!(misfit.to_string().contains("have version 1") && misfit.to_string().contains("order-closer migrate"), "{misfit}");

    // A daemon of the version before goes on, while the tables are upgraded and after.
    let (migrated, ()) = tokio::join!(old.outbox().migrate(), async {
        for number in 14..=60 {
            database.execute(&event_of_version_1(number)).await;
        }
    });
    let migrated = migrated.expect("the tables can be upgraded");
    assert_eq!((migrated.from, migrated.to), (1, TABLES_VERSION));
    database.execute(&event_of_version_1(61)).await;
    let store = open(&settings).await;
    assert_eq!(overdue(&*store).await, ["3", "4"]);
    close(&store, &["3"], Trigger::Sweep).await;
    let mut written: Vec<String> = (11..=61).chain([3]).map(|number| number.to_string()).collect();
    written.sort();
    assert_eq!(orders(&events(&*store).await), written);
    written.remove(0);
    assert_eq!(claimed_orders(&claim(&*store, "one", LONG, 100).await), written, "all but the dead one");
    let letters = dead_letters(&*store).await;
    let dead: Vec<(&str, bool, u64)> = letters
        .iter()
        .map(|letter| match letter {
            DeadLetter::Order { id, dropped, death, .. } => (id.as_str(), *dropped, death.attempts),
            DeadLetter::Event { order_id, death, .. } => (order_id.as_str(), false, death.attempts),
        })
        .collect();
    assert_eq!(dead, [("1", false, 8), ("2", true, 8), ("11", false, 7)]);
    let pruned = store.outbox().prune(Duration::ZERO, Uuid::nil(), 100).await.expect("events can be pruned");
    assert_eq!(pruned.events.len(), 0, "none is delivered");
    store.outbox().forget_dead_orders(&ids(&*store, &["1", "2"])).await.expect("orders can be forgotten");
    assert_eq!(overdue(&*store).await, ["1", "2", "4"]);
}

/// Takes back what versions 4 and 5 have added.
async fn undo_4(database: &Database) {
    if database.kind != Kind::MariaDb {
        database.execute("DROP INDEX order_closer_deliveries_dead").await;
    }
    let added = [
        ("events", "asked_at"),
        ("events", "answer"),
        ("events", "rule"),
        ("events", "traceparent"),
        ("dead_letters", "rule"),
        ("deliveries", "failing_since"),
    ];
    for (table, column) in added {
        database.execute(&format!("ALTER TABLE order_closer_{table} DROP COLUMN {column}")).await;
    }
    for table in ["targets", "pauses", "members", "timers", "batches"] {
        database.execute(&format!("DROP TABLE order_closer_{table}")).await;
    }
    database.execute("DELETE FROM order_closer_migrations WHERE version >= 4").await;
}

/// Events and dead letters need no more; what does is left off.
pub async fn tables_of_the_version_before(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=2).await;
    let settings = with_events(&database);
    open(&settings).await.outbox().migrate().await.expect("our tables can be created");
    undo_4(&database).await;
    database.execute("DROP TABLE order_closer_facts").await;
    database.execute("DELETE FROM order_closer_migrations WHERE version = 3").await;
    let store = open(&settings).await;
    let outbox = store.outbox();
    assert_eq!((outbox.version(), outbox.is_ready(), outbox.is_outdated()), (2, true, true));
    assert_eq!(tables_for(&load(&settings).events, &*store), Ok(()));
    assert_eq!(store.zone_changed().await, Ok(None));
    assert_eq!(outbox.note_fact("a name", "a value").await, Ok(()));
    assert_eq!(outbox.fact("a name").await, Ok(None));
    close(&store, &["1"], Trigger::Sweep).await;
    assert_eq!(orders(&events(&*store).await), ["1"]);
    let claimed = claim(&*store, "one", LONG, 10).await;
    assert_eq!(claimed_orders(&claimed), ["1"]);
    settle(outbox, "one", &[], &[claimed[0].failed("no", None)]).await;
    settle(outbox, "two", &[claimed[0].event.id], &[]).await;
    assert_eq!((dead_letters(&*store).await.len(), outbox.target_states(None).await), (1, Ok(vec![])));
    let migrated = outbox.migrate().await.expect("they can be upgraded");
    assert_eq!((migrated.from, migrated.to), (2, TABLES_VERSION));
    let outbox = open(&settings).await;
    let outbox = outbox.outbox();
    for value in ["a value", "another"] {
        assert_eq!(outbox.note_fact("a name", value).await, Ok(()));
        assert_eq!(outbox.fact("a name").await, Ok(Some("a value".into())), "noted once");
    }
    assert_eq!(outbox.forget_fact("a name").await, Ok(()));
    assert_eq!(outbox.fact("a name").await, Ok(None));
}

/// MariaDB and MySQL can't take back what was done before a migration was cut off.
pub async fn a_migration_is_taken_up_where_it_was_cut_off(database: Database) {
    plain_orders(&database).await;
    version_1(&database).await;
    let store = open(&with_events(&database)).await;
    store.outbox().migrate().await.expect("the tables can be upgraded");
    database.execute("DELETE FROM order_closer_migrations WHERE version >= 2").await;
    let undone = "ALTER TABLE order_closer_dead_letters DROP PRIMARY KEY, DROP COLUMN orders_table, ADD PRIMARY KEY (order_id)";
    database.execute(undone).await;
    let migrated = store.outbox().migrate().await.expect("what is done is passed over");
    assert_eq!((migrated.from, migrated.to), (1, TABLES_VERSION));
    assert_eq!(database.number("SELECT count(orders_table) FROM order_closer_dead_letters").await, 0);
}

pub async fn a_database_named_with_a_quote(database: Database) {
    let name = format!("{}_o'brien", database.url.rsplit('/').next().unwrap_or_default());
    database.execute(&format!("CREATE DATABASE `{name}`")).await;
    database
        .execute(&format!(
            "CREATE TABLE `{name}`.orders (order_no bigint PRIMARY KEY, status integer, expires_at {})",
            super::time_type(database.kind)
        ))
        .await;
    let settings = with_events(&database).set("database.url", format!("{}_o'brien", database.url));
    let migrated = open(&settings).await.outbox().migrate().await;
    assert_eq!(migrated.map(|migrated| migrated.to), Ok(TABLES_VERSION));
    let tables = format!(
        "SELECT count(*) FROM information_schema.columns WHERE column_name = 'orders_table' AND table_schema = '{}'",
        name.replace('\'', "''")
    );
    assert_eq!(database.number(&tables).await, 7, "every table but that of the migrations");
    database.execute(&format!("DROP DATABASE `{name}`")).await;
}
