//! What `check` says about the database.

use super::{Report, good_redis};
use crate::{
    commands::SECRET,
    support::{Database, Kind, Redis, Settings, Shop, order_closer, ports},
};

/// A table that is mapped by the defaults, with this primary key clause and these indexes.
pub(super) async fn bare_orders(kind: Kind, redis: &Redis, id: &str, time: &str) -> (Database, Settings) {
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
            assert!(report.fix(name).contains(&format!(" ON {whole} (")), "{}", report.fix(name));
        }
        database.execute(report.fix("sweep index")).await;
        database.execute(report.fix("id index")).await;
        assert_eq!(Report::of(&settings, 0).await.wrong(), [] as [&str; 0], "{kind:?}");
    }
}

/// Rules of one table, rules of several, and shards: no name comes twice, and an index that serves two rules is printed once.
#[tokio::test]
async fn indexes_of_several_rules_and_shards_are_made_by_what_is_printed() {
    let redis = good_redis();
    for kind in Kind::ALL {
        let database = Database::fresh(kind).await;
        let (time, long) = (time_type(kind), "a_table_with_a_name_that_leaves_few_characters_for_an_index");
        for table in ["purchases", "bookings", "parts_0", "parts_1", long] {
            let columns = format!("id bigint NOT NULL, status integer NOT NULL, pay_by {time} NULL, sent_at {time} NULL");
            database.execute(&format!("CREATE TABLE {table} ({columns})")).await;
        }
        let rule = |name: &str, table: &str, unpaid: i32, deadline: &str| {
            format!(
                "[[rules]]\nname = '{name}'\nkey_prefix = 'none'\n[rules.orders]\ntable = '{table}'\nid = 'id'\nunpaid = [{unpaid}]\n\
                 closed = 9\ndeadline = {{ column = '{deadline}' }}\n"
            )
        };
        let rules = [
            rule("unpaid", "purchases", 0, "pay_by"),
            rule("by-transfer", "purchases", 1, "pay_by"),
            rule("receive", "purchases", 2, "sent_at"),
            rule("orders", "bookings", 0, "pay_by"),
        ];
        let several = Settings::new().add(&rules.concat());
        let sharded = Settings::new().set("orders.table", "parts_{0..1}").set("orders.id", "id").set("orders.deadline.column", "pay_by");
        let long = Settings::new().add(&[rule("unpaid", "bookings", 3, "sent_at"), rule(&"r".repeat(64), long, 0, "pay_by")].concat());
        for settings in [several, sharded, long] {
            let settings = settings.set("database.url", database.url.as_str()).set("redis.url", redis.url());
            let report = Report::of(&settings, 0).await;
            let printed: Vec<&str> = report.findings.iter().filter_map(|finding| finding["fix"].as_str()).collect();
            let printed: Vec<&str> = printed.into_iter().filter(|fix| fix.starts_with("CREATE ")).collect();
            assert!(printed.len() > 1, "{report:#?}");
            for statement in &printed {
                database.execute(statement).await;
            }
            let report = Report::of(&settings, 0).await;
            assert!(!report.wrong().iter().any(|name| name.ends_with("index")), "{kind:?}: {printed:#?}\n{report:#?}");
        }
    }
}

/// Every order would be refused, which no statement on none of them shows.
#[tokio::test]
async fn what_only_an_order_shows() {
    let redis = good_redis();
    let shop = Shop::open(Kind::Postgres).await;
    shop.order(1, 600_000).await;
    shop.database.execute("CREATE TABLE history (number bigint GENERATED ALWAYS AS IDENTITY, order_no bigint)").await;
    shop.database.execute("CREATE TABLE days (order_no bigint, day date) PARTITION BY RANGE (day)").await;
    for (sql, mark, code, said) in [
        (
            "INSERT INTO history (order_no) SELECT unnest(ARRAY(SELECT o.order_no FROM orders o WHERE o.order_no IN (:ids)))",
            "ok",
            0,
            "could be",
        ),
        ("INSERT INTO days SELECT o.order_no, current_date FROM orders o WHERE o.order_no IN (:ids)", "fail", 78, "no partition"),
        (
            "UPDATE orders SET expires_at = now() + (1 / (order_no - 1)) * interval '1 s' WHERE order_no IN (:ids)",
            "warn",
            0,
            "division by zero",
        ),
    ] {
        let settings = shop.settings_with(&redis).set("close.sql", vec![sql]);
        let report = Report::of(&settings, code).await;
        report.assert("rehearsal", mark, said);
        let without = order_closer(&settings, &["check", "--no-rehearsal"]).await.expect_code(0);
        assert!(!without.stdout.contains("rehearsal"), "{without:#?}");
    }
    assert_eq!(shop.assert_outcome().await.open.len(), 1);
    assert_eq!(shop.database.number("SELECT count(*) FROM history").await, 0);
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
        report.assert("id index", "warn", "no unique index on order_no alone; if an id came to stand in two rows");
        database.execute(report.fix("id index")).await;
        assert_eq!(Report::of(&settings, 0).await.wrong(), [] as [&str; 0], "{kind:?}");
    }
}

/// An index that lacks rows of ours is none.
#[tokio::test]
async fn a_partial_index_for_other_orders() {
    let redis = good_redis();
    for kind in [Kind::Postgres, Kind::Sqlite] {
        let (database, settings) = bare_orders(kind, &redis, "bigint PRIMARY KEY", time_type(kind)).await;
        database.execute("CREATE INDEX paid ON orders (expires_at) WHERE status = 1").await;
        database.execute("CREATE INDEX new ON orders (expires_at) WHERE status = 0 AND order_no > 9").await;
        let report = Report::of(&settings, 0).await;
        assert_eq!(report.wrong(), ["sweep index"], "{kind:?}");
        let filtered = settings.clone().set("orders.filter", "order_no > 9");
        Report::of(&filtered, 0).await.assert("sweep index", "ok", "new");
        database.execute("CREATE INDEX unpaid ON orders (expires_at) WHERE status = 0").await;
        Report::of(&settings, 0).await.assert("sweep index", "ok", "unpaid");
    }
}

/// An index whose condition is wider than ours, or says it otherwise, has all that we ask for.
#[tokio::test]
async fn a_partial_index_for_more_than_ours_in_postgres() {
    let redis = good_redis();
    let (database, settings) = bare_orders(Kind::Postgres, &redis, "bigint PRIMARY KEY", "timestamptz").await;
    database.execute("ALTER TABLE orders ALTER status TYPE varchar(20)").await;
    database.execute("CREATE INDEX other ON orders (status, expires_at) WHERE status IN ('new', 'paid')").await;
    let settings = settings.set("orders.unpaid", vec!["new", "offered"]).set("orders.closed", "closed");
    assert_eq!(Report::of(&settings, 0).await.wrong(), ["sweep index"]);
    database
        .execute(
            "CREATE INDEX open ON orders (status, expires_at) WHERE status <> 'paid' AND status <> 'closed' AND expires_at IS NOT NULL",
        )
        .await;
    Report::of(&settings, 0).await.assert("sweep index", "ok", "open");
    database
        .execute("DROP INDEX open; CREATE INDEX listed ON orders (status, expires_at) WHERE status IN ('offered', 'paid', 'new')")
        .await;
    Report::of(&settings, 0).await.assert("sweep index", "ok", "listed");
}

/// No unique index can be had on the id alone, and none is proposed.
#[tokio::test]
async fn a_table_partitioned_by_another_column() {
    let redis = good_redis();
    for (kind, by) in [
        (Kind::Postgres, "RANGE (expires_at); CREATE TABLE orders_all PARTITION OF orders DEFAULT"),
        (
            Kind::MariaDb,
            "RANGE (UNIX_TIMESTAMP(expires_at)) (PARTITION early VALUES LESS THAN (1800000000), PARTITION late VALUES LESS THAN MAXVALUE)",
        ),
    ] {
        let (database, settings) = bare_orders(kind, &redis, "bigint NOT NULL", time_type(kind)).await;
        database.execute("DROP TABLE orders").await;
        database
            .execute(&format!(
                "CREATE TABLE orders (order_no bigint NOT NULL, status integer, expires_at {}) PARTITION BY {by}",
                time_type(kind)
            ))
            .await;
        let report = Report::of(&settings, 0).await;
        assert_eq!(report.wrong(), ["sweep index", "id index"], "{kind:?}");
        database.execute(report.fix("sweep index")).await;
        database.execute(report.fix("id index")).await;
        let report = Report::of(&settings, 0).await;
        assert_eq!(report.wrong(), ["id index"], "{kind:?}");
        assert!(report.fix("id index").contains("partitioned by"), "{:#?}", report.findings);
    }
}

/// What the table beneath has is not known, and a view takes no index.
#[tokio::test]
async fn a_view() {
    let redis = good_redis();
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let (database, settings) = bare_orders(kind, &redis, "bigint PRIMARY KEY", time_type(kind)).await;
        database.execute("CREATE VIEW open_orders AS SELECT * FROM orders").await;
        let report = Report::of(&settings.set("orders.table", "open_orders"), 0).await;
        assert_eq!(report.wrong(), ["sweep index", "id index"], "{kind:?}");
        report.assert("sweep index", "warn", "orders.table is a view");
        assert!(report.fix("sweep index").contains("table beneath"), "{:#?}", report.findings);
        assert!(report.fix("sweep index").contains("status, expires_at, order_no"), "{:#?}", report.findings);
    }
}

/// An index has only the beginning of a long text; the hash that keeps it unique finds no row.
#[tokio::test]
async fn long_texts_in_mariadb() {
    let redis = good_redis();
    for text in ["text", "varchar(2000)"] {
        let (database, settings) = bare_orders(Kind::MariaDb, &redis, &format!("{text} NOT NULL"), "timestamp").await;
        database.execute(&format!("ALTER TABLE orders MODIFY status {text}, ADD UNIQUE INDEX hashed (order_no)")).await;
        let settings = settings.set("orders.unpaid", "pending").set("orders.closed", "closed");
        let report = Report::of(&settings, 0).await;
        assert_eq!(report.wrong(), ["sweep index", "id index"], "{text}");
        database.execute(report.fix("sweep index")).await;
        database.execute(report.fix("id index")).await;
        let report = Report::of(&settings, 0).await;
        assert_eq!(report.wrong(), [] as [&str; 0], "{text}");
        report.assert("id index", "ok", "order_closer_id");
    }
}

/// A replica: nothing is to be granted, and `reconcile` says the same.
#[tokio::test]
async fn a_database_that_takes_no_changes() {
    let redis = good_redis();
    let shop = Shop::open(Kind::Postgres).await;
    let name = shop.database.url.rsplit('/').next().expect("a name");
    shop.database.execute(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on")).await;
    let settings = shop.settings_with(&redis);
    let report = Report::of(&settings, 69).await;
    assert_eq!(report.wrong(), ["closing"]);
    assert!(report.fix("closing").contains("replica"), "{:#?}", report.findings);
    order_closer(&settings, &["reconcile"]).await.expect_code(69);
}

#[tokio::test]
async fn a_mapping_that_does_not_fit() {
    let redis = good_redis();
    for kind in Kind::ALL {
        let (_database, settings) = bare_orders(kind, &redis, "bigint PRIMARY KEY", time_type(kind)).await;
        let cases: [(&str, toml::Value, &[&str]); 7] = [
            ("orders.deadline.column", "expire_at".into(), &["orders.deadline.column is \"expire_at\"", "did you mean expires_at?"]),
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
        assert!(!report.mark("closing").1.contains("did you mean"), "{:#?}", report.findings);
        let report = Report::of(&settings.clone().set("orders.filter", "orders.statu = 1"), 78).await;
        report.assert("closing", "fail", "did you mean status?");
        if kind == Kind::MariaDb {
            let report = Report::of(&set("UPDATE orders FORCE INDEX (no_such_index) SET status = 5 WHERE order_no IN (:ids)"), 78).await;
            report.assert("closing", "fail", "no_such_index");
            assert!(report.fix("closing").contains("close.sql"), "{:#?}", report.findings);
        }
    }
}

#[tokio::test]
async fn policies_that_may_hide_orders() {
    let redis = good_redis();
    let shop = Shop::open(Kind::Postgres).await;
    let name = shop.database.url.rsplit('/').next().expect("a name").replace("test_", "p_")[..20].to_owned();
    shop.database
        .execute(&format!(
            "CREATE ROLE {name} LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}; ALTER TABLE orders ENABLE ROW LEVEL SECURITY"
        ))
        .await;
    let settings = shop.settings_with(&redis).set("database.url", shop.database.url.replace("postgres@", &format!("{name}@")));
    let report = Report::of(&settings, 0).await;
    assert_eq!(report.wrong(), ["row security"]);
    assert!(report.fix("row security").contains("BYPASSRLS"), "{:#?}", report.findings);
    shop.database.execute(&format!("ALTER ROLE {name} BYPASSRLS")).await;
    assert_eq!(Report::of(&settings, 0).await.wrong(), [] as [&str; 0]);
    shop.database.execute(&format!("DROP OWNED BY {name}; DROP ROLE {name}")).await;
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

/// No order would ever close, and nothing refuses anything.
#[tokio::test]
async fn a_mapping_that_finds_no_order() {
    const NAME: &str = "unpaid orders";
    let redis = good_redis();
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        shop.orders_due_in(1..=5, 600_000).await;
        shop.database.execute("UPDATE orders SET status = 1 WHERE order_no > 3").await;
        let settings = shop.settings_with(&redis);
        assert_eq!(Report::of(&settings, 0).await.wrong(), [] as [&str; 0], "{kind:?}");
        let report = Report::of(&settings.clone().set("orders.unpaid", 7), 0).await;
        report.assert(NAME, "warn", "no row matches orders.unpaid; the column holds 0 (3), 1 (2)");
        assert!(!report.findings.iter().any(|finding| finding["name"] == "sample deadline"), "none of an order that isn't unpaid");
        let report = Report::of(&settings.clone().set("orders.filter", "order_no > 3"), 0).await;
        report.assert(NAME, "warn", "orders.filter excludes all of them, 3");
        let report = Report::of(&settings.clone().set("orders.filter", "gone = 0"), 78).await;
        assert!(report.fix(report.wrong()[0]).contains("orders.filter"), "{:#?}", report.findings);
        shop.database.execute("UPDATE orders SET expires_at = NULL WHERE order_no = 2").await;
        Report::of(&settings, 0).await.assert(NAME, "warn", "1 of 3 have no deadline (expires_at is NULL)");
    }
}

#[tokio::test]
async fn a_status_that_is_spelled_otherwise() {
    let redis = good_redis();
    for kind in Kind::ALL {
        let database = Database::fresh(kind).await;
        let time = time_type(kind);
        database
            .execute(&format!(
                "CREATE TABLE orders (order_no bigint PRIMARY KEY, status varchar(20) NOT NULL, expires_at {time} NULL);
                 CREATE INDEX due ON orders (status, expires_at); INSERT INTO orders (order_no, status) VALUES (1, 'Pending'), (2, 'Pending')"
            ))
            .await;
        let settings = Settings::new()
            .set("database.url", database.url.as_str())
            .set("redis.url", redis.url())
            .set("orders.unpaid", "pending")
            .set("orders.closed", "closed");
        let report = Report::of(&settings, 0).await;
        report.assert("unpaid orders", "warn", "the column holds Pending (2)");
        assert_eq!(report.fix("unpaid orders"), "orders.unpaid = \"Pending\": text counts to the letter");
    }
}
