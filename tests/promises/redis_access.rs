//! Who may speak to Redis, and how: ACL users, TLS, sockets, passwords, databases.

use std::{fs, path::Path};

use super::{assert_on_time, by_notification_alone, listening};
use crate::support::{Daemon, Kind, Redis, Settings, Shop, mariadb::MariaDb, shop::key, wait};

/// Twenty orders close, by their notifications.
async fn assert_closes_by_notification(redis: &Redis, shop: &Shop, settings: &Settings) -> Daemon {
    let daemon = listening(&by_notification_alone(settings.clone())).await;
    shop.orders_due_in(1..=20, 2_500).await;
    shop.write_keys(redis, 0).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
    let summary = daemon.summary();
    assert_eq!((summary.count("closed"), summary.count("expired")), (20, 20), "{summary:?}");
    daemon
}

/// The user that the shipped `redis.conf` proposes.
fn documented_user() -> String {
    let file = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("redis.conf")).expect("redis.conf is shipped");
    let line = file.lines().find_map(|line| line.strip_prefix("#user order-closer "));
    line.expect("redis.conf has a line for the user").replace("change-me-1", "closing-time")
}

#[tokio::test]
async fn the_documented_acl_user_is_enough() {
    let redis = Redis::options().with_notifications().config(&format!("user order-closer {}", documented_user())).start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings().set("redis.url", redis.url_as("order-closer", "closing-time"));
    let daemon = assert_closes_by_notification(&redis, &shop, &settings).await;
    assert_eq!((daemon.logged("\"WARN\""), daemon.logged("\"ERROR\"")), (0, 0), "{:#?}", daemon.lines());
    assert_eq!(daemon.said("Redis does not show notify-keyspace-events").len(), 1, "said once: {:#?}", daemon.lines());
    let denied = redis.command(&["ACL", "LOG"]).array().iter().map(|entry| entry.array()[7].text()).collect::<Vec<_>>();
    assert!(denied.iter().all(|command| command.starts_with("config")), "nothing else was denied: {denied:?}");
}

/// With the option that redis.conf names, the daemon sets what is missing.
#[tokio::test]
async fn an_acl_user_with_config() {
    let user = format!("{} +config|get +config|set", documented_user());
    let redis = Redis::options().config(&format!("user order-closer {user}")).start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings().set("redis.url", redis.url_as("order-closer", "closing-time"));
    let daemon = assert_closes_by_notification(&redis, &shop, &settings).await;
    assert_eq!(daemon.said("set notify-keyspace-events").len(), 1, "{:#?}", daemon.lines());
    assert_eq!(redis.command(&["ACL", "LOG"]).array().len(), 0, "nothing was denied: {:?}", redis.command(&["ACL", "LOG"]));
}

#[tokio::test]
async fn an_acl_user_without_the_channel() {
    let rule = "&__keyevent@*__:expired";
    let user = documented_user().replace(rule, "&__keyevent@*");
    let redis = Redis::options().config(&format!("user order-closer {user}")).start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = Daemon::start(&shop.settings().set("redis.url", redis.url_as("order-closer", "closing-time")));
    let warning = daemon.until_logged("no keyspace notifications").await;
    assert!(warning.contains(&format!("channel to the letter: {rule}")), "the rule is named: {warning}");
    shop.orders_due_in(1..=20, 2_500).await;
    shop.write_keys(&redis, 0).await;
    shop.until_all_settled().await;
    // The right is given, and nobody has to restart anything.
    redis.command(&["ACL", "SETUSER", "order-closer", rule]);
    daemon.until_logged("listening for expired keys").await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
    assert_eq!(daemon.said("no keyspace notifications").len(), 1, "said once: {:#?}", daemon.lines());
}

#[tokio::test]
async fn by_tls_with_an_authority_of_its_own() {
    let redis = Redis::options().tls().password("closing-time").start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings().set("redis.url", redis.tls_url());
    // Without the file, nobody vouches for the certificate.
    let distrusting = Daemon::start(&settings);
    distrusting.until_logged("no keyspace notifications").await;
    distrusting.stop().await;
    let settings = settings.set("redis.ca_file", redis.ca_file().to_str().expect("a path in UTF-8"));
    assert_closes_by_notification(&redis, &shop, &settings).await;
}

/// A password may have any character, and so may a user's name as far as Redis takes it.
#[tokio::test]
async fn with_a_login_of_all_kinds_of_characters() {
    let redis = Redis::options().with_notifications().start();
    let shop = Shop::open(Kind::Sqlite).await;
    let (user, password) = ("it's\"ü", "  clos'ing \"ti\\me\\x41 @:/?#%+ü\r\nQUIT ");
    redis.command(&["ACL", "SETUSER", user, "on", &format!(">{password}"), "~*", "&*", "+@all"]);
    let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let settings = shop.settings().set("redis.url", redis.url_as(&encoded(user), &encoded(password)));
    assert_closes_by_notification(&redis, &shop, &settings).await;
}

#[tokio::test]
async fn by_a_unix_socket() {
    let redis = Redis::options().socket().start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings().set("redis.url", redis.socket_url());
    assert_closes_by_notification(&redis, &shop, &settings).await;
}

/// Neither a good password nor a wrong one ever shows in a log, whatever goes wrong.
#[tokio::test]
async fn passwords_stay_out_of_logs() {
    const SECRET: &str = "s3cr3t-w0rd";
    let mut redis = Redis::options().password(SECRET).start();
    let shop = Shop::open(Kind::Postgres).await;
    // The server trusts everybody, and so takes any password.
    let database = shop.database.url.replace("postgres@", &format!("postgres:{SECRET}@"));
    assert!(database.contains(SECRET));
    let settings = shop.settings_with(&redis).set("database.url", database).set("log.level", "debug");
    let wrong = Daemon::start(&settings.clone().set("redis.url", redis.url().replace(SECRET, &format!("wrong-{SECRET}"))));
    let warning = wrong.until_logged("no keyspace notifications").await;
    assert!(warning.contains("WRONGPASS"), "{warning}");
    wrong.stop().await;
    let daemon = listening(&settings).await;
    shop.orders_due_in(1..=20, 2_500).await;
    shop.write_keys(&redis, 0).await;
    redis.restart_empty();
    daemon.until_logged("no keyspace notifications").await;
    shop.until_all_settled().await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
    let elsewhere = format!("mysql://nobody:{SECRET}@127.0.0.1:{}/shop", MariaDb::shared().port());
    let refused = Daemon::start(&settings.set("database.url", elsewhere));
    let warning = refused.until_logged("waiting for the database").await;
    assert!(warning.contains("denied"), "{warning}");
    refused.stop().await;
    for line in wrong.lines().iter().chain(&daemon.lines()).chain(&refused.lines()) {
        assert!(!line.contains(SECRET), "{line}");
    }
}

/// Keys in database 3, heard by a daemon whose own is 0, or not.
#[tokio::test]
async fn foreign_databases_are_heard_or_not() {
    for (listen, hears) in [("all", true), ("own", false)] {
        let redis = Redis::start();
        let shop = Shop::open(Kind::Postgres).await;
        let settings = by_notification_alone(shop.settings_with(&redis).set("redis.listen", listen));
        let daemon = listening(&settings).await;
        shop.orders_due_in(1..=20, 500).await;
        wait::until("due", async || shop.overdue().await == 20).await;
        let write = |database: &str, number: i64, millis: &str| {
            let (key, database) = (key(number), database.as_bytes());
            let replies = redis.pipeline(&[
                vec![b"SELECT", database],
                vec![b"SET", key.as_bytes(), b"1", b"PX", millis.as_bytes()],
                vec![b"SELECT", b"0"],
            ]);
            assert_eq!(replies.expect("Redis answers").len(), 3);
        };
        (1..=10).for_each(|number| write("3", number, "50"));
        (11..=20).for_each(|number| write("0", number, "500"));
        wait::until("the orders of database 0 are closed", async || shop.closed().await >= if hears { 20 } else { 10 }).await;
        daemon.stop().await;
        let foreign: Vec<i64> = if hears { Vec::new() } else { (1..=10).collect() };
        shop.assert_outcome_except(&foreign).await;
        let expired: u64 = if hears { 20 } else { 10 };
        assert_eq!((daemon.summary().count("expired"), daemon.summary().count("heard")), (expired, expired), "listen = {listen}");
    }
}
