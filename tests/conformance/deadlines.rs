//! Deadlines: read exactly in every form a column can have, never early, due just after, and never due when there is none.

use std::time::Duration;

use order_closer::{
    order::Verdict,
    store::{OpenError, Store, StoreError},
};
use tokio::net::{TcpListener, TcpStream};

use super::{Database, Kind, Settings, by_kind, create_orders, host_now, open, overdue, row, settings, sweep, try_open, verdict};
use crate::support::{Database as Db, mariadb::MariaDb, postgres::Postgres, wait};

/// How a column holds a point in time.
struct Form<'a> {
    column_type: &'a str,
    /// The column's precision in microseconds.
    precision: i64,
    /// A point in time, in microseconds since 1970 UTC, as an SQL literal.
    literal: &'a (dyn Fn(i64) -> String + Sync),
    settings: Settings,
    /// What `deadline.plus` adds, in microseconds.
    plus: i64,
}

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;

/// 2031-02-03 04:05:06.789012 UTC, and half a year later.
const WINTER: i64 = 1_927_857_906_789_012;
const SUMMER: i64 = WINTER + 182 * 86_400 * SECOND;

/// A point in time as a calendar and a clock show it, so many minutes east of UTC.
fn civil(micros: i64, minutes_east: i64) -> String {
    let local = micros + minutes_east * MINUTE;
    let (days, rest) = (local.div_euclid(86_400 * SECOND), local.rem_euclid(86_400 * SECOND));
    // Howard Hinnant's civil_from_days: years begin in March, so that the leap day is their last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let seconds = rest / SECOND;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}.{:06}", seconds / 3_600, seconds / 60 % 60, seconds % 60, rest % SECOND)
}

#[test]
fn civil_is_civil() {
    assert_eq!(civil(0, 0), "1970-01-01 00:00:00.000000");
    assert_eq!(civil(WINTER, 0), "2031-02-03 04:05:06.789012");
    assert_eq!(civil(951_782_400 * SECOND, -1), "2000-02-28 23:59:00.000000");
}

/// Cuts a literal's fraction to milliseconds.
fn to_millis(text: &str) -> &str {
    &text[..text.len() - 3]
}

/// Cuts a literal's fraction off.
fn to_seconds(text: &str) -> &str {
    &text[..text.len() - 7]
}

/// Checks one form: distant deadlines to the column's precision, and one that comes while we watch.
async fn sits(database: &Database, form: Form<'_>) {
    create_orders(database, "bigint", "integer", form.column_type).await;
    let insert = async |id: i64, micros: i64| {
        let literal = (form.literal)(micros - form.plus);
        database.execute(&format!("INSERT INTO orders (order_no, status, expires_at) VALUES ({id}, 0, {literal})")).await;
    };
    let exact = |micros: i64| micros - micros % form.precision;
    insert(1, exact(WINTER)).await;
    insert(2, exact(SUMMER)).await;
    let store = open(&form.settings).await;
    for (id, micros) in [("1", WINTER), ("2", SUMMER)] {
        let found = row(&*store, id).await.expect("the row is there");
        assert_eq!(found.deadline, Some(exact(micros)), "{} instead of {}", civil(found.deadline.unwrap_or(0), 0), civil(exact(micros), 0));
    }
    let rows = sweep(&*store, Duration::from_secs(20 * 365 * 86_400), 10).await.concat();
    assert_eq!(rows.iter().map(|row| row.deadline).collect::<Vec<_>>(), [Some(exact(WINTER)), Some(exact(SUMMER))]);

    // At least as far away as it takes to look at it once before.
    let deadline = exact(host_now() + 300_000 + form.precision);
    insert(3, deadline).await;
    comes_due(&*store, "3", deadline).await;
    assert_eq!(overdue(&*store).await, ["3"]);
    assert_eq!(store.count_overdue().await, Ok(1));

    // Long past, but after everything that counts as no deadline.
    insert(4, exact(946_684_800 * SECOND)).await;
    assert_eq!(overdue(&*store).await, ["3", "4"]);
    assert!(matches!(verdict(&*store, "4").await, Verdict::Close { .. }));
}

/// Watches a deadline pass by a clock that is not the database's.
async fn comes_due(store: &dyn Store, id: &str, deadline: i64) {
    let mut seen_before = false;
    wait::until("an order is due after its deadline", async || {
        let before = host_now();
        let (verdict, row) = {
            let row = row(store, id).await.expect("the row is there");
            (order_closer::order::judge(store.unpaid(), Some(&row)), row)
        };
        let after = host_now();
        assert_eq!(row.deadline, Some(deadline));
        // A column of clock readings may be cut to milliseconds, and never runs ahead.
        assert!((before - 1_000..=after).contains(&row.now), "the database's clock says {}, ours {before} to {after}", row.now);
        match verdict {
            Verdict::NotDue { remaining: Some(remaining) } => {
                seen_before = true;
                assert!(before < deadline + 1_000, "not due, {} us after the deadline", before - deadline);
                assert!(remaining > Duration::ZERO);
                let swept = (overdue(store).await, store.count_overdue().await);
                assert!(host_now() > deadline || swept == (Vec::new(), Ok(0)), "swept before the deadline: {swept:?}");
                false
            }
            Verdict::Close { .. } => {
                assert!(after >= deadline, "due {} us before the deadline", deadline - after);
                true
            }
            other => panic!("{other:?}"),
        }
    })
    .await;
    assert!(seen_before, "the deadline had passed before anybody looked");
}

/// The form that the kind of database names; everything else is common.
fn form<'a>(database: &Database, column_type: &'a str, precision: i64, literal: &'a (dyn Fn(i64) -> String + Sync)) -> Form<'a> {
    Form { column_type, precision, literal, settings: settings(database), plus: 0 }
}

pub async fn deadline_with_a_zone(database: Database) {
    let kind = database.kind;
    let (column_type, precision) = match kind {
        Kind::Postgres => ("timestamptz", 1),
        // The session that writes here is in UTC.
        Kind::MariaDb => ("timestamp(6)", 1),
        Kind::Sqlite => ("text", 1_000),
    };
    let literal = move |micros| match kind {
        Kind::Postgres => format!("'{}+05:30'", civil(micros, 330)),
        Kind::MariaDb => format!("'{}'", civil(micros, 0)),
        Kind::Sqlite => format!("'{}Z'", to_millis(&civil(micros, 0))),
    };
    // Where a column knows its zone, ours is not asked for.
    let mut form = form(&database, column_type, precision, &literal);
    form.settings = form.settings.set("database.time_zone", "+08:00");
    sits(&database, form).await;
}

/// A time without a zone, so many minutes east of UTC.
async fn local(database: &Database, minutes_east: i64, time_zone: Option<&str>) {
    let kind = database.kind;
    let (column_type, precision) = match kind {
        Kind::Postgres => ("timestamp", 1),
        Kind::MariaDb => ("datetime(6)", 1),
        Kind::Sqlite => ("text", 1_000),
    };
    let literal = move |micros| match kind {
        Kind::Postgres | Kind::MariaDb => format!("'{}'", civil(micros, minutes_east)),
        Kind::Sqlite => format!("'{}'", to_millis(&civil(micros, minutes_east))),
    };
    let mut form = form(database, column_type, precision, &literal);
    if let Some(zone) = time_zone {
        form.settings = form.settings.set("database.time_zone", zone);
    }
    sits(database, form).await;
}

/// The servers of these tests are in UTC.
pub async fn deadline_without_a_zone(database: Database) {
    local(&database, 0, None).await;
}

pub async fn deadline_without_a_zone_far_from_utc(database: Database) {
    local(&database, 8 * 60, Some("+08:00")).await;
    database.execute("DROP TABLE orders").await;
    local(&database, -(3 * 60 + 30), Some("-03:30")).await;
}

/// The server, the database or the user may be set to a zone, and the shop's sessions write in it.
pub async fn deadline_in_the_servers_own_zone(database: Database) {
    if database.kind == Kind::Postgres {
        let name = database.url.rsplit('/').next().unwrap_or_default();
        database.execute(&format!("ALTER DATABASE {name} SET timezone = 'Asia/Shanghai'")).await;
        local(&database, 8 * 60, None).await;
        // What we are told goes before what the server says.
        database.execute("DROP TABLE orders").await;
        local(&database, -60, Some("-01:00")).await;
        let server = Postgres::options().time_zone("Asia/Kolkata").start();
        local(&Db::on_postgres(&server).await, 330, None).await;
    } else {
        let server = MariaDb::options().time_zone("+05:30").start();
        local(&Db::on_mariadb(&server).await, 330, None).await;
    }
}

/// In a zone with daylight-saving time the same clock face means two distances from UTC.
pub async fn deadline_in_daylight_saving_time(database: Database) {
    let column_type = by_kind(database.kind, "timestamp", "datetime(6)", "");
    let server = (database.kind == Kind::MariaDb).then(|| MariaDb::options().start());
    let database = match &server {
        Some(server) => {
            let database = Db::on_mariadb(server).await;
            let tables = MariaDb::time_zone_tables(&["America/New_York"]);
            database.execute(&format!("USE mysql; {tables}")).await;
            Db::on_mariadb(server).await
        }
        None => database,
    };
    // Times of the past: how far away a distant deadline is, a store may say an hour wrong.
    let (winter, summer) = (WINTER - 6 * 365 * 86_400 * SECOND, SUMMER - 6 * 365 * 86_400 * SECOND);
    assert_eq!((civil(winter, 0), civil(summer, 0)), ("2025-02-04 04:05:06.789012".into(), "2025-08-05 04:05:06.789012".into()));
    create_orders(&database, "bigint", "integer", column_type).await;
    database.execute(&format!("INSERT INTO orders VALUES (1, 0, '{}', NULL)", civil(winter, -5 * 60))).await;
    database.execute(&format!("INSERT INTO orders VALUES (2, 0, '{}', NULL)", civil(summer, -4 * 60))).await;
    // Half past one came twice on 2 November 2025: at 05:30 and 06:30 UTC. Half past two on 9 March did not come at all.
    database.execute("INSERT INTO orders VALUES (3, 0, '2025-11-02 01:30:00', NULL), (4, 0, '2025-03-09 02:30:00', NULL)").await;
    let store = open(&settings(&database).set("database.time_zone", "America/New_York")).await;
    for (id, expected) in [("1", winter), ("2", summer)] {
        assert_eq!(row(&*store, id).await.and_then(|row| row.deadline), Some(expected), "order {id}");
    }
    let second_time = 1_762_065_000 * SECOND;
    assert_eq!(civil(second_time, 0), "2025-11-02 06:30:00.000000");
    let ambiguous = row(&*store, "3").await.and_then(|row| row.deadline);
    assert_eq!(ambiguous, Some(second_time), "of two possible times, the earlier would be early");
    let skipped = row(&*store, "4").await.and_then(|row| row.deadline).expect("it is some time that night");
    let three_o_clock = 1_741_503_600 * SECOND;
    assert_eq!(civil(three_o_clock, 0), "2025-03-09 07:00:00.000000");
    assert!(skipped >= three_o_clock, "the clock face after {} is three o'clock", civil(skipped, 0));
}

pub async fn deadline_to_the_second(database: Database) {
    let kind = database.kind;
    let literal = |micros| format!("'{}'", to_seconds(&civil(micros, 0)));
    sits(&database, form(&database, by_kind(kind, "timestamp(0)", "datetime", "text"), SECOND, &literal)).await;
}

/// As many languages print it.
pub async fn deadline_in_iso_8601_with_t(database: Database) {
    let with_t = |micros| civil(micros, 0).replace(' ', "T");
    let literal = |micros| format!("'{}'", to_millis(&with_t(micros)));
    sits(&database, form(&database, "text", 1_000, &literal)).await;
    database.execute("DROP TABLE orders").await;
    let literal = |micros| format!("'{}Z'", to_millis(&with_t(micros)));
    sits(&database, form(&database, "text", 1_000, &literal)).await;
    database.execute("DROP TABLE orders").await;
    let literal = |micros| format!("'{}Z'", to_seconds(&with_t(micros)));
    sits(&database, form(&database, "text", SECOND, &literal)).await;
}

/// A number of seconds or milliseconds.
async fn epoch(database: &Database, unit: &str, micros: i64, plus: Option<(&str, i64)>) {
    let literal = move |moment: i64| (moment / micros).to_string();
    let mut form = form(database, "bigint", micros, &literal);
    let more = plus.map_or_else(String::new, |(plus, _)| format!(", plus = '{plus}'"));
    form.settings = form.settings.add(&format!("[orders]\ndeadline = {{ column = 'expires_at', unit = '{unit}'{more} }}"));
    form.plus = plus.map_or(0, |(_, plus)| plus);
    sits(database, form).await;
}

pub async fn deadline_in_epoch_seconds(database: Database) {
    epoch(&database, "s", SECOND, None).await;
}

pub async fn deadline_in_epoch_millis(database: Database) {
    epoch(&database, "ms", 1_000, None).await;
}

pub async fn deadline_after_creation_as_a_number(database: Database) {
    epoch(&database, "s", SECOND, Some(("30m", 30 * MINUTE))).await;
    database.execute("DROP TABLE orders").await;
    epoch(&database, "ms", 1_000, Some(("1h 500ms", 60 * MINUTE + 500_000))).await;
}

pub async fn deadline_after_creation(database: Database) {
    let kind = database.kind;
    let precision = if kind == Kind::Sqlite { 1_000 } else { 1 };
    let literal = move |micros| match kind {
        Kind::Postgres | Kind::MariaDb => format!("'{}'", civil(micros, 0)),
        Kind::Sqlite => format!("'{}'", to_millis(&civil(micros, 0))),
    };
    for column_type in by_kind(kind, "timestamp timestamptz", "datetime(6) timestamp(6)", "text").split(' ') {
        database.execute("DROP TABLE IF EXISTS orders").await;
        // A literal without a zone is in UTC for the session that writes it, too.
        database.execute(by_kind(kind, "SET TIME ZONE 'UTC'", "SELECT 1", "SELECT 1")).await;
        let mut form = form(&database, column_type, precision, &literal);
        form.settings = form.settings.add("[orders]\ndeadline = { column = 'expires_at', plus = '30m' }");
        form.plus = 30 * MINUTE;
        sits(&database, form).await;
    }
}

/// Nothing in the table is due, now or in a month, and nothing fails.
async fn assert_never_due(database: &Database, settings: &Settings, rows: usize) {
    let store = open(settings).await;
    assert_eq!(overdue(&*store).await, [""; 0]);
    let within_a_month = sweep(&*store, Duration::from_secs(30 * 86_400), 10).await.concat();
    assert!(within_a_month.is_empty(), "{within_a_month:?}");
    assert_eq!(store.count_overdue().await, Ok(0));
    let all = database.column("SELECT order_no FROM orders").await;
    assert_eq!(all.len(), rows);
    for id in all.into_iter().flatten() {
        match verdict(&*store, &id).await {
            Verdict::NotDue { remaining } => {
                assert!(remaining.is_none_or(|time| time > Duration::from_secs(365 * 86_400)), "order {id}: {remaining:?}");
            }
            other => panic!("order {id}: {other:?}"),
        }
        assert_eq!(super::close(&*store, &[id.as_str()]).await, 0);
    }
    // A horizon beyond all calendars is as good as any other.
    let sentinels = sweep(&*store, Duration::from_secs(u64::MAX / 1_000_000), 10).await.concat();
    assert!(sentinels.iter().all(|row| row.deadline.is_some()), "{sentinels:?}");
}

pub async fn never_due(database: Database) {
    let kind = database.kind;
    for column_type in by_kind(kind, "timestamptz timestamp date", "datetime(6) datetime date", "text").split(' ') {
        database.execute("DROP TABLE IF EXISTS orders").await;
        create_orders(&database, "bigint", "integer", column_type).await;
        database
            .execute(
                "INSERT INTO orders (order_no, status, expires_at) VALUES (1, 0, NULL), (2, 0, '2099-12-31'),
                     (3, 0, '9999-12-31'), (4, 0, '1970-01-01'), (5, 0, '1970-01-02')",
            )
            .await;
        let settings = settings(&database);
        assert_never_due(&database, &settings, 5).await;
        // A sentinel plus half an hour is still one.
        let plus = settings.clone().add("[orders]\ndeadline = { column = 'expires_at', plus = '30m' }");
        assert_never_due(&database, &plus, 5).await;
        assert_never_due(&database, &settings.set("database.time_zone", "-11:00"), 5).await;
    }
}

pub async fn never_due_as_a_number(database: Database) {
    create_orders(&database, "bigint", "integer", "bigint").await;
    database
        .execute(&format!(
            "INSERT INTO orders (order_no, status, expires_at) VALUES (1, 0, NULL), (2, 0, 0), (3, 0, {}), (4, 0, -1)",
            i64::MAX
        ))
        .await;
    for (unit, year_2099, year_9999) in [("s", 4_102_358_400_i64, 253_402_214_400_i64), ("ms", 4_102_358_400_000, 253_402_214_400_000)] {
        database
            .execute(&format!("INSERT INTO orders (order_no, status, expires_at) VALUES (5, 0, {year_2099}), (6, 0, {year_9999})"))
            .await;
        let settings = settings(&database).add(&format!("[orders]\ndeadline = {{ column = 'expires_at', unit = '{unit}' }}"));
        assert_never_due(&database, &settings, 6).await;
        database.execute("DELETE FROM orders WHERE order_no IN (5, 6)").await;
    }
    // Seconds in a column that is read as milliseconds are a deadline in January 1970, which is none.
    database.execute("INSERT INTO orders (order_no, status, expires_at) VALUES (7, 0, 1700000000)").await;
    let milliseconds = settings(&database).add("[orders]\ndeadline = { column = 'expires_at', unit = 'ms' }");
    assert_never_due(&database, &milliseconds, 5).await;
}

pub async fn infinity_is_never_due(database: Database) {
    for column_type in ["timestamptz", "timestamp", "date"] {
        database.execute("DROP TABLE IF EXISTS orders").await;
        create_orders(&database, "bigint", "integer", column_type).await;
        database
            .execute(
                "INSERT INTO orders (order_no, status, expires_at) VALUES (1, 0, 'infinity'), (2, 0, '-infinity'),
                     (3, 0, '0044-03-15 BC'), (4, 0, '200000-01-01')",
            )
            .await;
        assert_never_due(&database, &settings(&database), 4).await;
    }
}

pub async fn zero_dates_are_never_due(database: Database) {
    for column_type in ["datetime(6)", "timestamp", "date"] {
        database.execute("DROP TABLE IF EXISTS orders").await;
        create_orders(&database, "bigint", "integer", column_type).await;
        let mut shop = database.begin().await;
        shop.execute("SET SESSION sql_mode = ''").await;
        shop.execute("INSERT INTO orders (order_no, status, expires_at) VALUES (1, 0, '0000-00-00'), (2, 0, NULL)").await;
        shop.commit().await;
        assert_never_due(&database, &settings(&database), 2).await;
    }
}

/// A connection that is lost while the zone is asked for must not be taken for a zone that can't be asked.
pub async fn a_lost_connection_does_not_hide_the_servers_zone(database: Database) {
    create_orders(&database, "bigint", "integer", "timestamp").await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = Postgres::shared().port();
    tokio::spawn(async move {
        // The first connection is cut, all others are passed on.
        drop(listener.accept().await);
        while let Ok((mut client, _)) = listener.accept().await {
            let mut upstream = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut upstream).await });
        }
    });
    let url = database.url.replace(&format!(":{server}/"), &format!(":{port}/"));
    let settings = settings(&database).set("database.url", url);
    let first = try_open(&settings).await.map(drop);
    assert!(matches!(first, Err(OpenError::Store(StoreError::Unavailable(_)))), "{first:?}");
    let second = try_open(&settings).await.map(drop);
    assert_eq!(second, Ok(()));
}
