//! Orders that fall due at a steady rate: how late they are closed, and what a closure costs in processor time.

use std::{path::Path, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    lateness,
    lateness::Lateness,
    options::Options,
    orders,
    orders::Millis,
    plots,
    plots::{Bars, Line, LogLines},
    progress::Progress,
    report::{Figures, Goal},
    servers,
    shop::Shop,
    stage,
    stage::Plan,
    support::{Redis, postgres::Postgres},
    table::{Table, grouped},
    usage,
};

/// Among so many articles, hot rows are no matter.
pub const ARTICLES: u32 = 10_000;

/// Each rate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Steady {
    seconds: u32,
    rates: Vec<Rate>,
}

/// What daemons made of a steady rate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rate {
    per_second: u32,
    /// How late orders were closed.
    pub lateness: Lateness,
    /// How often the daemons looked at an order.
    pub looks: u64,
    /// Processor time of all daemons.
    pub order_closer_us_per_closure: f64,
    redis_us_per_closure: f64,
    database_us_per_closure: f64,
}

/// Lets orders fall due at this rate for so many seconds, and so many daemons close them.
pub async fn flow(server: &Postgres, shop: &mut Shop, redis: &Redis, per_second: u32, seconds: u32, daemons: u32) -> Rate {
    let over = Millis::from(seconds) * 1_000;
    let plan = Plan { orders: per_second * seconds, over, articles: ARTICLES, daemons, log: "info" };
    let (orders, daemons) = stage::set(shop, redis, plan).await;
    let used = || {
        let daemons: Duration = daemons.iter().map(|daemon| usage::processor_time(daemon.pid())).sum();
        [daemons, usage::processor_time(redis.pid()), usage::processor_time(server.pid())]
    };
    orders::sleep_until(orders.due_from).await;
    let before = used();
    stage::until_closed(shop, orders.due_from + over).await;
    let after = used();
    let looks = stage::stop(&daemons).await;
    shop.assert_all_closed("order-closer").await;
    let each = |at: usize| (after[at] - before[at]).as_secs_f64() * 1_000_000.0 / f64::from(plan.orders);
    Rate {
        per_second,
        lateness: Lateness::of(&lateness::fell_due(shop, orders.due_from, orders.due_from + over).await),
        looks,
        order_closer_us_per_closure: each(0),
        redis_us_per_closure: each(1),
        database_us_per_closure: each(2),
    }
}

/// Measures.
pub async fn run(options: &Options, progress: &Progress) -> Steady {
    progress.begin("steady", options.rates.len());
    let (server, redis) = (servers::postgres(), servers::redis());
    let mut shop = servers::shop_on(&server, None).await;
    let mut rates = Vec::new();
    for &per_second in &options.rates {
        progress.step(&format!("{per_second} orders a second for {} s", options.seconds));
        let rate = flow(&server, &mut shop, &redis, per_second, options.seconds, 1).await;
        progress.result(&rate.lateness.to_string());
        rates.push(rate);
    }
    Steady { seconds: options.seconds, rates }
}

impl Figures for Steady {
    const TITLE: &str = "Steady";
    const ABOUT: &str = "Orders fall due at a steady rate, on PostgreSQL; each gives the stock of its item back, among 10,000 SKUs. Processor \
        time is that of the whole process from the first deadline to the last closure, divided by the closures.";

    fn tables(&self) -> Vec<Table> {
        let mut table = Table::new(["orders/s", "p50", "p90", "p99", "max", "order-closer, µs per closure", "Redis, µs", "PostgreSQL, µs"]);
        for rate in &self.rates {
            let Lateness { p50, p90, p99, max, .. } = rate.lateness;
            table.row([
                grouped(rate.per_second.into()),
                p50.to_string(),
                p90.to_string(),
                p99.to_string(),
                max.to_string(),
                format!("{:.0}", rate.order_closer_us_per_closure),
                format!("{:.0}", rate.redis_us_per_closure),
                format!("{:.0}", rate.database_us_per_closure),
            ]);
        }
        vec![table]
    }

    fn goals(&self) -> Vec<Goal> {
        let limit = |rate: &Rate| if rate.per_second <= 2_000 { 100.0 } else { 500.0 };
        let goal = |rate: &Rate| {
            let what = format!("{} orders/s: p99", grouped(rate.per_second.into()));
            Goal::at_most(what, rate.lateness.p99.ms, limit(rate), "ms")
        };
        self.rates.iter().map(goal).collect()
    }

    fn plot(&self, folder: &Path) -> (&'static str, &'static str) {
        let file = "steady.svg";
        let line = |color, of: fn(&Lateness) -> lateness::Percentile| Line {
            color,
            points: self
                .rates
                .iter()
                .map(|rate| (f64::from(rate.per_second), of(&rate.lateness).ms, of(&rate.lateness).at_least))
                .collect(),
        };
        let each = |of: fn(&Rate) -> f64| self.rates.iter().map(of).collect::<Vec<f64>>();
        plots::page(&folder.join(file), 360, |page| {
            let halves = page.split_evenly((1, 2));
            let rest = plots::legend(&halves[0], &[("p50", plots::BLUE), ("p99", plots::ORANGE), ("max", plots::VERMILION)])?;
            let lines = vec![
                line(plots::BLUE, |lateness| lateness.p50),
                line(plots::ORANGE, |lateness| lateness.p99),
                line(plots::VERMILION, |lateness| lateness.max),
            ];
            let chart = LogLines { title: "Lateness", x: "orders due per second", y: "lateness, ms", range: plots::decades(&lines), lines };
            chart.draw(&rest)?;
            let names = [("order-closer", plots::BLUE), ("Redis", plots::VERMILION), ("PostgreSQL", plots::GREY)];
            let rest = plots::legend(&halves[1], &names)?;
            let bars = Bars {
                title: "Processor time",
                y: "µs per closure",
                groups: self.rates.iter().map(|rate| [format!("{}/s", grouped(rate.per_second.into())), String::new()]).collect(),
                series: vec![
                    (plots::BLUE, each(|rate| rate.order_closer_us_per_closure)),
                    (plots::VERMILION, each(|rate| rate.redis_us_per_closure)),
                    (plots::GREY, each(|rate| rate.database_us_per_closure)),
                ],
                notes: Vec::new(),
                stacked: true,
            };
            bars.draw(&rest)
        });
        (file, "Lateness and processor time per closure at a steady rate")
    }
}
