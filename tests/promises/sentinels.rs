//! Sentinels that name the primary: whatever becomes of it, orders close on time, and notifications are back soon.

use std::time::{Duration, Instant, SystemTime};

use super::{
    assert_on_time,
    cluster::{KEYS, ignored},
    listening,
    webhooks::until_delivered,
};
use crate::support::{
    Daemon, Kind, Redis, Settings, Shop, order_closer,
    redis::{Keep, Safety, Trio, unix_millis},
    wait,
};

/// Within which a daemon hears the new primary, on a machine that is busy with other tests. The promise is 3 s.
const FOLLOWED: Duration = Duration::from_secs(10);

async fn shop_and_settings(trio: &Trio) -> (Shop, Settings) {
    let shop = Shop::open(Kind::Sqlite).await;
    let events =
        "[events]\nenabled = true\nretry = { attempts = 500, initial = '50ms', max = '100ms' }\n[events.stream]\nkey = 'orders:closed'";
    let settings = shop.settings().set("redis.url", trio.url()).set("log.summary", "200ms").add(events);
    let settings = trio.ca_file().map_or(settings.clone(), |file| settings.set("redis.ca_file", file.to_str().expect("UTF-8")));
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    (shop, settings)
}

/// Waits until the daemon hears this server, whose turn it has just become, and each key once; says how long that took.
async fn until_heard(daemon: &Daemon, server: &Redis, how: &str) {
    let began = Instant::now();
    wait::within(FOLLOWED, "the new primary has a subscriber", async || server.subscriptions() > 0).await;
    eprintln!("subscribed {:.1} s after {how}", began.elapsed().as_secs_f64());
    assert_heard(daemon, server, how).await;
}

async fn assert_heard(daemon: &Daemon, server: &Redis, how: &str) {
    let before = ignored(daemon);
    let soon = unix_millis(SystemTime::now()) + 2_000;
    let keys: Vec<(String, i64)> = (0..KEYS).map(|number| (format!("other_{}_{number}", how.replace(' ', "_")), soon)).collect();
    server.set_all_until(&keys);
    wait::until("each of them is heard", async || ignored(daemon) >= before + KEYS).await;
    assert_eq!(ignored(daemon), before + KEYS, "none twice");
}

/// By hand, by death, and by silence, one after the other; orders fall due all the time.
#[tokio::test]
async fn a_primary_that_is_followed() {
    let mut trio = Trio::start(Safety::Open).await;
    let (shop, settings) = shop_and_settings(&trio).await;
    let daemon = listening(&settings).await;
    shop.orders(&(1..=1_500).map(|number| (number, 1_000 + number * 15)).collect::<Vec<_>>()).await;
    shop.write_keys(&trio.servers[0], 0).await;
    wait::until("some are closed", async || shop.closed().await >= 50).await;

    trio.fail_over().await;
    trio.until_led_by(1).await;
    until_heard(&daemon, &trio.servers[1], "a failover by hand").await;
    trio.servers[0].until_replicated().await;

    trio.servers[1].kill();
    trio.until_led_by(0).await;
    until_heard(&daemon, &trio.servers[0], "the death of the primary").await;
    // It comes back as what it was, until the sentinels tell it otherwise; nobody takes it for the primary.
    trio.servers[1].start_again(Keep::Nothing);
    trio.servers[1].until_replicated().await;

    trio.servers[0].freeze();
    trio.until_led_by(1).await;
    until_heard(&daemon, &trio.servers[1], "the silence of the primary").await;
    trio.servers[0].thaw();
    trio.servers[0].until_replicated().await;

    shop.until_all_settled().await;
    until_delivered(&shop).await;
    daemon.stop().await;
    let outcome = shop.assert_outcome().await;
    assert_on_time(&outcome);
    assert_eq!(trio.servers[0].subscriptions(), 0, "nobody stays with a replica");
    let told = trio.servers[1].command(&["XLEN", "orders:closed"]).integer();
    eprintln!("{} closed; {told} events at the last primary", outcome.closed.len());
    assert_eq!(daemon.said("listening for expired keys").len(), 4, "{:#?}", daemon.lines());
}

/// Without any sentinel the primary is heard as before; and they are needed only to find another.
#[tokio::test]
async fn sentinels_that_are_away() {
    let trio = Trio::start(Safety::Closed).await;
    let (shop, settings) = shop_and_settings(&trio).await;
    trio.sentinels[0].kill();
    let daemon = listening(&settings).await;
    trio.sentinels.iter().skip(1).for_each(Redis::freeze);
    shop.orders_due_in(1..=20, 2_000).await;
    shop.write_keys(&trio.servers[0], 0).await;
    shop.until_all_settled().await;
    assert_heard(&daemon, &trio.servers[0], "without sentinels").await;
    let other = Daemon::start(&settings);
    let warning = other.until_logged("no keyspace notifications").await;
    assert!(warning.contains("no sentinel says where the primary is"), "{warning}");
    trio.sentinels.iter().skip(1).for_each(Redis::thaw);
    other.until_logged("listening for expired keys").await;
    other.stop().await;
    daemon.stop().await;
    assert_eq!(daemon.said("listening for expired keys").len(), 1, "{:#?}", daemon.lines());
    let mistaken = Daemon::start(&settings.set("redis.url", trio.url().replace("=shop", "=shops")));
    let error = mistaken.until_logged("knows no service").await;
    assert!(error.contains("\"ERROR\"") && error.contains("SENTINEL MASTERS"), "{error}");
    mistaken.stop().await;
    for said in [&daemon, &other, &mistaken].map(|daemon| daemon.lines().join("\n")) {
        assert!(!said.contains(Trio::PASSWORD) && !said.contains(Trio::SENTINELS_PASSWORD), "{said}");
    }
    assert_on_time(&shop.assert_outcome().await);
}
