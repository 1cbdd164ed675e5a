//! Orders of one article, all due at once, while a checkout sells it: our own batches are no held rows.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    super::steady::ARTICLES,
    scene::{HELD, HELD_ARTICLE, LEAD, READY, Scene},
};
use crate::{
    lateness,
    options::Base,
    orders,
    orders::{Millis, Orders},
    report::{Goal, median},
    servers,
    support::{Daemon, Database},
    table::{Table, grouped, rounded},
    watcher::Counts,
};

/// How many orders of that article there are; and how many of others, which fall due from then on, one after the other.
const CROWD: u32 = 10_000;
const OTHERS: i64 = 300;
const OTHERS_OVER: Millis = 3_000;

/// How often the checkout sells it.
const CHECKOUT: Duration = Duration::from_millis(20);

/// How long daemons may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// Every team at least so often: a crowd is gone in less than a second.
pub(super) const ROUNDS: u32 = 5;

/// Who closes the crowd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Team {
    daemons: u32,
    /// Of each daemon.
    workers: u32,
}

impl Team {
    /// The others are compared with the first.
    pub(super) const ALL: [Self; 3] = [Self { daemons: 1, workers: 1 }, Self { daemons: 1, workers: 2 }, Self { daemons: 2, workers: 2 }];
}

impl std::fmt::Display for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |count: u32, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        write!(f, "{} with {}", name(self.daemons, "daemon"), name(self.workers, "worker"))
    }
}

/// How a team closed the crowd.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Crowd {
    pub(super) database: Base,
    pub(super) team: Team,
    pub(super) turns: Vec<Turn>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Turn {
    /// From the deadline to the last commit.
    took_s: f64,
    /// How often an order was tried apart from others.
    alone: u64,
    /// How long after the last commit the last order of another article was closed that was due by then; of those that fell
    /// due later, how late the latest was.
    others_ms: f64,
    /// How often the checkout has sold the article in the meantime.
    sold: u32,
}

impl std::fmt::Display for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { took_s, alone, others_ms, sold } = self;
        write!(f, "{took_s:.3} s, {alone} tried alone, others {others_ms:.0} ms beyond, sold {sold} times")
    }
}

impl Crowd {
    pub(super) fn per_s(&self) -> f64 {
        f64::from(CROWD) / median(&self.turns.iter().map(|turn| turn.took_s).collect::<Vec<_>>())
    }

    /// Of the orders, at the most.
    fn alone_percent(&self) -> f64 {
        let most = self.turns.iter().map(|turn| turn.alone).max().unwrap_or_default();
        most as f64 * 100.0 / f64::from(CROWD)
    }

    /// In the middle one of the turns, and in the worst.
    fn others_ms(&self) -> (f64, f64) {
        let all: Vec<f64> = self.turns.iter().map(|turn| turn.others_ms).collect();
        (median(&all), all.into_iter().fold(f64::NEG_INFINITY, f64::max))
    }

    pub(super) fn goals(&self, all: &[Self]) -> Vec<Goal> {
        let name = format!("{}, a crowd of one article, {}", self.database.name(), self.team);
        let ratio = self.ratio(all).map(|ratio| Goal::at_least(format!("{name}: ratio to one worker"), ratio, 0.8, ""));
        ratio
            .into_iter()
            .chain([
                Goal::at_most(format!("{name}: tried alone"), self.alone_percent(), 1.0, "%"),
                Goal::at_most(format!("{name}: the others beyond it"), self.others_ms().0, 50.0, "ms"),
            ])
            .collect()
    }

    /// To the rate of one worker; nothing of that itself.
    fn ratio(&self, all: &[Self]) -> Option<f64> {
        let one = all.iter().find(|other| other.database == self.database && other.team == Team::ALL[0])?;
        (self.team != Team::ALL[0]).then(|| self.per_s() / one.per_s())
    }
}

/// What the teams did.
pub(super) fn table(crowds: &[Crowd]) -> Table {
    let mut table =
        Table::new(["a crowd of one article", "orders", "closures/s", "ratio to one worker", "tried alone", "others beyond it"]);
    for crowd in crowds {
        let (median, worst) = crowd.others_ms();
        table.row([
            format!("{}: {}", crowd.database.name(), crowd.team),
            grouped(CROWD.into()),
            rounded(crowd.per_s()),
            crowd.ratio(crowds).map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            format!("{:.2} %", crowd.alone_percent()),
            format!("{median:.0} ms, at worst {worst:.0} ms"),
        ]);
    }
    table
}

/// All that a team closes, due at the same time and after it.
struct Gathered {
    daemons: Vec<(Daemon, Counts)>,
    crowd: Orders,
    others: Orders,
}

impl Scene {
    /// A team closes a crowd.
    pub(super) async fn crowd(&mut self, team: Team) -> Turn {
        let Gathered { daemons, crowd, others } = self.gather(team).await;
        let checkout = Checkout::open(self.shop.database.again());
        orders::sleep_until(crowd.due_from).await;
        self.until_closed(&crowd.numbers, PATIENCE).await;
        orders::sleep_until(others.due_from + others.over).await;
        self.until_closed(&others.numbers, PATIENCE).await;
        let sold = checkout.close().await;
        let mut alone = 0;
        for (daemon, counts) in &daemons {
            alone += counts.total("order_closer_retries_total").await;
            daemon.stop().await;
        }
        self.shop.assert_all_closed("order-closer").await;
        let last = lateness::of_orders(&self.shop, &crowd.numbers).await.into_iter().filter_map(|due| due.committed).max();
        let last = last.expect("orders were closed");
        let others = lateness::of_orders(&self.shop, &others.numbers).await;
        let beyond = others.iter().filter_map(|due| Some(due.committed? - due.deadline.max(last))).max();
        Turn {
            took_s: (last - crowd.due_from * 1_000) as f64 / 1e6,
            alone,
            others_ms: beyond.expect("others were closed") as f64 / 1_000.0,
            sold,
        }
    }

    async fn gather(&mut self, team: Team) -> Gathered {
        let mut lead = LEAD;
        loop {
            self.shop.set_text_status(false);
            self.shop.reset(Some(ARTICLES)).await;
            self.redis.command(&["FLUSHALL"]);
            let mut daemons = Vec::new();
            for _ in 0..team.daemons {
                let counts = Counts::at_a_free_address();
                let settings = self.shop.settings(&self.redis).set("close.workers", i64::from(team.workers));
                daemons.push((servers::daemon(&counts.of(settings)).await, counts));
            }
            let due_from = orders::now() + lead;
            let crowd = Orders { numbers: HELD..HELD + i64::from(CROWD), due_from, over: 0 };
            let others = Orders { numbers: 1..OTHERS + 1, due_from, over: OTHERS_OVER };
            self.take(&others, 0..ARTICLES.into()).await;
            self.take(&crowd, HELD_ARTICLE..HELD_ARTICLE + 1).await;
            self.shop.settle().await;
            if orders::now() + READY <= due_from {
                return Gathered { daemons, crowd, others };
            }
            lead *= 2;
        }
    }
}

/// Sells the article and takes it back, again and again.
struct Checkout {
    stop: CancellationToken,
    selling: AbortOnDropHandle<u32>,
}

impl Checkout {
    fn open(database: Database) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let selling = async move {
            let mut ticks = interval(CHECKOUT);
            // So many in a second, also where one has waited for a batch.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let mut sold = 0;
            while !stopped.is_cancelled() || sold % 2 == 1 {
                ticks.tick().await;
                let change = if sold % 2 == 0 { -1 } else { 1 };
                database.execute(&format!("UPDATE inventory SET available = available + {change} WHERE sku = {HELD_ARTICLE}")).await;
                sold += 1;
            }
            sold
        };
        Self { stop, selling: AbortOnDropHandle::new(tokio::spawn(selling)) }
    }

    /// Stops with everything taken back; how often it has sold.
    async fn close(self) -> u32 {
        self.stop.cancel();
        self.selling.await.expect("a checkout does not fail")
    }
}
