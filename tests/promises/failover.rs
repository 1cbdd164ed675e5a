//! Another host of the database takes over, while orders fall due: nothing closes twice, nothing is lost, and closing goes on
//! as soon as the new primary takes writes.

use crate::support::{
    Daemon, Database, Redis, Settings, Shop, mariadb::MariaDb, order_closer, pgbouncer::PgBouncer, postgres::Postgres, wait,
};

/// How many orders fall due in a second, and for how many seconds.
const RATE: i64 = 500;
const SECONDS: i64 = 6;

/// What becomes of the primary.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It stays up, as a standby.
    Demoted,
    Killed,
    /// Its connections stay open, and nothing answers.
    Frozen,
}

fn place(url: &str) -> &str {
    url.split_once('@').expect("a login").1.split('/').next().expect("a host")
}

/// Both hosts in one URL, the login being this one.
fn both(login: &str, urls: [&str; 2]) -> String {
    let (scheme, _) = urls[0].split_once("://").expect("a scheme");
    let name = urls[0].rsplit('/').next().expect("a name");
    format!("{scheme}://{login}@{},{}/{name}", place(urls[0]), place(urls[1]))
}

async fn migrated(settings: &Settings) {
    order_closer(settings, &["migrate"]).await.expect_code(0);
}

/// Orders that fall due one after the other, from in two seconds on.
async fn orders(shop: &Shop) -> i64 {
    let count = RATE * SECONDS;
    shop.orders(&(1..=count).map(|number| (number, 2_000 + number * 1_000 / RATE)).collect::<Vec<_>>()).await;
    count
}

/// The new primary takes writes since `since`, by its own clock in milliseconds: everything is closed there, once; prints and
/// returns how long after that the last order was closed that was late.
async fn recovered(shop: &Shop, daemon: &Daemon, since: i64, count: i64) {
    const LATE_MILLIS: i64 = 250;
    shop.until_all_settled().await;
    let took = shop.last_late_closure(LATE_MILLIS).await.map_or(0, |last| last - since);
    eprintln!("the last late order was closed {took} ms after the new primary took writes");
    daemon.stop().await;
    assert_eq!(shop.assert_outcome().await.closed.len(), usize::try_from(count).expect("some"));
    let events = shop.database.number("SELECT count(*) FROM order_closer_events").await;
    assert_eq!(events, count, "one event for each closure");
    assert_eq!(shop.database.number("SELECT count(DISTINCT order_id) FROM order_closer_events").await, count);
    assert_eq!(shop.database.number("SELECT count(*) FROM order_closer_dead_letters").await, 0);
    // Two seconds, and what fell due meanwhile; the machine may be busy.
    assert!(took < 15_000, "{took} ms");
}

async fn postgres(fate: Fate) {
    let redis = Redis::start();
    let mut primary = Postgres::options().start();
    let mut shop = Shop::in_database(Database::on_postgres(&primary).await).await;
    let standby = primary.standby();
    let name = shop.database.url.rsplit('/').next().expect("a name").to_owned();
    let url = both("postgres", [&shop.database.url, &standby.url(&name)]);
    let settings = shop.settings_with(&redis).set("database.url", url).set("events.enabled", true);
    migrated(&settings).await;
    let count = orders(&shop).await;
    let daemon = super::listening(&settings).await;
    let promoted = Database::existing(&standby.url(&name));
    wait::until("some are closed, and the standby has them", async || {
        promoted.try_rows("SELECT 1 FROM orders WHERE status = 4").await.is_ok_and(|rows| rows.len() > 300)
    })
    .await;
    match fate {
        Fate::Demoted => {
            primary.end();
            primary.start_as_standby();
        }
        Fate::Killed => primary.kill(),
        Fate::Frozen => primary.freeze(),
    }
    promoted.execute("SELECT pg_promote(true)").await;
    shop.database = promoted;
    let since = shop.clock().await;
    recovered(&shop, &daemon, since, count).await;
    assert_eq!(daemon.logged("failed over"), 1);
}

#[tokio::test]
async fn postgres_promoted_while_the_old_primary_is_a_standby() {
    postgres(Fate::Demoted).await;
}

#[tokio::test]
async fn postgres_promoted_after_the_primary_was_killed() {
    postgres(Fate::Killed).await;
}

#[tokio::test]
async fn postgres_promoted_while_the_old_primary_is_a_black_hole() {
    postgres(Fate::Frozen).await;
}

async fn mariadb(fate: Fate) {
    let redis = Redis::start();
    let server = |id: u8| MariaDb::options().argument("--log-bin=binlog").argument(&format!("--server-id={id}"));
    let primary = server(1).start();
    let replica = server(2).argument("--read-only=1").start();
    let mut shop = Shop::in_database(Database::on_mariadb(&primary).await).await;
    let name = shop.database.url.rsplit('/').next().expect("a name").to_owned();
    shop.database.execute("CREATE USER shop; GRANT ALL ON *.* TO shop; REVOKE SUPER, READ ONLY ADMIN ON *.* FROM shop").await;
    let url = both("shop", [&shop.database.url, &replica.url(&name)]);
    let settings = shop.settings_with(&redis).set("database.url", url).set("events.enabled", true);
    migrated(&settings).await;
    let admin = Database::existing(&replica.url("mysql"));
    admin
        .execute(&format!(
            "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={}, MASTER_USER='root', MASTER_USE_GTID=slave_pos; START SLAVE",
            primary.port()
        ))
        .await;
    let count = orders(&shop).await;
    let daemon = super::listening(&settings).await;
    let promoted = Database::existing(&replica.url(&name));
    wait::until("some are closed, and the replica has them", async || {
        promoted.try_rows("SELECT 1 FROM orders WHERE status = 4").await.is_ok_and(|rows| rows.len() > 300)
    })
    .await;
    match fate {
        Fate::Demoted => {
            shop.database.execute("SET GLOBAL read_only = 1").await;
            let position = shop.database.text("SELECT @@gtid_binlog_pos").await.expect("there is one");
            assert_eq!(admin.number(&format!("SELECT MASTER_GTID_WAIT('{position}', 20)")).await, 0, "the replica has it all");
        }
        Fate::Killed => primary.kill(),
        Fate::Frozen => primary.freeze(),
    }
    admin.execute("STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0").await;
    shop.database = promoted;
    let since = shop.clock().await;
    recovered(&shop, &daemon, since, count).await;
    assert_eq!(daemon.logged("failed over"), 1);
}

#[tokio::test]
async fn mariadb_promoted_while_the_old_primary_is_read_only() {
    mariadb(Fate::Demoted).await;
}

#[tokio::test]
async fn mariadb_promoted_after_the_primary_was_killed() {
    mariadb(Fate::Killed).await;
}

#[tokio::test]
async fn mariadb_promoted_while_the_old_primary_is_a_black_hole() {
    mariadb(Fate::Frozen).await;
}

/// What was committed and never reached the standby is done again there: nobody has undone it.
#[tokio::test]
async fn closures_that_the_standby_lacks() {
    const COUNT: i64 = 200;
    let redis = Redis::start();
    let primary = Postgres::options().start();
    let mut shop = Shop::in_database(Database::on_postgres(&primary).await).await;
    let standby = primary.standby();
    let name = shop.database.url.rsplit('/').next().expect("a name").to_owned();
    let url = both("postgres", [&shop.database.url, &standby.url(&name)]);
    let settings = shop.settings_with(&redis).set("database.url", url).set("events.enabled", true);
    migrated(&settings).await;
    let daemon = super::listening(&settings).await;
    shop.orders_due_in(1..=COUNT, 3_000).await;
    let behind = Database::existing(&standby.url(&name));
    wait::until("the standby has the orders", async || {
        behind.try_rows("SELECT 1 FROM orders WHERE status = 0").await.is_ok_and(|rows| rows.len() == 200)
    })
    .await;
    behind.execute("ALTER SYSTEM SET primary_conninfo = ''").await;
    behind.execute("SELECT pg_reload_conf()").await;
    wait::until("nothing more is sent", async || shop.database.number("SELECT count(*) FROM pg_stat_replication").await == 0).await;
    wait::until("all are closed", async || shop.closed().await == COUNT).await;
    primary.kill();
    assert_eq!(behind.number("SELECT count(*) FROM orders WHERE status = 4").await, 0, "the standby knows nothing of it");
    behind.execute("SELECT pg_promote(true)").await;
    shop.database = behind;
    let since = shop.clock().await;
    recovered(&shop, &daemon, since, COUNT).await;
    assert_eq!(daemon.logged("undone"), 0);
}

/// The primary of before comes back, and the one that was promoted is gone: what was paid meanwhile the first does not know. It is
/// not used, and the log says why.
#[tokio::test]
async fn a_primary_that_was_left_behind() {
    let redis = Redis::start();
    let mut primary = Postgres::options().start();
    let mut shop = Shop::in_database(Database::on_postgres(&primary).await).await;
    let mut standby = primary.standby();
    let name = shop.database.url.rsplit('/').next().expect("a name").to_owned();
    let url = both("postgres", [&shop.database.url, &standby.url(&name)]);
    let settings = shop.settings_with(&redis).set("database.url", url);
    let daemon = super::listening(&settings).await;
    primary.kill();
    daemon.until_logged("no host of the database can be used").await;
    Database::existing(&standby.url(&name)).execute("SELECT pg_promote(true)").await;
    daemon.until_logged("failed over").await;
    standby.kill();
    primary.start_again();
    shop.order(1, -1_000).await;
    let said = daemon.until_logged("left behind by a failover").await;
    assert!(said.contains("no host of the database can be used") && said.contains(place(&shop.database.url)), "{said}");
    standby.start_again();
    let left_behind = std::mem::replace(&mut shop.database, Database::existing(&standby.url(&name)));
    shop.order(2, -1_000).await;
    shop.until_status(2, 4).await;
    assert_eq!(left_behind.number("SELECT count(*) FROM orders WHERE status <> 0").await, 0, "nothing was closed there");
    daemon.stop().await;
}

/// One name, and what stands behind it leads elsewhere: the old primary is a standby, to which sessions were open.
#[tokio::test]
async fn a_pooler_that_is_led_to_the_new_primary() {
    let redis = Redis::start();
    let mut primary = Postgres::options().start();
    let mut shop = Shop::in_database(Database::on_postgres(&primary).await).await;
    let standby = primary.standby();
    let pooler = PgBouncer::start(
        primary.port(),
        &["pool_mode = session", "ignore_startup_parameters = extra_float_digits", "default_pool_size = 60", "server_login_retry = 1"],
    );
    let name = shop.database.url.rsplit('/').next().expect("a name").to_owned();
    let settings = shop.settings_with(&redis).set("database.url", pooler.url(&name)).set("events.enabled", true);
    migrated(&settings).await;
    let count = orders(&shop).await;
    let daemon = super::listening(&settings).await;
    let promoted = Database::existing(&standby.url(&name));
    wait::until("some are closed, and the standby has them", async || {
        promoted.try_rows("SELECT 1 FROM orders WHERE status = 4").await.is_ok_and(|rows| rows.len() > 300)
    })
    .await;
    primary.end();
    primary.start_as_standby();
    promoted.execute("SELECT pg_promote(true)").await;
    pooler.lead_to(primary.port(), standby.port());
    shop.database = promoted;
    let since = shop.clock().await;
    recovered(&shop, &daemon, since, count).await;
}

/// Commands find the host that takes writes, and `check` names all of them.
#[tokio::test]
async fn check_names_the_hosts() {
    let redis = Redis::start();
    let primary = Postgres::options().start();
    let shop = Shop::in_database(Database::on_postgres(&primary).await).await;
    let standby = primary.standby();
    let name = shop.database.url.rsplit('/').next().expect("a name").to_owned();
    let places = format!("127.0.0.1:1,{},{}", standby.port(), primary.port()).replace(",", ",127.0.0.1:");
    let url = format!("postgres://postgres:s3cret@{places}/{name}?target_session_attrs=read-write&connect_timeout=2");
    let settings = shop.settings_with(&redis).set("database.url", url);
    let checked = order_closer(&settings, &["check"]).await;
    let lines: Vec<&str> = checked.stdout.lines().filter(|line| line.contains("host")).collect();
    for part in [
        "127.0.0.1:1: ".to_owned(),
        format!("127.0.0.1:{}: takes no writes", standby.port()),
        format!("127.0.0.1:{}: takes writes (timeline 1); in use", primary.port()),
    ] {
        assert!(lines.iter().any(|line| line.contains(&part)), "{part} is missing:\n{}", checked.stdout);
    }
    assert!(!checked.stdout.contains("s3cret") && !checked.stderr.contains("s3cret"));
    shop.orders_due_in(1..=3, -1_000).await;
    order_closer(&settings, &["reconcile"]).await.expect_code(0);
    assert_eq!(shop.closed().await, 3);
    primary.kill();
    let failed = order_closer(&settings, &["reconcile"]).await.expect_code(69);
    for port in [1, standby.port(), primary.port()] {
        assert!(failed.stderr.contains(&format!("127.0.0.1:{port}: ")), "{}", failed.stderr);
    }
    assert!(!failed.stderr.contains("s3cret"), "{}", failed.stderr);
}

/// Whoever only wants to know asks a standby, too; nothing closes there, and whoever tries is told so.
#[tokio::test]
async fn a_standby_can_be_read() {
    let redis = Redis::start();
    let primary = Postgres::options().start();
    let mut shop = Shop::in_database(Database::on_postgres(&primary).await).await;
    let settings = shop.settings_with(&redis).set("events.enabled", true);
    migrated(&settings).await;
    shop.order(1, -1_000).await;
    order_closer(&settings, &["reconcile"]).await.expect_code(0);
    shop.order(2, -1_000).await;
    shop.order(3, 3_600_000).await;
    let sentence = async |settings: &Settings| order_closer(settings, &["explain", "2"]).await.expect_code(0).stdout;
    assert!(sentence(&settings).await.contains("the next sweep of a daemon closes it"));
    let standby = primary.standby();
    let name = shop.database.url.rsplit('/').next().expect("a name").to_owned();
    shop.database = Database::existing(&standby.url(&name));
    wait::until("the standby has all orders", async || {
        shop.database.try_rows("SELECT 1 FROM orders").await.is_ok_and(|rows| rows.len() == 3)
    })
    .await;
    let settings = settings.set("database.url", standby.url(&name));
    assert!(!sentence(&settings).await.contains("sweep"));
    for (command, expected) in [
        (vec!["events"], "1"),
        (vec!["explain", "1"], "was closed"),
        (vec!["explain", "2"], "this server takes no writes (a standby, or made read-only), so nothing closes it here"),
        (vec!["explain", "3"], "orders close at the one that does"),
        (vec!["dead-letters", "list"], ""),
        (vec!["targets"], ""),
        (vec!["reconcile", "--dry-run", "--verbose"], "1"),
    ] {
        let read = order_closer(&settings, &command).await.expect_code(0);
        assert!(read.stdout.contains(expected), "{command:?}: {}", read.stdout);
    }
    for command in [vec!["reconcile"], vec!["close", "2"]] {
        let refused = order_closer(&settings, &command).await;
        assert!(refused.code != Some(0) && refused.stderr.contains("takes no writes"), "{command:?}: {refused:?}");
    }
    assert_eq!(shop.status(2).await, 0);
}
