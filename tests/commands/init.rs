//! `order-closer init`: what it finds, what it asks, what it writes; and that the daemon closes the right orders by it.

mod conversation;
mod shops;

use std::os::unix::fs::PermissionsExt;

use super::{SECRET, assert_no_secret, reconcile::on_every_database};
use crate::support::{Daemon, Database, Kind, OneShot, Redis, Settings, daemon::Finished, wait};

const DATABASE: &str = "ORDER_CLOSER_DATABASE__URL";
const REDIS: &str = "ORDER_CLOSER_REDIS__URL";

/// `init` for this database, told where the servers are by the variables of the daemon.
fn init(database: &Database, redis: &Redis, arguments: &[&str]) -> OneShot {
    OneShot::new(&[&["init"], arguments].concat()).env(DATABASE, &database.url).env(REDIS, &redis.url())
}

/// What it has written.
fn written(command: &OneShot) -> String {
    std::fs::read_to_string(command.config_file()).expect("the configuration was written")
}

/// Fails if it has refused for another reason than this, or has written anything.
async fn refuses(command: &OneShot, parts: &[&str]) {
    let said = command.run().await.expect_code(64).stderr;
    assert!(parts.iter().all(|part| said.contains(part)), "{parts:?}: {said}");
    let left: Vec<_> = std::fs::read_dir(command.folder()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The names that `check` finds anything wrong with.
fn faults(finished: &Finished) -> Vec<&str> {
    finished.stdout.lines().filter_map(|line| line.strip_prefix("✗ ")?.split("  ").next()).collect()
}

/// A table as a framework of that language makes it, with orders 1 to 4: due, to come, paid, and marked as deleted where it has such a mark.
struct Framework {
    schema: &'static str,
    orders: &'static str,
    flags: &'static [&'static str],
    lines: &'static [&'static str],
    closed: &'static str,
}

/// What a Spring service with MyBatis-Plus has: numbers whose meaning is in a Chinese comment.
const SPRING: Framework = Framework {
    schema: "CREATE TABLE user (id bigint PRIMARY KEY, status tinyint, create_time datetime);
             CREATE TABLE t_order_item (id bigint PRIMARY KEY, order_id bigint, status int, create_time datetime);
             CREATE TABLE t_order (id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY, order_sn varchar(64) NOT NULL UNIQUE,
               status tinyint NOT NULL DEFAULT 0 COMMENT '订单状态：0->待付款；1->待发货；4->已关闭', create_time datetime NOT NULL COMMENT '提交时间',
               is_deleted tinyint(1) NOT NULL DEFAULT 0) COMMENT '订单表'",
    orders: "INSERT INTO t_order (id, order_sn, status, create_time, is_deleted) VALUES (1, 'a', 0, NOW() - INTERVAL 31 MINUTE, 0),
             (2, 'b', 0, NOW() - INTERVAL 5 MINUTE, 0), (3, 'c', 1, NOW() - INTERVAL 50 MINUTE, 0), (4, 'd', 0, NOW() - INTERVAL 50 MINUTE, 1)",
    flags: &["--unpaid", "0", "--closed", "4", "--plus", "30m"],
    lines: &[
        "table = \"t_order\"",
        "id = \"id\"",
        "unpaid = [0]",
        "closed = 4",
        "deadline = { column = \"create_time\", plus = \"30m\" }",
        "filter = \"is_deleted = 0\"",
        "# seen or allowed: 0 待付款, 1 待发货, 4 已关闭",
    ],
    closed: "SELECT COUNT(*) FROM t_order WHERE status = 4 AND id = 1",
};

/// What Prisma makes: an enumeration, names in camel case that need quotes, a moment.
const PRISMA: Framework = Framework {
    schema: r#"CREATE TYPE "OrderStatus" AS ENUM ('PENDING', 'PAID', 'CANCELLED');
               CREATE TABLE "OrderItem" (id text PRIMARY KEY, "orderId" text, status text, "createdAt" timestamptz);
               CREATE TABLE "Order" (id uuid PRIMARY KEY, status "OrderStatus" NOT NULL DEFAULT 'PENDING',
                 "createdAt" timestamptz NOT NULL DEFAULT now(), "expiresAt" timestamptz NOT NULL, "deletedAt" timestamptz)"#,
    orders: r#"INSERT INTO "Order" (id, status, "expiresAt") VALUES ('00000000-0000-0000-0000-000000000001', 'PENDING', now() - interval '1 minute'),
               ('00000000-0000-0000-0000-000000000002', 'PENDING', now() + interval '1 hour'),
               ('00000000-0000-0000-0000-000000000003', 'PAID', now() - interval '1 hour')"#,
    flags: &["--unpaid", "PENDING", "--closed", "CANCELLED"],
    lines: &[
        "table = \"Order\"",
        "id = \"id\"",
        "unpaid = [\"PENDING\"]",
        "closed = \"CANCELLED\"",
        "deadline = { column = \"expiresAt\" }",
    ],
    closed: r#"SELECT count(*) FROM "Order" WHERE status = 'CANCELLED' AND id = '00000000-0000-0000-0000-000000000001'"#,
};

/// A column of numbers that count milliseconds.
const MILLISECONDS: Framework = Framework {
    schema: "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL, expiresAt INTEGER NOT NULL)",
    orders: "INSERT INTO orders VALUES (1, 'unpaid', unixepoch() * 1000 - 60000), (2, 'unpaid', unixepoch() * 1000 + 3600000),
             (3, 'paid', unixepoch() * 1000 - 60000)",
    flags: &["--unpaid", "unpaid", "--closed", "expired"],
    lines: &["status = \"state\"", "deadline = { column = \"expiresAt\", unit = \"ms\" }", "closed = \"expired\""],
    closed: "SELECT count(*) FROM orders WHERE state = 'expired' AND id = 1",
};

on_every_database! {
    a_table_of_ones_own => a_table_of_ones_own_in_postgres, a_table_of_ones_own_in_mariadb, a_table_of_ones_own_in_sqlite;
}

async fn a_table_of_ones_own(kind: Kind) {
    let Framework { schema, orders, flags, lines, closed } = match kind {
        Kind::Postgres => PRISMA,
        Kind::MariaDb => SPRING,
        Kind::Sqlite => MILLISECONDS,
    };
    let database = Database::fresh(kind).await;
    let redis = Redis::options().with_notifications().config("appendonly yes").start();
    database.execute(schema).await;
    database.execute(orders).await;
    let command = init(&database, &redis, flags);
    let said = command.run().await.expect_code(0);
    assert_eq!(faults(&said), [] as [&str; 0], "{}", said.stdout);
    assert!(said.stdout.contains("CREATE INDEX"), "{}", said.stdout);
    assert_eq!(said.stdout.contains("GRANT SELECT, UPDATE ON "), kind != Kind::Sqlite, "{}", said.stdout);
    assert_eq!(said.stdout.matches("  Order ").count(), 3, "three samples: {}", said.stdout);
    let text = written(&command);
    for line in lines {
        assert!(text.contains(line), "{line}\n{text}");
    }
    // The statement that it prints makes the index that it misses.
    let create = said.stdout.lines().find(|line| line.starts_with("CREATE INDEX")).expect("a statement");
    database.execute(&create.replace("CONCURRENTLY ", "")).await;
    let checked = command.arguments(&["--config", "order-closer.toml", "check", "--no-rehearsal"]).run().await.expect_code(0);
    assert!(checked.stdout.contains("✓ sweep index"), "{}", checked.stdout);

    let daemon = Daemon::start(&Settings::new().add(&text).set("database.url", database.url.as_str()).set("redis.url", redis.url()));
    wait::until_eq(closed, 1, async || database.number(closed).await).await;
    daemon.stop().await;
    let all = closed.split(" AND id").next().unwrap();
    assert_eq!(database.number(all).await, 1, "no other order was closed");
}

#[tokio::test]
async fn what_is_missing_is_named_with_what_it_could_be() {
    let (database, redis) = (Database::fresh(Kind::MariaDb).await, Redis::start());
    database.execute(SPRING.schema).await;
    database.execute(SPRING.orders).await;
    refuses(&init(&database, &redis, &[]), &["--unpaid is missing", "\n  --unpaid 0  待付款 (3 orders)\n"]).await;
    refuses(&init(&database, &redis, &["--unpaid", "0"]), &["--closed is missing", "it could be\n  --closed 4  已关闭\n"]).await;
    refuses(&init(&database, &redis, &["--unpaid", "0", "--closed", "4"]), &["--plus is missing", "--plus 30m"]).await;
    refuses(&init(&database, &redis, &["--unpaid", "0,4", "--closed", "4"]), &["--closed 4 is one of the unpaid statuses"]).await;
    refuses(&init(&database, &redis, &["--unpaid", "new", "--closed", "4"]), &["--unpaid \"new\"", "whole numbers"]).await;
    refuses(&init(&database, &redis, &["--table", "t_ordr"]), &["--table t_ordr", "did you mean t_order?"]).await;
    refuses(&init(&database, &redis, &["--status", "staus"]), &["--status staus", "did you mean status?"]).await;
    refuses(&init(&database, &redis, &["--shop", "mall"]), &["--shop mall: this database lacks tables"]).await;
    refuses(&init(&database, &redis, &["--shop", "mal"]), &["--shop mal: there is no example of that name; did you mean mall?"]).await;
    refuses(&OneShot::new(&["init"]), &["--database-url is missing", "--database-url postgres://"]).await;
    // Two tables that may be meant, and none.
    database.execute("CREATE TABLE shop_order (id int PRIMARY KEY, state int, created_at datetime)").await;
    refuses(&init(&database, &redis, &[]), &["--table is missing", "\n  --table shop_order", "\n  --table t_order"]).await;
    let other = Database::fresh(Kind::MariaDb).await;
    other.execute("CREATE TABLE page (id int PRIMARY KEY, title text)").await;
    refuses(&init(&other, &redis, &[]), &["--table is missing", "--table page"]).await;
    refuses(&init(&Database::fresh(Kind::Postgres).await, &redis, &[]), &["no table that this user may see"]).await;
}

/// Of an empty table its type tells which statuses there are.
#[tokio::test]
async fn an_empty_table_is_described_by_its_type() {
    let (database, redis) = (Database::fresh(Kind::Postgres).await, Redis::start());
    database.execute(PRISMA.schema).await;
    refuses(&init(&database, &redis, &[]), &["--unpaid is missing", "it could be\n  --unpaid PENDING\n"]).await;
    refuses(&init(&database, &redis, &["--unpaid", "PENDNG"]), &["did you mean PENDING?"]).await;
    let said = init(&database, &redis, PRISMA.flags).run().await.expect_code(0);
    assert!(said.stdout.contains("There is no order yet"), "{}", said.stdout);
}

/// As shops have them whose statuses are the ids of states: shown as HEX() does, and taken so.
#[tokio::test]
async fn statuses_of_bytes_are_hex() {
    const OPEN: &str = "0x0190d1c2aa00700080000000000000ab";
    const CANCELLED: &str = "0x0190d1c2aa00700080000000000000cd";
    let (database, redis) = (Database::fresh(Kind::MariaDb).await, Redis::start());
    database
        .execute(&format!(
            "CREATE TABLE orders (id binary(16) PRIMARY KEY, state_id binary(16) NOT NULL, expires_at datetime(3) NOT NULL);
             INSERT INTO orders VALUES (UNHEX('0190d1c2bb0070008000000000000001'), {OPEN}, UTC_TIMESTAMP(3) - INTERVAL 1 MINUTE),
               (UNHEX('0190d1c2bb0070008000000000000002'), {OPEN}, UTC_TIMESTAMP(3) + INTERVAL 1 HOUR),
               (UNHEX('0190d1c2bb0070008000000000000003'), {CANCELLED}, UTC_TIMESTAMP(3) - INTERVAL 1 HOUR)"
        ))
        .await;
    redis.command(&["SET", "order_0190d1c2-bb00-7000-8000-000000000002", "", "EX", "3600"]);
    refuses(&init(&database, &redis, &[]), &["--unpaid is missing", &format!("--unpaid {OPEN}  (2 orders)")]).await;
    let words = "--unpaid \"open\": the column state_id is binary(16), and its statuses are written 0x and 32 hex digits";
    refuses(&init(&database, &redis, &["--unpaid", "open"]), &[words]).await;
    refuses(&init(&database, &redis, &["--unpaid", "0x01"]), &["32 hex digits"]).await;
    let command = init(&database, &redis, &["--unpaid", OPEN, "--closed", &CANCELLED.to_uppercase()]);
    let said = command.run().await.expect_code(0);
    assert_eq!(said.stdout.matches("  Order 0190d1c2-bb00-7000-8000-").count(), 3, "three samples: {}", said.stdout);
    let text = written(&command);
    for line in ["id = \"id\"", &format!("unpaid = [\"{OPEN}\"]"), &format!("closed = \"{CANCELLED}\"")] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    command.arguments(&["--config", "order-closer.toml", "reconcile"]).run().await.expect_code(0);
    let cancelled = format!("SELECT COUNT(*) FROM orders WHERE state_id = {CANCELLED}");
    assert_eq!(database.number(&cancelled).await, 2, "the overdue one is closed, and no other");
}

/// A configuration has no way to write it.
#[tokio::test]
async fn a_name_with_a_quote_is_refused() {
    let (database, redis) = (Database::fresh(Kind::Sqlite).await, Redis::start());
    database.execute("CREATE TABLE \"the 'orders'\" (id INTEGER PRIMARY KEY, status INTEGER, \"due;at\" INTEGER)").await;
    refuses(&init(&database, &redis, &["--table", "the 'orders'"]), &["--table the 'orders': a name with a quote", "rename it"]).await;
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, status INTEGER, \"due;at\" INTEGER)").await;
    let flags = ["--table", "orders", "--unpaid", "0", "--closed", "4", "--deadline", "due;at"];
    refuses(&init(&database, &redis, &flags), &["--deadline due;at: a name with a quote, a semicolon"]).await;
}

/// Rows eight hours ahead of the server's clock, and keys with a prefix and a time limit of their own.
#[tokio::test]
async fn zone_prefix_and_time_limit_are_learned_from_rows_and_keys() {
    let database = Database::fresh(Kind::MariaDb).await;
    let redis = Redis::options().with_notifications().start();
    database.execute("CREATE TABLE orders (id bigint PRIMARY KEY, order_no varchar(20) NOT NULL UNIQUE, status int NOT NULL, create_time datetime NOT NULL)").await;
    for number in 1..=20 {
        let order =
            format!("INSERT INTO orders VALUES ({number}, 'N{number}', 0, UTC_TIMESTAMP() + INTERVAL 8 HOUR - INTERVAL {number} MINUTE)");
        database.execute(&order).await;
        redis.command(&["SET", &format!("shop:unpaid:N{number}"), "", "EX", &((45 - number) * 60).to_string()]);
    }
    let flags = ["--unpaid", "0", "--closed", "4"];
    refuses(&init(&database, &redis, &flags), &["--plus is missing", "--plus 45m  as the orders' keys have it"]).await;
    let command = init(&database, &redis, &[&flags[..], &["--plus", "45m"]].concat());
    let said = command.run().await.expect_code(0);
    let text = written(&command);
    for line in ["id = \"order_no\"", "key_prefix = \"shop:unpaid:\"", "time_zone = \"+08:00\"", "plus = \"45m\""] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(said.stdout.contains("20 pending orders have keys that expire at their rows' deadlines"), "{}", said.stdout);
}

/// Half a million rows and no index: a few of the newest are counted, and what would take long is left out.
#[tokio::test]
async fn a_large_table_is_read_in_part() {
    let (database, redis) = (Database::fresh(Kind::Postgres).await, Redis::start());
    database
        .execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, status int NOT NULL, created_at timestamptz NOT NULL);
             INSERT INTO orders SELECT n, CASE WHEN n % 3 = 0 THEN 4 ELSE 1 END, now() - n * interval '1 second' FROM generate_series(1, 500000) n;
             ANALYZE orders",
        )
        .await;
    let said = init(&database, &redis, &["--unpaid", "0", "--closed", "4", "--plus", "1h"]).run().await.expect_code(0);
    assert!(said.stdout.contains("about 500000 rows") && said.stdout.contains("of the newest 10000 orders"), "{}", said.stdout);
}

/// A user who may only read gets its file, and is told what to grant; nothing in the database has changed.
#[tokio::test]
async fn a_user_who_only_reads_is_enough() {
    let (database, redis) = (Database::fresh(Kind::Postgres).await, Redis::start());
    database.execute(PRISMA.schema).await;
    database.execute(PRISMA.orders).await;
    let name = database.url.rsplit('/').next().unwrap();
    let user = format!("reader_{name}");
    database
        .execute(&format!(
            r#"CREATE ROLE {user} LOGIN; GRANT SELECT ON "Order" TO {user}; ALTER ROLE {user} SET default_transaction_read_only = on"#
        ))
        .await;
    let mut url = url::Url::parse(&database.url).unwrap();
    url.set_username(&user).unwrap();
    url.set_password(Some(SECRET)).unwrap();
    let rows = r#"SELECT xmin::text || status FROM "Order" ORDER BY id"#;
    let before = database.column(rows).await;
    let command = OneShot::new(&[&["init", "--database-url", url.as_str(), "--redis-url", &redis.url()], PRISMA.flags].concat());
    let said = command.run().await;
    // `check`, at the end, finds that this user can't close.
    assert_eq!(said.code, Some(69), "{said:#?}");
    assert!(said.stdout.contains(r#"GRANT SELECT, UPDATE ON "Order" TO order_closer;"#), "{}", said.stdout);
    assert_eq!(database.column(rows).await, before);
    // The password is in a file of its own, which its owner alone reads, and nowhere else.
    assert_no_secret(&said);
    assert!(!written(&command).contains(SECRET));
    let secrets = command.folder().join("secrets.env");
    assert_eq!(secrets.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&secrets).unwrap(), format!("{DATABASE}='{url}'\n"));
    assert!(written(&command).contains("# the password: in the variable ORDER_CLOSER_DATABASE__URL"));
    database.execute(&format!("DROP OWNED BY {user}; DROP ROLE {user}")).await;
}

#[tokio::test]
async fn a_file_is_replaced_only_if_that_is_said() {
    let (database, redis) = (Database::fresh(Kind::Sqlite).await, Redis::start());
    database.execute(MILLISECONDS.schema).await;
    database.execute(MILLISECONDS.orders).await;
    let command = init(&database, &redis, MILLISECONDS.flags);
    std::fs::write(command.config_file(), "# mine").unwrap();
    let said = command.run().await.expect_code(64).stderr;
    assert!(said.contains("order-closer.toml is there already; --force replaces it"), "{said}");
    assert_eq!(written(&command), "# mine");
    let command = command.arguments(&[&["init", "--force"], MILLISECONDS.flags].concat());
    command.run().await.expect_code(0);
    assert!(written(&command).contains("expiresAt"));
    // A link stays one, and what is no file is left alone.
    let real = command.folder().join("real.toml");
    std::fs::rename(command.config_file(), &real).unwrap();
    std::os::unix::fs::symlink(&real, command.config_file()).unwrap();
    std::fs::write(&real, "# old").unwrap();
    command.run().await.expect_code(0);
    assert!(command.config_file().is_symlink() && std::fs::read_to_string(&real).unwrap().contains("expiresAt"));
    std::fs::remove_file(command.config_file()).unwrap();
    std::os::unix::fs::symlink("/dev/null", command.config_file()).unwrap();
    let refused = command.run().await.expect_code(78).stderr;
    assert!(refused.contains("it is not a file"), "{refused}");
    std::fs::remove_file(command.config_file()).unwrap();
    // Whoever leaves out --config afterwards is told of the file.
    std::fs::rename(&real, command.config_file()).unwrap();
    let forgotten = command.arguments(&["check"]);
    let said = forgotten.run().await.expect_code(78).stderr;
    assert!(said.contains("order-closer.toml of this folder is read with --config order-closer.toml"), "{said}");
    std::fs::remove_file(forgotten.config_file()).unwrap();
    let command = forgotten;
    // A word that no row has is taken, and said to be new.
    let typo = command.arguments(&["init", "--force", "--unpaid", "unpaid", "--closed", "piad"]).run().await.expect_code(0);
    assert!(typo.stdout.contains("No order has the status piad yet; did you mean paid?"), "{}", typo.stdout);
}

/// The file with the passwords may have others' variables, as /etc/order-closer/secrets.env has.
#[tokio::test]
async fn variables_beside_the_password_stay() {
    let (database, redis) = (Database::fresh(Kind::Postgres).await, Redis::start());
    database.execute(PRISMA.schema).await;
    let mut url = url::Url::parse(&database.url).unwrap();
    url.set_password(Some(SECRET)).unwrap();
    let flags = ["init", "--database-url", url.as_str(), "--redis-url", &redis.url()];
    let mut command = OneShot::new(&[&flags, PRISMA.flags].concat());
    let (secrets, token) = (command.folder().join("secrets.env"), "# of the daemon\nORDER_CLOSER_HTTP__TOKEN=abc\n");
    std::fs::write(&secrets, format!("{token}{DATABASE}=postgres://elsewhere/shop\n")).unwrap();
    let refused = command.run().await.expect_code(64);
    assert!(refused.stderr.contains("secrets.env has another ORDER_CLOSER_DATABASE__URL already"), "{}", refused.stderr);
    assert!(!command.config_file().exists());
    for (before, force) in [(token.to_owned(), None), (format!("{token} export {DATABASE}=other\n"), Some("--force"))] {
        std::fs::write(&secrets, before).unwrap();
        command = command.arguments(&[&flags[..], PRISMA.flags, force.as_slice()].concat());
        command.run().await.expect_code(0);
        assert_eq!(std::fs::read_to_string(&secrets).unwrap(), format!("{token}{DATABASE}='{url}'\n"));
    }
}
