//! `order-closer migrate --print-sql`: what the owner runs in the daemon's place.

use std::{path::Path, process::Command};

use super::{SECRET, reconcile::on_every_database};
use crate::support::{Kind, Settings, Shop, order_closer, ports, process};

on_every_database! {
    what_is_printed_does_what_migrate_does =>
        what_is_printed_does_what_migrate_does_in_postgres,
        what_is_printed_does_what_migrate_does_in_mariadb,
        what_is_printed_does_what_migrate_does_in_sqlite;
}

async fn what_is_printed_does_what_migrate_does(kind: Kind) {
    let migrated = shop(kind).await;
    order_closer(&settings(&migrated), &["migrate"]).await.expect_code(0);
    let expected = tables(&migrated).await;
    assert!(expected.len() > 12, "{expected:#?}");

    // A user who may create nothing asks, and the owner runs it.
    let shop = shop(kind).await;
    let closer = closer(&shop).await;
    let printed = order_closer(&closer, &["migrate", "--print-sql"]).await.expect_code(0);
    assert_eq!(tables(&shop).await, [] as [&str; 0], "printing changes nothing");
    assert!(printed.stderr.is_empty(), "{printed:#?}");
    assert!(!printed.stdout.contains(SECRET), "{printed:#?}");
    if kind != Kind::Sqlite {
        let refused = order_closer(&closer, &["migrate"]).await.expect_code(78);
        assert!(refused.stderr.contains("order-closer migrate --print-sql"), "{refused:#?}");
        // Those without which orders close all the same, too.
        for table in ["order_closer_members", "order_closer_timers"] {
            let grants = |line: &str| line.trim_start().starts_with("GRANT ") && line.contains(table);
            assert!(printed.stdout.lines().any(grants), "no GRANT on {table}: {printed:#?}");
        }
    }
    run(&shop, &printed.stdout).expect("the owner may do it");
    assert_eq!(tables(&shop).await, expected);
    let nothing_left = order_closer(&closer, &["migrate"]).await.expect_code(0);
    assert!(nothing_left.stdout.contains("up to date"), "{nothing_left:#?}");
    shop.order(1, -60_000).await;
    order_closer(&closer, &["reconcile"]).await.expect_code(0);
    let listed = order_closer(&closer, &["events", "--json"]).await.expect_code(0);
    assert_eq!(listed.stdout.lines().count(), 1, "{listed:#?}");
    // What was for tables of another version is refused.
    run(&shop, &printed.stdout).expect_err("it has been run");
    assert_eq!(tables(&shop).await, expected);
    shop.assert_outcome().await;
}

on_every_database! {
    older_tables_get_what_they_lack =>
        older_tables_get_what_they_lack_in_postgres,
        older_tables_get_what_they_lack_in_mariadb,
        older_tables_get_what_they_lack_in_sqlite;
}

async fn older_tables_get_what_they_lack(kind: Kind) {
    let migrated = shop(kind).await;
    order_closer(&settings(&migrated), &["migrate"]).await.expect_code(0);
    let shop = shop(kind).await;
    let print = async || order_closer(&settings(&shop), &["migrate", "--print-sql"]).await.expect_code(0).stdout;
    let whole = print().await;
    // All up to the note of version 1, and the end.
    let note = whole.lines().position(|line| line.contains("VALUES (1, ")).expect("version 1 is noted");
    let last = whole.lines().last().expect("an end");
    let version_1: String = whole.lines().take(note + 1).chain([last]).map(|line| format!("{line}\n")).collect();
    run(&shop, &version_1).expect("the owner may do it");
    let rest = print().await;
    assert!(rest.contains("from version 1 to 8"), "{rest}");
    run(&shop, &rest).expect("the owner may do it");
    assert_eq!(tables(&shop).await, tables(&migrated).await);
}

async fn shop(kind: Kind) -> Shop {
    Shop::open(kind).await
}

fn settings(shop: &Shop) -> Settings {
    shop.settings().set("redis.url", format!("redis://127.0.0.1:{}", ports::free())).set("events.enabled", true)
}

/// The settings of a user who may work with the shop's tables, and create none.
async fn closer(shop: &Shop) -> Settings {
    let settings = settings(shop);
    let database = shop.database.url.rsplit('/').next().expect("a name");
    let name = database.replace("test_", "c_").chars().take(20).collect::<String>();
    let (create, to, owner) = match shop.database.kind {
        Kind::Sqlite => return settings,
        Kind::Postgres => {
            (format!("CREATE ROLE {name} LOGIN PASSWORD '{SECRET}'; REVOKE CREATE ON SCHEMA public FROM PUBLIC"), name.clone(), "postgres@")
        }
        Kind::MariaDb => (format!("CREATE USER {name}@'%' IDENTIFIED BY '{SECRET}'"), format!("{name}@'%'"), "root@"),
    };
    shop.database.execute(&create).await;
    for table in ["orders", "inventory", "order_items", "closures"] {
        shop.database.execute(&format!("GRANT SELECT, INSERT, UPDATE ON {table} TO {to}")).await;
    }
    settings.set("database.url", shop.database.url.replace(owner, &format!("{name}:{SECRET}@")))
}

/// Columns, defaults and indexes of our own tables, and the versions that are noted.
async fn tables(shop: &Shop) -> Vec<String> {
    let queries: &[&str] = match shop.database.kind {
        Kind::Postgres => &[
            "SELECT concat_ws('|', table_name, column_name, data_type, is_nullable, column_default) FROM information_schema.columns
             WHERE table_schema = 'public' AND table_name LIKE 'order\\_closer\\_%' ORDER BY 1",
            "SELECT indexdef FROM pg_indexes WHERE tablename LIKE 'order\\_closer\\_%' ORDER BY 1",
        ],
        Kind::MariaDb => &[
            "SELECT CONCAT_WS('|', table_name, column_name, column_type, collation_name, is_nullable, column_default)
             FROM information_schema.columns
             WHERE table_schema = DATABASE() AND table_name LIKE 'order\\_closer\\_%' ORDER BY 1",
            "SELECT CONCAT_WS('|', table_name, index_name, seq_in_index, column_name, non_unique) FROM information_schema.statistics
             WHERE table_schema = DATABASE() AND table_name LIKE 'order\\_closer\\_%' ORDER BY 1",
        ],
        Kind::Sqlite => &["SELECT name || '|' || sql FROM sqlite_schema WHERE name LIKE 'order~_closer~_%' ESCAPE '~' ORDER BY 1"],
    };
    let mut found = Vec::new();
    for query in queries {
        found.extend(shop.database.column(query).await.into_iter().flatten());
    }
    if !found.is_empty() {
        let versions = shop.database.column("SELECT CAST(version AS char(9)) FROM order_closer_migrations ORDER BY version").await;
        found.extend(versions.into_iter().flatten().map(|version| format!("version {}", version.trim())));
    }
    found
}

/// Runs a script as the owner by the database's own client, as the documentation says it.
fn run(shop: &Shop, sql: &str) -> Result<(), String> {
    let folder = process::folder();
    let script = folder.path().join("migrate.sql");
    std::fs::write(&script, sql).expect("a file can be written");
    let mut command = client(shop, &script);
    let output = command.output().expect("the client can be started");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn client(shop: &Shop, script: &Path) -> Command {
    let url = &shop.database.url;
    let input = std::fs::File::open(script).expect("the script can be read");
    let (mut command, input) = match shop.database.kind {
        Kind::Postgres => {
            let mut psql = Command::new(process::find_program(&["psql"]));
            psql.args(["-v", "ON_ERROR_STOP=1", "-f"]).arg(script).arg(url);
            (psql, None)
        }
        Kind::MariaDb => {
            let mut mariadb = Command::new(process::find_program(&["mariadb", "mysql"]));
            let (server, database) = url.rsplit_once('/').expect("a database");
            let port = server.rsplit_once(':').expect("a port").1;
            mariadb.args(["--protocol=tcp", "--host=127.0.0.1", "--user=root", "--port", port, database]);
            (mariadb, Some(input))
        }
        Kind::Sqlite => {
            let mut sqlite = Command::new(process::find_program(&["sqlite3"]));
            sqlite.arg(url.trim_start_matches("sqlite://"));
            (sqlite, Some(input))
        }
    };
    if let Some(input) = input {
        command.stdin(input);
    }
    command
}
