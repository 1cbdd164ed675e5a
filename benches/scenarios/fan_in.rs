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
    report::{Figures, Goal},
    servers,
    table::{Table, grouped, rounded},
};

/// The rate of the steady part.
const PER_SECOND: u32 = 2_000;

/// Each number of daemons.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FanIn {
    orders: u32,
    teams: Vec<Team>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Team {
    daemons: u32,
    burst_per_s: f64,
    burst_looks_per_closure: f64,
    burst_us_per_closure: f64,
    steady: Rate,
}

impl Team {
    fn steady_looks_per_closure(&self) -> f64 {
        self.steady.looks as f64 / self.steady.lateness.closed as f64
    }

    fn name(&self) -> String {
        format!("{} daemon{}", self.daemons, if self.daemons == 1 { "" } else { "s" })
    }
}

/// Measures.
pub async fn run(options: &Options, progress: &Progress) -> FanIn {
    let orders = options.bursts.iter().copied().max().unwrap_or_default();
    progress.begin("fan-in", 2 * options.daemons.len());
    let (server, redis) = (servers::postgres(), servers::redis());
    let mut shop = servers::shop_on(&server, None).await.in_order();
    let mut teams = Vec::new();
    for &daemons in &options.daemons {
        progress.step(&format!("{orders} orders at once, daemons: {daemons}"));
        let burst = flash_sale::by_daemons(&mut shop, &redis, orders, ARTICLES, daemons).await;
        progress.step(&format!("{PER_SECOND} orders a second for {} s, daemons: {daemons}", options.seconds));
        let team = Team {
            daemons,
            burst_per_s: f64::from(orders) / burst.took.as_secs_f64(),
            burst_looks_per_closure: burst.looks as f64 / f64::from(orders),
            burst_us_per_closure: burst.used.as_secs_f64() * 1_000_000.0 / f64::from(orders),
            steady: steady::flow(&server, &mut shop, &redis, PER_SECOND, options.seconds, daemons).await,
        };
        progress.result(&format!(
            "{} closures per s, {:.0} µs and {:.2} looks per closure; steady {:.0} µs, {:.2} looks, {}",
            rounded(team.burst_per_s),
            team.burst_us_per_closure,
            team.burst_looks_per_closure,
            team.steady.order_closer_us_per_closure,
            team.steady_looks_per_closure(),
            team.steady.lateness
        ));
        teams.push(team);
    }
    FanIn { orders, teams }
}

impl Figures for FanIn {
    const TITLE: &str = "Fan-in";
    const ABOUT: &str = "Several daemons on the same Redis and PostgreSQL, in a burst and at 2,000 orders a second; each order gives the stock of \
        its item back, among 10,000 SKUs, whose rows are locked in a fixed order first, as docs/closing-sql.md advises. A look is an order that a daemon took up, whatever came of it; one per closure is no work wasted. \
        Processor time is that of all daemons together, divided by the closures; in the burst from before they see what will be due.";

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
                rounded(team.burst_per_s),
                format!("{:.0}", team.burst_us_per_closure),
                format!("{:.2}", team.burst_looks_per_closure),
                team.steady.lateness.p50.to_string(),
                team.steady.lateness.p99.to_string(),
                format!("{:.0}", team.steady.order_closer_us_per_closure),
                format!("{:.2}", team.steady_looks_per_closure()),
            ]);
        }
        vec![table]
    }

    fn goals(&self) -> Vec<Goal> {
        let alone = self.teams.iter().find(|team| team.daemons == 1);
        let mut goals = Vec::new();
        for team in &self.teams {
            if let Some(alone) = alone.filter(|_| team.daemons > 1) {
                goals.push(Goal::at_least(
                    format!("{}: burst, in times of one daemon's rate", team.name()),
                    team.burst_per_s / alone.burst_per_s,
                    1.0,
                    "",
                ));
                for (part, used, alone) in [
                    ("burst", team.burst_us_per_closure, alone.burst_us_per_closure),
                    ("steady", team.steady.order_closer_us_per_closure, alone.steady.order_closer_us_per_closure),
                ] {
                    let what = format!("{}: {part}, processor time per closure in times of one daemon's", team.name());
                    goals.push(Goal::at_most(what, used / alone, 1.3, ""));
                }
            }
            goals.push(Goal::at_most(format!("{}: burst, looks per closure", team.name()), team.burst_looks_per_closure, 1.3, ""));
            goals.push(Goal::at_most(format!("{}: steady, looks per closure", team.name()), team.steady_looks_per_closure(), 1.3, ""));
        }
        goals
    }

    fn plot(&self, folder: &Path) -> (&'static str, &'static str) {
        let file = "fan-in.svg";
        let groups: Vec<[String; 2]> = self.teams.iter().map(|team| [team.name(), String::new()]).collect();
        let each = |of: fn(&Team) -> f64| self.teams.iter().map(of).collect::<Vec<f64>>();
        plots::page(&folder.join(file), 340, |page| {
            let halves = page.split_evenly((1, 2));
            let rest = plots::legend(&halves[0], &[("burst", plots::BLUE)])?;
            let (title, y) = ("Closures per second, all daemons together", "closures per second");
            let series = vec![(plots::BLUE, each(|team| team.burst_per_s))];
            Bars { title, y, groups: groups.clone(), series, notes: Vec::new(), stacked: false }.draw(&rest)?;
            let rest = plots::legend(&halves[1], &[("burst", plots::BLUE), ("2,000 orders a second", plots::SKY)])?;
            let (title, y) = ("Orders looked at per order closed", "looks per closure");
            let series = vec![(plots::BLUE, each(|team| team.burst_looks_per_closure)), (plots::SKY, each(Team::steady_looks_per_closure))];
            Bars { title, y, groups, series, notes: Vec::new(), stacked: false }.draw(&rest)
        });
        (file, "Closures per second and looks per closure of several daemons")
    }
}
