//! Many orders pending, new ones arriving as old ones fall due: how late is each closed, and by other ways?

use std::{path::Path, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    contestants,
    intake::{Feeder, Intake, LIFETIME, Signal},
    lateness,
    lateness::{Lateness, Percentile},
    options::Options,
    orders,
    orders::{Millis, Orders},
    plots,
    plots::{Line, LogLines},
    progress::Progress,
    report::{Figures, Goal},
    servers,
    shop::Shop,
    stage,
    support::{Redis, postgres::Postgres},
    table::{Table, grouped},
};

/// More orders than this are spread over more time, so that no more fall due in a second. The rivals, each of which has a
/// table of its own, are left out then: what they can is known.
const LARGEST_WITH_RIVALS: u32 = 1_000_000;

/// How long contestants run before it counts.
const WARM_UP: Millis = 5_000;

/// The rivals' window has whole periods of the slowest poller, so that each phase of it counts the same.
const SLOW_POLL: u32 = 30;
const FAST_POLL: u32 = 5;

/// Every number of pending orders.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Punctual {
    sizes: Vec<Size>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Size {
    pending: u32,
    ways: Vec<(Way, Lateness)>,
    /// Of order-closer, after the window with Redis; `None` in results from before it was looked at.
    resident_mib: Option<f64>,
}

/// The contestants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    PlainListener,
    SlowPoller,
    FastPoller,
    DelayQueue,
    OrderCloser,
    OrderCloserWithoutRedis,
}

impl Way {
    const ALL: [Self; 6] =
        [Self::PlainListener, Self::SlowPoller, Self::FastPoller, Self::DelayQueue, Self::OrderCloserWithoutRedis, Self::OrderCloser];

    fn name(self) -> &'static str {
        match self {
            Self::PlainListener => "plain listener",
            Self::SlowPoller => "poller, every 30 s",
            Self::FastPoller => "poller, every 5 s",
            Self::DelayQueue => "delay queue, polled every second",
            Self::OrderCloser => "order-closer",
            Self::OrderCloserWithoutRedis => "order-closer, Redis down",
        }
    }

    fn color(self) -> plots::RGBColor {
        match self {
            Self::PlainListener => plots::VERMILION,
            Self::SlowPoller => plots::PURPLE,
            Self::FastPoller => plots::ORANGE,
            Self::DelayQueue => plots::GREEN,
            Self::OrderCloser => plots::BLUE,
            Self::OrderCloserWithoutRedis => plots::SKY,
        }
    }
}

/// Measures.
pub async fn run(options: &Options, progress: &Progress) -> Punctual {
    progress.begin("punctual", 3 * options.sizes.len());
    let mut sizes = Vec::new();
    for &pending in &options.sizes {
        let server = servers::postgres();
        let mut ways = Vec::new();
        if pending <= LARGEST_WITH_RIVALS {
            progress.step(&format!("{pending} pending: the rivals"));
            ways = rivals(&server, pending, options.seconds).await;
        }
        let (own, resident_mib) = order_closer(&server, pending, options.seconds, progress).await;
        ways.extend(own);
        for (way, lateness) in &ways {
            progress.result(&format!("{}: {lateness}", way.name()));
        }
        progress.result(&format!("order-closer: {resident_mib:.1} MiB of resident memory"));
        sizes.push(Size { pending, ways, resident_mib: Some(resident_mib) });
    }
    Punctual { sizes }
}

/// Takes so many orders, whose deadlines begin now; returns the number of the next.
pub async fn fill(intakes: &[Intake], pending: u32) -> i64 {
    let orders = Orders { numbers: 1..i64::from(pending) + 1, due_from: orders::now(), over: lifetime(pending) };
    for intake in intakes {
        intake.take(&orders).await;
        intake.shop.settle().await;
    }
    orders.numbers.end
}

/// How long customers have to pay.
fn lifetime(pending: u32) -> Millis {
    LIFETIME * Millis::from(pending.max(LARGEST_WITH_RIVALS)) / Millis::from(LARGEST_WITH_RIVALS)
}

/// As many as fall due.
pub fn arrivals(pending: u32) -> f64 {
    f64::from(pending) * 1_000.0 / lifetime(pending) as f64
}

/// All at once, each with a table and a Redis of its own: their load is light.
async fn rivals(server: &Postgres, pending: u32, seconds: u32) -> Vec<(Way, Lateness)> {
    let keys = Arc::new(Redis::options().saving().with_notifications().start());
    let queue = Arc::new(servers::redis());
    let mut intakes = Vec::new();
    for signal in [Signal::Key(Arc::clone(&keys)), Signal::None, Signal::None, Signal::Member(Arc::clone(&queue))] {
        intakes.push(Intake { shop: Arc::new(servers::shop_on(server, None).await), signal });
    }
    let next = fill(&intakes, pending).await;
    let [listened, slowly, fast, queued] = [0, 1, 2, 3].map(|at| Arc::clone(&intakes[at].shop));
    let feeder = Feeder::start(intakes, arrivals(pending), next);
    let mut contestants =
        vec![contestants::plain_listener(&listened, &keys.url()).await, contestants::delay_queue(&queued, &queue.url()).await];
    tokio::time::sleep(Duration::from_millis(WARM_UP.unsigned_abs())).await;
    let from = orders::now();
    let until = from + Millis::from(seconds.next_multiple_of(SLOW_POLL)) * 1_000;
    for (shop, every) in [(&slowly, SLOW_POLL), (&fast, FAST_POLL)] {
        contestants.push(contestants::poller(shop, Duration::from_secs(every.into())).await);
    }
    for shop in [&slowly, &fast, &queued] {
        stage::until_closed(shop, until).await;
    }
    let mut ways = Vec::new();
    for (way, shop) in [(Way::PlainListener, listened), (Way::SlowPoller, slowly), (Way::FastPoller, fast), (Way::DelayQueue, queued)] {
        ways.push((way, Lateness::of(&lateness::fell_due(&shop, from, until).await)));
    }
    feeder.stop().await;
    ways
}

/// With Redis, then without it; nothing else runs. Returns the resident memory, too.
async fn order_closer(server: &Postgres, pending: u32, seconds: u32, progress: &Progress) -> ([(Way, Lateness); 2], f64) {
    progress.step(&format!("{pending} pending: order-closer"));
    let redis = Arc::new(servers::redis());
    let shop = Arc::new(servers::shop_on(server, None).await);
    let intake = |signal| Intake { shop: Arc::clone(&shop), signal };
    let next = fill(&[intake(Signal::Key(Arc::clone(&redis)))], pending).await;
    let daemon = servers::daemon(&shop.settings(&redis)).await;
    let feeder = Feeder::start(vec![intake(Signal::Key(Arc::clone(&redis)))], arrivals(pending), next);
    let with = window(&shop, seconds).await;
    let resident_mib = daemon.resident_kib() as f64 / 1_024.0;
    let next = feeder.stop().await;

    progress.step(&format!("{pending} pending: order-closer, Redis down"));
    redis.kill();
    let feeder = Feeder::start(vec![intake(Signal::None)], arrivals(pending), next);
    let without = window(&shop, seconds).await;
    feeder.stop().await;
    daemon.stop().await;
    let faults = shop.faults().await;
    assert!(faults.is_empty(), "order-closer: {}", faults.join("; "));
    ([(Way::OrderCloser, with), (Way::OrderCloserWithoutRedis, without)], resident_mib)
}

/// Warms up, until nothing is left of what fell due while the tables were filled; then it counts.
pub async fn window(shop: &Shop, seconds: u32) -> Lateness {
    stage::until_closed(shop, orders::now() + WARM_UP).await;
    let from = orders::now();
    let until = from + Millis::from(seconds) * 1_000;
    stage::until_closed(shop, until).await;
    Lateness::of(&lateness::fell_due(shop, from, until).await)
}

impl Figures for Punctual {
    const TITLE: &str = "Punctual";
    const ABOUT: &str = "So many orders are pending on PostgreSQL, with 30 minutes to pay, and new ones arrive as old ones fall due; more than a \
        million are spread over so much more time that no more fall due in a second. Lateness is the time of the commit, as PostgreSQL recorded \
        it, minus the deadline, of the orders that fell due in the measured window. What was still open at its end counts with the time since \
        its deadline, and the figure is marked ≥. The plain listener makes one SELECT and one UPDATE of each event; the pollers make one UPDATE \
        of all that is due; the delay queue is a sorted set in Redis.";

    fn tables(&self) -> Vec<Table> {
        let table = |size: &Size| {
            let pending = format!("{} pending", grouped(size.pending.into()));
            let mut table = Table::new([&pending, "fell due", "closed", "p50", "p90", "p99", "max"]);
            for (way, Lateness { due, closed, p50, p90, p99, max }) in &size.ways {
                let figures = [p50, p90, p99, max].map(Percentile::to_string);
                let [p50, p90, p99, max] = figures;
                table.row([way.name().to_owned(), grouped(*due), grouped(*closed), p50, p90, p99, max]);
            }
            table
        };
        let mut memory = Table::new(["pending", "order-closer's resident memory"]);
        for Size { pending, resident_mib, .. } in &self.sizes {
            if let Some(mib) = resident_mib {
                memory.row([grouped((*pending).into()), format!("{mib:.1} MiB")]);
            }
        }
        let memory = self.sizes.iter().any(|size| size.resident_mib.is_some()).then_some(memory);
        self.sizes.iter().map(table).chain(memory).collect()
    }

    fn goals(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        for Size { pending, ways, resident_mib } in &self.sizes {
            let pending = grouped((*pending).into());
            if let Some(mib) = resident_mib {
                goals.push(Goal::at_most(format!("order-closer, {pending} pending: resident memory"), mib * 1.048_576, 64.0, "MB"));
            }
            for (way, Lateness { p50, p99, max, .. }) in ways {
                let mut goal = |what: &str, figure: &Percentile, limit| {
                    goals.push(Goal::at_most(format!("{}, {pending} pending: {what}", way.name()), figure.ms, limit, "ms"));
                };
                match way {
                    Way::OrderCloser => {
                        goal("p50", p50, 4.0);
                        goal("p99", p99, 9.0);
                        goal("max", max, 500.0);
                    }
                    Way::OrderCloserWithoutRedis => goal("max", max, 1_500.0),
                    Way::PlainListener | Way::SlowPoller | Way::FastPoller | Way::DelayQueue => {}
                }
            }
        }
        goals
    }

    fn plot(&self, folder: &Path) -> (&'static str, &'static str) {
        let file = "punctual.svg";
        let lines = |of: fn(&Lateness) -> Percentile| -> Vec<Line> {
            let line = |way: Way| {
                let figures = self.sizes.iter().filter_map(|size| {
                    let (_, lateness) = size.ways.iter().find(|(other, _)| *other == way)?;
                    Some((f64::from(size.pending), of(lateness).ms, of(lateness).at_least))
                });
                Line { color: way.color(), points: figures.collect() }
            };
            Way::ALL.map(line).into()
        };
        let (medians, p99s) = (lines(|lateness| lateness.p50), lines(|lateness| lateness.p99));
        let range = (plots::decades(&medians).0, plots::decades(&p99s).1);
        plots::page(&folder.join(file), 440, |page| {
            let [first, second] =
                [&Way::ALL[..3], &Way::ALL[3..]].map(|ways| ways.iter().map(|way| (way.name(), way.color())).collect::<Vec<_>>());
            let rest = plots::legend(page, &first)?;
            let rest = plots::legend(&rest, &second)?;
            for (half, (title, lines)) in
                rest.split_evenly((1, 2)).iter().zip([("Median (▲ at least)", medians), ("99 of 100 (▲ at least)", p99s)])
            {
                LogLines { title, x: "pending orders", y: "lateness, ms", range, lines }.draw(half)?;
            }
            Ok(())
        });
        (file, "Lateness by the number of pending orders, order-closer and other ways")
    }
}
