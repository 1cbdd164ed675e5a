//! A million orders pending and nothing due: what does the daemon cost?

use std::{path::Path, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    intake::{Feeder, Intake, LIFETIME, Signal},
    options::Options,
    orders,
    orders::Orders,
    plots,
    plots::Bars,
    progress::Progress,
    report::{Figures, Goal, median},
    servers,
    shop::Shop,
    support::{Daemon, Redis, postgres::Postgres},
    table::{Table, grouped},
    usage,
};

/// How many new orders are taken in a second: a million in half an hour.
const PER_SECOND: f64 = 555.0;

/// How often each is measured, in turn: what the daemon costs Redis is less than by what two windows differ.
const ROUNDS: usize = 3;

/// How long the daemon runs before it is looked at.
const WARM_UP: Duration = Duration::from_secs(5);

/// With and without the daemon, with and without new orders.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cost {
    pending: u32,
    windows: Vec<Window>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Window {
    new_orders: bool,
    daemon: Option<DaemonCost>,
    redis_percent: f64,
    redis_commands_per_s: f64,
    database_percent: f64,
    database_transactions_per_s: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct DaemonCost {
    percent: f64,
    resident_mib: f64,
}

/// What has been counted up to now.
struct Reading {
    at: std::time::Instant,
    redis: Duration,
    commands: f64,
    database: Duration,
    transactions: i64,
    daemon: Duration,
}

struct Stage {
    server: Postgres,
    redis: Arc<Redis>,
    shop: Arc<Shop>,
}

impl Stage {
    async fn read(&self, daemon: Option<&Daemon>) -> Reading {
        let info = self.redis.command(&["INFO"]).text();
        let field = |name: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|value| value.trim().parse::<f64>().ok()).unwrap_or_else(|| panic!("INFO has no {name}"))
        };
        let used = ["used_cpu_sys", "used_cpu_user"].map(field);
        let transactions = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
        Reading {
            at: std::time::Instant::now(),
            redis: Duration::from_secs_f64(used.iter().sum()),
            commands: field("total_commands_processed"),
            transactions: self.shop.database.number(transactions).await,
            database: usage::processor_time(self.server.pid()),
            daemon: daemon.map_or(Duration::ZERO, |daemon| usage::processor_time(daemon.pid())),
        }
    }

    async fn window(&self, seconds: u32, new_orders: bool, daemon: Option<&Daemon>) -> Window {
        // What the window before has left behind is written now, not in the middle of this one.
        self.shop.settle().await;
        self.redis.command(&["SAVE"]);
        tokio::time::sleep(WARM_UP).await;
        let before = self.read(daemon).await;
        tokio::time::sleep(Duration::from_secs(seconds.into())).await;
        let after = self.read(daemon).await;
        let took = after.at - before.at;
        Window {
            new_orders,
            daemon: daemon.map(|daemon| DaemonCost {
                percent: usage::percent(after.daemon - before.daemon, took),
                resident_mib: daemon.resident_kib() as f64 / 1_024.0,
            }),
            redis_percent: usage::percent(after.redis - before.redis, took),
            redis_commands_per_s: (after.commands - before.commands) / took.as_secs_f64(),
            database_percent: usage::percent(after.database - before.database, took),
            database_transactions_per_s: (after.transactions - before.transactions) as f64 / took.as_secs_f64(),
        }
    }
}

/// Measures.
pub async fn run(options: &Options, progress: &Progress) -> Cost {
    let pending = options.sizes.iter().copied().max().unwrap_or_default();
    progress.begin("cost", 1 + 4 * ROUNDS);
    progress.step(&format!("{pending} orders are taken"));
    let server = servers::postgres();
    let shop = Arc::new(servers::shop_on(&server, None).await);
    let stage = Stage { server, redis: Arc::new(servers::redis()), shop };
    let intake = Intake { shop: Arc::clone(&stage.shop), signal: Signal::Key(Arc::clone(&stage.redis)) };
    // None falls due before everything is over.
    let orders = Orders { numbers: 1..i64::from(pending) + 1, due_from: orders::now() + LIFETIME, over: LIFETIME };
    intake.take(&orders).await;
    let mut next = orders.numbers.end;
    let mut windows = Vec::new();
    for new_orders in [false, true] {
        let feeder = new_orders.then(|| Feeder::start(vec![intake.clone()], PER_SECOND, next));
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let among = if new_orders { ", and new ones are taken" } else { "" };
            progress.step(&format!("nobody waits for them{among}"));
            without.push(stage.window(options.seconds, new_orders, None).await);
            progress.step(&format!("order-closer waits for them{among}"));
            let daemon = servers::daemon(&stage.shop.settings(&stage.redis)).await;
            with.push(stage.window(options.seconds, new_orders, Some(&daemon)).await);
            daemon.stop().await;
            assert_eq!(daemon.summary().count("closed"), 0, "nothing was due");
        }
        for rounds in [without, with] {
            let window = Window::median(&rounds);
            progress.result(&window.describe());
            windows.push(window);
        }
        if let Some(feeder) = feeder {
            next = feeder.stop().await;
        }
    }
    let faults = stage.shop.faults().await;
    assert!(faults.is_empty(), "order-closer: {}", faults.join("; "));
    Cost { pending, windows }
}

impl Window {
    /// Figure by figure; of the same kind all.
    fn median(rounds: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(&rounds.iter().map(figure).collect::<Vec<_>>());
        let of_daemon = |figure: fn(&DaemonCost) -> f64| {
            let figures: Vec<f64> = rounds.iter().filter_map(|window| window.daemon.as_ref().map(figure)).collect();
            (!figures.is_empty()).then(|| median(&figures))
        };
        Self {
            new_orders: rounds.iter().all(|window| window.new_orders),
            daemon: of_daemon(|cost| cost.percent)
                .zip(of_daemon(|cost| cost.resident_mib))
                .map(|(percent, resident_mib)| DaemonCost { percent, resident_mib }),
            redis_percent: of(|window| window.redis_percent),
            redis_commands_per_s: of(|window| window.redis_commands_per_s),
            database_percent: of(|window| window.database_percent),
            database_transactions_per_s: of(|window| window.database_transactions_per_s),
        }
    }

    fn describe(&self) -> String {
        let Self { redis_percent, database_percent, .. } = self;
        let daemon = self.daemon.as_ref().map_or_else(String::new, |DaemonCost { percent, resident_mib }| {
            format!("order-closer {percent:.1} % of a core, {resident_mib:.0} MiB; ")
        });
        format!("{daemon}Redis {redis_percent:.1} %, PostgreSQL {database_percent:.1} %")
    }
}

impl Cost {
    /// The windows with and without new orders, each without and with the daemon.
    fn pairs(&self) -> impl Iterator<Item = (&Window, &Window, &DaemonCost)> {
        self.windows.iter().filter_map(|with| {
            let without = self.windows.iter().find(|other| other.daemon.is_none() && other.new_orders == with.new_orders)?;
            Some((without, with, with.daemon.as_ref()?))
        })
    }
}

fn work(window: &Window) -> String {
    if window.new_orders { format!("{PER_SECOND} new orders/s") } else { "no new orders".into() }
}

impl Figures for Cost {
    const TITLE: &str = "Cost";
    const ABOUT: &str = "Many orders are pending on PostgreSQL and none is due; with and without new orders, each without and with the daemon, in \
        turn; medians of all turns. Processor time in per cent of one core, for all processes of PostgreSQL, and for Redis without the child that saves now and then.";

    fn tables(&self) -> Vec<Table> {
        let pending = format!("{} pending", grouped(self.pending.into()));
        let mut table =
            Table::new([&pending, "order-closer", "its memory", "Redis", "Redis, commands/s", "PostgreSQL", "PostgreSQL, transactions/s"]);
        for window in &self.windows {
            let daemon = |of: fn(&DaemonCost) -> String| window.daemon.as_ref().map_or_else(|| "none".to_owned(), of);
            table.row([
                work(window),
                daemon(|cost| format!("{:.2} %", cost.percent)),
                daemon(|cost| format!("{:.1} MiB", cost.resident_mib)),
                format!("{:.2} %", window.redis_percent),
                format!("{:.1}", window.redis_commands_per_s),
                format!("{:.2} %", window.database_percent),
                format!("{:.1}", window.database_transactions_per_s),
            ]);
        }
        vec![table]
    }

    fn goals(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        for (without, with, daemon) in self.pairs() {
            let name = work(with);
            goals.push(Goal::at_most(format!("{name}: resident memory"), daemon.resident_mib * 1.048_576, 64.0, "MB"));
            goals.push(Goal::at_most(format!("{name}: processor time"), daemon.percent, 2.0, "% of a core"));
            // Of a Redis that does nothing, any work is many per cent; in per cent of a core it is next to nothing.
            if with.new_orders {
                let more = 100.0 * (with.redis_percent / without.redis_percent - 1.0);
                goals.push(Goal::at_most(format!("{name}: more processor time of Redis"), more, 5.0, "%"));
            }
        }
        goals
    }

    fn plot(&self, folder: &Path) -> (&'static str, &'static str) {
        let file = "cost.svg";
        let each = |of: fn(&Window) -> f64| self.windows.iter().map(of).collect::<Vec<f64>>();
        let label = |window: &Window| [work(window), if window.daemon.is_some() { "with order-closer" } else { "without" }.to_owned()];
        plots::page(&folder.join(file), 340, |page| {
            let names = [("order-closer", plots::BLUE), ("Redis", plots::VERMILION), ("PostgreSQL", plots::GREY)];
            let rest = plots::legend(page, &names)?;
            let bars = Bars {
                title: &format!("Processor time with {} orders pending and none due", grouped(self.pending.into())),
                y: "per cent of one core",
                groups: self.windows.iter().map(label).collect(),
                series: vec![
                    (plots::BLUE, each(|window| window.daemon.as_ref().map_or(0.0, |daemon| daemon.percent))),
                    (plots::VERMILION, each(|window| window.redis_percent)),
                    (plots::GREY, each(|window| window.database_percent)),
                ],
                notes: Vec::new(),
                stacked: true,
            };
            bars.draw(&rest)
        });
        (file, "Processor time while orders are pending and none is due")
    }
}
