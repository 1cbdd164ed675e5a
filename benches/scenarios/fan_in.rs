//! Several daemons on the same Redis and database: do they help or hinder each other?

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::steady::{self, ARTICLES, Rate};
use crate::{
    flash_sale,
    options::Options,
    plots,
    plots::Bars,
    progress::Progress,
    report::{Figures, Goal, median},
    servers,
    table::{Table, grouped, rounded},
};

/// The rate of the steady part.
const PER_SECOND: u32 = 2_000;

/// Turns at the least: a burst of one differs from that of another by a third.
const TURNS: u32 = 3;

/// Each number of daemons.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FanIn {
    orders: u32,
    teams: Vec<Team>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Team {
    daemons: u32,
    turns: Vec<Turn>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Turn {
    burst_per_s: f64,
    burst_looks_per_closure: f64,
    burst_us_per_closure: f64,
    steady: Rate,
}

impl Turn {
    fn steady_looks_per_closure(&self) -> f64 {
        self.steady.looks as f64 / self.steady.lateness.closed as f64
    }

    fn steady_us_per_closure(&self) -> f64 {
        self.steady.order_closer_us_per_closure
    }
}

impl Team {
    fn median(&self, of: impl Fn(&Turn) -> f64) -> f64 {
        median(&self.turns.iter().map(of).collect::<Vec<_>>())
    }

    fn name(&self) -> String {
        format!("{} daemon{}", self.daemons, if self.daemons == 1 { "" } else { "s" })
    }
}

/// Measures.
pub async fn run(options: &Options, progress: &Progress) -> FanIn {
    let orders = options.bursts.iter().copied().max().unwrap_or_default();
    let turns = options.rounds.max(TURNS);
    progress.begin("fan-in", 2 * turns as usize * options.daemons.len());
    let (server, redis) = (servers::postgres(), servers::redis());
    let mut shop = servers::shop_on(&server, None).await.in_order();
    let mut teams: Vec<Team> = options.daemons.iter().map(|&daemons| Team { daemons, turns: Vec::new() }).collect();
    for _ in 0..turns {
        for Team { daemons, turns } in &mut teams {
            progress.step(&format!("{orders} orders at once, daemons: {daemons}"));
            let burst = flash_sale::by_daemons(&mut shop, &redis, orders, ARTICLES, *daemons).await;
            progress.step(&format!("{PER_SECOND} orders a second for {} s, daemons: {daemons}", options.seconds));
            let turn = Turn {
                burst_per_s: f64::from(orders) / burst.took.as_secs_f64(),
                burst_looks_per_closure: burst.looks as f64 / f64::from(orders),
                burst_us_per_closure: burst.used.as_secs_f64() * 1_000_000.0 / f64::from(orders),
                steady: steady::flow(&server, &mut shop, &redis, PER_SECOND, options.seconds, *daemons).await,
            };
            progress.result(&format!(
                "{} closures per s, {:.0} µs and {:.2} looks per closure; steady {:.0} µs, {:.2} looks, {}",
                rounded(turn.burst_per_s),
                turn.burst_us_per_closure,
                turn.burst_looks_per_closure,
                turn.steady_us_per_closure(),
                turn.steady_looks_per_closure(),
                turn.steady.lateness
            ));
            turns.push(turn);
        }
    }
    FanIn { orders, teams }
}

impl Figures for FanIn {
    const TITLE: &str = "Fan-in";
    const ABOUT: &str = "Several daemons on the same Redis and PostgreSQL, in a burst and at 2,000 orders a second; each order gives the stock of \
        its item back, among 10,000 SKUs, whose rows are locked in a fixed order first, as docs/closing-sql.md advises. A look is an order that a daemon took up, whatever came of it; one per closure is no work wasted. \
        Processor time is that of all daemons together, divided by the closures; in the burst from before they see what will be due. One number of daemons after the other in each turn, at least \
        three turns; medians of all turns.";

    fn tables(&self) -> Vec<Table> {
        let burst = format!("burst of {}, closures/s", grouped(self.orders.into()));
        let mut table = Table::new([
            "daemons",
            &burst,
            "µs per closure",
            "looks per closure",
            "steady, p50",
            "steady, p99",
            "steady, µs per closure",
            "steady, looks per closure",
        ]);
        for team in &self.teams {
            table.row([
                team.daemons.to_string(),
                rounded(team.median(|turn| turn.burst_per_s)),
                format!("{:.0}", team.median(|turn| turn.burst_us_per_closure)),
                format!("{:.2}", team.median(|turn| turn.burst_looks_per_closure)),
                format!("{:.1} ms", team.median(|turn| turn.steady.lateness.p50.ms)),
                format!("{:.1} ms", team.median(|turn| turn.steady.lateness.p99.ms)),
                format!("{:.0}", team.median(Turn::steady_us_per_closure)),
                format!("{:.2}", team.median(Turn::steady_looks_per_closure)),
            ]);
        }
        vec![table]
    }

    fn goals(&self) -> Vec<Goal> {
        let alone = self.teams.iter().find(|team| team.daemons == 1);
        let mut goals = Vec::new();
        for team in &self.teams {
            if let Some(alone) = alone.filter(|_| team.daemons > 1) {
                let in_times = |of: fn(&Turn) -> f64| team.median(of) / alone.median(of);
                let rate = in_times(|turn| turn.burst_per_s);
                goals.push(Goal::at_least(format!("{}: burst, in times of one daemon's rate", team.name()), rate, 1.0, ""));
                let parts = [("burst", in_times(|turn| turn.burst_us_per_closure)), ("steady", in_times(Turn::steady_us_per_closure))];
                for (part, in_times) in parts {
                    let what = format!("{}: {part}, processor time per closure in times of one daemon's", team.name());
                    goals.push(Goal::at_most(what, in_times, 1.3, ""));
                }
            }
            let looks = [team.median(|turn| turn.burst_looks_per_closure), team.median(Turn::steady_looks_per_closure)];
            for (part, looks) in ["burst", "steady"].into_iter().zip(looks) {
                goals.push(Goal::at_most(format!("{}: {part}, looks per closure", team.name()), looks, 1.3, ""));
            }
        }
        goals
    }

    fn plot(&self, folder: &Path) -> (&'static str, &'static str) {
        let file = "fan-in.svg";
        let groups: Vec<[String; 2]> = self.teams.iter().map(|team| [team.name(), String::new()]).collect();
        let each = |of: fn(&Turn) -> f64| self.teams.iter().map(|team| team.median(of)).collect::<Vec<f64>>();
        plots::page(&folder.join(file), 340, |page| {
            let halves = page.split_evenly((1, 2));
            let rest = plots::legend(&halves[0], &[("burst", plots::BLUE)])?;
            let (title, y) = ("Closures per second, all daemons together", "closures per second");
            let series = vec![(plots::BLUE, each(|turn| turn.burst_per_s))];
            Bars { title, y, groups: groups.clone(), series, notes: Vec::new(), stacked: false }.draw(&rest)?;
            let rest = plots::legend(&halves[1], &[("burst", plots::BLUE), ("2,000 orders a second", plots::SKY)])?;
            let (title, y) = ("Orders looked at per order closed", "looks per closure");
            let series = vec![(plots::BLUE, each(|turn| turn.burst_looks_per_closure)), (plots::SKY, each(Turn::steady_looks_per_closure))];
            Bars { title, y, groups, series, notes: Vec::new(), stacked: false }.draw(&rest)
        });
        (file, "Closures per second and looks per closure of several daemons")
    }
}
