//! Whoever does the faults of the plan, each at its moment, and mends each: whatever a fault leaves behind is undone before the
//! run ends.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tokio::{sync::Mutex, task::block_in_place};

use super::{
    faults::{Far, Fault, Network, Receiver, Subject, What},
    redis,
    scene::{Scene, faketime, now},
    shop,
};
use crate::support::{Daemon, Kind, Proxy, database::Rows, order_closer, proxy::Towards, receiver::Behaviour, till::Manner};

/// A fault as it happened, in milliseconds since 1970.
#[derive(Debug, Clone)]
pub struct Happened {
    /// What.
    pub what: What,
    /// From then.
    pub began: i64,
    /// Until then, when it was mended.
    pub ended: i64,
}

impl Happened {
    /// Whether it had to do with the keys, or with whether daemons could read them.
    pub fn concerns_keys(&self) -> bool {
        matches!(
            self.what,
            What::Network(Far::Redis, ..)
                | What::RedisFrozen
                | What::RedisRestarted
                | What::RedisRestartedEmpty
                | What::RedisFlushed
                | What::RedisFull
                | What::RedisClientsKilled
                | What::LoginRefused(Far::Redis)
                | What::DiskFull(Far::Redis)
                | What::CertificateChanged
                | What::NodeKilled(_)
                | What::NodeFrozen(_)
                // To whom today is yesterday, no certificate is valid yet.
                | What::Skewed(..0)
        )
    }
}

/// The pause between two repetitions of what happens again and again.
pub const AGAIN: Duration = Duration::from_millis(350);

/// How long mending is tried.
const MENDING: Duration = Duration::from_secs(60);

/// Works through the faults; returns when and how they were. What takes long to mend on a busy machine puts off what comes next for
/// the same subject.
pub async fn work(scene: &Scene, faults: &[Fault]) -> Vec<Happened> {
    let turns: BTreeMap<Subject, Mutex<()>> = faults.iter().map(|fault| (fault.what.subject(), Mutex::default())).collect();
    let each = faults.iter().map(async |fault| {
        scene.until(fault.at).await;
        let _turn = turns[&fault.what.subject()].lock().await;
        let began = now();
        eprintln!("{:>8.1} s  {:?}, for {:.1} s", (began - scene.began) as f64 / 1e3, fault.what, fault.lasts as f64 / 1e3);
        happen(scene, fault.what, Duration::from_millis(u64::try_from(fault.lasts).unwrap_or_default())).await;
        Happened { what: fault.what, began, ended: now() }
    });
    futures::future::join_all(each).await
}

async fn happen(scene: &Scene, what: What, length: Duration) {
    match what {
        What::Killed(_) | What::Terminated(_) | What::Frozen(_) | What::Skewed(_) | What::Reloaded(_) => daemon(scene, what, length).await,
        What::Network(far, whose, network) => {
            let places = scene.places.iter().enumerate().filter(|(number, _)| whose.is_none_or(|whose| whose == *number));
            let proxies = places.filter_map(|(_, place)| place.network(far));
            futures::future::join_all(proxies.map(|proxy| trouble(proxy, network, length))).await;
        }
        What::RedisFrozen
        | What::RedisRestarted
        | What::RedisRestartedEmpty
        | What::RedisFlushed
        | What::RedisFull
        | What::RedisClientsKilled
        | What::RedisSilenced
        | What::RedisForged
        | What::LoginRefused(Far::Redis)
        | What::CertificateChanged
        | What::NodeKilled(_)
        | What::NodeFrozen(_)
        | What::ReplicaPromoted(_)
        | What::SlotsMoved(_) => redis::trouble(scene, what, length).await,
        What::DatabaseKilled => {
            let mut server = scene.server.lock().await;
            server.kill();
            tokio::time::sleep(length / 3).await;
            block_in_place(|| server.start_again());
        }
        What::DatabaseFrozen => {
            let server = scene.server.lock().await;
            server.freeze();
            tokio::time::sleep(length).await;
            server.thaw();
        }
        What::StandbyPromoted => scene.promote().await,
        What::DiskFull(far) => {
            let Some(disk) = &scene.disks[far as usize] else { return };
            let mut server = scene.server.lock().await;
            disk.fill();
            tokio::time::sleep(length).await;
            disk.empty();
            if far == Far::Database && !server.is_running() {
                block_in_place(|| server.start_again());
            }
            if far == Far::Database && scene.options.kind == Kind::MariaDb {
                rebuild_what_is_corrupt(scene).await;
            }
        }
        What::LoginRefused(Far::Database) => {
            let (user, kind) = (shop::user(scene.options.kind), scene.options.kind);
            let change = |postgres: &str, mariadb: &str| match kind {
                Kind::Postgres => format!("ALTER ROLE {user} {postgres}"),
                Kind::MariaDb | Kind::Sqlite => format!("ALTER USER {user} {mariadb}"),
            };
            insist(scene, &change("NOLOGIN", "ACCOUNT LOCK")).await;
            again_and_again(length, async || cut_sessions(scene).await).await;
            insist(scene, &change("LOGIN", "ACCOUNT UNLOCK")).await;
        }
        What::SessionsCut => again_and_again(length, async || cut_sessions(scene).await).await,
        What::RightsRevoked(orders) => {
            let (table, user) = (if orders { "orders" } else { "inventory" }, shop::user(scene.options.kind));
            insist(scene, &format!("REVOKE UPDATE ON {table} FROM {user}")).await;
            tokio::time::sleep(length).await;
            insist(scene, &format!("GRANT UPDATE ON {table} TO {user}")).await;
        }
        What::RowsHeld => {
            hold(scene, &["UPDATE orders SET paid_at = NULL WHERE order_no % 5 = 0 AND status = 0"], length).await;
        }
        What::StockHeld => hold(scene, &["UPDATE inventory SET stock = stock WHERE sku % 5 = 2"], length).await,
        What::TableLocked(orders) => {
            let table = if orders { "orders" } else { "inventory" };
            let lock = match scene.options.kind {
                Kind::Postgres => format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"),
                Kind::MariaDb | Kind::Sqlite => format!("LOCK TABLES {table} WRITE"),
            };
            hold(scene, &[&lock], length).await;
        }
        What::Paused => {
            let length_of_it = format!("{}ms", (length * 2).as_millis());
            // Where the database is away, nothing is paused.
            order_closer(&scene.settings(), &["pause", "--for", &length_of_it, "--reason", "chaos"]).await;
            tokio::time::sleep(length).await;
            let began = Instant::now();
            loop {
                let resumed = order_closer(&scene.settings(), &["resume"]).await;
                if resumed.code == Some(0) {
                    break;
                }
                assert!(began.elapsed() < MENDING, "closing can't be resumed: {resumed:#?}");
            }
        }
        What::Webhook(receiver) => {
            scene.receiver.usually(match receiver {
                Receiver::Hangs => Behaviour::Hang,
                Receiver::Slow(by) => Behaviour::Slow(Duration::from_millis(by)),
                Receiver::Fails => Behaviour::Status(500),
                Receiver::Drops => Behaviour::Drop,
                Receiver::Lies => Behaviour::Break,
                Receiver::Later => Behaviour::Later("1".into()),
            });
            tokio::time::sleep(length).await;
            scene.receiver.usually(Behaviour::Status(200));
        }
        What::Ask(receiver) => {
            scene.till.is(match receiver {
                Receiver::Hangs => Manner::Hang,
                Receiver::Slow(by) => Manner::Slow(Duration::from_millis(by)),
                // With words that would close, if anybody took them.
                Receiver::Fails => Manner::Status(500),
                Receiver::Drops => Manner::Drop,
                Receiver::Lies => Manner::Body(r#"{"orders": {"1": "close", "2": "close", "0": 7}}"#.into()),
                Receiver::Later => Manner::Status(429),
            });
            tokio::time::sleep(length).await;
            scene.till.is(Manner::Honest);
        }
    }
}

async fn daemon(scene: &Scene, what: What, length: Duration) {
    let (subject, clock) = (what.subject(), scene.clock());
    let Subject::Daemon(number) = subject else { unreachable!("of a daemon") };
    let place = &scene.places[number];
    let is_running = |daemon: &Daemon| {
        assert!(daemon.ended().is_none(), "daemon {number} has ended by itself: {:?}\n{}", daemon.ended(), tail(daemon));
    };
    match what {
        What::Killed(_) => {
            {
                let daemon = place.daemon().await;
                is_running(&daemon);
                daemon.kill();
            }
            tokio::time::sleep(length).await;
            place.start_again(Some(&clock)).await;
        }
        What::Terminated(_) => {
            {
                let daemon = place.daemon().await;
                is_running(&daemon);
                daemon.terminate();
                let status = daemon.wait().await;
                assert!(status.success(), "daemon {number} was stopped, and ended with {status}\n{}", tail(&daemon));
            }
            place.start_again(Some(&clock)).await;
        }
        What::Frozen(_) => {
            place.daemon().await.freeze();
            tokio::time::sleep(length).await;
            place.daemon().await.thaw();
        }
        What::Skewed(by) => {
            if faketime().is_some() {
                std::fs::write(&clock, format!("{by:+}\n")).expect("a file can be written");
                tokio::time::sleep(length).await;
                std::fs::write(&clock, "+0\n").expect("a file can be written");
            }
        }
        _ => {
            let settings = place.settings().toml();
            let other = place
                .settings()
                .clone()
                .set("sweep.every", "200ms")
                .set("sweep.page", 50)
                .set("log.level", "debug,order_closer::close=info");
            let daemon = place.daemon().await;
            is_running(&daemon);
            assert!(daemon.reload(&other.toml()).await, "these settings can be reloaded");
            tokio::time::sleep(length).await;
            assert!(daemon.reload(&settings).await, "and so can the old ones");
        }
    }
}

/// The last that a daemon has said.
fn tail(daemon: &Daemon) -> String {
    let lines = daemon.lines();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

async fn trouble(proxy: &Proxy, network: Network, length: Duration) {
    match network {
        Network::BlackHole => {
            proxy.black_hole();
            tokio::time::sleep(length).await;
            proxy.pass();
        }
        Network::Delay(by) => {
            proxy.delay(Duration::from_millis(by));
            tokio::time::sleep(length).await;
            proxy.delay(Duration::ZERO);
        }
        Network::Reset => again_and_again(length, async || proxy.reset()).await,
        Network::Close => again_and_again(length, async || proxy.close()).await,
        Network::HalfClose(towards_server) => {
            let towards = if towards_server { Towards::Server } else { Towards::Client };
            again_and_again(length, async || proxy.half_close(towards)).await;
        }
        Network::Refuse => {
            proxy.refuse().await;
            proxy.reset();
            tokio::time::sleep(length).await;
            proxy.accept().await;
        }
    }
}

/// Does something until the time is over, with pauses.
pub async fn again_and_again(length: Duration, what: impl AsyncFn()) {
    let end = Instant::now() + length;
    while Instant::now() < end {
        what().await;
        tokio::time::sleep(AGAIN).await;
    }
}

async fn cut_sessions(scene: &Scene) {
    let user = shop::USER;
    let sql = match scene.options.kind {
        Kind::Postgres => format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{user}'"),
        Kind::MariaDb | Kind::Sqlite => format!("KILL USER {user}"),
    };
    insist(scene, &sql).await;
}

/// Runs statements in a transaction that lasts so long and is rolled back. One that meets a deadlock holds nothing, which is as well.
async fn hold(scene: &Scene, statements: &[&str], length: Duration) {
    let mut transaction = scene.nemesis.begin().await;
    for statement in statements {
        transaction.try_execute(statement).await.ok();
    }
    tokio::time::sleep(length).await;
    // In MariaDB locks of tables are no transaction's. A session that was cut has let go.
    if scene.options.kind == Kind::MariaDb {
        transaction.try_execute("UNLOCK TABLES").await.ok();
    }
    transaction.try_execute("ROLLBACK").await.ok();
}

/// Runs a statement until the database has taken it.
async fn insist(scene: &Scene, sql: &str) -> Rows {
    let began = Instant::now();
    loop {
        match scene.nemesis.try_rows(sql).await {
            Ok(rows) => return rows,
            Err(error) => assert!(began.elapsed() < MENDING, "{error}\n{sql}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What an operator does whose server says so of an index. After a full disk MariaDB 10.11 has undone an INSERT in part: the row was
/// gone, and left were its entry in an index, by which nobody could read any more, and what its trigger had taken from the stock.
async fn rebuild_what_is_corrupt(scene: &Scene) {
    for table in insist(scene, "SHOW TABLES").await.into_iter().flatten().flatten() {
        let is_well = |row: &Vec<Option<String>>| row.last().is_some_and(|said| said.as_deref() == Some("OK"));
        if !insist(scene, &format!("CHECK TABLE {table}")).await.iter().all(is_well) {
            eprintln!("{:>8.1} s  {table} is corrupt, and rebuilt", (now() - scene.began) as f64 / 1e3);
            insist(scene, &format!("ALTER TABLE {table} FORCE")).await;
            insist(scene, &shop::recount()).await;
        }
    }
}
