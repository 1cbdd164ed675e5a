//! What recording events costs, and whether those that nobody takes slow the closing of others.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::steady::ARTICLES;
use crate::{
    flash_sale,
    options::{Base, Options},
    plots,
    progress::Progress,
    report::{Figures, Goal, median},
    servers,
    servers::Server,
    table::{Table, grouped, rounded},
};

/// Orders in each burst. Of 10,000 SQLite's took 52 to 102 ms in 25 turns: too few to tell a tenth.
const ORDERS: u32 = 30_000;

/// Events that wait for an endpoint where nobody listens.
const WAITING: u32 = 100_000;

/// The least turns of each; a single one says little about a tenth.
const TURNS: u32 = 5;

/// Every database.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outbox {
    cases: Vec<Case>,
}

/// How long each turn took, in seconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Case {
    database: Base,
    off_s: Vec<f64>,
    none_waiting_s: Vec<f64>,
    waiting_s: Vec<f64>,
}

fn per_s(turns: &[f64]) -> f64 {
    f64::from(ORDERS) / median(turns)
}

impl Case {
    /// Of closing with events waiting to closing with none.
    fn ratio(&self) -> f64 {
        per_s(&self.waiting_s) / per_s(&self.none_waiting_s)
    }

    /// Of closing with events to closing without.
    fn ratio_to_off(&self) -> f64 {
        per_s(&self.none_waiting_s) / per_s(&self.off_s)
    }
}

/// Measures.
pub async fn run(options: &Options, progress: &Progress) -> Outbox {
    let turns = options.rounds.max(TURNS);
    progress.begin("outbox", options.databases.len() * 3 * turns as usize);
    let mut outbox = Outbox { cases: Vec::new() };
    for &database in &options.databases {
        let (server, redis) = (Server::start(database), servers::redis());
        let mut shop = server.shop(None).await;
        shop.make_outbox(&redis).await;
        let mut case = Case { database, off_s: Vec::new(), none_waiting_s: Vec::new(), waiting_s: Vec::new() };
        for _ in 0..turns {
            for (records, waiting, took) in
                [(false, 0, &mut case.off_s), (true, 0, &mut case.none_waiting_s), (true, WAITING, &mut case.waiting_s)]
            {
                let events = if records { format!("{waiting} events waiting") } else { "no events".into() };
                progress.step(&format!("{}, {ORDERS} orders: {events}", database.name()));
                shop.set_outbox(records, waiting).await;
                took.push(flash_sale::by_daemons(&mut shop, &redis, ORDERS, ARTICLES, 1).await.took.as_secs_f64());
            }
        }
        progress.result(&format!(
            "without events {} per s, with events {} per s, and with {WAITING} waiting {} per s, ratio {:.2}",
            rounded(per_s(&case.off_s)),
            rounded(per_s(&case.none_waiting_s)),
            rounded(per_s(&case.waiting_s)),
            case.ratio()
        ));
        outbox.cases.push(case);
    }
    outbox
}

impl Figures for Outbox {
    const TITLE: &str = "Outbox";
    const ABOUT: &str = "30,000 orders of 10,000 SKUs are due at one instant: without events, with an event for each closure, and the same while \
        100,000 events wait for an endpoint where nobody listens, which the daemon keeps trying. Measured is until all are closed; rows of a \
        crowd's events are made right after. One after the other in each turn, at least five \
        turns; medians of all turns.";

    fn tables(&self) -> Vec<Table> {
        let waiting = format!("{} waiting, closures/s", grouped(WAITING.into()));
        let mut table =
            Table::new(["database", "no events, closures/s", "events, closures/s", "to no events", &waiting, "to none waiting"]);
        for case in &self.cases {
            table.row([
                case.database.name().to_owned(),
                rounded(per_s(&case.off_s)),
                rounded(per_s(&case.none_waiting_s)),
                format!("{:.2}", case.ratio_to_off()),
                rounded(per_s(&case.waiting_s)),
                format!("{:.2}", case.ratio()),
            ]);
        }
        vec![table]
    }

    fn goals(&self) -> Vec<Goal> {
        let goals = |case: &Case| {
            let (of, waiting) = (case.database.name(), grouped(WAITING.into()));
            [
                Goal::at_least(format!("{of}, events: ratio to no events"), case.ratio_to_off(), 0.7, ""),
                Goal::at_least(format!("{of}, {waiting} events waiting: ratio to none waiting"), case.ratio(), 0.95, ""),
            ]
        };
        self.cases.iter().flat_map(goals).collect()
    }

    fn plot(&self, folder: &Path) -> (&'static str, &'static str) {
        let file = "outbox.svg";
        let each = |of: fn(&Case) -> &[f64]| self.cases.iter().map(|case| per_s(of(case))).collect::<Vec<f64>>();
        plots::page(&folder.join(file), 340, |page| {
            let rest = plots::legend(
                page,
                &[("no events", plots::GREY), ("events", plots::SKY), ("100,000 waiting; above, its ratio to events", plots::BLUE)],
            )?;
            let bars = plots::Bars {
                title: "A burst of 30,000 orders",
                y: "closures per second",
                groups: self.cases.iter().map(|case| [case.database.name().to_owned(), String::new()]).collect(),
                series: vec![
                    (plots::GREY, each(|case| &case.off_s)),
                    (plots::SKY, each(|case| &case.none_waiting_s)),
                    (plots::BLUE, each(|case| &case.waiting_s)),
                ],
                notes: self.cases.iter().map(|case| format!("{:.2}", case.ratio())).collect(),
                stacked: false,
            };
            bars.draw(&rest)
        });
        (file, "Closures per second without events, with events, and with 100,000 of them waiting")
    }
}
