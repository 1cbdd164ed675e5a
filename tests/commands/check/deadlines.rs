//! What `check` says about deadlines: how they are understood, in which unit, and what is overdue.

use super::{Report, database::bare_orders, good_redis};
use crate::support::{Kind, Shop, order_closer};

/// The sweep goes by the text, and would find such an order eight hours late.
#[tokio::test]
async fn sqlite_texts_from_further_east_than_the_sweep() {
    let redis = good_redis();
    let (database, settings) = bare_orders(Kind::Sqlite, &redis, "bigint PRIMARY KEY", "text").await;
    database.execute("CREATE INDEX due ON orders (status, expires_at)").await;
    let past =
        |separator: &str, offset: &str| format!("strftime('%Y-%m-%d{separator}%H:%M:%S', 'now', '-30 minutes', '{offset}') || '{offset}'");
    database
        .execute(&format!(
            "INSERT INTO orders VALUES (1, 0, {}), (2, 0, {}), (3, 0, {})",
            past(" ", "-05:00"),
            past(" ", "+08:00"),
            past("T", "+08:00")
        ))
        .await;
    let report = Report::of(&settings, 78).await;
    assert_eq!(report.wrong(), ["sample deadline"]);
    report.assert("sample deadline", "fail", "order 2: expires_at is ");
    assert!(report.fix("sample deadline").contains("database.time_zone"), "{:#?}", report.findings);
    let mended = settings.set("database.time_zone", "+08:00");
    assert_eq!(Report::of(&mended, 0).await.wrong(), [] as [&str; 0]);
    let report = order_closer(&mended, &["reconcile", "--json"]).await.expect_code(0).json();
    assert_eq!(report["closed"], 3, "{report}");
}

/// What can't be read is never due, and white space at the end is passed over; both are said, and neither is an error.
#[tokio::test]
async fn sqlite_texts_that_are_not_written_as_they_should_be() {
    let redis = good_redis();
    let (database, settings) = bare_orders(Kind::Sqlite, &redis, "bigint PRIMARY KEY", "text").await;
    database.execute("CREATE INDEX due ON orders (status, expires_at)").await;
    // None of these is odd: a time, no deadline, a paid order.
    database
        .execute(
            "INSERT INTO orders VALUES (1, 0, '2035-01-01 12:00:00'), (2, 1, NULL), (3, 0, ''), (4, 0, '0000-00-00 00:00:00'),
                 (5, 0, '1970-01-01 00:00:00'), (6, 1, 'soon')",
        )
        .await;
    assert_eq!(Report::of(&settings, 0).await.wrong(), [] as [&str; 0]);
    database.execute("INSERT INTO orders VALUES (7, 0, '2035-01-01T12:00:00Z' || char(10)), (8, 0, '2035-01-01 12:00 ')").await;
    let report = Report::of(&settings, 0).await;
    assert_eq!(report.wrong(), ["deadline texts"]);
    report.assert("deadline texts", "warn", "expires_at has white space after it, which is passed over, in 2 unpaid orders");
    report.assert("deadline texts", "warn", r#"order 7: "2035-01-01T12:00:00Z\n""#);
    database.execute(report.fix("deadline texts")).await;
    assert_eq!(Report::of(&settings, 0).await.wrong(), [] as [&str; 0]);
    for (id, text) in [(9, "tomorrow"), (10, "12:00"), (11, "2035-01-01 12:00:00+0800"), (12, " 2035-01-01 12:00:00")] {
        database.execute(&format!("INSERT INTO orders VALUES ({id}, 0, '{text}')")).await;
    }
    let report = Report::of(&settings, 0).await;
    assert_eq!(report.wrong(), ["deadline texts"]);
    report.assert("deadline texts", "warn", "expires_at is a text that means no time, and is never due, in 4 unpaid orders");
    report.assert("deadline texts", "warn", "order 9: \"tomorrow\"");
}

/// The same stored text, understood in the server's zone, and in the configured one.
#[tokio::test]
async fn a_deadline_is_shown_both_ways() {
    let redis = good_redis();
    for (kind, time, own) in [
        (Kind::Postgres, "timestamp", "UTC (the server's own)"),
        (Kind::MariaDb, "datetime", "server's own"),
        (Kind::Sqlite, "text", "UTC (SQLite's own)"),
    ] {
        let (database, settings) = bare_orders(kind, &redis, "bigint PRIMARY KEY", time).await;
        database.execute("CREATE INDEX due ON orders (status, expires_at)").await;
        database.execute("INSERT INTO orders VALUES (77, 0, '2035-01-02 12:00:00')").await;
        let report = Report::of(&settings, 0).await;
        assert_eq!(report.wrong(), [] as [&str; 0], "{kind:?}");
        report.assert("time zone", "ok", own);
        report.assert("sample deadline", "ok", "order 77: expires_at is 2035-01-02 12:00:00");
        report.assert("sample deadline", "ok", "understood as 2035-01-02T12:00:00.000Z");
        let report = Report::of(&settings.clone().set("database.time_zone", "+08:00"), 0).await;
        report.assert("time zone", "ok", "+08:00 (database.time_zone)");
        report.assert("sample deadline", "ok", "order 77: expires_at is 2035-01-02 12:00:00");
        report.assert("sample deadline", "ok", "understood as 2035-01-02T04:00:00.000Z");
        // PostgreSQL brings its own tz database; MariaDB has one only if somebody loaded it; SQLite has none.
        let named = settings.clone().set("database.time_zone", "Asia/Shanghai");
        match kind {
            Kind::Postgres => Report::of(&named, 0).await.assert("sample deadline", "ok", "understood as 2035-01-02T04:00:00.000Z"),
            Kind::MariaDb => Report::of(&named, 78).await.assert("mapping", "fail", "time_zone"),
            Kind::Sqlite => Report::of(&named, 78).await.assert("mapping", "fail", "database.time_zone"),
        }
        let report = Report::of(&settings.clone().set("database.time_zone", "UTC"), 0).await;
        report.assert("time zone", "ok", "UTC (database.time_zone)");
        let deadline = "[orders]\ndeadline = { column = 'expires_at', plus = '30m' }";
        let report = Report::of(&settings.add(deadline), 0).await;
        report.assert("sample deadline", "ok", "plus 30m, understood as 2035-01-02T12:30:00.000Z");
    }
}

/// Seconds taken for milliseconds are deadlines of 1970, and the other way round of the year 66972.
#[tokio::test]
async fn a_number_in_the_wrong_unit() {
    let redis = good_redis();
    for kind in Kind::ALL {
        let (database, settings) = bare_orders(kind, &redis, "bigint PRIMARY KEY", "bigint").await;
        database.execute("CREATE INDEX due ON orders (status, expires_at)").await;
        database.execute("INSERT INTO orders VALUES (77, 0, 2051265600)").await;
        let unit = |unit: &str| settings.clone().add(&format!("[orders]\ndeadline = {{ column = 'expires_at', unit = '{unit}' }}"));
        let report = Report::of(&unit("ms"), 0).await;
        assert_eq!(report.wrong(), ["unit"], "{kind:?}");
        report.assert("unit", "warn", "look like seconds: order 77 has 2051265600, which as milliseconds is in the year 1970");
        assert_eq!(report.fix("unit"), "orders.deadline.unit = \"s\"");
        let report = Report::of(&unit("s"), 0).await;
        assert_eq!(report.wrong(), [] as [&str; 0], "{kind:?}");
        report.assert("sample deadline", "ok", "understood as 2035-01-01T12:00:00.000Z");
        report.assert("time zone", "ok", "needs none");
        database.execute("UPDATE orders SET expires_at = expires_at * 1000; INSERT INTO orders VALUES (78, 0, 0)").await;
        assert_eq!(Report::of(&unit("ms"), 0).await.wrong(), [] as [&str; 0], "{kind:?}");
        let report = Report::of(&unit("s"), 0).await;
        assert_eq!(report.wrong(), ["unit"], "{kind:?}");
        report.assert("unit", "warn", "look like milliseconds: order 77 has 2051265600000, which as seconds is in the year 66972");
    }
}

/// What is overdue closes as soon as a daemon starts; whoever has ten years of it is to know that before.
#[tokio::test]
async fn what_is_overdue() {
    const NAME: &str = "overdue orders";
    let redis = good_redis();
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        shop.order(1, 600_000).await;
        shop.orders_due_in(2..=4, -60_000).await;
        let settings = shop.settings_with(&redis);
        let report = Report::of(&settings, 0).await;
        assert_eq!(report.wrong(), [] as [&str; 0], "{kind:?}");
        report.assert(NAME, "ok", "3 since 20");
        shop.orders_due_in(5..=6, -86_400_000).await;
        let report = Report::of(&settings, 0).await;
        assert_eq!(report.wrong(), [NAME], "{kind:?}");
        report.assert(NAME, "warn", "5 since 20");
        report.assert(NAME, "warn", "a daemon closes them as soon as it starts");
        let report = Report::of(&settings.clone().set("sweep.oldest", "1h"), 0).await;
        report.assert(NAME, "warn", "2 since 20");
        report.assert(NAME, "warn", "overdue for more than 1h (sweep.oldest), and left alone");
        assert_eq!(report.fix(NAME), "order-closer reconcile --oldest none");
        assert!(report.findings.iter().any(|finding| finding["found"].as_str().is_some_and(|found| found.starts_with("3 since 20"))));
        shop.database.execute("DELETE FROM orders").await;
        shop.orders_due_in(1..=10_001, -60_000).await;
        Report::of(&settings, 0).await.assert(NAME, "ok", "more than 10,000 since 20");
    }
}
