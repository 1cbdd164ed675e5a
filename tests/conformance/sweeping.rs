//! The sweep's pages.

use std::time::{Duration, Instant};

use order_closer::{
    app::settings_of,
    store::{self, DueQuery, Limits, LockWait, StoreError, Window},
};

use super::{
    Database, FUTURE, Kind, PAST, by_kind, create_orders, host_now, ids, load, open, overdue, overdue_orders, plain_orders, read, settings,
    sorted_ids, sweep, time_type,
};
use crate::support::wait;

/// The point in time so many seconds from now, in the column that `plain_orders` makes.
fn seconds_from_now(kind: Kind, seconds: i64) -> String {
    match kind {
        Kind::Postgres => format!("now() + interval '{seconds} seconds'"),
        Kind::MariaDb => format!("NOW(6) + INTERVAL {seconds} SECOND"),
        Kind::Sqlite => format!("strftime('%Y-%m-%d %H:%M:%f', 'now', '{seconds} seconds')"),
    }
}

pub async fn pages_hold_every_order_once_oldest_first(database: Database) {
    plain_orders(&database).await;
    // Three statuses, and deadlines that up to seven orders share, in no order.
    let rows: Vec<String> = (0..300_i64)
        .map(|n| {
            let number = n * 7_919 % 300;
            format!("({number}, {}, '2020-01-01 00:00:{:02}')", [0, 2, 5][usize::try_from(number % 3).unwrap_or(0)], number % 43)
        })
        .collect();
    database.execute(&format!("INSERT INTO orders (order_no, status, expires_at) VALUES {}", rows.join(", "))).await;
    database
        .execute(&format!(
            "INSERT INTO orders (order_no, status, expires_at) VALUES (1000, 1, {PAST}), (1001, 0, {FUTURE}), (1002, 5, NULL)"
        ))
        .await;
    let store = open(&settings(&database).set("orders.unpaid", vec![0, 2, 5])).await;
    let mut expected: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    expected.sort();
    for limit in [1, 7, 100, 299, 300, 301, 5_000] {
        let pages = sweep(&*store, Duration::ZERO, limit).await;
        let (last, full) = pages.split_last().expect("there is a page");
        assert!(full.iter().all(|page| page.len() == limit as usize), "a page that is not the last one has {limit} rows");
        assert!(last.len() <= limit as usize);
        let rows = pages.concat();
        assert_eq!(rows.len(), 300, "with pages of {limit}");
        assert_eq!(sorted_ids(&rows), expected, "with pages of {limit}");
        assert!(rows.iter().all(|row| !row.locked));
        for status in ["0", "2", "5"] {
            let deadlines: Vec<_> = rows.iter().filter(|row| row.status.as_deref() == Some(status)).map(|row| row.deadline).collect();
            assert_eq!(deadlines.len(), 100);
            assert!(deadlines.is_sorted(), "oldest first, with pages of {limit}");
        }
    }
}

/// The sweep reads once for each status, however often it is listed.
pub async fn a_status_that_is_listed_twice(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3).await;
    let store = open(&settings(&database).set("orders.unpaid", vec![0, 7, 0])).await;
    assert_eq!(store.unpaid(), ["0", "7"]);
    assert_eq!(overdue(&*store).await, ["1", "2", "3"]);
    assert_eq!(store.count_overdue().await, Ok(3));
}

/// Ids decide the order among equal deadlines, by whatever rules the column compares texts.
pub async fn pages_of_text_ids(database: Database) {
    create_orders(
        &database,
        by_kind(database.kind, "text", "varchar(40) COLLATE utf8mb4_general_ci", "text"),
        "integer",
        time_type(database.kind),
    )
    .await;
    let mut expected: Vec<String> = ["a", "B", "c", "D", "ä-1", "z z", "10", "9", "_", "-", "it's", "100%"].map(String::from).into();
    for id in &expected {
        database.execute(&format!("INSERT INTO orders VALUES ('{}', 0, {PAST}, NULL)", id.replace('\'', "''"))).await;
    }
    expected.sort();
    let store = open(&settings(&database)).await;
    for limit in [1, 2, 5, 12] {
        assert_eq!(sorted_ids(&sweep(&*store, Duration::ZERO, limit).await.concat()), expected, "with pages of {limit}");
    }
}

pub async fn only_what_is_within_the_horizon(database: Database) {
    plain_orders(&database).await;
    for (id, seconds) in [(1, -3_600), (2, -1), (3, 600), (4, 1_200), (5, 86_400)] {
        let moment = seconds_from_now(database.kind, seconds);
        database.execute(&format!("INSERT INTO orders (order_no, status, expires_at) VALUES ({id}, 0, {moment})")).await;
    }
    let store = open(&settings(&database)).await;
    assert_eq!(overdue(&*store).await, ["1", "2"]);
    let within = async |seconds| sorted_ids(&sweep(&*store, Duration::from_secs(seconds), 3).await.concat());
    assert_eq!(within(0).await, ["1", "2"]);
    assert_eq!(within(900).await, ["1", "2", "3"]);
    assert_eq!(within(1_500).await, ["1", "2", "3", "4"]);
    assert_eq!(within(100_000).await, ["1", "2", "3", "4", "5"]);
    let rows = sweep(&*store, Duration::from_secs(900), 10).await.concat();
    let third = rows.iter().find(|row| row.id.as_str() == "3").expect("it is within the horizon");
    let deadline = third.deadline.expect("it has one");
    assert!(deadline > host_now() + 500_000_000 && deadline > third.now, "{third:?}");
}

/// A window has two ends, wherever its pages begin and however a time is written.
pub async fn only_what_is_in_the_window(database: Database) {
    plain_orders(&database).await;
    for (id, seconds) in [(1, -90_000), (2, -3_600), (3, -60), (4, 600), (5, 1_200)] {
        let moment = seconds_from_now(database.kind, seconds);
        // With a T, and an hour further west.
        let [one, other] = match database.kind {
            Kind::Sqlite => [format!("replace({moment}, ' ', 'T')"), format!("strftime('%Y-%m-%d %H:%M:%S-01:00', {moment}, '-1 hour')")],
            Kind::Postgres | Kind::MariaDb => [moment.clone(), moment],
        };
        database.execute(&format!("INSERT INTO orders (order_no, status, expires_at) VALUES ({id}, 0, {one}), ({id}0, 0, {other})")).await;
    }
    let store = open(&settings(&database)).await;
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    for (window, expected) in [
        (Window::ahead(minutes(15)), &["4", "40"][..]),
        (Window::ahead(minutes(60)), &["4", "40", "5", "50"]),
        (Window::overdue(Some(minutes(30))), &["3", "30"]),
        (Window::overdue(Some(minutes(90))), &["2", "20", "3", "30"]),
        (Window::overdue(None), &["1", "10", "2", "20", "3", "30"]),
        (Window::older(minutes(30)), &["1", "10", "2", "20"]),
        (Window::until(minutes(15)), &["1", "10", "2", "20", "3", "30", "4", "40"]),
    ] {
        for limit in [1, 3, 100] {
            assert_eq!(sorted_ids(&read(&*store, window, limit).await.concat()), expected, "{window:?} in pages of {limit}");
        }
        let counted = store.count(window).await.expect("they can be counted");
        let first = read(&*store, window, 100).await.concat().iter().filter_map(|row| row.deadline).min();
        assert_eq!((counted.orders, counted.since), (expected.len() as u64, first), "{window:?}");
    }
}

pub async fn counts_what_falls_due_up_to_a_number(database: Database) {
    plain_orders(&database).await;
    let mut rows = Vec::new();
    for (first, orders, seconds) in [(0, 30, 60), (100, 20, 500), (200, 10, -5)] {
        let at = seconds_from_now(database.kind, seconds);
        rows.extend((first..first + orders).map(|number| format!("({number}, {}, {at})", [0, 2, 5][number % 3])));
    }
    database.execute(&format!("INSERT INTO orders (order_no, status, expires_at) VALUES {}", rows.join(", "))).await;
    let store = open(&settings(&database).set("orders.unpaid", vec![0, 2])).await;
    let [now, soon, later] = [0, 300, 600].map(Duration::from_secs);
    for (after, within, most, expected) in [
        (now, soon, 100, 20),
        (now, soon, 20, 20),
        (now, soon, 7, 7),
        (soon, later, 100, 13),
        (now, later, 30, 30),
        (later, Duration::MAX, 9, 0),
    ] {
        assert_eq!(store.count_up_to(Window::between(after, within), most).await, Ok(expected), "{after:?} {within:?} {most}");
    }
}

pub async fn counts_what_is_overdue(database: Database) {
    plain_orders(&database).await;
    let store = open(&settings(&database).set("orders.unpaid", vec![0, 2])).await;
    assert_eq!(store.count_overdue().await, Ok(0));
    assert_eq!(overdue(&*store).await, [""; 0]);
    database
        .execute(&format!(
            "INSERT INTO orders (order_no, status, expires_at)
             VALUES (1, 0, {PAST}), (2, 2, {PAST}), (3, 1, {PAST}), (4, 0, {FUTURE}), (5, 0, NULL), (6, NULL, {PAST})"
        ))
        .await;
    assert_eq!(store.count_overdue().await, Ok(2));
    assert_eq!(overdue(&*store).await, ["1", "2"]);
}

/// How many rows of the table the server has read for all sessions that have ended.
pub async fn rows_read(database: &Database) -> i64 {
    database
        .number(by_kind(
            database.kind,
            "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = 'orders'",
            "SELECT coalesce(sum(rows_read), 0) FROM information_schema.table_statistics WHERE table_schema = database() AND table_name = 'orders'",
            "",
        ))
        .await
}

/// 60,000 orders, nearly all of them settled, and the statistics that a server in use has.
pub async fn many_orders(database: &Database) {
    plain_orders(database).await;
    for chunk in 0..30 {
        let rows: Vec<String> = (chunk * 2_000..(chunk + 1) * 2_000).map(|number| format!("({number}, 1, {PAST})")).collect();
        database.execute(&format!("INSERT INTO orders (order_no, status, expires_at) VALUES {}", rows.join(", "))).await;
    }
    database.execute(&format!("UPDATE orders SET status = 0 WHERE order_no < 30; UPDATE orders SET status = 0, expires_at = {FUTURE} WHERE order_no BETWEEN 100 AND 5000")).await;
    database.execute(by_kind(database.kind, "ANALYZE orders", "ANALYZE TABLE orders", "ANALYZE")).await;
}

pub async fn reads_only_what_is_due(database: Database) {
    many_orders(&database).await;
    reads_only_what_is_due_by(database, "orders_due").await;
}

/// The index that `check` proposes is one that the database uses.
pub async fn reads_only_what_is_due_by_the_proposed_index(database: Database) {
    many_orders(&database).await;
    database.execute(by_kind(database.kind, "DROP INDEX orders_due", "DROP INDEX orders_due ON orders", "DROP INDEX orders_due")).await;
    let store = open(&settings(&database)).await;
    let proposed = store.catalogue().await.expect("the catalogue can be read").sweep_index;
    assert_eq!(proposed.found, None);
    store.close().await;
    let named = proposed.create.replace("INDEX CONCURRENTLY ON", "INDEX order_closer_due ON");
    database.execute(&named).await;
    reads_only_what_is_due_by(database, "order_closer_due").await;
}

async fn reads_only_what_is_due_by(mut database: Database, index: &str) {
    database.disconnect().await;
    let store = open(&settings(&database)).await;
    let catalogue = store.catalogue().await.expect("the catalogue can be read");
    assert_eq!(catalogue.sweep_index.found.as_deref(), Some(index), "{catalogue:?}");
    // A session that is open has not told yet what it read.
    store.close().await;
    let store = open(&settings(&database)).await;
    let before = settled_rows_read(&database).await;
    for _ in 0..3 {
        assert_eq!(sweep(&*store, Duration::from_secs(2), 10).await.concat().len(), 30);
    }
    let page = store.due(&DueQuery::of(Window::overdue(None), 5)).await.expect("what is due can be read");
    assert_eq!(page.rows.len(), 5);
    store.close().await;
    let read = rows_read_since(&database, before, 95).await;
    assert!(read < 1_000, "{read} rows were read to find 95");
    looking_ahead_reads_no_backlog(&mut database).await;
}

/// However much is overdue.
async fn looking_ahead_reads_no_backlog(database: &mut Database) {
    database.execute("UPDATE orders SET status = 0 WHERE order_no >= 10000").await;
    let soon = seconds_from_now(database.kind, 600);
    database.execute(&format!("UPDATE orders SET expires_at = {soon} WHERE order_no BETWEEN 100 AND 104")).await;
    // A session that is open has not told yet what it read.
    database.disconnect().await;
    let store = open(&settings(database)).await;
    let before = settled_rows_read(database).await;
    for _ in 0..3 {
        assert_eq!(read(&*store, Window::ahead(Duration::from_secs(900)), 10).await.concat().len(), 5);
    }
    store.close().await;
    let read = rows_read_since(database, before, 15).await;
    assert!(read < 500, "{read} rows were read to find 15");
}

/// The daemon's readers leave a slow table nine tenths of its time; a closure may take as long as `database.timeout` says.
pub async fn a_page_ends_sooner_than_a_transaction(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=1).await;
    let slow = by_kind(database.kind, "pg_sleep(2.5)::text IS NOT NULL", "SLEEP(2.5) = 0", "");
    let config = load(&settings(&database).set("orders.filter", slow));
    let limit = Duration::from_millis(1_500);
    let store = store::open(settings_of(&config).reading_within(limit)).await.expect("it fits");
    let query = DueQuery::of(Window::overdue(None), 10);
    let (began, read) = (Instant::now(), store.due(&query).await);
    assert!(matches!(read, Err(StoreError::TimedOut(_))), "{read:?}");
    assert!(began.elapsed() < Duration::from_millis(2_400), "the server ended it");
    let mut transaction = store.begin(Limits { wait: LockWait::Patiently, ..Limits::BRIEF }).await.expect("a transaction can begin");
    assert_eq!(transaction.lock(&ids(&*store, &["1"])).await.expect("it may take longer").len(), 1);
    transaction.rollback().await;
    assert_eq!(overdue(&*store::open(settings_of(&config)).await.expect("it fits")).await, ["1"], "nor does `reconcile` give up so soon");
}

/// A reading that no longer changes: servers count with delay.
pub async fn settled_rows_read(database: &Database) -> i64 {
    let mut last = rows_read(database).await;
    let mut equal = 0;
    wait::until("the server has counted the rows read so far", async || {
        let now = rows_read(database).await;
        equal = if now == last { equal + 1 } else { 0 };
        last = now;
        equal > 20
    })
    .await;
    last
}

/// How many rows were read since, once it is at least as many as are known to have been.
pub async fn rows_read_since(database: &Database, before: i64, at_least: i64) -> i64 {
    wait::some("the server has counted the rows read", async || Some(rows_read(database).await - before).filter(|read| *read >= at_least))
        .await;
    settled_rows_read(database).await - before
}
