//! Something is broken: do the orders that need nothing of it close on time?

mod beside;
mod crowd;
mod scene;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{
    lateness::{Lateness, Percentile},
    options::{Base, Options},
    orders::Millis,
    plots,
    progress::Progress,
    report::{Figures, Goal},
    table::{Table, grouped},
};
use beside::Nuisance;
use crowd::{Crowd, ROUNDS, Team};
use scene::Scene;

/// How many orders fall due in a second.
const FEW: u32 = 20;
const MANY: u32 = 500;

/// How many orders need what another transaction holds.
const HELD: [u32; 3] = [1, 20, 200];

/// Every database in every trouble.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Trouble {
    window_s: f64,
    cases: Vec<Case>,
    #[serde(default)]
    crowds: Vec<Crowd>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Case {
    database: Base,
    cause: Cause,
    per_second: u32,
    /// Of the orders that need nothing of what is broken.
    lateness: Lateness,
    /// From the end of the trouble until the last of the others was closed; `None` where it has no end, or there are none.
    others_closed_after_s: Option<f64>,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Cause {
    /// Nothing.
    Quiet,
    /// Another transaction holds the rows of so many due orders.
    HeldOrders(u32),
    /// Another transaction holds a row of the stock that so many due orders need.
    HeldStock(u32),
    /// The statistics are from when next to no order was unpaid.
    StaleStatistics,
    /// A table of `close.sql` is missing for a while.
    Refused,
    /// The database is away for a while.
    Outage,
    /// Many orders are overdue that a trigger does not let close.
    Rejected,
    /// The database has nothing to do with it.
    Beside(Nuisance),
}

impl Cause {
    /// Each with a number of orders a second.
    fn all(database: Base) -> Vec<(Self, u32)> {
        let has_server = database != Base::Sqlite;
        let held = HELD.map(Self::HeldOrders).into_iter().chain(HELD.map(Self::HeldStock)).filter(|_| has_server);
        let at_both = [Self::Quiet].into_iter().chain(held).chain([Self::Rejected]);
        let mut all: Vec<(Self, u32)> = at_both.flat_map(|cause| [(cause, FEW), (cause, MANY)]).collect();
        all.push((Self::StaleStatistics, FEW));
        all.push((Self::Refused, MANY));
        all.extend(has_server.then_some((Self::Outage, MANY)));
        if database == Base::Postgres {
            all.extend(Nuisance::ALL.map(|nuisance| (Self::Beside(nuisance), MANY)));
        }
        all
    }

    /// How many orders need what another transaction holds.
    fn held(self) -> Option<u32> {
        match self {
            Self::HeldOrders(orders) | Self::HeldStock(orders) => Some(orders),
            Self::Quiet | Self::StaleStatistics | Self::Refused | Self::Outage | Self::Rejected | Self::Beside(_) => None,
        }
    }

    /// Within how many seconds after its end all orders must be closed.
    fn limit_s(self) -> f64 {
        match self {
            Self::HeldOrders(200) | Self::HeldStock(200) => 3.0,
            // A probe of those that failed may be five seconds away.
            Self::Refused | Self::Outage => 5.0,
            Self::Quiet | Self::HeldOrders(_) | Self::HeldStock(_) | Self::StaleStatistics | Self::Rejected | Self::Beside(_) => 1.0,
        }
    }

    /// In two lines of a plot.
    fn label(self) -> [String; 2] {
        match self {
            Self::Quiet => ["quiet".into(), String::new()],
            Self::HeldOrders(orders) => ["orders held".into(), orders.to_string()],
            Self::HeldStock(orders) => ["stock held".into(), format!("from {orders}")],
            Self::StaleStatistics => ["stale".into(), "statistics".into()],
            Self::Refused => ["after".into(), "refusals".into()],
            Self::Outage => ["after".into(), "an outage".into()],
            Self::Rejected => ["10,000".into(), "rejected".into()],
            Self::Beside(nuisance) => nuisance.label().map(Into::into),
        }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Quiet => f.write_str("none"),
            Self::HeldOrders(orders) => write!(f, "rows of {orders} due orders held"),
            Self::HeldStock(orders) => write!(f, "stock of {orders} due orders held"),
            Self::StaleStatistics => f.write_str("stale statistics, 200,000 pending"),
            Self::Refused => f.write_str("every order refused for 10 s, afterwards"),
            Self::Outage => f.write_str("database away for 10 s, afterwards"),
            Self::Rejected => f.write_str("10,000 rejected orders"),
            Self::Beside(nuisance) => nuisance.fmt(f),
        }
    }
}

/// Measures.
pub async fn run(options: &Options, progress: &Progress) -> Trouble {
    let causes: Vec<(Base, Cause, u32)> = options
        .databases
        .iter()
        .flat_map(|&database| Cause::all(database).into_iter().map(move |(cause, per_second)| (database, cause, per_second)))
        .collect();
    let crowded: Vec<Base> = options.databases.iter().copied().filter(|database| *database != Base::Sqlite).collect();
    let rounds = options.rounds.max(ROUNDS);
    progress.begin("trouble", causes.len() + crowded.len() * Team::ALL.len() * rounds as usize);
    let window = Millis::from(options.seconds) * 500;
    let mut trouble = Trouble { window_s: window as f64 / 1_000.0, cases: Vec::new(), crowds: Vec::new() };
    for database in crowded {
        trouble.crowds.extend(crowds(database, rounds, window, progress).await);
    }
    let mut scene: Option<(Base, Scene)> = None;
    for (database, cause, per_second) in causes {
        progress.step(&format!("{}, {per_second} orders/s, trouble: {cause}", database.name()));
        let open = match scene.take() {
            Some((of, open)) if of == database => open,
            _ => Scene::open(database, window).await,
        };
        let (_, open) = scene.insert((database, open));
        let (lateness, others_closed_after_s) = open.play(cause, per_second, progress).await;
        let others = others_closed_after_s.map_or_else(String::new, |seconds| format!("; the others closed {seconds:.2} s after its end"));
        progress.result(&format!("{lateness}{others}"));
        trouble.cases.push(Case { database, cause, per_second, lateness, others_closed_after_s });
    }
    trouble
}

/// Each team closes a crowd in each round.
async fn crowds(database: Base, rounds: u32, window: Millis, progress: &Progress) -> Vec<Crowd> {
    let mut scene = Scene::open(database, window).await;
    let mut crowds = Team::ALL.map(|team| Crowd { database, team, turns: Vec::new() });
    for _ in 0..rounds {
        for crowd in &mut crowds {
            progress.step(&format!("{}, a crowd of one article, {}", database.name(), crowd.team));
            let turn = scene.crowd(crowd.team).await;
            progress.result(&turn.to_string());
            crowd.turns.push(turn);
        }
    }
    crowds.into()
}

impl Case {
    fn name(&self) -> String {
        format!("{}, {} orders/s, {}", self.database.name(), self.per_second, self.cause)
    }

    fn goals(&self) -> Vec<Goal> {
        let Lateness { p50, p99, max, .. } = &self.lateness;
        let p99_ms = if self.database == Base::Mariadb { 100.0 } else { 50.0 };
        let mut goals = match self.cause {
            Cause::Quiet => Vec::new(),
            Cause::StaleStatistics => vec![("p50", p50, 10.0), ("p99", p99, p99_ms)],
            Cause::Outage => vec![("max", max, 200.0)],
            Cause::HeldOrders(_) | Cause::HeldStock(_) | Cause::Refused | Cause::Rejected | Cause::Beside(_) => vec![("p99", p99, p99_ms)],
        }
        .into_iter()
        .map(|(what, figure, limit)| Goal::at_most(format!("{}: {what}", self.name()), figure.ms, limit, "ms"))
        .collect::<Vec<Goal>>();
        if let Some(seconds) = self.others_closed_after_s {
            goals.push(Goal::at_most(format!("{}: the others closed within", self.name()), seconds, self.cause.limit_s(), "s"));
        }
        goals
    }
}

impl Trouble {
    fn quiet(&self, case: &Case) -> Option<f64> {
        let same = |other: &&Case| other.database == case.database && other.per_second == case.per_second && other.cause == Cause::Quiet;
        self.cases.iter().find(same).map(|quiet| quiet.lateness.p99.ms)
    }
}

impl Figures for Trouble {
    const TITLE: &str = "Trouble";
    const ABOUT: &str = "Orders fall due at a steady rate while something is broken, and counted are those that need nothing of it: due orders whose \
        row another transaction holds, or which need a row of the stock that it holds, stand beside them, as do orders that a trigger rejects; after \
        a table of close.sql was missing for 10 s, or the database was killed and started again after 10 s, those count that fall due from then on. \
        Stale statistics know 20 unpaid orders where there are 200,000, in a column of text. Others are the orders that were in trouble, from its \
        end until the last of them is closed. Lateness is the time of the commit, as PostgreSQL recorded it; on MariaDB and SQLite it is the time in \
        the statement that closes the order, which is a flush to disk earlier. SQLite has no rows to hold and no server to kill. \
        What is wrong with Redis, another instance or the log is wrong before the first of these orders falls due, and until the last. \
        A crowd of one article is due at one instant, while a checkout changes the article's stock 50 times a second; its rate is that from the \
        deadline to the last commit, medians of all turns. Tried alone are those of its orders that the daemon took for held ones, at worst. Others are \
        orders of other articles that fall due with the crowd and for some seconds after it: how long after its end the last of them was \
        closed, or after its own deadline.";

    fn tables(&self) -> Vec<Table> {
        let mut table =
            Table::new(["database, trouble", "orders/s", "fell due", "closed", "p50", "p99", "max", "p99 to quiet", "others closed after"]);
        for case in &self.cases {
            let Lateness { due, closed, p50, p99, max, .. } = &case.lateness;
            let [p50, p99_text, max] = [p50, p99, max].map(Percentile::to_string);
            table.row([
                format!("{}: {}", case.database.name(), case.cause),
                case.per_second.to_string(),
                grouped(*due),
                grouped(*closed),
                p50,
                p99_text,
                max,
                self.quiet(case).map_or_else(String::new, |quiet| format!("{:.1}", p99.ms / quiet)),
                case.others_closed_after_s.map_or_else(String::new, |seconds| format!("{seconds:.2} s")),
            ]);
        }
        vec![table, crowd::table(&self.crowds)]
    }

    fn goals(&self) -> Vec<Goal> {
        let crowds = self.crowds.iter().flat_map(|crowd| crowd.goals(&self.crowds));
        self.cases.iter().flat_map(Case::goals).chain(crowds).collect()
    }

    fn plot(&self, folder: &Path) -> (&'static str, &'static str) {
        let file = "trouble.svg";
        let mut databases: Vec<Base> = self.cases.iter().map(|case| case.database).collect();
        databases.dedup();
        plots::page(&folder.join(file), 60 + 260 * databases.len() as u32, |page| {
            let rest = plots::legend(page, &[("20 orders/s", plots::SKY), ("500 orders/s", plots::BLUE)])?;
            for (area, &database) in rest.split_evenly((databases.len(), 1)).iter().zip(&databases) {
                let of = || self.cases.iter().filter(move |case| case.database == database);
                let mut causes: Vec<Cause> = of().map(|case| case.cause).collect();
                causes.dedup();
                let p99 = |cause: &Cause, per_second: u32| {
                    let case = of().find(|case| case.cause == *cause && case.per_second == per_second);
                    case.map_or(0.0, |case| case.lateness.p99.ms)
                };
                let each = |per_second: u32| causes.iter().map(|cause| p99(cause, per_second)).collect::<Vec<f64>>();
                let bars = plots::Bars {
                    title: database.name(),
                    y: "p99 of lateness, ms",
                    groups: causes.iter().map(|cause| cause.label()).collect(),
                    series: vec![(plots::SKY, each(FEW)), (plots::BLUE, each(MANY))],
                    notes: causes.iter().map(|cause| format!("{:.0}", p99(cause, FEW).max(p99(cause, MANY)))).collect(),
                    stacked: false,
                };
                bars.draw(area)?;
            }
            Ok(())
        });
        (file, "Lateness of orders beside others that are in trouble")
    }
}
