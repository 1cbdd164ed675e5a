//! Orders in many tables of several databases: how late is each closed, and the others when one of the databases is stopped?

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{
    lateness,
    lateness::{Due, Lateness, Percentile},
    options::Options,
    orders,
    orders::{Millis, Orders},
    plots,
    progress::Progress,
    report::{Figures, Goal},
    servers,
    shop::{CLOSED, UNPAID, numbers},
    stage,
    support::{Database, Kind, Redis, Settings, postgres::Postgres},
    table::{Table, grouped},
};

const DATABASES: usize = 4;
const TABLES: usize = 16;

/// So many fall due in a second.
const PER_SECOND: f64 = 555.0;

/// How long the daemon runs before it counts, how long a database is away before it counts, and for how long the last orders are
/// waited for. What is open then counts with the time since its deadline.
const WARM_UP: Millis = 10_000;
const AWAY: Millis = 5_000;
const LAST: Millis = 3_000;

/// In quiet, and of the other databases while one is stopped.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Shards {
    pending: u32,
    quiet: Lateness,
    others: Lateness,
    resident_mib: f64,
}

/// A database server, and what stands in its tables: every so many orders of all.
#[derive(Debug)]
struct Shard {
    server: Postgres,
    database: Database,
}

/// Measures.
pub async fn run(options: &Options, progress: &Progress) -> Shards {
    progress.begin("shards", 2);
    let pending = options.sizes.iter().max().copied().unwrap_or_default() * DATABASES as u32;
    progress.step(&format!("{pending} pending in {} tables of {DATABASES} databases", DATABASES * TABLES));
    let redis = servers::redis();
    let mut shards = Vec::new();
    for _ in 0..DATABASES {
        let server = servers::postgres();
        let database = Database::on_postgres(&server).await;
        shards.push(Shard { server, database });
    }
    let over = (f64::from(pending) / PER_SECOND * 1_000.0) as Millis;
    // They fall due only when all are there.
    let ahead = 10_000 + Millis::from(pending) / 25;
    let all = Orders { numbers: 0..pending.into(), due_from: orders::now() + ahead, over };
    for (at, shard) in shards.iter().enumerate() {
        fill(&shard.database, at, &all).await;
    }
    stage::write_keys(&redis, &all);
    orders::sleep_until(all.due_from - 2_000).await;
    let daemon = servers::daemon(&settings(&redis, &shards)).await;

    let quiet = window(&shards, orders::now().max(all.due_from) + WARM_UP, options.seconds).await;
    let resident_mib = daemon.resident_kib() as f64 / 1_024.0;
    progress.result(&format!("in quiet: {quiet}; {resident_mib:.1} MiB of resident memory"));

    progress.step("one of the databases is stopped");
    let stopped = shards.pop().expect("there are some");
    stopped.server.kill();
    let others = window(&shards, orders::now() + AWAY, options.seconds).await;
    progress.result(&format!("of the others: {others}"));
    daemon.stop().await;
    Shards { pending, quiet, others, resident_mib }
}

/// Order n stands in the table n % 64 of all.
async fn fill(database: &Database, at: usize, all: &Orders) {
    let step = DATABASES * TABLES;
    let rows = numbers(Kind::Postgres, 0, (all.count() - 1) / step as i64);
    for table in 0..TABLES {
        let number = format!("(n * {step} + {})", at * TABLES + table);
        let deadline = all.deadline_sql(&number, "/");
        database
            .execute(&format!(
                "CREATE TABLE t_order_{table} (order_no bigint PRIMARY KEY, status integer NOT NULL, expires_at timestamptz NOT NULL);
                 INSERT INTO t_order_{table} SELECT {number}, {UNPAID}, to_timestamp({deadline} / 1000.0) FROM {rows} WHERE {number} < {end};
                 CREATE INDEX order_closer_due_{table} ON t_order_{table} (expires_at, order_no) WHERE status IN ('0')",
                end = all.numbers.end
            ))
            .await;
    }
    database.rows("VACUUM ANALYZE").await;
    database.rows("CHECKPOINT").await;
}

fn settings(redis: &Redis, shards: &[Shard]) -> Settings {
    let table = format!("ds_{{0..{}}}.t_order_{{0..{}}}", DATABASES - 1, TABLES - 1);
    let settings = Settings::new().set("redis.url", redis.url()).set("orders.table", table).set("log.format", "json");
    let named = |settings: Settings, (at, shard): (usize, &Shard)| settings.set(&format!("databases.ds_{at}"), shard.database.url.as_str());
    shards.iter().enumerate().fold(settings.set("orders.closed", CLOSED), named)
}

/// Of the orders of these databases that fall due in so many seconds from this moment on.
async fn window(shards: &[Shard], from: Millis, seconds: u32) -> Lateness {
    let until = from + Millis::from(seconds) * 1_000;
    orders::sleep_until(until + LAST).await;
    let mut due = Vec::new();
    for shard in shards {
        due.extend(fell_due(&shard.database, from, until).await);
    }
    Lateness::of(&due)
}

async fn fell_due(database: &Database, from: Millis, until: Millis) -> Vec<Due> {
    let mut due = Vec::new();
    for table in 0..TABLES {
        due.extend(lateness::fell_due_in(database, &format!("t_order_{table}"), from, until).await);
    }
    due
}

impl Figures for Shards {
    const TITLE: &str = "Shards";
    const ABOUT: &str = "A daemon closes the orders of 64 tables, sixteen in each of four PostgreSQL servers, of which so many are pending that 555 \
        fall due in a second, each with a key in Redis. Then one of the servers is killed, and what falls due in the other three is measured from \
        5 s on. Lateness is that of punctual.";

    fn tables(&self) -> Vec<Table> {
        let pending = format!("{} pending", grouped(self.pending.into()));
        let mut table = Table::new([&pending, "fell due", "closed", "p50", "p90", "p99", "max"]);
        for (what, Lateness { due, closed, p50, p90, p99, max }) in
            [("all four there", &self.quiet), ("one stopped: orders of the others", &self.others)]
        {
            let [p50, p90, p99, max] = [p50, p90, p99, max].map(Percentile::to_string);
            table.row([what.to_owned(), grouped(*due), grouped(*closed), p50, p90, p99, max]);
        }
        vec![table]
    }

    fn goals(&self) -> Vec<Goal> {
        vec![
            Goal::at_most("all four databases there: p99", self.quiet.p99.ms, 25.0, "ms"),
            Goal::at_most("one stopped, the others: p99", self.others.p99.ms, 25.0, "ms"),
        ]
    }

    fn notes(&self) -> Vec<String> {
        vec![format!("The daemon's resident memory was {:.1} MiB.", self.resident_mib)]
    }

    fn plot(&self, folder: &Path) -> (&'static str, &'static str) {
        let file = "shards.svg";
        let both = [&self.quiet, &self.others];
        let each = |of: fn(&Lateness) -> Percentile| both.map(|lateness| of(lateness).ms).to_vec();
        plots::page(&folder.join(file), 340, |page| {
            let rest = plots::legend(page, &[("p50", plots::SKY), ("p99", plots::BLUE)])?;
            let bars = plots::Bars {
                title: "Lateness of orders in four databases",
                y: "milliseconds",
                groups: vec![["all four there".to_owned(), String::new()], ["one stopped:".to_owned(), "orders of the others".to_owned()]],
                series: vec![(plots::SKY, each(|lateness| lateness.p50)), (plots::BLUE, each(|lateness| lateness.p99))],
                notes: Vec::new(),
                stacked: false,
            };
            bars.draw(&rest)
        });
        (file, "Lateness of orders in four databases, and of the others when one is stopped")
    }
}
