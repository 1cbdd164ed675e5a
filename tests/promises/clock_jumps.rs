//! The database's clock jumps ahead, by a failover to a host whose clock is wrong, or a step of NTP: what is due only by that
//! waits, and what is due anyway closes.

use super::listening;
use crate::support::{Kind, Redis, Settings, Shop, order_closer, wait};

const HOUR: i64 = 3_600_000;

/// A shop whose database shows to others what time it is, by its own clock and this many seconds.
async fn shop() -> Shop {
    let shop = Shop::open(Kind::Postgres).await;
    shop.database
        .execute(
            "CREATE SCHEMA hands;
             CREATE TABLE hands.shift (seconds integer NOT NULL);
             INSERT INTO hands.shift VALUES (0);
             CREATE FUNCTION hands.statement_timestamp() RETURNS timestamptz STABLE LANGUAGE sql
                 AS 'SELECT pg_catalog.statement_timestamp() + seconds * interval ''1 second'' FROM hands.shift';
             DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = hands, pg_catalog, public', current_database()); END $$",
        )
        .await;
    shop
}

async fn shift(shop: &Shop, seconds: i64) {
    shop.database.execute(&format!("UPDATE hands.shift SET seconds = {seconds}")).await;
}

/// Twenty orders with an hour to pay and twenty with a few seconds; the clock jumps in between.
async fn jumped(shop: &Shop, settings: &Settings) -> crate::support::Daemon {
    let daemon = listening(settings).await;
    shop.orders_due_in(1..=20, HOUR / 2).await;
    shop.orders_due_in(21..=40, 4_000).await;
    shift(shop, 3_600).await;
    daemon.until_logged("the database's clock has jumped ahead").await;
    wait::until_eq("the number of closed orders", 20, async || shop.closed().await).await;
    daemon
}

async fn assert_they_wait(shop: &Shop) {
    let statuses = shop.statuses().await;
    assert!((1..=20).all(|number| statuses[&number] == 0), "due only by the jump: {statuses:?}");
    assert!((21..=40).all(|number| statuses[&number] == 4), "due anyway: {statuses:?}");
}

#[tokio::test]
async fn a_clock_that_jumps_and_comes_back() {
    let (redis, shop) = (Redis::start(), shop().await);
    let daemon = jumped(&shop, &shop.settings_with(&redis)).await;
    for number in 1..=20 {
        redis.publish_expired(0, crate::support::shop::key(number).as_bytes());
    }
    // One pass, and a command that remembers no clock.
    let finished = order_closer(&shop.settings_with(&redis), &["reconcile"]).await.expect_code(75);
    assert!(finished.stderr.contains("--accept-clock"), "{finished:?}");
    assert_they_wait(&shop).await;
    let said = order_closer(&shop.settings_with(&redis), &["explain", "1", "--json"]).await.expect_code(0).json();
    assert_eq!((said["state"].as_str(), said["verdict"].as_str()), (Some("clock_ahead"), Some("not_due")), "{said:#}");
    assert!(said["sentence"].as_str().is_some_and(|sentence| sentence.contains("only by the database's clock")), "{said:#}");
    shift(&shop, 0).await;
    daemon.until_logged("the database's clock is back").await;
    shop.orders_due_in(41..=50, -1_000).await;
    wait::until_eq("the number of closed orders", 30, async || shop.closed().await).await;
    daemon.stop().await;
    assert_eq!(shop.assert_outcome().await.closed.len(), 30);
}

#[tokio::test]
async fn a_jump_that_is_accepted_by_hand() {
    let (redis, shop) = (Redis::start(), shop().await);
    let settings = shop.settings_with(&redis);
    let daemon = jumped(&shop, &settings).await;
    assert_they_wait(&shop).await;
    order_closer(&settings, &["reconcile", "--accept-clock", "--dry-run"]).await.expect_code(0);
    daemon.until_logged("the database's clock is taken as it is").await;
    wait::until_eq("the number of closed orders", 40, async || shop.closed().await).await;
    daemon.stop().await;
}

/// Started while the clock is wrong, with nothing to remember: this host and Redis say so.
#[tokio::test]
async fn a_clock_that_is_wrong_from_the_start() {
    let (redis, shop) = (Redis::start(), shop().await);
    let settings = shop.settings_with(&redis);
    shop.orders_due_in(1..=20, HOUR / 2).await;
    shop.orders_due_in(21..=40, -1_000).await;
    shift(&shop, 3_600).await;
    let daemon = listening(&settings).await;
    daemon.until_logged("the database's clock has jumped ahead").await;
    wait::until_eq("the number of closed orders", 20, async || shop.closed().await).await;
    let finished = order_closer(&settings, &["close", "1"]).await.expect_code(0);
    assert!(finished.stdout.contains("not due for another") && finished.stderr.contains("--accept-clock"), "{finished:?}");
    assert_they_wait(&shop).await;
    daemon.stop().await;
}

/// It was an hour slow, and is set right under the daemon: what is due only by that step waits until another clock agrees.
async fn set_right(shop: &Shop, settings: &Settings) -> crate::support::Daemon {
    shift(shop, -3_600).await;
    let daemon = listening(settings).await;
    shop.orders_due_in(1..=20, -1_000).await;
    daemon
}

async fn assert_closed_by(daemon: &crate::support::Daemon, shop: &Shop, reason: &str) {
    let said = daemon.until_logged("the database's clock is taken as it is").await;
    assert!(said.contains(reason), "{said}");
    wait::until_eq("the number of closed orders", 20, async || shop.closed().await).await;
    daemon.stop().await;
    shop.assert_outcome().await;
}

#[tokio::test]
async fn a_step_with_which_redis_agrees() {
    let (redis, shop) = (Redis::start(), shop().await);
    let daemon = set_right(&shop, &shop.settings_with(&redis)).await;
    shift(&shop, 0).await;
    assert_closed_by(&daemon, &shop, "Redis' clock agrees with it").await;
    assert_eq!(daemon.logged("has jumped ahead"), 0, "no hand is needed");
}

#[tokio::test]
async fn a_step_of_which_redis_does_not_tell() {
    let (redis, shop) = (Redis::start(), shop().await);
    let daemon = set_right(&shop, &shop.settings_with(&redis)).await;
    redis.command(&["ACL", "SETUSER", "default", "-time"]);
    shift(&shop, 0).await;
    let said = daemon.until_logged("the database's clock has jumped ahead").await;
    assert!(said.contains("\"ERROR\"") && said.contains("order-closer reconcile --accept-clock"), "{said}");
    assert_eq!((shop.closed().await, daemon.logged("is taken as it is")), (0, 0));
    redis.command(&["ACL", "SETUSER", "default", "+time"]);
    assert_closed_by(&daemon, &shop, "Redis' clock agrees with it").await;
}

/// Where there is no Redis this host's clock is the other one.
#[tokio::test]
async fn a_step_with_which_this_host_agrees() {
    let shop = shop().await;
    shift(&shop, -3_600).await;
    let daemon = crate::support::Daemon::start(&shop.settings().set("redis.url", "none"));
    shop.orders_due_in(21..=21, -2 * HOUR).await;
    shop.until_status(21, 4).await;
    shop.orders_due_in(1..=19, -1_000).await;
    shift(&shop, 0).await;
    assert_closed_by(&daemon, &shop, "this host's clock agrees with it").await;
}

#[tokio::test]
async fn a_jump_with_which_this_host_does_not_agree() {
    let shop = shop().await;
    let daemon = crate::support::Daemon::start(&shop.settings().set("redis.url", "none"));
    shop.orders_due_in(21..=21, -1_000).await;
    shop.until_status(21, 4).await;
    shop.orders_due_in(1..=20, HOUR / 2).await;
    shift(&shop, 3_600).await;
    let said = daemon.until_logged("the database's clock has jumped ahead").await;
    assert!(said.contains("start order-closer anew") && !said.contains("--accept-clock"), "{said}");
    shift(&shop, 0).await;
    daemon.until_logged("the database's clock is back").await;
    daemon.stop().await;
    assert_eq!(shop.closed().await, 1);
}
