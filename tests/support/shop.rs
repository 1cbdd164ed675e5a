//! A shop: orders, order items, inventory, payments, and the account of what became of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::{Mutex, PoisonError},
};

use super::{
    database::{Database, Kind, Transaction},
    redis::Redis,
    settings::Settings,
    wait,
};

/// The status of an order that still can be paid.
pub const UNPAID: i64 = 0;
/// The status of a paid order.
pub const PAID: i64 = 1;
/// The status of a closed order.
pub const CLOSED: i64 = 4;

/// What the inventory has of each article before the first order.
pub const INITIAL_STOCK: i64 = 1_000_000;

/// How many articles there are; an order's is its number's remainder.
pub const ARTICLES: i64 = 5;

/// A shop in a database of its own. Orders are numbered; each has one item, and reserves its quantity.
#[derive(Debug)]
pub struct Shop {
    /// Its database.
    pub database: Database,
    paid: Mutex<BTreeSet<i64>>,
}

/// What became of the orders.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The orders that were paid.
    pub paid: BTreeSet<i64>,
    /// The orders that were closed, and how many milliseconds after their deadlines.
    pub closed: BTreeMap<i64, i64>,
    /// The orders that are neither.
    pub open: BTreeSet<i64>,
}

/// The article that an order has.
fn article(order_no: i64) -> i64 {
    order_no.rem_euclid(ARTICLES)
}

/// How many of it.
fn quantity(order_no: i64) -> i64 {
    1 + order_no.rem_euclid(3)
}

impl Shop {
    /// Opens a shop in a fresh database.
    pub async fn open(kind: Kind) -> Self {
        Self::in_database(Database::fresh(kind).await).await
    }

    /// Opens a shop in this database.
    pub async fn in_database(database: Database) -> Self {
        let (time, now) = match database.kind {
            Kind::Postgres => ("timestamptz", "clock_timestamp()"),
            Kind::MariaDb => ("datetime(6)", "NOW(6)"),
            Kind::Sqlite => ("text", "(strftime('%Y-%m-%d %H:%M:%f', 'now'))"),
        };
        // Without a default of its own, MariaDB would reset a first TIMESTAMP column on every update.
        database
            .execute(&format!(
                "CREATE TABLE orders (order_no bigint PRIMARY KEY, status integer NOT NULL DEFAULT {UNPAID},
                     expires_at {time} NULL, paid_at {time} NULL, closed_at {time} NULL);
                 CREATE INDEX orders_due ON orders (status, expires_at);
                 CREATE TABLE order_items (order_no bigint NOT NULL, sku bigint NOT NULL, quantity integer NOT NULL);
                 CREATE INDEX order_items_of ON order_items (order_no);
                 CREATE TABLE inventory (sku bigint PRIMARY KEY, stock bigint NOT NULL);
                 CREATE TABLE closures (order_no bigint NOT NULL, closed_at {time} DEFAULT {now});"
            ))
            .await;
        let articles: Vec<String> = (0..ARTICLES).map(|sku| format!("({sku}, {INITIAL_STOCK})")).collect();
        database.execute(&format!("INSERT INTO inventory VALUES {}", articles.join(", "))).await;
        Self { database, paid: Mutex::default() }
    }

    /// What the daemon has to know about this shop; the Redis URL is still missing.
    pub fn settings(&self) -> Settings {
        // The judge's clock stands still within a statement, and now() within a transaction, which began earlier.
        let now = match self.database.kind {
            Kind::Postgres => "clock_timestamp()",
            Kind::MariaDb => "NOW(6)",
            Kind::Sqlite => "strftime('%Y-%m-%d %H:%M:%f', 'now')",
        };
        // As docs/closing-sql.md has it: MariaDB 11.8 reads, and locks, the whole of a small inventory otherwise.
        let release = match self.database.kind {
            Kind::MariaDb => {
                "UPDATE (SELECT sku, sum(quantity) AS quantity FROM order_items WHERE order_no IN (:ids) GROUP BY sku) AS released \
                 STRAIGHT_JOIN inventory FORCE INDEX (PRIMARY) ON inventory.sku = released.sku \
                 SET inventory.stock = inventory.stock + released.quantity"
            }
            Kind::Postgres | Kind::Sqlite => {
                "UPDATE inventory SET stock = stock + (SELECT sum(quantity) FROM order_items i WHERE i.sku = inventory.sku AND i.order_no IN (:ids)) \
                 WHERE sku IN (SELECT sku FROM order_items WHERE order_no IN (:ids))"
            }
        };
        Settings::new()
            .set("database.url", self.database.url.as_str())
            .set("orders.closed", CLOSED)
            .set("orders.set.closed_at", now)
            .set("close.sql", vec![release, "INSERT INTO closures (order_no) SELECT order_no FROM orders WHERE order_no IN (:ids)"])
            .set("log.format", "json")
    }

    /// The settings for a daemon that listens to this Redis.
    pub fn settings_with(&self, redis: &Redis) -> Settings {
        self.settings().set("redis.url", redis.url())
    }

    /// The point in time that lies so many milliseconds from the database's now, as SQL.
    pub fn moment(&self, millis: i64) -> String {
        match self.database.kind {
            Kind::Postgres => format!("date_trunc('milliseconds', clock_timestamp()) + interval '{millis} milliseconds'"),
            Kind::MariaDb => format!("NOW(3) + INTERVAL {} MICROSECOND", millis * 1_000),
            Kind::Sqlite => format!(
                "strftime('%Y-%m-%d %H:%M:%f', 'now', '{}{}.{:03} seconds')",
                sign(millis),
                millis.abs() / 1_000,
                millis.abs() % 1_000
            ),
        }
    }

    /// Milliseconds since 1970 of a column, as SQL.
    pub fn unix_millis(&self, column: &str) -> String {
        match self.database.kind {
            Kind::Postgres => format!("floor(extract(epoch FROM {column}) * 1000)::bigint"),
            Kind::MariaDb => format!("FLOOR(UNIX_TIMESTAMP({column}) * 1000)"),
            Kind::Sqlite => format!("CAST(round(unixepoch({column}, 'subsec') * 1000) AS INTEGER)"),
        }
    }

    /// Takes an order that is to be paid within so many milliseconds (negative: should have been paid before).
    pub async fn order(&self, order_no: i64, due_in_millis: i64) {
        self.orders(&[(order_no, due_in_millis)]).await;
    }

    /// Takes many orders, all with the same deadline.
    pub async fn orders_due_in(&self, numbers: impl IntoIterator<Item = i64>, due_in_millis: i64) {
        let orders: Vec<(i64, i64)> = numbers.into_iter().map(|number| (number, due_in_millis)).collect();
        self.orders(&orders).await;
    }

    /// Takes many orders, each with its own deadline, in one transaction.
    pub async fn orders(&self, orders: &[(i64, i64)]) {
        while let Err(error) = self.try_orders(orders).await {
            assert!(is_deadlock(&error), "{error}");
        }
    }

    async fn try_orders(&self, orders: &[(i64, i64)]) -> Result<(), sqlx::Error> {
        let mut transaction = self.database.begin().await;
        for chunk in orders.chunks(1_000) {
            let rows: Vec<String> = chunk.iter().map(|(number, millis)| format!("({number}, {})", self.moment(*millis))).collect();
            transaction.try_execute(&format!("INSERT INTO orders (order_no, expires_at) VALUES {}", rows.join(", "))).await?;
            let items: Vec<String> =
                chunk.iter().map(|&(number, _)| format!("({number}, {}, {})", article(number), quantity(number))).collect();
            transaction.try_execute(&format!("INSERT INTO order_items VALUES {}", items.join(", "))).await?;
        }
        for sku in 0..ARTICLES {
            let reserved: i64 = orders.iter().filter(|(number, _)| article(*number) == sku).map(|(number, _)| quantity(*number)).sum();
            if reserved > 0 {
                transaction.try_execute(&format!("UPDATE inventory SET stock = stock - {reserved} WHERE sku = {sku}")).await?;
            }
        }
        transaction.commit().await;
        Ok(())
    }

    /// Gives an order a new deadline, so many milliseconds from now.
    pub async fn postpone(&self, order_no: i64, due_in_millis: i64) {
        let moment = self.moment(due_in_millis);
        self.database.execute(&format!("UPDATE orders SET expires_at = {moment} WHERE order_no = {order_no}")).await;
    }

    /// Opens a closed order again, as a shop does for a customer who asks: unpaid, with a new deadline, its quantity
    /// reserved anew. The account starts anew for it.
    pub async fn reopen(&self, order_no: i64, due_in_millis: i64) {
        let (sku, quantity, moment) = (article(order_no), quantity(order_no), self.moment(due_in_millis));
        let mut transaction = self.database.begin().await;
        let reopen = format!(
            "UPDATE orders SET status = {UNPAID}, closed_at = NULL, expires_at = {moment} WHERE order_no = {order_no} AND status = {CLOSED}"
        );
        assert_eq!(transaction.execute(&reopen).await, 1, "order {order_no} was closed");
        transaction.execute(&format!("UPDATE inventory SET stock = stock - {quantity} WHERE sku = {sku}")).await;
        assert_eq!(transaction.execute(&format!("DELETE FROM closures WHERE order_no = {order_no}")).await, 1, "closed once");
        transaction.commit().await;
    }

    /// The deadlines of all orders that have one, in milliseconds since 1970.
    pub async fn deadlines(&self) -> BTreeMap<i64, i64> {
        let millis = self.unix_millis("expires_at");
        self.numbers(&format!("SELECT order_no, {millis} FROM orders WHERE expires_at IS NOT NULL")).await
    }

    /// Writes the keys of all unpaid orders as an order service would, each to expire at its deadline plus `skew` milliseconds.
    pub async fn write_keys(&self, redis: &Redis, skew: i64) {
        redis.set_all_until(&self.keys(skew).await);
    }

    /// The keys of all unpaid orders, each with when it is to expire, in milliseconds since 1970: its deadline plus `skew`.
    pub async fn keys(&self, skew: i64) -> Vec<(String, i64)> {
        let statuses = self.statuses().await;
        let deadlines = self.deadlines().await;
        let unpaid = deadlines.into_iter().filter(|(number, _)| statuses[number] == UNPAID);
        unpaid.map(|(number, millis)| (key(number), millis + skew)).collect()
    }

    /// Pays an order, if it is unpaid; returns whether it was.
    pub async fn pay(&self, order_no: i64) -> bool {
        let sql = self.payment(order_no);
        let paid = loop {
            match self.database.try_execute(&sql).await {
                Ok(rows) => break rows == 1,
                // As any application does: the victim of a deadlock has changed nothing and tries again.
                Err(error) if is_deadlock(&error) => {}
                Err(error) => panic!("the payment of order {order_no} fails: {error}"),
            }
        };
        if paid {
            self.note_paid(order_no);
        }
        paid
    }

    /// Pays an order without committing yet: its row stays locked (in SQLite, the whole database).
    pub async fn begin_payment(&self, order_no: i64) -> Payment<'_> {
        let mut transaction = self.database.begin().await;
        let paid = transaction.execute(&self.payment(order_no)).await == 1;
        Payment { shop: self, order_no, transaction, paid }
    }

    fn payment(&self, order_no: i64) -> String {
        let now = self.moment(0);
        format!("UPDATE orders SET status = {PAID}, paid_at = {now} WHERE order_no = {order_no} AND status = {UNPAID}")
    }

    fn note_paid(&self, order_no: i64) {
        self.paid.lock().unwrap_or_else(PoisonError::into_inner).insert(order_no);
    }

    /// The orders whose payment succeeded.
    pub fn paid(&self) -> BTreeSet<i64> {
        self.paid.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Every order's status.
    pub async fn statuses(&self) -> BTreeMap<i64, i64> {
        self.numbers("SELECT order_no, status FROM orders").await
    }

    /// One order's status.
    pub async fn status(&self, order_no: i64) -> i64 {
        self.database.number(&format!("SELECT status FROM orders WHERE order_no = {order_no}")).await
    }

    /// How often each order was closed, by the account of `close.sql`.
    pub async fn closures(&self) -> BTreeMap<i64, i64> {
        self.numbers("SELECT order_no, count(*) FROM closures GROUP BY order_no").await
    }

    /// What the inventory has of each article.
    pub async fn stock(&self) -> BTreeMap<i64, i64> {
        self.numbers("SELECT sku, stock FROM inventory").await
    }

    /// How many orders are closed.
    pub async fn closed(&self) -> i64 {
        self.database.number(&format!("SELECT count(*) FROM orders WHERE status = {CLOSED}")).await
    }

    /// How many orders are unpaid and overdue.
    pub async fn overdue(&self) -> i64 {
        let now = self.moment(0);
        self.database.number(&format!("SELECT count(*) FROM orders WHERE status = {UNPAID} AND expires_at <= {now}")).await
    }

    /// The database's clock, in milliseconds since 1970.
    pub async fn clock(&self) -> i64 {
        let now = self.unix_millis(&format!("({})", self.moment(0)));
        self.database.number(&format!("SELECT {now}")).await
    }

    /// When the last order was closed, by that clock, of those that were closed more than so many milliseconds after their
    /// deadlines.
    pub async fn last_late_closure(&self, millis: i64) -> Option<i64> {
        let (closed_at, expires_at) = (self.unix_millis("closed_at"), self.unix_millis("expires_at"));
        let text = self.database.text(&format!("SELECT max({closed_at}) FROM orders WHERE {closed_at} - {expires_at} > {millis}")).await;
        text.map(|text| text.parse().expect("a number"))
    }

    /// Waits until every order with a deadline is paid or closed, deadlines in the future included.
    pub async fn until_all_settled(&self) {
        let sql = format!("SELECT count(*) FROM orders WHERE status = {UNPAID} AND expires_at IS NOT NULL");
        wait::until_eq("the number of unpaid orders", 0, async || self.database.number(&sql).await).await;
    }

    /// Waits until this order has this status.
    pub async fn until_status(&self, order_no: i64, status: i64) {
        wait::until_eq(&format!("the status of order {order_no}"), status, async || self.status(order_no).await).await;
    }

    /// Checks everything at once: every unpaid due order closed, once, and not early; no paid order closed; nothing
    /// else touched; stock exactly what it must be.
    pub async fn assert_outcome(&self) -> Outcome {
        self.assert_outcome_except(&[]).await
    }

    /// The same, while these orders are due and must nevertheless be unpaid and untouched.
    pub async fn assert_outcome_except(&self, stuck: &[i64]) -> Outcome {
        let paid = self.paid();
        let (now, expires_at, closed_at) = (self.moment(0), self.unix_millis("expires_at"), self.unix_millis("closed_at"));
        let rows = self
            .database
            .rows(&format!(
                "SELECT order_no, status, CASE WHEN expires_at <= {now} THEN 1 ELSE 0 END, {closed_at} - {expires_at},
                        CASE WHEN closed_at < expires_at THEN 1 ELSE 0 END,
                        (SELECT count(*) FROM closures c WHERE c.order_no = o.order_no)
                 FROM orders o ORDER BY order_no"
            ))
            .await;
        let mut outcome = Outcome::default();
        let mut wrong = String::new();
        let mut expected_stock: BTreeMap<i64, i64> = (0..ARTICLES).map(|sku| (sku, INITIAL_STOCK)).collect();
        for row in rows {
            let number = |at: usize| row[at].as_deref().map(|text| text.parse::<i64>().unwrap_or_else(|_| panic!("{text:?} is no number")));
            let field = |at: usize| number(at).expect("never NULL");
            let (order_no, status, due, lateness, early, closures) =
                (field(0), field(1), field(2) == 1, number(3), field(4) == 1, field(5));
            let expected = match (paid.contains(&order_no), due && !stuck.contains(&order_no)) {
                (true, _) => PAID,
                (false, true) => CLOSED,
                (false, false) => UNPAID,
            };
            let expected_closures = i64::from(expected == CLOSED);
            if status != expected || closures != expected_closures || early || lateness.is_some() != (expected == CLOSED) {
                writeln!(
                    wrong,
                    "order {order_no}: status {status}, must be {expected}; closed {closures} times, must be {expected_closures}; {} ms late{}",
                    lateness.map_or_else(|| "never closed, so not".into(), |millis| millis.to_string()),
                    if early { ", closed BEFORE its deadline" } else { "" },
                )
                .expect("a string takes everything");
            }
            match expected {
                PAID => drop(outcome.paid.insert(order_no)),
                CLOSED => drop(outcome.closed.insert(order_no, lateness.unwrap_or_default())),
                _ => drop(outcome.open.insert(order_no)),
            }
            if expected != CLOSED {
                *expected_stock.entry(article(order_no)).or_default() -= quantity(order_no);
            }
        }
        assert!(wrong.is_empty(), "{} orders are wrong:\n{wrong}", wrong.lines().count());
        assert_eq!(self.stock().await, expected_stock, "stock by article");
        let strangers = self.database.number("SELECT count(*) FROM closures WHERE order_no NOT IN (SELECT order_no FROM orders)").await;
        assert_eq!(strangers, 0, "closures of orders that do not exist");
        outcome
    }

    async fn numbers(&self, sql: &str) -> BTreeMap<i64, i64> {
        let number = |text: &Option<String>| {
            text.as_deref().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{text:?} is no number: {sql}"))
        };
        self.database.rows(sql).await.iter().map(|row| (number(&row[0]), number(&row[1]))).collect()
    }
}

impl Outcome {
    /// How many milliseconds after its deadline the slowest `1 - share` of the closed orders were closed.
    pub fn lateness(&self, share: f64) -> i64 {
        let mut all: Vec<i64> = self.closed.values().copied().collect();
        all.sort_unstable();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rank among a test's orders"
        )]
        let rank = ((all.len() as f64 * share) as usize).min(all.len().saturating_sub(1));
        all.get(rank).copied().unwrap_or_default()
    }
}

/// A payment in progress; dropping it rolls it back.
pub struct Payment<'a> {
    shop: &'a Shop,
    order_no: i64,
    transaction: Transaction,
    /// Whether the order was still unpaid.
    pub paid: bool,
}

impl Payment<'_> {
    /// Commits it.
    pub async fn commit(self) {
        self.transaction.commit().await;
        if self.paid {
            self.shop.note_paid(self.order_no);
        }
    }

    /// Rolls it back.
    pub async fn rollback(self) {
        self.transaction.rollback().await;
    }
}

/// The key of an order under the default prefix.
pub fn key(order_no: i64) -> String {
    format!("order_{order_no}")
}

fn sign(number: i64) -> char {
    if number < 0 { '-' } else { '+' }
}

fn is_deadlock(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    matches!(code.as_deref(), Some("40001" | "40P01"))
}

/// An unpaid due order, a paid one, one not due: closed by hand, the account balances; closed wrongly, it does not.
async fn the_account_balances(kind: Kind) {
    let shop = Shop::open(kind).await;
    shop.orders(&[(1, -1_500), (2, -20), (3, 600_000)]).await;
    assert!(shop.pay(2).await);
    assert!(!shop.pay(2).await);
    shop.begin_payment(1).await.rollback().await;
    assert_eq!(shop.overdue().await, 1);
    let now = shop.moment(0);
    let close = |order_no: i64| {
        format!(
            "UPDATE orders SET status = {CLOSED}, closed_at = {now} WHERE order_no = {order_no};
             UPDATE inventory SET stock = stock + {} WHERE sku = {};
             INSERT INTO closures (order_no) VALUES ({order_no})",
            quantity(order_no),
            article(order_no)
        )
    };
    shop.database.execute(&close(1)).await;
    let outcome = shop.assert_outcome().await;
    assert_eq!((outcome.paid.len(), outcome.closed.len(), outcome.open.len()), (1, 1, 1));
    assert!((1_500..60_000).contains(&outcome.closed[&1]), "{outcome:?}");
    shop.database.execute(&close(3)).await;
    let early = tokio::spawn(async move { shop.assert_outcome().await }).await;
    assert!(early.is_err_and(|error| error.is_panic()), "an order closed early was not noticed");
}

#[tokio::test]
async fn the_account_balances_in_postgres() {
    the_account_balances(Kind::Postgres).await;
}

#[tokio::test]
async fn the_account_balances_in_mariadb() {
    the_account_balances(Kind::MariaDb).await;
}

#[tokio::test]
async fn the_account_balances_in_sqlite() {
    the_account_balances(Kind::Sqlite).await;
}
