//! Creating, paying, extending and cancelling orders, with Redis there, stopped and killed.

use std::{
    process::Command,
    time::{Duration, SystemTime},
};

use super::{client::Client, toolchain};
use crate::{
    promises::listening,
    support::{
        Database, Kind, Redis, Shop, process,
        redis::{Keep, Reply, unix_millis},
        shop::{CLOSED, PAID},
        wait,
    },
};

/// What a customer may have to wait for while Redis is away: about a second, and the machine's other work.
const PROMPT: Duration = Duration::from_secs(3);

/// The URL as most drivers know it.
fn url(database: &Database) -> String {
    database.url.clone()
}

#[tokio::test]
async fn node_with_pg_and_node_redis() {
    sit(Kind::Postgres, toolchain::node("orders-pg.js"), url).await;
}

#[tokio::test]
async fn node_with_mysql2_and_ioredis() {
    sit(Kind::MariaDb, toolchain::node("orders-mysql.js"), url).await;
}

/// Why the client in JavaScript gives an object, as it does. No version of node-redis complains of any form.
#[tokio::test]
async fn node_redis_of_every_version_and_its_forms() {
    let Some(mut command) = toolchain::node_script("forms.mjs") else { return };
    let redis = Redis::start();
    command.env("REDIS_URL", redis.url());
    let said = process::run("node", command);
    let never: Vec<&str> = said.lines().filter_map(|line| line.strip_suffix(" never expires")).collect();
    assert_eq!(never, ["redis-4 words", "redis-4 expiration", "redis-5 words", "redis words"], "{said}");
    assert_eq!(said.lines().count(), 9, "{said}");
}

#[tokio::test]
async fn python_with_django() {
    sit(Kind::Postgres, toolchain::python("orders_django.py"), url).await;
}

#[tokio::test]
async fn python_with_sqlalchemy_and_pymysql() {
    let url = |database: &Database| database.url.replace("mysql://", "mysql+pymysql://");
    sit(Kind::MariaDb, toolchain::python("orders_sqlalchemy.py"), url).await;
}

#[tokio::test]
async fn php_with_pdo_and_phpredis() {
    sit(Kind::MariaDb, toolchain::php("orders.php"), url).await;
}

#[tokio::test]
async fn php_with_laravel() {
    sit(Kind::MariaDb, toolchain::laravel("orders_laravel.php"), url).await;
}

#[tokio::test]
async fn go_with_pgx_and_redigo() {
    sit(Kind::Postgres, toolchain::go(), url).await;
}

/// The URL as MariaDB's driver for Java knows it.
pub(super) fn jdbc(database: &Database) -> String {
    format!("{}?user=root", database.url.replace("mysql://root@", "jdbc:mariadb://"))
}

#[tokio::test]
async fn java_with_jdbc_and_jedis() {
    sit(Kind::MariaDb, toolchain::java("autocommit"), jdbc).await;
}

#[tokio::test]
async fn java_with_jdbc_and_jedis_without_autocommit() {
    sit(Kind::MariaDb, toolchain::java("transactions"), jdbc).await;
}

#[tokio::test]
async fn java_with_spring() {
    sit(Kind::MariaDb, toolchain::spring(), jdbc).await;
}

/// The exam for one client.
async fn sit(kind: Kind, command: Option<Command>, url: impl Fn(&Database) -> String) {
    let Some(mut command) = command else { return };
    let (redis, shop) = (Redis::start(), Shop::open(kind).await);
    let client = Client::start({
        command.env("DATABASE_URL", url(&shop.database)).env("REDIS_URL", redis.url());
        command
    });
    let mut service = Service { redis, shop, client, next: 1 };
    service.is_connected().await;
    let late = service.create(-1_000).await;
    assert_eq!(service.client.call(&format!("pay {late}")).await, "false", "its deadline is over, though nothing has closed it");

    let daemon = listening(&service.shop.settings_with(&service.redis)).await;
    service.keeps_its_word().await;
    service.redis.freeze();
    service.goes_on_without_redis("stopped").await;
    service.redis.thaw();
    service.is_connected().await;
    service.redis.kill();
    service.goes_on_without_redis("killed").await;
    service.redis.start_again(Keep::Nothing);
    service.is_connected().await;
    daemon.stop().await;
}

/// An order service in another language.
struct Service {
    redis: Redis,
    shop: Shop,
    client: Client,
    /// The next order's number.
    next: i64,
}

impl Service {
    /// Creates an order that is due in so many milliseconds; its number.
    async fn create(&mut self, due_in_millis: i64) -> i64 {
        let (order, deadline) = (self.next, unix_millis(SystemTime::now()) + due_in_millis);
        self.next += 1;
        self.client.call(&format!("create {order} {deadline}")).await;
        assert_eq!(self.shop.deadlines().await[&order], deadline, "the row has the very deadline");
        order
    }

    /// When the order's key expires; -2 when there is none.
    fn expiry(&self, order: i64) -> i64 {
        self.redis.command(&["PEXPIRETIME", &format!("order_{order}")]).integer()
    }

    /// Waits until the client reaches Redis, as at its start and after a failure.
    async fn is_connected(&mut self) {
        wait::until("the redis server answers", async || self.redis.try_command(&["PING"]) == Ok(Reply::Text("PONG".into()))).await;
        let mut order = self.create(600_000).await;
        while self.expiry(order) == -2 {
            assert!(self.next < 1_000, "the client writes no keys");
            tokio::time::sleep(Duration::from_millis(50)).await;
            order = self.create(600_000).await;
        }
    }

    async fn keeps_its_word(&mut self) {
        let [closes, paid, extended, cancelled] =
            [self.create(2_000).await, self.create(4_000).await, self.create(2_000).await, self.create(4_000).await];
        for order in [closes, paid, extended, cancelled] {
            assert_eq!(self.expiry(order), self.shop.deadlines().await[&order], "key and row have one deadline");
        }
        assert_eq!(self.client.call(&format!("pay {paid}")).await, "true");
        assert_eq!(self.client.call(&format!("pay {paid}")).await, "false", "a second time");
        assert_eq!(self.client.call(&format!("cancel {cancelled}")).await, "true");
        for call in ["cancel {}", "pay {}", "extend {} 4102444800000"] {
            assert_eq!(self.client.call(&call.replace("{}", &cancelled.to_string())).await, "false", "{call} of a cancelled order");
        }
        for order in [paid, cancelled] {
            assert_eq!(self.expiry(order), -2, "its key is deleted");
        }
        let later = unix_millis(SystemTime::now()) + 4_000;
        assert_eq!(self.client.call(&format!("extend {extended} {later}")).await, "true");
        assert_eq!((self.expiry(extended), self.shop.deadlines().await[&extended]), (later, later));

        // The last deadline of all.
        let last = self.create(4_500).await;
        for order in [closes, extended, last] {
            self.shop.until_status(order, CLOSED).await;
            let early = format!("SELECT count(*) FROM orders WHERE order_no = {order} AND closed_at < expires_at");
            assert_eq!(self.shop.database.number(&early).await, 0, "order {order} was closed early");
        }
        assert_eq!(self.client.call(&format!("pay {closes}")).await, "false", "it is closed");
        let closures = self.shop.closures().await;
        assert_eq!((self.shop.status(paid).await, closures.get(&paid)), (PAID, None));
        assert_eq!((self.shop.status(cancelled).await, closures.get(&cancelled)), (CLOSED, None), "not by the daemon");
        assert_eq!(closures.get(&closes), Some(&1));
    }

    /// While Redis answers nothing, or can't be reached.
    async fn goes_on_without_redis(&mut self, how: &str) {
        let (deadline, order) = (unix_millis(SystemTime::now()) + 5_000, self.next);
        self.next += 2;
        for (call, answer) in [
            (format!("create {order} {deadline}"), "done"),
            (format!("create {} {deadline}", order + 1), "done"),
            (format!("pay {order}"), "true"),
        ] {
            let answered = self.client.answer(&call).await;
            assert_eq!(answered.text, answer, "{call} while Redis is {how}");
            assert!(answered.took < PROMPT, "{call} took {:?} while Redis is {how}", answered.took);
        }
        self.shop.until_status(order + 1, CLOSED).await;
        assert_eq!(self.shop.status(order).await, PAID, "its deadline was the same");
    }
}
