//! Databases that answer and can't be used: a wrong password, no such database, a file that is none.

use super::{Report, good_redis};
use crate::{
    commands::SECRET,
    support::{Database, Kind, Redis, Settings, Shop, mariadb::MariaDb, order_closer, postgres::Postgres},
};

/// Nothing is unavailable: `check`, `reconcile` and `close` say what the database says, and what mends it.
async fn assert_refused(redis: &Redis, url: &str, name: &str, reason: &str, cure: &str) -> Report {
    let settings = Settings::new().set("database.url", url).set("redis.url", redis.url());
    let report = Report::of(&settings, 78).await;
    assert_eq!(report.wrong(), [name], "{url}: {:#?}", report.findings);
    report.assert(name, "fail", reason);
    assert!(format!("{} {}", report.mark(name).1, report.fix(name)).contains(cure), "{cure:?} is missing: {:#?}", report.finding(name));
    for command in [&["reconcile"] as &[&str], &["close", "1"]] {
        let finished = order_closer(&settings, command).await.expect_code(78);
        assert!(finished.stderr.contains(reason) && finished.stderr.contains(cure), "{cure:?}: {finished:#?}");
        assert!(!finished.stderr.contains(SECRET), "{finished:#?}");
    }
    report
}

#[tokio::test]
async fn logins_that_postgres_refuses() {
    let redis = good_redis();
    let server = Postgres::options().logins("host all closer,idle 127.0.0.1/32 scram-sha-256\nhost all nobody 127.0.0.1/32 trust").start();
    let database = Database::on_postgres(&server).await;
    let name = database.url.rsplit('/').next().expect("a name");
    database.execute("CREATE ROLE closer LOGIN PASSWORD 'right'; CREATE ROLE idle PASSWORD 'right'; CREATE ROLE nobody LOGIN").await;
    let url = |login: &str, name: &str| server.url(name).replace("postgres@", &format!("{login}@"));
    let wrong = url(&format!("closer:{SECRET}"), name);
    assert_refused(&redis, &wrong, "database", "password authentication failed", "ALTER ROLE \"closer\" LOGIN PASSWORD").await;
    assert_refused(&redis, &url("idle:right", name), "database", "is not permitted to log in", "ALTER ROLE \"idle\" LOGIN").await;
    let line = format!("`host {name} stranger 127.0.0.1/32 scram-sha-256`");
    assert_refused(&redis, &url("stranger", name), "database", "pg_hba.conf", &line).await;
    assert_refused(&redis, &url("closer:right", "gone"), "database", "does not exist", "CREATE DATABASE \"gone\";").await;
    database.execute(&format!("REVOKE CONNECT ON DATABASE {name} FROM PUBLIC")).await;
    let grant = format!("GRANT CONNECT ON DATABASE \"{name}\" TO");
    assert_refused(&redis, &url("closer:right", name), "database", "permission denied", &grant).await;
}

#[tokio::test]
async fn logins_that_mariadb_refuses() {
    let redis = good_redis();
    let server = MariaDb::options().start();
    let database = Database::on_mariadb(&server).await;
    let name = database.url.rsplit('/').next().expect("a name");
    database
        .execute("CREATE USER closer@'127.0.0.1' IDENTIFIED BY 'right'; CREATE USER locked@'%' IDENTIFIED BY 'right' ACCOUNT LOCK")
        .await;
    let url = |login: &str, name: &str| server.url(name).replace("root@", &format!("{login}@"));
    let account = "ALTER USER 'closer'@'127.0.0.1' IDENTIFIED BY";
    assert_refused(&redis, &url(&format!("closer:{SECRET}"), name), "database", "Access denied", account).await;
    assert_refused(&redis, &url("locked:right", name), "database", "locked", "ACCOUNT UNLOCK").await;
    let grant = format!("GRANT SELECT, UPDATE ON `{name}`.* TO 'closer'@'127.0.0.1';");
    assert_refused(&redis, &url("closer:right", name), "database", "Access denied", &grant).await;
    assert_refused(&redis, &url("root", "gone"), "database", "Unknown database", "CREATE DATABASE `gone`;").await;
}

#[tokio::test]
async fn files_that_are_no_database() {
    let redis = good_redis();
    let shop = Shop::open(Kind::Sqlite).await;
    shop.order(1, -1_000).await;
    let folder = tempfile::tempdir().expect("a folder");
    let url = |path: &std::path::Path| format!("sqlite://{}", path.display());
    assert_refused(&redis, &url(&folder.path().join("gone.db")), "mapping", "there is no file", "relative path").await;
    assert_refused(&redis, &url(folder.path()), "mapping", "is a directory", "name the file in it").await;
    let text = folder.path().join("orders.csv");
    std::fs::write(&text, "order_no,status,expires_at\n".repeat(1_000)).expect("it can be written");
    assert_refused(&redis, &url(&text), "database", "not a database", "correct database.url").await;
    assert_refused(&redis, &format!("{}?mode=ro", shop.database.url), "closing", "readonly database", "mode=ro").await;
    assert_eq!(shop.status(1).await, 0);
}

/// The database is up, and waiting does not help: what has to change is how this user logs in.
#[tokio::test]
async fn a_login_that_the_driver_lacks() {
    let redis = good_redis();
    let server = MariaDb::options().argument("--plugin-load-add=auth_ed25519;auth_pam").start();
    let database = Database::on_mariadb(&server).await;
    for (user, plugin, login) in [
        ("edward", "ed25519", format!("VIA ed25519 USING PASSWORD('{SECRET}')")),
        ("pamela", "pam", "VIA pam".into()),
        ("uni", "unix_socket", "VIA unix_socket".into()),
    ] {
        database.execute(&format!("CREATE USER {user}@'%' IDENTIFIED {login}")).await;
        let url = database.url.replace("root@", &format!("{user}:{SECRET}@"));
        let settings = Settings::new().set("database.url", url).set("redis.url", redis.url());
        let report = Report::of(&settings, 78).await;
        assert_eq!(report.wrong(), ["mapping"], "{plugin}: {:#?}", report.findings);
        for text in [plugin, "mysql_native_password", "caching_sha2_password", "sha256_password"] {
            report.assert("mapping", "fail", text);
        }
        order_closer(&settings, &["run"]).await.expect_code(78);
    }
}
