//! Users of MariaDB who log in by something else than a password that the driver knows how to prove.

use super::{Report, good_redis};
use crate::{
    commands::SECRET,
    support::{Database, Settings, mariadb::MariaDb, order_closer},
};

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
