//! A shop with its daemon, in which something goes wrong while orders fall due.

use std::{ops::Range, time::Duration};

use super::{super::steady::ARTICLES, Cause, beside::Beside};
use crate::{
    lateness,
    lateness::{Due, Lateness},
    options::Base,
    orders,
    orders::{Millis, Orders},
    progress::Progress,
    servers,
    servers::Server,
    shop::{CLOSED, Shop},
    stage,
    support::{Daemon, Kind, Redis, database::Transaction},
};

/// The numbers of the orders that are in trouble, and of those that are in the table besides.
pub(super) const HELD: i64 = 1_000_000;
const REJECTED: Range<i64> = 2_000_000..2_010_000;
const OLD: Range<i64> = 3_000_000..3_100_000;
const FEW_PENDING: Range<i64> = 4_000_000..4_000_020;
const PENDING: Range<i64> = 5_000_000..5_200_000;

/// The article that another transaction holds, and those of orders from before.
pub(super) const HELD_ARTICLE: i64 = 100_000;
const REJECTED_ARTICLES: Range<i64> = 200_000..210_000;
const OLD_ARTICLES: Range<i64> = 300_000..310_000;

/// So many orders at least: of fewer, a p99 would be the maximum.
const ORDERS: Millis = 200;

/// How long the orders are in the table before the first falls due, at least: the daemon looks two seconds ahead.
pub(super) const READY: Millis = 2_200;
pub(super) const LEAD: Millis = 3_500;

/// How long everything is refused, or the database away.
const TROUBLE: Millis = 10_000;

/// How long the database may take to accept connections again.
const RETURN: Millis = 5_000;

/// How long others are waited for that need nothing of what is broken, and those that do, after the end of the trouble.
const PATIENCE: Duration = Duration::from_secs(5);
const PATIENCE_AFTERWARDS: Duration = Duration::from_secs(30);

const HOUR: Millis = 3_600_000;

/// The shop.
#[derive(Debug)]
pub(super) struct Scene {
    server: Server,
    pub(super) redis: Redis,
    pub(super) shop: Shop,
    window: Millis,
}

/// What is about to happen.
struct Set {
    daemon: Daemon,
    /// They need nothing of what is broken, save while all of them do.
    orders: Orders,
    /// They do, all due with the first of those.
    held: Option<(Orders, Transaction)>,
    beside: Option<Beside>,
}

impl Scene {
    /// A shop on a server of its own; what counts lasts as long as the window, at a slow rate longer.
    pub(super) async fn open(database: Base, window: Millis) -> Self {
        let server = Server::start(database);
        let shop = server.shop(None).await;
        Self { server, redis: servers::redis(), shop, window }
    }

    /// Lateness of the orders that nothing was wrong with, and how many seconds after the end of the trouble the last of
    /// the others was closed.
    pub(super) async fn play(&mut self, cause: Cause, per_second: u32, progress: &Progress) -> (Lateness, Option<f64>) {
        let Set { daemon, orders, held, beside } = self.set(cause, per_second).await;
        orders::sleep_until(orders.due_from).await;
        let ended = self.until_over(cause).await;
        orders::sleep_until(orders.due_from + orders.over).await;
        self.until_closed(&orders.numbers, PATIENCE).await;
        let mut due = lateness::of_orders(&self.shop, &orders.numbers).await;
        let unaffected: Vec<Due> = due.extract_if(.., |due| ended.is_none_or(|ended| due.deadline >= ended * 1_000)).collect();
        let lateness = Lateness::of(&unaffected);
        if let Some(beside) = beside {
            beside.end(&daemon, &mut self.redis);
        }

        let affected = match held {
            Some((held, holder)) => {
                let released = orders::now();
                holder.rollback().await;
                self.until_closed(&held.numbers, PATIENCE_AFTERWARDS).await;
                Some((released, held.numbers))
            }
            None => {
                self.until_closed(&orders.numbers, PATIENCE_AFTERWARDS).await;
                ended.map(|ended| (ended, orders.numbers.start..orders.numbers.start + due.len() as i64))
            }
        };
        let closed_after = match affected {
            Some((ended, numbers)) => Some(last(&lateness::of_orders(&self.shop, &numbers).await) - ended as f64 / 1_000.0),
            None => None,
        };
        daemon.stop().await;
        self.settle_accounts(cause, progress).await;
        (lateness, closed_after.map(|seconds| seconds.max(0.0)))
    }

    /// Fills the tables, starts the daemon, and has everything ready before the first order falls due.
    async fn set(&mut self, cause: Cause, per_second: u32) -> Set {
        let over = self.window.max(ORDERS * 1_000 / Millis::from(per_second))
            + match cause {
                Cause::Refused => TROUBLE,
                Cause::Outage => TROUBLE + RETURN,
                Cause::Quiet | Cause::Beside(_) | Cause::HeldOrders(_) | Cause::HeldStock(_) | Cause::StaleStatistics | Cause::Rejected => {
                    0
                }
            };
        let count = Millis::from(per_second) * over / 1_000;
        let mut lead = LEAD;
        loop {
            self.shop.set_text_status(cause == Cause::StaleStatistics);
            self.shop.reset(Some(ARTICLES)).await;
            self.redis.command(&["FLUSHALL"]);
            match cause {
                Cause::StaleStatistics => self.make_statistics_stale().await,
                Cause::Rejected => self.take_rejected().await,
                Cause::Quiet | Cause::Beside(_) | Cause::HeldOrders(_) | Cause::HeldStock(_) | Cause::Refused | Cause::Outage => {}
            }
            let (mut beside, daemon) = match cause {
                Cause::Beside(nuisance) => {
                    let (beside, daemon) = Beside::open(nuisance, &self.shop, &self.redis).await;
                    (Some(beside), daemon)
                }
                _ => (None, servers::daemon(&self.shop.settings(&self.redis)).await),
            };
            let due_from = orders::now() + lead;
            let orders = Orders { numbers: 1..count + 1, due_from, over };
            self.take(&orders, 0..ARTICLES.into()).await;
            let held = cause.held().map(|count| Orders { numbers: HELD..HELD + i64::from(count), due_from, over: 0 });
            if let Some(held) = &held {
                self.take(held, HELD_ARTICLE..HELD_ARTICLE + 1).await;
            }
            if cause != Cause::StaleStatistics {
                self.shop.settle().await;
            }
            let held = match held {
                Some(held) => {
                    let holder = self.hold(cause, &held).await;
                    Some((held, holder))
                }
                None => None,
            };
            if orders::now() + READY <= due_from {
                if let Some(beside) = &mut beside {
                    // The daemon has looked ahead and a peer is missed by the time the first falls due.
                    beside.begin(&daemon, &self.redis);
                }
                return Set { daemon, orders, held, beside };
            }
            lead *= 2;
        }
    }

    pub(super) async fn take(&self, orders: &Orders, articles: Range<i64>) {
        self.shop.take_rows(orders).await;
        self.shop.take_items(orders, articles).await;
        stage::write_keys(&self.redis, orders);
    }

    /// Another transaction locks the rows of these orders, or of their article.
    async fn hold(&self, cause: Cause, held: &Orders) -> Transaction {
        let Range { start, end } = held.numbers;
        let mut holder = self.shop.database.begin().await;
        if matches!(cause, Cause::HeldOrders(_)) {
            holder.execute(&format!("SELECT order_no FROM orders WHERE order_no >= {start} AND order_no < {end} FOR UPDATE")).await;
        } else {
            holder.execute(&format!("SELECT available FROM inventory WHERE sku = {HELD_ARTICLE} FOR UPDATE")).await;
            self.assert_others_need_nothing_held().await;
        }
        holder
    }

    /// A plan that reads the whole inventory locks the row of every article on its way. Then nothing could close, and that
    /// would be the doing of the shop's own statement.
    async fn assert_others_need_nothing_held(&self) {
        let mut other = self.shop.database.begin().await;
        let briefly = match self.shop.database.kind {
            Kind::Postgres => "SET LOCAL lock_timeout = '500ms'",
            Kind::MariaDb => "SET SESSION innodb_lock_wait_timeout = 1",
            Kind::Sqlite => return,
        };
        other.execute(briefly).await;
        for among in ["IN (1)", "IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)"] {
            other.execute(&self.shop.release(among).expect("there are articles")).await;
        }
        other.rollback().await;
    }

    /// Statistics from when next to no order was unpaid, which nothing renews, and then many pending orders.
    async fn make_statistics_stale(&self) {
        let database = &self.shop.database;
        match database.kind {
            Kind::Postgres => drop(database.execute("ALTER TABLE orders SET (autovacuum_enabled = false)").await),
            Kind::MariaDb => drop(database.execute("ALTER TABLE orders STATS_PERSISTENT = 1 STATS_AUTO_RECALC = 0").await),
            // It never renews them by itself.
            Kind::Sqlite => {}
        }
        let old = Orders { numbers: OLD, due_from: orders::now() - 2 * HOUR, over: HOUR };
        self.shop.take_rows(&old).await;
        self.shop.take_items(&old, OLD_ARTICLES).await;
        database.execute(&format!("UPDATE orders SET status = '{CLOSED}', closed_at = expires_at, closures = 1")).await;
        let pending = |numbers| Orders { numbers, due_from: orders::now() + HOUR, over: HOUR };
        self.shop.take_rows(&pending(FEW_PENDING)).await;
        self.shop.settle().await;
        self.shop.take_rows(&pending(PENDING)).await;
    }

    /// Orders that have been due for a while and that a trigger does not let close.
    async fn take_rejected(&self) {
        let rejected = Orders { numbers: REJECTED, due_from: orders::now() - HOUR, over: HOUR / 2 };
        self.shop.take_rows(&rejected).await;
        self.shop.take_items(&rejected, REJECTED_ARTICLES).await;
        let (database, first) = (&self.shop.database, REJECTED.start);
        let trigger = match database.kind {
            Kind::Postgres => format!(
                "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$;
                 CREATE TRIGGER refuse BEFORE UPDATE ON orders FOR EACH ROW WHEN (OLD.order_no >= {first}) EXECUTE FUNCTION refuse()"
            ),
            Kind::MariaDb => format!(
                "CREATE TRIGGER refuse BEFORE UPDATE ON orders FOR EACH ROW
                     IF OLD.order_no >= {first} THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF"
            ),
            Kind::Sqlite => format!(
                "CREATE TRIGGER refuse BEFORE UPDATE ON orders WHEN OLD.order_no >= {first} BEGIN SELECT RAISE(ABORT, 'refused'); END"
            ),
        };
        database.execute(&trigger).await;
    }

    /// Causes trouble that has an end, if it is of that kind; returns when it ended.
    async fn until_over(&mut self, cause: Cause) -> Option<Millis> {
        let over = orders::now() + TROUBLE;
        match cause {
            Cause::Refused => {
                self.shop.database.execute("ALTER TABLE inventory RENAME TO inventory_elsewhere").await;
                orders::sleep_until(over).await;
                self.shop.database.execute("ALTER TABLE inventory_elsewhere RENAME TO inventory").await;
            }
            Cause::Outage => {
                self.server.kill();
                orders::sleep_until(over).await;
                self.server.start_again();
            }
            Cause::Quiet | Cause::Beside(_) | Cause::HeldOrders(_) | Cause::HeldStock(_) | Cause::StaleStatistics | Cause::Rejected => {
                return None;
            }
        }
        Some(orders::now())
    }

    /// Waits until these orders are closed, if they are so soon.
    pub(super) async fn until_closed(&self, numbers: &Range<i64>, patience: Duration) {
        let Range { start, end } = numbers;
        let open = format!("SELECT count(*) FROM orders WHERE order_no >= {start} AND order_no < {end} AND closed_at IS NULL");
        let until = orders::now() + Millis::try_from(patience.as_millis()).expect("a few seconds");
        while self.shop.database.number(&open).await > 0 && orders::now() < until {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Nothing is closed early or twice, and where everything is closed the stock is what it was.
    async fn settle_accounts(&self, cause: Cause, progress: &Progress) {
        if matches!(cause, Cause::StaleStatistics | Cause::Rejected) {
            let faults = self.shop.faults().await;
            assert!(faults.is_empty(), "order-closer: {}", faults.join("; "));
            return;
        }
        let open = self.shop.database.number(&format!("SELECT count(*) FROM orders WHERE status <> '{CLOSED}'")).await;
        if open == 0 {
            self.shop.assert_all_closed("order-closer").await;
        } else {
            progress.result(&format!("{open} orders were not closed"));
        }
    }
}

/// When the last of these was closed, in seconds since 1970; those that are open count as closed now.
fn last(due: &[Due]) -> f64 {
    let now = orders::now() * 1_000;
    due.iter().map(|due| due.committed.unwrap_or(now)).max().unwrap_or_default() as f64 / 1e6
}
