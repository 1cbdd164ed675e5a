//! Timers: how fast they are registered and cancelled, how late they are told of among so many, and how fast a crowd is.

mod burst;
mod lateness;
mod registering;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{
    options::{Base, Options},
    peers, plots,
    progress::Progress,
    report::{Figures, Goal, median},
    table::{Table, grouped, rounded},
    timer_table::TimerTable,
};
use burst::{Turn, Way};
use lateness::Told;
use registering::Rates;

/// The databases that are asked for less.
const MILLION: u32 = 1_000_000;

/// All that was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Timers {
    versions: Vec<String>,
    left_out: Option<String>,
    tables: Vec<Full>,
    crowd: u32,
    turns: Vec<Turn>,
}

/// A table with so many pending.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Full {
    database: Base,
    pending: u32,
    rates: Rates,
    told: Told,
}

/// Measures.
pub async fn run(options: &Options, progress: &Progress) -> Timers {
    let left_out = peers::install().err();
    let crowd = burst::CROWD.min(options.bursts.iter().copied().max().unwrap_or(burst::CROWD));
    let ways: Vec<Way> = Way::ALL.into_iter().filter(|way| way.takes_part(&options.databases, left_out.is_some())).collect();
    progress.begin("timers", 3 * options.databases.len() + ways.len() * options.rounds as usize);
    let versions = peers::versions(&["bullmq", "graphile-worker", "pg-boss", "ioredis", "pg"]);
    let mut measured = Timers { versions, left_out, tables: Vec::new(), crowd, turns: Vec::new() };
    for &database in &options.databases {
        let pending = if database == Base::Postgres { options.timers } else { options.timers.min(MILLION) };
        progress.step(&format!("{}: {pending} timers are written", database.name()));
        let table = TimerTable::open(database).await;
        table.fill(pending).await;
        progress.step(&format!("{}, {pending} pending: others are registered and cancelled", database.name()));
        let rates = registering::measure(&table, pending).await;
        progress.result(&rates.to_string());
        progress.step(&format!("{}, {pending} pending: some fall due", database.name()));
        let told = lateness::measure(&table, options.seconds).await;
        progress.result(&told.to_string());
        measured.tables.push(Full { database, pending, rates, told });
    }
    for round in 0..options.rounds {
        for way in &ways {
            progress.step(&format!("{crowd} at once: {}, round {}", way.name(), round + 1));
            let turn = burst::measure(*way, crowd).await;
            progress.result(&format!("{} per s, processor {:.1} s with servers", rounded(turn.per_s(crowd)), turn.all_s));
            measured.turns.push(turn);
        }
    }
    measured
}

impl Timers {
    /// The median of a way's turns.
    fn per_s(&self, way: Way) -> Option<f64> {
        let turns: Vec<f64> = self.turns.iter().filter(|turn| turn.way == way).map(|turn| turn.per_s(self.crowd)).collect();
        (!turns.is_empty()).then(|| median(&turns))
    }

    fn to_pg_boss(&self, way: Way) -> Option<f64> {
        Some(self.per_s(way)? / self.per_s(Way::PgBoss)?)
    }
}

impl Figures for Timers {
    const TITLE: &str = "Timers";
    const ABOUT: &str = "So many timers are pending, spread over a day. Others are registered and cancelled, a thousand in a request, a statement \
        or a read of the stream, by two callers at the same time over HTTP and by one in SQL, which needs no daemon. Then a hundred a second fall due \
        one by one, half of them told to a webhook and half to a Redis Stream: lateness is until the request has come, or the entry's \
        id in the middle of its millisecond; memory is the daemon's. At last a crowd is due at one instant, in an otherwise empty table, and an entry \
        for each is added to a stream, also by other products with a job for each.";

    fn tables(&self) -> Vec<Table> {
        let mut registering = Table::new(["timers a second", "HTTP", "stream", "SQL", "cancelled, HTTP", "cancelled, SQL"]);
        let mut late = Table::new(["lateness", "target", "told", "p50", "p90", "p99", "max", "memory"]);
        for Full { database, pending, rates, told } in &self.tables {
            let name = format!("{}, {} pending", database.name(), grouped((*pending).into()));
            registering.row([
                name.clone(),
                rounded(rates.http),
                rounded(rates.stream),
                rounded(rates.sql),
                rounded(rates.cancelled_http),
                rounded(rates.cancelled_sql),
            ]);
            for (target, lateness) in [("webhook", &told.webhook), ("stream", &told.stream)] {
                late.row([
                    name.clone(),
                    target.to_owned(),
                    format!("{} of {}", lateness.closed, lateness.due),
                    lateness.p50.to_string(),
                    lateness.p90.to_string(),
                    lateness.p99.to_string(),
                    lateness.max.to_string(),
                    format!("{:.0} MiB", told.resident_mib),
                ]);
            }
        }
        let at_once = format!("{} due at once", grouped(self.crowd.into()));
        let mut crowd = Table::new([&at_once, "fired a second", "to pg-boss", "processor, s", "with servers, s"]);
        for way in Way::ALL {
            let Some(per_s) = self.per_s(way) else { continue };
            let used = |of: fn(&Turn) -> f64| median(&self.turns.iter().filter(|turn| turn.way == way).map(of).collect::<Vec<_>>());
            let ratio = self.to_pg_boss(way).map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            crowd.row([
                way.name().to_owned(),
                rounded(per_s),
                ratio,
                format!("{:.1}", used(|turn| turn.own_s)),
                format!("{:.1}", used(|turn| turn.all_s)),
            ]);
        }
        vec![registering, late, crowd]
    }

    fn goals(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        for Full { database, pending, rates, told } in &self.tables {
            let name = format!("{}, {} pending", database.name(), grouped((*pending).into()));
            for (what, rate) in [
                ("registered over HTTP", rates.http),
                ("registered from a stream", rates.stream),
                ("cancelled over HTTP", rates.cancelled_http),
            ] {
                goals.push(Goal::at_least(format!("{name}: {what}"), rate, 20_000.0, "a second"));
            }
            for (target, lateness) in [("webhook", &told.webhook), ("stream", &told.stream)] {
                goals.push(Goal::at_most(format!("{name}, {target}: p50"), lateness.p50.ms, 5.0, "ms"));
                goals.push(Goal::at_most(format!("{name}, {target}: p99"), lateness.p99.ms, 25.0, "ms"));
            }
            goals.push(Goal::at_most(format!("{name}: memory"), told.resident_mib, 64.0, "MiB"));
        }
        if let Some(ratio) = self.to_pg_boss(Way::Postgres) {
            goals.push(Goal::at_least(format!("{} at once: order-closer in times of pg-boss", grouped(self.crowd.into())), ratio, 2.0, ""));
        }
        goals
    }

    fn notes(&self) -> Vec<String> {
        let left_out = self.left_out.iter().map(|reason| format!("Other products were left out: {reason}."));
        [format!("{}.", self.versions.join(", "))].into_iter().chain(left_out).collect()
    }

    fn plot(&self, folder: &Path) -> (&'static str, &'static str) {
        let file = "timers.svg";
        let ways: Vec<(Way, f64)> = Way::ALL.into_iter().filter_map(|way| Some((way, self.per_s(way)?))).collect();
        plots::page(&folder.join(file), 340, |page| {
            let bars = plots::Bars {
                title: "A crowd due at one instant, told to a stream",
                y: "fired per second",
                groups: ways.iter().map(|(way, _)| way.short()).collect(),
                series: vec![(plots::BLUE, ways.iter().map(|(_, per_s)| *per_s).collect())],
                notes: Vec::new(),
                stacked: false,
            };
            bars.draw(page)
        });
        (file, "Timers fired per second when a crowd is due at one instant, beside other products")
    }
}
