//! Something goes away and comes back: how soon is nothing overdue?

use std::{path::Path, time::Duration};

use serde::{Deserialize, Serialize};

use super::steady::ARTICLES;
use crate::{
    flash_sale, lateness,
    lateness::Due,
    options::Options,
    orders,
    orders::Millis,
    plots,
    plots::TimeLine,
    progress::Progress,
    report::{Figures, Goal},
    servers,
    shop::Shop,
    stage,
    stage::Plan,
    support::{Redis, postgres::Postgres},
    table::{Table, grouped, rounded},
};

/// How many orders fall due in a second.
const PER_SECOND: u32 = 500;

/// How long all is well before and, at least, after.
const CALM_BEFORE: u32 = 5;
const CALM_AFTER: u32 = 10;

/// An order that is open for longer than this after its deadline is overdue.
const OVERDUE: i64 = 100_000;

/// How long recovery may take besides the backlog.
const ALLOWANCE_S: f64 = 2.0;

/// Every part that can go away.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Recovery {
    away_s: u32,
    burst_per_s: f64,
    outages: Vec<Outage>,
}

/// What goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    Redis,
    Database,
    Daemon,
}

impl Part {
    const ALL: [Self; 3] = [Self::Redis, Self::Database, Self::Daemon];

    fn name(self) -> &'static str {
        match self {
            Self::Redis => "Redis",
            Self::Database => "PostgreSQL",
            Self::Daemon => "order-closer",
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Outage {
    part: Part,
    /// How long it was away, until it accepted connections again or was started.
    away_s: f64,
    /// Overdue orders at that moment.
    backlog: u64,
    /// From then until nothing was overdue.
    recovered_after_s: f64,
    /// Seconds since the outage began, and overdue orders.
    overdue: Vec<(f64, u64)>,
}

/// Measures.
pub async fn run(options: &Options, progress: &Progress) -> Recovery {
    progress.begin("recovery", 1 + Part::ALL.len());
    let (mut server, mut redis) = (servers::postgres(), servers::redis());
    let mut shop = servers::shop_on(&server, None).await;
    let orders = options.bursts.iter().copied().min().unwrap_or_default();
    progress.step(&format!("{orders} orders at once, for the rate of a burst"));
    let burst = flash_sale::by_daemons(&mut shop, &redis, orders, ARTICLES, 1).await;
    let mut recovery = Recovery { away_s: options.away, burst_per_s: f64::from(orders) / burst.took.as_secs_f64(), outages: Vec::new() };
    for part in Part::ALL {
        progress.step(&format!("{} away for {} s", part.name(), options.away));
        let outage = interrupt(part, &mut server, &mut redis, &mut shop, options.away).await;
        progress.result(&format!("{} overdue when it was back, none after {:.2} s", outage.backlog, outage.recovered_after_s));
        recovery.outages.push(outage);
    }
    recovery
}

async fn interrupt(part: Part, server: &mut Postgres, redis: &mut Redis, shop: &mut Shop, away: u32) -> Outage {
    let seconds = CALM_BEFORE + away + CALM_AFTER;
    let over = Millis::from(seconds) * 1_000;
    let plan = Plan { orders: PER_SECOND * seconds, over, articles: ARTICLES, daemons: 1, log: "info" };
    let (orders, mut daemons) = stage::set(shop, redis, plan).await;
    orders::sleep_until(orders.due_from + Millis::from(CALM_BEFORE) * 1_000).await;
    let gone = orders::now();
    match part {
        Part::Redis => redis.kill(),
        Part::Database => server.kill(),
        Part::Daemon => daemons[0].kill(),
    }
    tokio::time::sleep(Duration::from_secs(away.into())).await;
    match part {
        Part::Redis => redis.restart_empty(),
        Part::Database => server.start_again(),
        Part::Daemon => {}
    }
    // Other servers count from when they accept connections, the daemon from when it is started.
    let back = orders::now();
    if part == Part::Daemon {
        daemons = vec![servers::daemon(&shop.settings(redis).set("log.level", plan.log)).await];
    }
    stage::until_closed(shop, orders.due_from + over).await;
    stage::stop(&daemons).await;
    shop.assert_all_closed("order-closer").await;
    let due = lateness::fell_due(shop, orders.due_from, orders.due_from + over).await;
    let overdue = Overdue::new(&due);
    let samples = (-Millis::from(CALM_BEFORE) * 4..Millis::from(away + CALM_AFTER) * 4).map(|quarter| quarter * 250);
    Outage {
        part,
        away_s: (back - gone) as f64 / 1_000.0,
        backlog: overdue.at(back * 1_000),
        recovered_after_s: (overdue.none_from(back * 1_000) - back * 1_000) as f64 / 1_000_000.0,
        overdue: samples.map(|since| (since as f64 / 1_000.0, overdue.at((gone + since) * 1_000))).collect(),
    }
}

/// For each order that was, from when to when it was overdue; by the beginning. Microseconds since 1970.
struct Overdue(Vec<(i64, i64)>);

impl Overdue {
    fn new(due: &[Due]) -> Self {
        let span = |due: &Due| (due.deadline + OVERDUE, due.committed.unwrap_or(i64::MAX));
        let mut spans: Vec<(i64, i64)> = due.iter().map(span).filter(|(from, until)| from < until).collect();
        spans.sort_unstable();
        Self(spans)
    }

    fn at(&self, moment: i64) -> u64 {
        self.0.iter().filter(|(from, until)| (*from..*until).contains(&moment)).count() as u64
    }

    /// The first moment from this one at which nothing is overdue.
    fn none_from(&self, moment: i64) -> i64 {
        self.0.iter().fold(moment, |none, &(from, until)| if from <= none { none.max(until) } else { none })
    }
}

impl Recovery {
    fn limit_s(&self, outage: &Outage) -> f64 {
        let limit = ALLOWANCE_S + outage.backlog as f64 / self.burst_per_s;
        (limit * 100.0).round() / 100.0
    }
}

impl Figures for Recovery {
    const TITLE: &str = "Recovery";
    const ABOUT: &str = "500 orders a second fall due on PostgreSQL; Redis, PostgreSQL or the daemon is killed, and started again after a while, \
        Redis without its data. Overdue is what is open 100 ms after its deadline. The clock starts when the server accepts connections again or \
        the daemon is started; the goal is 2 s and the time that a burst of the backlog's size takes.";

    fn tables(&self) -> Vec<Table> {
        let mut table = Table::new(["away", "for", "overdue on return", "none overdue after", "goal"]);
        for outage in &self.outages {
            table.row([
                outage.part.name().to_owned(),
                format!("{:.1} s", outage.away_s),
                grouped(outage.backlog),
                format!("{:.2} s", outage.recovered_after_s),
                format!("{:.2} s", self.limit_s(outage)),
            ]);
        }
        let mut rate = Table::new(["order-closer's rate in a burst, closures/s"]);
        rate.row([rounded(self.burst_per_s)]);
        vec![table, rate]
    }

    fn goals(&self) -> Vec<Goal> {
        let goal = |outage: &Outage| {
            Goal::at_most(format!("{} away: recovered after", outage.part.name()), outage.recovered_after_s, self.limit_s(outage), "s")
        };
        self.outages.iter().map(goal).collect()
    }

    fn plot(&self, folder: &Path) -> (&'static str, &'static str) {
        let file = "recovery.svg";
        let count = |outage: &Outage| outage.overdue.iter().map(|&(at, count)| (at, count as f64)).collect::<Vec<_>>();
        let highest = self.outages.iter().flat_map(count).map(|point| point.1).fold(0.0, f64::max);
        plots::page(&folder.join(file), 280, |page| {
            for (area, outage) in page.split_evenly((1, self.outages.len())).iter().zip(&self.outages) {
                let title = format!("{} away", outage.part.name());
                let (x, y) = ("seconds since it was killed", "overdue orders");
                let shaded = (0.0, outage.away_s);
                TimeLine { title: &title, x, y, highest, shaded, points: &count(outage) }.draw(area)?;
            }
            Ok(())
        });
        (file, "Overdue orders while Redis, PostgreSQL or the daemon is away, and after")
    }
}
