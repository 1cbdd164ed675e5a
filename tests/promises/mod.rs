//! The promises (never early, never a paid order, once, nothing lost, on time, a bad order harms itself
//! only), each kept by the real daemon while something around it goes wrong.
//!
//! Every test ends by balancing the shop's whole account: each order's status, the stock, the closures.

/// Somebody is asked before an order closes.
mod ask;
/// A database's clock that jumps.
mod clock_jumps;
/// Keys that expire earlier or later than their rows, postponed deadlines, orders opened again.
mod clocks;
/// A Redis Cluster whose nodes come, go, and hand over their slots.
mod cluster;
/// The database away, killed in the middle of a batch, frozen.
mod databases;
/// What was given up, and what becomes of it.
mod dead_letters;
/// Hints from streams and sorted sets, which must not get lost.
mod doors;
/// The daemon killed, stopped, stopped twice.
mod ends;
/// Notifications that get lost, come twice, or are forged.
mod events;
/// Another host of the database takes over, while orders fall due.
mod failover;
/// Whose fault a failure is: the order's, or the database's.
mod faults;
/// Thousands of notifications a second that name no order of ours.
mod flood;
/// Rows that another transaction holds, and the orders that need none of them.
mod held;
/// Many instances that come and go.
mod instances;
/// Events that no receiver takes, and all the others.
mod isolated;
/// Rows that a payment in progress has locked.
mod locks;
/// A database far away, or out of reach while connections stay open.
mod network;
/// No Redis at all.
mod no_redis;
/// What has been overdue for years.
mod old_orders;
/// Nothing closes for a while, because somebody has said so.
mod pauses;
/// Several instances that share the work.
mod peers;
/// Orders that their database refuses to close.
mod poison;
/// At their deadlines, and not some seconds later.
mod punctual;
/// Hints from a queue of a real broker.
#[cfg(feature = "amqp")]
mod queues;
/// Payments that race the deadline.
mod races;
/// Redis away, killed, frozen, emptied, restarted without its setting.
mod redis;
/// Who may speak to Redis, and how: ACL, TLS, sockets, passwords, databases.
mod redis_access;
/// A Redis that is another than it was: demoted, with a new certificate, without a right, out of memory.
mod redis_changes;
/// A Redis that is there and does not serve: busy, paused, full, shut to us, out of reach, emptied, slow.
mod redis_trouble;
/// Every order refused for a while, and closures that are undone.
mod refused;
/// A daemon that reads its configuration anew.
mod reload;
/// Several rules in one daemon.
mod rules;
/// The primary that sentinels name.
mod sentinels;
/// What systemd is told, and the units that it is given.
mod service;
/// A daemon that closes nothing, and says what it would have closed.
mod shadow;
/// Orders in several tables of several databases.
mod shards;
/// A database that is slow for a while, or for good.
mod slow_database;
/// Redis slow, or swallowing all that it is sent.
mod slow_redis;
/// A proxy before two databases.
mod splitters;
/// Started before its database, table, rights or login are there.
mod starts;
/// The Redis Stream of events.
mod streams;
/// Tables without an index, and deadlines in local time.
mod tables;
/// Timers that are registered, moved and cancelled over HTTP while they fire.
mod timer_races;
/// Targets of timers that hang, fail, are gone, or are not there yet.
mod timer_targets;
/// Timers: registered by whoever inserts a row, and told to one target when they are due.
mod timers;
/// Several daemons and reconciles at once.
mod together;
/// From the first edition to this one and back, with both programs.
mod upgrades;
/// Daemons of other versions beside this one.
mod versions;
/// Receivers of events that fail in every way.
mod webhooks;
/// Rows and keys that contradict each other.
mod witnesses;

use crate::support::{Daemon, Settings, Shop, shop::Outcome};

/// A user of a shop's database in PostgreSQL who may do all with its tables.
struct Role {
    name: String,
    url: String,
}

impl Role {
    /// The names of a shop's roles begin differently.
    async fn of(shop: &Shop, prefix: &str) -> Self {
        let name = shop.database.url.rsplit('/').next().unwrap().replace("test", prefix);
        shop.database.execute(&format!("CREATE ROLE {name} LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}")).await;
        let url = shop.database.url.replace("postgres@", &format!("{name}@"));
        Self { name, url }
    }

    async fn drop_from(&self, shop: &Shop) {
        shop.database.execute(&format!("DROP OWNED BY {0}; DROP ROLE {0}", self.name)).await;
    }
}

/// What every order that is closed on time is closed within, however busy the machine is.
const ON_TIME_MILLIS: i64 = 5_000;

/// Makes one test of a case for each kind of database.
macro_rules! on_each_database {
    ($($case:ident)+) => {$(
        mod $case {
            use crate::support::Kind;

            #[tokio::test]
            async fn in_postgres() {
                super::$case(Kind::Postgres).await;
            }

            #[tokio::test]
            async fn in_mariadb() {
                super::$case(Kind::MariaDb).await;
            }

            #[tokio::test]
            async fn in_sqlite() {
                super::$case(Kind::Sqlite).await;
            }
        }
    )+};
}
use on_each_database;

/// Starts a daemon, and waits until it listens.
pub async fn listening(settings: &Settings) -> Daemon {
    let daemon = Daemon::start(settings);
    daemon.until_logged("listening for expired keys").await;
    daemon
}

/// Without a look ahead, and with a sweep that never comes, only notifications close orders.
fn by_notification_alone(settings: Settings) -> Settings {
    settings.set("sweep.ahead", "0s").set("sweep.every", "1h")
}

/// Fails unless every closed order was closed on time.
fn assert_on_time(outcome: &Outcome) {
    let late: Vec<_> = outcome.closed.iter().filter(|(_, millis)| **millis > ON_TIME_MILLIS).collect();
    assert!(late.is_empty(), "closed late, order and milliseconds: {late:?}");
}
