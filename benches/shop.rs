//! The shop whose orders are closed: the tables of the documentation, filled by the hundred thousand.

use std::ops::Range;

use crate::{
    orders,
    orders::{Millis, Orders},
    support::{Database, Kind, Redis, Settings, order_closer},
};

/// The status of an order that waits for its payment.
pub const UNPAID: i64 = 0;
/// The status of a closed order.
pub const CLOSED: i64 = 4;

/// What the inventory has of each article while nothing is reserved.
const INITIAL_STOCK: i64 = 1_000_000;

/// The statement of docs/closing-sql.md for hot rows in PostgreSQL.
const LOCK_IN_ORDER: &str =
    "SELECT sku FROM inventory WHERE sku IN (SELECT sku FROM order_items WHERE order_no IN (:ids)) ORDER BY sku FOR UPDATE";

/// The events of closures, for an endpoint where nobody listens.
const EVENTS: &str = "[events]
    enabled = true
    [[events.webhooks]]
    name = 'dead'
    url = 'http://127.0.0.1:1/'
    secrets = ['whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3']";

/// Orders, and with articles their items and the inventory too, in a database of its own.
#[derive(Debug)]
pub struct Shop {
    /// Its database.
    pub database: Database,
    articles: Option<u32>,
    in_order: bool,
    records: bool,
    text_status: bool,
    watched: Option<Settings>,
    asks: Option<String>,
}

/// How a database says things.
struct Dialect {
    time: &'static str,
    /// The clock when the statement runs.
    now: &'static str,
    div: &'static str,
}

impl Shop {
    /// Opens a shop without orders. With `articles` each order has one item of one of these, and closing gives its
    /// quantity back.
    pub async fn open(database: Database, articles: Option<u32>) -> Self {
        let mut shop = Self { database, articles, in_order: false, records: false, text_status: false, watched: None, asks: None };
        shop.reset(articles).await;
        shop
    }

    /// Somebody is asked before each closure, by these settings.
    pub fn ask(&mut self, settings: String) {
        self.asks = Some(settings);
    }

    /// Throws everything away and begins anew.
    pub async fn reset(&mut self, articles: Option<u32>) {
        self.articles = articles;
        let time = self.dialect().time;
        let status = if self.text_status { "varchar(20)" } else { "integer" };
        // PostgreSQL leaves a condition out that the index's own WHERE implies: with the status as its first column, it
        // would read the whole index.
        let due = match self.database.kind {
            Kind::Postgres => "(expires_at, order_no) WHERE status IN ('0')",
            Kind::MariaDb | Kind::Sqlite => "(status, expires_at, order_no)",
        };
        self.database
            .execute(&format!(
                "DROP TABLE IF EXISTS orders; DROP TABLE IF EXISTS order_items; DROP TABLE IF EXISTS inventory;
                 CREATE TABLE orders (order_no bigint PRIMARY KEY, status {status} NOT NULL, expires_at {time} NOT NULL,
                     closed_at {time} NULL, closures integer NOT NULL);
                 CREATE INDEX order_closer_due ON orders {due};
                 CREATE TABLE order_items (order_no bigint NOT NULL, sku bigint NOT NULL, quantity integer NOT NULL);
                 CREATE INDEX order_items_of ON order_items (order_no);
                 CREATE TABLE inventory (sku bigint PRIMARY KEY, available bigint NOT NULL);"
            ))
            .await;
    }

    fn dialect(&self) -> Dialect {
        match self.database.kind {
            Kind::Postgres => Dialect { time: "timestamptz", now: "clock_timestamp()", div: "/" },
            Kind::MariaDb => Dialect { time: "datetime(6)", now: "NOW(6)", div: "DIV" },
            Kind::Sqlite => Dialect { time: "text", now: "strftime('%Y-%m-%d %H:%M:%f', 'now')", div: "/" },
        }
    }

    /// Milliseconds since 1970 as a point in time.
    fn moment(&self, millis: &str) -> String {
        match self.database.kind {
            Kind::Postgres => format!("to_timestamp({millis} / 1000.0)"),
            Kind::MariaDb => format!("FROM_UNIXTIME({millis} / 1000)"),
            Kind::Sqlite => format!("strftime('%Y-%m-%d %H:%M:%f', {millis} / 1000.0, 'unixepoch')"),
        }
    }

    /// The columns that a closure sets besides the status.
    pub fn set(&self) -> [(&'static str, &'static str); 2] {
        [("closed_at", self.dialect().now), ("closures", "closures + 1")]
    }

    /// Has daemons lock the stock in a fixed order first, as docs/closing-sql.md advises where several change the same.
    #[must_use]
    pub fn in_order(self) -> Self {
        Self { in_order: true, ..self }
    }

    /// Has daemons with these settings besides, from now on.
    pub fn watched_by(&mut self, settings: Option<Settings>) {
        self.watched = settings;
    }

    /// Has a status that is text, from the next reset on.
    pub fn set_text_status(&mut self, text: bool) {
        self.text_status = text;
    }

    /// The statement of docs/closing-sql.md that gives back the stock of the orders whose number is `among`, such as `IN (:ids)`.
    pub fn release(&self, among: &str) -> Option<String> {
        let released = format!("(SELECT sku, sum(quantity) AS quantity FROM order_items WHERE order_no {among} GROUP BY sku) AS released");
        self.articles.map(|_| match self.database.kind {
            Kind::Postgres | Kind::Sqlite => {
                format!("UPDATE inventory SET available = available + released.quantity FROM {released} WHERE inventory.sku = released.sku")
            }
            Kind::MariaDb => format!(
                "UPDATE {released} STRAIGHT_JOIN inventory FORCE INDEX (PRIMARY) ON inventory.sku = released.sku \
                     SET inventory.available = inventory.available + released.quantity"
            ),
        })
    }

    /// What the daemon has to know: where everything is and what to set. All else stays at its default.
    pub fn settings(&self, redis: &Redis) -> Settings {
        let mut settings =
            Settings::new().set("redis.url", redis.url()).set("database.url", self.database.url.as_str()).set("log.format", "json");
        for (column, value) in self.set() {
            settings = settings.set(&format!("orders.set.{column}"), value);
        }
        if self.text_status {
            settings = settings.set("orders.unpaid", vec![UNPAID.to_string()]).set("orders.closed", CLOSED.to_string());
        }
        if self.records {
            settings = settings.add(EVENTS);
        }
        if let Some(watched) = &self.watched {
            settings = settings.add(&watched.toml());
        }
        if let Some(asks) = &self.asks {
            settings = settings.add(asks);
        }
        match self.release("IN (:ids)") {
            Some(release) if self.in_order => settings.set("close.sql", vec![LOCK_IN_ORDER.to_owned(), release]),
            Some(release) => settings.set("close.sql", vec![release]),
            None => settings,
        }
    }

    /// A table of the numbers `n` from one to another.
    fn numbers(&self, from: i64, to: i64) -> String {
        numbers(self.database.kind, from, to)
    }

    /// Creates the tables for events, which stay when the shop is reset.
    pub async fn make_outbox(&self, redis: &Redis) {
        order_closer(&self.settings(redis), &["migrate"]).await.expect_code(0);
    }

    /// Whether closures are recorded from now on, for an endpoint that is away, and how many events wait for it already.
    pub async fn set_outbox(&mut self, records: bool, waiting: u32) {
        self.records = records;
        let id = match self.database.kind {
            Kind::Postgres => "CAST('00000000-0000-7000-8000-' || lpad(CAST(n AS text), 12, '0') AS uuid)",
            Kind::MariaDb => "CONCAT('00000000-0000-7000-8000-', LPAD(n, 12, '0'))",
            Kind::Sqlite => "printf('00000000-0000-7000-8000-%012d', n)",
        };
        let (now, numbers) = (orders::now() * 1_000, self.numbers(1, waiting.into()));
        self.database
            .execute("DELETE FROM order_closer_batches; DELETE FROM order_closer_deliveries; DELETE FROM order_closer_events")
            .await;
        if waiting > 0 {
            self.database
                .execute(&format!(
                    "INSERT INTO order_closer_events (id, order_id, deadline, closed_at, lateness, triggered_by, instance, data)
                         SELECT {id}, -n, {now}, {now}, 0, 'sweep', 'bench', '{{}}' FROM {numbers};
                     INSERT INTO order_closer_deliveries (event_id, target, attempts, due_at)
                         SELECT id, 'dead', 0, closed_at FROM order_closer_events"
                ))
                .await;
        }
    }

    /// Takes orders. With articles this can be done once, since it reserves the stock of all orders.
    pub async fn take(&self, orders: &Orders) {
        self.take_rows(orders).await;
        if let Some(articles) = self.articles {
            self.take_items(orders, 0..articles.into()).await;
        }
    }

    /// Takes orders, and nothing of the stock.
    pub async fn take_rows(&self, orders: &Orders) {
        let expires_at = self.moment(&orders.deadline_sql("n", self.dialect().div));
        let numbers = self.numbers(orders.numbers.start, orders.numbers.end - 1);
        self.database
            .execute(&format!(
                "INSERT INTO orders (order_no, status, expires_at, closures) SELECT n, {UNPAID}, {expires_at}, 0 FROM {numbers}"
            ))
            .await;
    }

    /// Each of these orders takes an item of one of these articles, of which nobody has taken any.
    pub async fn take_items(&self, orders: &Orders, articles: Range<i64>) {
        let numbers = self.numbers(orders.numbers.start, orders.numbers.end - 1);
        let (first, count, skus) = (articles.start, articles.end - articles.start, self.numbers(articles.start, articles.end - 1));
        self.database
            .execute(&format!(
                "INSERT INTO order_items SELECT n, {first} + n % {count}, 1 + n % 3 FROM {numbers};
                 INSERT INTO inventory SELECT n, {INITIAL_STOCK} - COALESCE(taken.quantity, 0) FROM {skus} LEFT JOIN
                     (SELECT sku, sum(quantity) AS quantity FROM order_items GROUP BY sku) AS taken ON taken.sku = n"
            ))
            .await;
    }

    /// After the tables were filled: what a database does in the background is done now.
    pub async fn settle(&self) {
        let sql: &[&str] = match self.database.kind {
            Kind::Postgres => &["VACUUM ANALYZE", "CHECKPOINT"],
            Kind::MariaDb => &["ANALYZE TABLE orders, order_items, inventory"],
            Kind::Sqlite => &["ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"],
        };
        for statement in sql {
            self.database.rows(statement).await;
        }
    }

    /// How many orders that fell due until then are unpaid.
    pub async fn unpaid_due_until(&self, moment: Millis) -> i64 {
        let moment = self.moment(&moment.to_string());
        self.database.number(&format!("SELECT count(*) FROM orders WHERE status = {UNPAID} AND expires_at <= {moment}")).await
    }

    /// What is wrong with the shop's account: orders that were closed early or more than once or that are closed without
    /// having been, and stock that was not given back exactly. Empty when all is well.
    pub async fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (what, sql) in [
            ("closed early", "SELECT count(*) FROM orders WHERE closed_at < expires_at".to_owned()),
            (
                "closed more than once, or changed without being closed",
                format!("SELECT count(*) FROM orders WHERE closures <> CASE status WHEN '{CLOSED}' THEN 1 ELSE 0 END"),
            ),
        ] {
            let orders = self.database.number(&sql).await;
            if orders > 0 {
                faults.push(format!("{orders} orders {what}"));
            }
        }
        faults
    }

    /// Panics unless every order was closed, once and not early, and the stock is what it was before the first.
    pub async fn assert_all_closed(&self, who: &str) {
        let mut faults = self.faults().await;
        for (what, sql) in [
            ("orders not closed", format!("SELECT count(*) FROM orders WHERE status <> {CLOSED}")),
            (
                "articles of which not exactly everything was given back",
                format!("SELECT count(*) FROM inventory WHERE available <> {INITIAL_STOCK}"),
            ),
        ] {
            let count = self.database.number(&sql).await;
            if count > 0 {
                faults.push(format!("{count} {what}"));
            }
        }
        assert!(faults.is_empty(), "{who}: {}", faults.join("; "));
    }
}

/// A table of the numbers `n` from one to another.
pub fn numbers(kind: Kind, from: i64, to: i64) -> String {
    match kind {
        Kind::Postgres => format!("generate_series({from}::bigint, {to}) AS numbers (n)"),
        Kind::MariaDb => format!("(SELECT seq AS n FROM seq_{from}_to_{to}) AS numbers"),
        Kind::Sqlite => {
            format!(
                "(WITH RECURSIVE numbers (n) AS (SELECT {from} UNION ALL SELECT n + 1 FROM numbers WHERE n < {to}) SELECT n FROM numbers)"
            )
        }
    }
}
