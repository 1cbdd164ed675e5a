//! `order-closer demo`: a whole shop in miniature, and a table of what became of its orders.
//!
//! Everything is real: a private Redis from the shipped `redis.conf`, a SQLite shop, payments that race
//! the deadline, and this same program running as its daemon in a process of its own. In the middle the
//! daemon loses its subscription.

mod report;
mod servers;
mod shop;

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use rand::Rng;
use tokio::task::JoinSet;

use crate::{
    cli::{CommandResult, Exit, Failure, output::say, print},
    redis::Commands,
};
use report::Report;
use servers::{Daemon, PrivateRedis};
use shop::{Counts, Shop};

/// How long after the first order's creation the first deadline comes.
const HEAD_START: Duration = Duration::from_secs(3);

/// How long after the last deadline every unpaid order must have been closed.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// How many orders the shop takes.
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    orders: u32,
    /// Over how many seconds their deadlines spread.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

pub(super) async fn run(arguments: Arguments) -> CommandResult {
    let folder = tempfile::tempdir().map_err(|error| Failure::new(Exit::Software, format!("no temporary folder: {error}")))?;
    let redis = PrivateRedis::start(folder.path()).await?;
    say(&format!("Redis from the shipped redis.conf on port {}, shop in SQLite,\ndaemon in a process of its own.", redis.port));
    let shop = Shop::create(folder.path()).await?;
    let daemon = Daemon::start(folder.path(), &redis)?;
    daemon.wait_until_listening().await?;

    let keys = Commands::connect(&redis.settings()?).await?;
    let spread = Duration::from_secs(arguments.seconds);
    let payments = take_orders(&shop, &keys, arguments.orders, spread).await?;
    let last_deadline = Instant::now() + HEAD_START + spread;
    say(&format!(
        "{} orders taken, their deadlines spread over {} s;\nsome are being paid, some of those too late.",
        arguments.orders, arguments.seconds
    ));

    let progress = Progress::new(arguments.orders);
    let payments = tokio::spawn(payments.join_all());
    let kill_at = Instant::now() + HEAD_START + spread / 2;
    let mut killed = None;
    loop {
        let counts = shop.counts().await?;
        progress.show(&counts);
        if killed.is_none() && Instant::now() >= kill_at {
            killed = Some(keys.kill_subscribers().await?);
            progress.say("The daemon's subscription has been cut. Nothing may be lost.");
        }
        let over = Instant::now() > last_deadline && payments.is_finished();
        if over && (counts.pending == 0 || Instant::now() > last_deadline + PATIENCE) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    progress.end();
    let payments = payments
        .await
        .map_err(|error| Failure::new(Exit::Software, error.to_string()))?
        .into_iter()
        .collect::<Result<Vec<_>, Failure>>()?;
    let summary = daemon.stop().await?;
    let report = Report::new(shop.outcome().await?, &payments, &summary, killed.unwrap_or(0));
    print(&report.table());
    Ok(if report.holds() { Exit::Done } else { Exit::Software })
}

/// What became of an attempt to pay.
#[derive(Debug, Clone)]
struct Payment {
    order: String,
    accepted: bool,
}

/// Takes orders as an order service does, first the row, then the key, and sends some customers on
/// their way to pay.
async fn take_orders(shop: &Shop, keys: &Commands, orders: u32, spread: Duration) -> Result<JoinSet<Result<Payment, Failure>>, Failure> {
    let mut payments = JoinSet::new();
    for number in 1..=orders {
        let plan = Plan::random(spread);
        let order = format!("{number:05}");
        let deadline = shop.take_order(&order, plan.lifetime).await?;
        keys.set_until(&format!("order_{order}"), &order, deadline).await?;
        if let Some(pays_after) = plan.pays_after {
            let shop = shop.clone();
            payments.spawn(async move {
                tokio::time::sleep(pays_after).await;
                let accepted = shop.pay(&order).await?;
                Ok(Payment { order, accepted })
            });
        }
    }
    Ok(payments)
}

/// What a customer will do.
struct Plan {
    lifetime: Duration,
    pays_after: Option<Duration>,
}

impl Plan {
    fn random(spread: Duration) -> Self {
        let mut random = rand::rng();
        let lifetime = HEAD_START + spread.mul_f64(random.random());
        let pays_after = match random.random_range(0..10) {
            // In good time.
            0..3 => Some(lifetime.mul_f64(random.random())),
            // At the last moment, or just after it.
            3..5 => Some((lifetime + Duration::from_millis(random.random_range(0..60))).saturating_sub(Duration::from_millis(30))),
            _ => None,
        };
        Self { lifetime, pays_after }
    }
}

/// Live progress: a bar on a terminal, a line every two seconds elsewhere.
struct Progress {
    bar: ProgressBar,
    terminal: bool,
    last: std::cell::Cell<Option<Instant>>,
}

impl Progress {
    fn new(orders: u32) -> Self {
        let bar = ProgressBar::new(orders.into());
        if let Ok(style) = ProgressStyle::with_template("{bar:12} {msg}") {
            bar.set_style(style);
        }
        Self { bar, terminal: std::io::stderr().is_terminal(), last: std::cell::Cell::default() }
    }

    fn show(&self, counts: &Counts) {
        let text =
            format!("{} pending, {} paid, {} closed, late: {}", counts.pending, counts.paid, counts.closed, report::lateness(counts));
        self.bar.set_position(counts.paid + counts.closed);
        if self.terminal {
            self.bar.set_message(text);
        } else if self.last.get().is_none_or(|last| last.elapsed() > Duration::from_secs(2)) {
            self.last.set(Some(Instant::now()));
            say(&text);
        }
    }

    fn say(&self, text: &str) {
        self.bar.suspend(|| say(text));
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}
