//! The shop: one orders table for both rules, whose triggers reserve the stock and write down each change of a row, so that every
//! action of the service is one statement, and what happened is known also where its answer is lost.

use super::plan::{Action, Rule};
use crate::{
    histories::history::{CANCELLED, GIVEN_UP},
    support::{
        Database, Kind, Shop,
        shop::{CLOSED, INITIAL_STOCK, PAID, UNPAID},
    },
};

/// The login of the daemons.
pub const USER: &str = "closer";

/// The password of their login to Redis.
pub const PASSWORD: &str = "the-daemons-password";

/// How many articles there are, numbered from 0: enough that orders seldom wait for each other's, few enough that they do.
pub const ARTICLES: i64 = 97;

/// The article that an order has.
pub fn article(order: i64) -> i64 {
    order % ARTICLES
}

/// How many of it.
pub fn quantity(order: i64) -> i64 {
    1 + order % 3
}

const JOURNAL: &str = "INSERT INTO journal (order_no, at, old_status, new_status, deadline) VALUES";

/// Opens it in this database.
pub async fn open(database: Database) -> Shop {
    let shop = Shop::in_database(database).await;
    let kind = shop.database.kind;
    let (serial, time) = match kind {
        Kind::Postgres => ("bigserial", "timestamptz"),
        Kind::MariaDb | Kind::Sqlite => ("bigint AUTO_INCREMENT", "datetime(6)"),
    };
    let (article, quantity) = (format!("NEW.order_no % {ARTICLES}"), "(1 + NEW.order_no % 3)");
    let reserved = format!("UPDATE inventory SET stock = stock - {quantity} WHERE sku = {article}");
    let released = format!("UPDATE inventory SET stock = stock + {quantity} WHERE sku = {article}");
    let created = format!("INSERT INTO order_items VALUES (NEW.order_no, {article}, {quantity}); {reserved}");
    let (is_cancelled, is_reopened) = (
        format!("OLD.status = {UNPAID} AND NEW.status = {CANCELLED}"),
        format!("OLD.status IN ({CLOSED}, {GIVEN_UP}) AND NEW.status = {UNPAID}"),
    );
    let journal = |old: &str, now: &str| format!("{JOURNAL} (NEW.order_no, {now}, {old}, NEW.status, NEW.expires_at)");
    let is_changed = "OLD.status <> NEW.status OR OLD.expires_at <> NEW.expires_at";
    let body = |old: &str, now: &str| {
        format!(
            "IF {is_changed} THEN {}; END IF; IF {is_cancelled} THEN {released}; END IF; IF {is_reopened} THEN {reserved}; END IF;",
            journal(old, now)
        )
    };
    let execute = async |sql: &str| shop.database.execute(sql).await;
    let articles: Vec<String> = (0..ARTICLES).map(|sku| format!("({sku}, {INITIAL_STOCK})")).collect();
    execute("DELETE FROM inventory").await;
    execute(&format!("INSERT INTO inventory VALUES {}", articles.join(", "))).await;
    execute("ALTER TABLE orders ADD COLUMN pay_type integer NOT NULL DEFAULT 1").await;
    execute(&format!("ALTER TABLE closures ADD COLUMN deadline {time} NULL")).await;
    execute(&format!(
        "CREATE TABLE journal (id {serial} PRIMARY KEY, order_no bigint NOT NULL, at {time} NOT NULL, old_status integer NULL,
             new_status integer NOT NULL, deadline {time} NOT NULL)"
    ))
    .await;
    match kind {
        Kind::Postgres => {
            let now = "clock_timestamp()";
            execute(&format!(
                "CREATE FUNCTION order_created() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
                     $$ BEGIN {created}; {}; RETURN NULL; END $$;
                 CREATE FUNCTION order_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN {} RETURN NULL; END $$;
                 CREATE TRIGGER created AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION order_created();
                 CREATE TRIGGER changed AFTER UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION order_changed();
                 CREATE ROLE {USER} LOGIN",
                journal("NULL", now),
                body("OLD.status", now)
            ))
            .await;
        }
        Kind::MariaDb | Kind::Sqlite => {
            let now = "SYSDATE(6)";
            execute(&format!("CREATE TRIGGER created AFTER INSERT ON orders FOR EACH ROW BEGIN {created}; {}; END", journal("NULL", now)))
                .await;
            execute(&format!("CREATE TRIGGER changed AFTER UPDATE ON orders FOR EACH ROW BEGIN {} END", body("OLD.status", now))).await;
            execute(&format!("CREATE USER {}", user(kind))).await;
        }
    }
    shop
}

/// The login as a grantee.
pub fn user(kind: Kind) -> String {
    match kind {
        Kind::Postgres => USER.into(),
        Kind::MariaDb | Kind::Sqlite => format!("{USER}@127.0.0.1"),
    }
}

/// What the daemons may, as `docs/database.md` has it.
pub async fn grant(database: &Database) {
    let user = user(database.kind);
    let mut grants = vec!["SELECT, UPDATE ON orders", "SELECT, UPDATE ON inventory", "SELECT ON order_items", "INSERT ON closures"];
    grants.push("SELECT ON order_closer_migrations");
    for grant in grants {
        database.execute(&format!("GRANT {grant} TO {user}")).await;
    }
    for table in ["events", "deliveries", "dead_letters", "facts", "pauses", "targets"] {
        database.execute(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON order_closer_{table} TO {user}")).await;
    }
}

const NOTED: &str = "'INSERT INTO closures (order_no, deadline) SELECT order_no, expires_at FROM orders WHERE order_no IN (:ids)'";

/// The same rules as somebody writes them who asks nobody, lets rows decide alone, runs the closing statements twice, and gives back
/// one piece too many of each article.
pub fn harmful(rules: &str) -> String {
    let lines = rules.lines().filter(|line| !line.starts_with("ask = "));
    let rules = lines.collect::<Vec<_>>().join("\n");
    rules
        .replace("orders = { ", "orders = { disputed = 'close', ")
        .replace(NOTED, &format!("{NOTED}, {NOTED}"))
        .replace("stock + released.quantity", "stock + released.quantity + 1")
}

/// The two rules; `asked` is where the first one asks.
pub fn rules(kind: Kind, asked: &str, secret: &str) -> String {
    let (stock, now) = match kind {
        // As docs/closing-sql.md has it for rows that many orders share.
        Kind::Postgres => (
            "'SELECT sku FROM inventory WHERE sku IN (SELECT sku FROM order_items WHERE order_no IN (:ids)) ORDER BY sku FOR UPDATE',
             '''UPDATE inventory SET stock = stock + released.quantity
                  FROM (SELECT sku, sum(quantity) AS quantity FROM order_items WHERE order_no IN (:ids) GROUP BY sku) AS released
                 WHERE inventory.sku = released.sku'''",
            "clock_timestamp()",
        ),
        Kind::MariaDb | Kind::Sqlite => (
            "'''UPDATE (SELECT sku, sum(quantity) AS quantity FROM order_items WHERE order_no IN (:ids) GROUP BY sku) AS released
                  STRAIGHT_JOIN inventory FORCE INDEX (PRIMARY) ON inventory.sku = released.sku
                   SET inventory.stock = inventory.stock + released.quantity'''",
            "NOW(6)",
        ),
    };
    let noted = NOTED;
    format!(
        "[[rules]]
name = 'card'
key_prefix = 'order_'
include = ['pay_type']
orders = {{ unpaid = [{UNPAID}], closed = {CLOSED}, filter = 'pay_type = 1', set = {{ closed_at = '{now}' }} }}
[rules.close]
sql = [{stock}, {noted}]
ask = {{ url = '{asked}', secrets = ['{secret}'], timeout = '1s' }}

[[rules]]
name = 'transfer'
key_prefix = 'transfer_'
orders = {{ unpaid = [{UNPAID}], closed = {GIVEN_UP}, filter = 'pay_type = 3', set = {{ closed_at = '{now}' }} }}
[rules.close]
sql = [{stock}, {noted}]
"
    )
}

/// The key of an order.
pub fn key(rule: Rule, order: i64) -> String {
    match rule {
        Rule::Card => format!("order_{order}"),
        Rule::Transfer => format!("transfer_{order}"),
    }
}

/// A moment in milliseconds since 1970, as SQL.
fn moment(kind: Kind, at: i64) -> String {
    match kind {
        Kind::Postgres => format!("to_timestamp({at}::numeric / 1000)"),
        Kind::MariaDb | Kind::Sqlite => format!("FROM_UNIXTIME({at} / 1000)"),
    }
}

/// Counts the stock of MariaDB's shop anew, by the orders that there are; what is about to change these waits.
pub fn recount() -> String {
    format!(
        "UPDATE inventory LEFT JOIN (SELECT order_no % {ARTICLES} AS sku, sum(1 + order_no % 3) AS quantity FROM orders
             WHERE status IN ({UNPAID}, {PAID}) GROUP BY order_no % {ARTICLES}) AS taken ON taken.sku = inventory.sku
            SET stock = {INITIAL_STOCK} - COALESCE(taken.quantity, 0)"
    )
}

/// The statement of an action, with deadlines in milliseconds since 1970. It changes one row, or comes too late.
pub fn statement(kind: Kind, order: i64, action: &Action) -> String {
    let set = |what: String| format!("UPDATE orders SET {what} WHERE order_no = {order} AND status = {UNPAID}");
    match action {
        Action::Create { rule, deadline, .. } => {
            let pay_type = if *rule == Rule::Card { 1 } else { 3 };
            format!("INSERT INTO orders (order_no, pay_type, expires_at) VALUES ({order}, {pay_type}, {})", moment(kind, *deadline))
        }
        Action::Extend { deadline } => set(format!("expires_at = {}", moment(kind, *deadline))),
        Action::Reopen { deadline } => format!(
            "UPDATE orders SET status = {UNPAID}, closed_at = NULL, expires_at = {} WHERE order_no = {order} AND status IN ({CLOSED}, {GIVEN_UP})",
            moment(kind, *deadline)
        ),
        Action::Pay(..) => set(format!("status = {PAID}")),
        Action::Cancel => set(format!("status = {CANCELLED}")),
    }
}
