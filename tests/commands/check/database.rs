//! What `check` says about the database.

use super::{Report, good_redis};
use crate::{
    commands::SECRET,
    support::{Database, Kind, Redis, Settings, Shop, mariadb::MariaDb, ports, postgres::Postgres},
};

/// A table that is mapped by the defaults, with this primary key clause and these indexes.
async fn bare_orders(kind: Kind, redis: &Redis, id: &str, time: &str) -> (Database, Settings) {
    let database = Database::fresh(kind).await;
    database.execute(&format!("CREATE TABLE orders (order_no {id}, status integer NOT NULL, expires_at {time} NULL)")).await;
    let settings = Settings::new().set("database.url", database.url.as_str()).set("redis.url", redis.url());
    (database, settings)
}

fn time_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Postgres => "timestamptz",
        Kind::MariaDb => "timestamp",
        Kind::Sqlite => "text",
    }
}

#[tokio::test]
async fn indexes_that_are_missing_are_made_by_what_is_printed() {
    let redis = good_redis();
    for kind in Kind::ALL {
        let (database, settings) = bare_orders(kind, &redis, "bigint NOT NULL", time_type(kind)).await;
        let report = Report::of(&settings, 0).await;
        assert_eq!(report.wrong(), ["sweep index", "id index"], "{kind:?}");
        report.assert("sweep index", "warn", "reads the whole table");
        report.assert("id index", "warn", "each look-up reads the whole table");
        // Whoever runs it may be in another schema or database.
        let whole = match kind {
            Kind::Postgres => "public.orders".to_owned(),
            Kind::MariaDb => format!("`{}`.`orders`", database.url.rsplit('/').next().expect("a name")),
            Kind::Sqlite => "\"orders\"".into(),
        };
        for name in ["sweep index", "id index"] {
            assert!(report.mend(name).contains(&format!(" ON {whole} (")), "{}", report.mend(name));
        }
        database.execute(report.mend("sweep index")).await;
        database.execute(report.mend("id index")).await;
        assert_eq!(Report::of(&settings, 0).await.wrong(), [] as [&str; 0], "{kind:?}");
    }
}

#[tokio::test]
async fn an_id_that_is_not_unique() {
    let redis = good_redis();
    for kind in Kind::ALL {
        let (database, settings) = bare_orders(kind, &redis, "bigint NOT NULL", time_type(kind)).await;
        database.execute("CREATE INDEX by_id ON orders (order_no)").await;
        database.execute("CREATE INDEX due ON orders (status, expires_at)").await;
        let report = Report::of(&settings, 0).await;
        assert_eq!(report.wrong(), ["id index"], "{kind:?}");
        report.assert("id index", "warn", "no unique index on order_no");
        database.execute(report.mend("id index")).await;
        assert_eq!(Report::of(&settings, 0).await.wrong(), [] as [&str; 0], "{kind:?}");
    }
}

#[tokio::test]
async fn a_mapping_that_does_not_fit() {
    let redis = good_redis();
    for kind in Kind::ALL {
        let (_database, settings) = bare_orders(kind, &redis, "bigint PRIMARY KEY", time_type(kind)).await;
        let cases: [(&str, toml::Value, &[&str]); 6] = [
            ("orders.table", "purchases".into(), &["orders.table is purchases", "no such table"]),
            ("orders.id", "id".into(), &["orders.id is \"id\"", "it has order_no, status, expires_at"]),
            ("orders.status", "state".into(), &["orders.status is \"state\"", "order_no, status, expires_at"]),
            ("orders.deadline.column", "due".into(), &["orders.deadline.column is \"due\"", "order_no, status, expires_at"]),
            ("orders.unpaid", "pending".into(), &["orders.unpaid has \"pending\"", "status of orders is int", "without quotes"]),
            ("orders.set.closed_by", "'1'".into(), &["orders.set is \"closed_by\"", "no such column"]),
        ];
        for (key, value, texts) in cases {
            let report = Report::of(&settings.clone().set(key, value), 78).await;
            assert_eq!(report.wrong(), ["mapping"], "{kind:?}, {key}");
            for text in texts {
                assert!(report.mark("mapping").1.to_lowercase().contains(text), "{kind:?}, {text:?}: {:#?}", report.findings);
            }
        }
    }
}

#[tokio::test]
async fn close_sql_that_is_wrong() {
    let redis = good_redis();
    for kind in Kind::ALL {
        let (_database, settings) = bare_orders(kind, &redis, "bigint PRIMARY KEY", time_type(kind)).await;
        let set = |sql: &str| settings.clone().set("close.sql", vec![sql]);
        let report = Report::of(&set("UPDATE no_such_table SET n = 0 WHERE order_no IN (:ids)"), 78).await;
        report.assert("closing", "fail", "no_such_table");
        let report = Report::of(&set("UPDAT orders SET status = 5 WHERE order_no IN (:ids)"), 78).await;
        report.assert("closing", "fail", "UPDAT");
        let report = Report::of(&set("UPDATE orders SET status = 5"), 78).await;
        report.assert("mapping", "fail", "statement 1 does not mention :ids");
        let report = Report::of(&settings.clone().set("orders.filter", "no_such_column = 1"), 78).await;
        report.assert("closing", "fail", "no_such_column");
    }
}

/// A user who may read but not update is told so, and that a right mends it.
#[tokio::test]
async fn a_user_who_may_not_update() {
    let redis = good_redis();
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let shop = Shop::open(kind).await;
        let name = shop.database.url.rsplit('/').next().expect("a name").replace("test_", "u_")[..20].to_owned();
        let (create, grant, url) = match kind {
            Kind::Postgres => (
                format!("CREATE ROLE {name} LOGIN PASSWORD '{SECRET}'; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}"),
                format!("GRANT UPDATE ON orders, inventory TO {name}; GRANT INSERT ON closures TO {name}"),
                shop.database.url.replace("postgres@", &format!("{name}:{SECRET}@")),
            ),
            _ => (
                format!("CREATE USER {name}@'%' IDENTIFIED BY '{SECRET}'; GRANT SELECT ON * TO {name}@'%'"),
                format!("GRANT SELECT, UPDATE, INSERT ON * TO {name}@'%'"),
                shop.database.url.replace("root@", &format!("{name}:{SECRET}@")),
            ),
        };
        shop.database.execute(&create).await;
        let settings = shop.settings_with(&redis).set("database.url", url);
        let report = Report::of(&settings, 78).await;
        assert_eq!(report.wrong(), ["closing"], "{kind:?}");
        report.assert("closing", "fail", "denied");
        assert!(report.mend("closing").contains("grant SELECT and UPDATE"), "{:#?}", report.findings);
        shop.database.execute(&grant).await;
        assert_eq!(Report::of(&settings, 0).await.wrong(), [] as [&str; 0], "{kind:?}");
        shop.database
            .execute(&format!(
                "{} {name}",
                if kind == Kind::Postgres { format!("DROP OWNED BY {name}; DROP ROLE") } else { "DROP USER".into() }
            ))
            .await;
    }
}

#[tokio::test]
async fn a_database_that_is_down() {
    let redis = good_redis();
    for scheme in ["postgres", "mysql"] {
        let port = ports::free();
        let url = format!("{scheme}://closer:{SECRET}@127.0.0.1:{port}/shop");
        let report = Report::of(&Settings::new().set("database.url", url).set("redis.url", redis.url()), 69).await;
        assert_eq!(report.wrong(), ["database"]);
        report.assert("database", "fail", &format!("{scheme}://closer:***@127.0.0.1:{port}/shop: "));
        report.assert("database", "fail", "refused");
        report.assert("probe key", "ok", "");
    }
}

/// A wrong password, a database that does not exist: the server's own words.
#[tokio::test]
async fn a_login_that_is_refused() {
    let redis = good_redis();
    let mariadb = MariaDb::shared().url("mysql").replace("root@", &format!("root:{SECRET}@"));
    let postgres = Postgres::shared().url("no_such_database");
    for (url, text) in [(mariadb, "Access denied"), (postgres, "does not exist")] {
        let report = Report::of(&Settings::new().set("database.url", url).set("redis.url", redis.url()), 69).await;
        assert_eq!(report.wrong(), ["database"]);
        report.assert("database", "fail", text);
    }
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

/// Seconds taken for milliseconds would be a deadline of 1970.
#[tokio::test]
async fn a_number_in_the_wrong_unit() {
    let redis = good_redis();
    for kind in Kind::ALL {
        let (database, settings) = bare_orders(kind, &redis, "bigint PRIMARY KEY", "bigint").await;
        database.execute("CREATE INDEX due ON orders (status, expires_at)").await;
        database.execute("INSERT INTO orders VALUES (77, 0, 2051265600)").await;
        let unit = |unit: &str| settings.clone().add(&format!("[orders]\ndeadline = {{ column = 'expires_at', unit = '{unit}' }}"));
        let report = Report::of(&unit("ms"), 0).await;
        assert_eq!(report.wrong(), ["sample deadline"], "{kind:?}");
        report.assert("sample deadline", "warn", "2051265600, which is no deadline");
        let report = Report::of(&unit("s"), 0).await;
        assert_eq!(report.wrong(), [] as [&str; 0], "{kind:?}");
        report.assert("sample deadline", "ok", "understood as 2035-01-01T12:00:00.000Z");
        report.assert("time zone", "ok", "needs none");
    }
}
