//! Somebody is asked before each order closes: how late orders close that were asked about ahead, and how soon a crowd is closed
//! that is asked about when it is due.

use std::{path::Path, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    flash_sale,
    lateness::Lateness,
    options::Options,
    plots,
    plots::Bars,
    progress::Progress,
    report::{Figures, Goal, median},
    scenarios::steady,
    servers,
    support::till::{Manner, Till},
    table::{Table, grouped},
};

/// How long the receiver takes for each request: where it is asked ahead, and for the crowd.
const AHEAD: Duration = Duration::from_millis(500);
const CROWD: Duration = Duration::from_millis(20);

/// Orders that fall due in a second, and in the crowd.
const PER_SECOND: u32 = 200;
const ORDERS: u32 = 10_000;

/// What was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ask {
    ahead: Lateness,
    crowd_s: Vec<f64>,
}

/// Measures.
pub async fn run(options: &Options, progress: &Progress) -> Ask {
    progress.begin("ask", 1 + options.rounds as usize);
    let (server, redis, till) = (servers::postgres(), servers::redis(), Till::start().await);
    let mut shop = servers::shop_on(&server, None).await;
    progress.step(&format!("{PER_SECOND} orders a second, asked about a second ahead"));
    till.is(Manner::Slow(AHEAD));
    shop.ask(till.settings("ahead = '1s'"));
    let rate = steady::flow(&server, &mut shop, &redis, PER_SECOND, options.seconds, 1).await;
    progress.result(&rate.lateness.to_string());
    till.is(Manner::Slow(CROWD));
    shop.ask(till.settings(""));
    let mut crowd_s = Vec::new();
    for _ in 0..options.rounds {
        progress.step(&format!("{ORDERS} orders at one instant, asked about when they are due"));
        let took = flash_sale::by_daemons(&mut shop, &redis, ORDERS, steady::ARTICLES, 1).await.took;
        progress.result(&format!("closed within {took:.2?}"));
        crowd_s.push(took.as_secs_f64());
    }
    Ask { ahead: rate.lateness, crowd_s }
}

impl Figures for Ask {
    const TITLE: &str = "Asked before closing";
    const ABOUT: &str = "Somebody is asked before each order closes, on PostgreSQL. With `ahead = \"1s\"` orders fall due at a steady rate, and \
        the receiver takes 500 ms for each request; in the crowd 10,000 orders fall due at one instant, are asked about then, in batches of \
        100, four at a time, and the receiver takes 20 ms for each.";

    fn tables(&self) -> Vec<Table> {
        let Lateness { p50, p90, p99, max, .. } = self.ahead;
        let mut ahead = Table::new(["orders/s, a second ahead", "p50", "p90", "p99", "max"]);
        ahead.row([grouped(PER_SECOND.into()), p50.to_string(), p90.to_string(), p99.to_string(), max.to_string()]);
        let mut crowd = Table::new(["orders at one instant", "closed within"]);
        crowd.row([grouped(ORDERS.into()), format!("{:.2} s", median(&self.crowd_s))]);
        vec![ahead, crowd]
    }

    fn goals(&self) -> Vec<Goal> {
        vec![
            Goal::at_most("asked a second ahead: p99", self.ahead.p99.ms, 25.0, "ms"),
            Goal::at_most(format!("{} at one instant", grouped(ORDERS.into())), median(&self.crowd_s), 2.0, "s"),
        ]
    }

    fn plot(&self, folder: &Path) -> (&'static str, &'static str) {
        let file = "ask.svg";
        plots::page(&folder.join(file), 300, |page| {
            let Lateness { p50, p90, p99, .. } = self.ahead;
            let bars = Bars {
                title: "Lateness, asked a second ahead",
                y: "ms",
                groups: ["p50", "p90", "p99"].map(|name| [name.to_owned(), String::new()]).into(),
                series: vec![(plots::BLUE, vec![p50.ms, p90.ms, p99.ms])],
                notes: Vec::new(),
                stacked: false,
            };
            bars.draw(page)
        });
        (file, "Lateness of orders that were asked about a second ahead")
    }
}
