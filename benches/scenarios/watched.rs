//! What it costs to be watched: metrics scraped each second, and the page open, beside nobody who looks.

use std::{path::Path, sync::Arc};

use serde::{Deserialize, Serialize};

use super::punctual;
use crate::{
    flash_sale,
    intake::{Feeder, Intake, Signal},
    lateness::Lateness,
    options::{Base, Options},
    plots,
    progress::Progress,
    report::{Figures, Goal, median},
    servers,
    servers::Server,
    table::{Table, grouped},
    usage,
    watcher::Watcher,
};

/// How often each is measured at the least, in turn.
const ROUNDS: u32 = 3;

/// Both scenarios, unwatched and watched.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Watched {
    pending: u32,
    burst: u32,
    /// Of orders that fall due one by one.
    punctual: [Vec<Turn>; 2],
    /// From the deadline of a flash sale to its last commit, in seconds.
    burst_s: [Vec<f64>; 2],
    /// Whether there was a page to be open.
    page: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Turn {
    lateness: Lateness,
    percent: f64,
    resident_mib: f64,
}

/// Measures.
pub async fn run(options: &Options, progress: &Progress) -> Watched {
    let rounds = options.rounds.max(ROUNDS);
    let pending = options.sizes.iter().copied().max().unwrap_or_default();
    let burst = options.bursts.iter().copied().max().unwrap_or_default();
    progress.begin("watched", 1 + 4 * rounds as usize);
    let mut watched = Watched { pending, burst, punctual: [Vec::new(), Vec::new()], burst_s: [Vec::new(), Vec::new()], page: false };
    watched.fall_due(options, rounds, progress).await;
    watched.sell(options, rounds, progress).await;
    watched
}

impl Watched {
    /// One by one, among all that are pending.
    async fn fall_due(&mut self, options: &Options, rounds: u32, progress: &Progress) {
        progress.step(&format!("{} orders are taken", self.pending));
        let server = servers::postgres();
        let redis = Arc::new(servers::redis());
        let shop = Arc::new(servers::shop_on(&server, None).await);
        let intake = Intake { shop: Arc::clone(&shop), signal: Signal::Key(Arc::clone(&redis)) };
        let next = punctual::fill(std::slice::from_ref(&intake), self.pending).await;
        let feeder = Feeder::start(vec![intake], punctual::arrivals(self.pending), next);
        for _ in 0..rounds {
            for (at, who) in ["nobody looks", "it is watched"].into_iter().enumerate() {
                progress.step(&format!("{} pending: {who}", self.pending));
                let watcher = (at == 1).then(Watcher::start);
                let settings = shop.settings(&redis);
                let daemon = servers::daemon(&watcher.as_ref().map_or(settings.clone(), |watcher| watcher.watched(settings))).await;
                let (began, before) = (std::time::Instant::now(), usage::processor_time(daemon.pid()));
                let lateness = punctual::window(&shop, options.seconds).await;
                let percent = usage::percent(usage::processor_time(daemon.pid()) - before, began.elapsed());
                let turn = Turn { lateness, percent, resident_mib: daemon.resident_kib() as f64 / 1_024.0 };
                progress.result(&format!("{who}: {}; {percent:.1} % of a core, {:.1} MiB", turn.lateness, turn.resident_mib));
                self.punctual[at].push(turn);
                self.look_at(watcher.as_ref());
                daemon.stop().await;
            }
        }
        feeder.stop().await;
        let faults = shop.faults().await;
        assert!(faults.is_empty(), "order-closer: {}", faults.join("; "));
    }

    /// All at one instant.
    async fn sell(&mut self, options: &Options, rounds: u32, progress: &Progress) {
        let articles = options.skus.iter().copied().max().unwrap_or_default();
        let server = Server::start(Base::Postgres);
        let redis = servers::redis();
        let mut shop = server.shop(None).await;
        for _ in 0..rounds {
            for (at, who) in ["nobody looks", "it is watched"].into_iter().enumerate() {
                progress.step(&format!("{} orders at once: {who}", self.burst));
                let watcher = (at == 1).then(Watcher::start);
                shop.watched_by(watcher.as_ref().map(|watcher| watcher.watched(crate::support::Settings::new())));
                let took = flash_sale::by_daemons(&mut shop, &redis, self.burst, articles, 1).await.took.as_secs_f64();
                progress.result(&format!("{who}: {took:.3} s"));
                self.burst_s[at].push(took);
                self.look_at(watcher.as_ref());
            }
        }
    }

    fn look_at(&mut self, watcher: Option<&Watcher>) {
        if let Some((scrapes, heard)) = watcher.map(Watcher::seen) {
            assert!(scrapes > 0, "nobody was watched");
            self.page |= heard > 0;
        }
    }

    /// Unwatched and watched.
    fn medians(&self, of: impl Fn(&Turn) -> f64) -> [f64; 2] {
        [0, 1].map(|at| median(&self.punctual[at].iter().map(&of).collect::<Vec<_>>()))
    }

    fn burst_medians(&self) -> [f64; 2] {
        [0, 1].map(|at| median(&self.burst_s[at]))
    }

    fn punctual_name(&self) -> String {
        format!("{} pending", grouped(self.pending.into()))
    }

    fn burst_name(&self) -> String {
        format!("{} orders at once", grouped(self.burst.into()))
    }
}

impl Figures for Watched {
    const TITLE: &str = "Watched";
    const ABOUT: &str = "Daemons on PostgreSQL at which nobody looks, and that answer over HTTP, with their metrics scraped each second and their \
        page open, in turn; medians of all turns. Lateness is that of punctual, the time of a burst that from the deadline to the last commit.";

    fn tables(&self) -> Vec<Table> {
        let page = if self.page { "scraped, and the page open" } else { "scraped; there was no page" };
        let mut table = Table::new(["", "nobody looks", page, "ratio"]);
        let mut row = |what: String, [without, with]: [f64; 2], unit: &str| {
            table.row([what, format!("{without:.2} {unit}"), format!("{with:.2} {unit}"), format!("{:.2}", with / without)]);
        };
        let pending = self.punctual_name();
        row(format!("{pending}: lateness p50"), self.medians(|turn| turn.lateness.p50.ms), "ms");
        row(format!("{pending}: lateness p99"), self.medians(|turn| turn.lateness.p99.ms), "ms");
        row(format!("{pending}: processor time"), self.medians(|turn| turn.percent), "% of a core");
        row(format!("{pending}: resident memory"), self.medians(|turn| turn.resident_mib), "MiB");
        row(format!("{}: last commit after", self.burst_name()), self.burst_medians(), "s");
        vec![table]
    }

    fn goals(&self) -> Vec<Goal> {
        let (pending, ratio) = (self.punctual_name(), |[without, with]: [f64; 2]| with / without);
        let [_, memory] = self.medians(|turn| turn.resident_mib);
        vec![
            Goal::at_most(format!("{pending}: p50, ratio"), ratio(self.medians(|turn| turn.lateness.p50.ms)), 1.05, ""),
            Goal::at_most(format!("{pending}: p99, ratio"), ratio(self.medians(|turn| turn.lateness.p99.ms)), 1.05, ""),
            Goal::at_most(format!("{}: time, ratio", self.burst_name()), ratio(self.burst_medians()), 1.05, ""),
            Goal::at_most(format!("{pending}: resident memory while watched"), memory * 1.048_576, 64.0, "MB"),
        ]
    }

    fn plot(&self, folder: &Path) -> (&'static str, &'static str) {
        let file = "watched.svg";
        let pairs = [self.medians(|turn| turn.lateness.p50.ms), self.medians(|turn| turn.lateness.p99.ms), self.burst_medians()];
        let labels = ["p50", "p99", "burst"].map(|what| [what.to_owned(), "watched / not".to_owned()]);
        plots::page(&folder.join(file), 340, |page| {
            let rest = plots::legend(page, &[("watched, as a ratio of what it is while nobody looks", plots::BLUE)])?;
            let bars = plots::Bars {
                title: "What it costs to be watched",
                y: "ratio",
                groups: labels.into(),
                series: vec![(plots::BLUE, pairs.iter().map(|[without, with]| with / without).collect())],
                notes: Vec::new(),
                stacked: false,
            };
            bars.draw(&rest)
        });
        (file, "Lateness and the time of a burst while watched, as ratios")
    }
}
