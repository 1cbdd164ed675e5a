//! Rights that are missing: all of them at once, as SQL that grants them.

use super::{Report, good_redis};
use crate::{
    commands::SECRET,
    support::{Kind, Settings, Shop, order_closer},
};

/// A shop with an order that is due, our own tables, and a history whose numbers come from a sequence; and a user of its
/// database who may do nothing, or next to nothing.
struct Locked {
    shop: Shop,
    user: String,
    settings: Settings,
}

impl Locked {
    async fn new(kind: Kind, settings: Settings) -> Self {
        let shop = Shop::open(kind).await;
        shop.order(1, -1_000).await;
        let number = if kind == Kind::Postgres { "bigserial" } else { "bigint AUTO_INCREMENT PRIMARY KEY" };
        shop.database.execute(&format!("CREATE TABLE history (number {number}, order_no bigint)")).await;
        let settings = settings.set("database.url", shop.database.url.as_str());
        order_closer(&settings, &["migrate"]).await.expect_code(0);
        let name = shop.database.url.rsplit('/').next().expect("a name").replace("test_", "r_")[..20].to_owned();
        let (user, create, of_all) = match kind {
            // Without a right to anything, a user of MariaDB may not even use the database.
            Kind::MariaDb => (
                format!("{name}@'%'"),
                format!("CREATE USER {name}@'%' IDENTIFIED BY '{SECRET}'; GRANT INSERT ON closures TO {name}@'%'"),
                "root@",
            ),
            Kind::Postgres | Kind::Sqlite => (
                name.clone(),
                format!("CREATE ROLE {name} LOGIN PASSWORD '{SECRET}'; REVOKE ALL ON SCHEMA public FROM PUBLIC"),
                "postgres@",
            ),
        };
        shop.database.execute(&create).await;
        let settings = settings.set("database.url", shop.database.url.replace(of_all, &format!("{name}:{SECRET}@")));
        Self { shop, user, settings }
    }

    async fn drop(self) {
        let Self { shop, user, .. } = self;
        let drop = if shop.database.kind == Kind::Postgres {
            format!("DROP OWNED BY {user}; DROP ROLE {user}")
        } else {
            format!("DROP USER {user}")
        };
        shop.database.execute(&drop).await;
    }
}

/// Settings that touch every table of such a shop.
async fn settings(redis: &str, kind: Kind) -> Settings {
    let shop = Shop::open(kind).await;
    shop.settings()
        .set("redis.url", redis)
        .set("events.enabled", true)
        .after_close_sql("INSERT INTO history (order_no) SELECT o.order_no FROM orders o WHERE o.order_no IN (:ids)")
}

/// One run names them, and what it prints is all that it takes.
#[tokio::test]
async fn what_is_printed_grants_them_all() {
    let redis = good_redis();
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let locked = Locked::new(kind, settings(&redis.url(), kind).await).await;
        let report = Report::of(&locked.settings, 78).await;
        report.assert("grants", "fail", "lacks rights");
        let grants = report.fix("grants").to_owned();
        for table in ["orders", "inventory", "order_items", "history", "order_closer_events", "order_closer_dead_letters"] {
            assert!(grants.contains(table), "{table} is missing: {grants}");
        }
        for command in [&["reconcile"] as &[&str], &["close", "1"]] {
            let finished = order_closer(&locked.settings, command).await.expect_code(78);
            assert!(finished.stderr.contains(&grants), "{grants:?} is missing: {finished:#?}");
        }
        locked.shop.database.execute(&grants).await;
        let report = Report::of(&locked.settings, 0).await;
        assert_eq!(report.wrong(), [] as [&str; 0], "{kind:?}: {:#?}", report.findings);
        order_closer(&locked.settings, &["reconcile"]).await.expect_code(0);
        assert_eq!(locked.shop.status(1).await, 4);
        locked.drop().await;
    }
}

/// Each that is missing alone is named, and nothing besides.
#[tokio::test]
async fn one_that_is_missing() {
    let redis = good_redis();
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let locked = Locked::new(kind, settings(&redis.url(), kind).await).await;
        let database = &locked.shop.database;
        let grants = Report::of(&locked.settings, 78).await.fix("grants").to_owned();
        database.execute(&grants).await;
        let whole = |table: &str| match kind {
            Kind::Postgres => format!("public.{table}"),
            Kind::MariaDb | Kind::Sqlite => format!("`{}`.`{table}`", database.url.rsplit('/').next().expect("a name")),
        };
        for (right, table) in [
            ("SELECT", "orders"),
            ("UPDATE", "orders"),
            ("UPDATE", "inventory"),
            ("SELECT", "order_items"),
            ("INSERT", "history"),
            ("INSERT", "order_closer_events"),
            ("SELECT", "order_closer_dead_letters"),
        ] {
            database.execute(&format!("REVOKE {right} ON {} FROM {}", whole(table), locked.user)).await;
            let report = Report::of(&locked.settings, 78).await;
            let fix = report.fix("grants");
            assert!(fix.starts_with(&format!("GRANT {right} ON {} TO ", whole(table))), "{kind:?}: {fix}");
            assert_eq!(fix.matches("GRANT").count(), 1, "{kind:?}: {fix}");
            database.execute(fix).await;
        }
        if kind == Kind::Postgres {
            database
                .execute(&format!(
                    "REVOKE ALL ON SEQUENCE history_number_seq FROM {0}; GRANT UPDATE (status) ON orders TO {0}",
                    locked.user
                ))
                .await;
            let report = Report::of(&locked.settings, 78).await;
            assert_eq!(report.fix("grants"), format!("GRANT USAGE ON SEQUENCE public.history_number_seq TO {};", locked.user));
        }
        locked.drop().await;
    }
}

/// Rights to columns are enough, where they are the right ones.
#[tokio::test]
async fn rights_to_columns() {
    let redis = good_redis();
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let plain = Settings::new().set("redis.url", redis.url()).set("orders.set.closed_at", "NULL");
        let locked = Locked::new(kind, plain).await;
        let database = &locked.shop.database;
        let grants = Report::of(&locked.settings, 78).await.fix("grants").to_owned();
        database.execute(&grants).await;
        database.execute(&format!("REVOKE SELECT, UPDATE ON orders FROM {}", locked.user)).await;
        let grant = |updated: &str| format!("GRANT SELECT (order_no, status, expires_at), UPDATE ({updated}) ON orders TO {}", locked.user);
        database.execute(&grant("status")).await;
        let report = Report::of(&locked.settings, 78).await;
        assert!(report.fix("grants").starts_with("GRANT UPDATE ON "), "{kind:?}: {}", report.fix("grants"));
        database.execute(&grant("status, closed_at")).await;
        assert_eq!(Report::of(&locked.settings, 0).await.wrong(), [] as [&str; 0], "{kind:?}");
        locked.drop().await;
    }
}
