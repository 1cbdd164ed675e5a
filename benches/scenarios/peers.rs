//! Other products beside order-closer, each as a process that closes the same orders by the same statement.

use std::{path::Path, time::Duration};

use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde::{Deserialize, Serialize};

use crate::{
    intake::LIFETIME,
    lateness,
    lateness::{Lateness, Percentile},
    options::Options,
    orders,
    orders::{Millis, Orders},
    peers::{self, Peer, Task},
    plots,
    plots::{Line, LogLines},
    progress::Progress,
    report::{Figures, Goal, median},
    servers,
    shop::Shop,
    support::{Daemon, RabbitMq, Redis, shop::key},
    table::{Table, grouped},
    usage,
};

/// No more orders than this are pending: some products take minutes to hear of a million.
const LARGEST: u32 = 100_000;

/// How many orders are due at one instant.
const BURST: u32 = 20_000;

/// How long contestants run before it counts.
const WARM_UP: Millis = 2_000;

/// How long is waited for the last order of a window, and of a burst. What is open then counts with the time since its deadline.
const LAST: Millis = 3_000;
const LAST_OF_BURST: Millis = 60_000;

/// The contestants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    Cron,
    Poller,
    Listener,
    Rabbitmq,
    Bullmq,
    Graphile,
    PgBoss,
    OrderCloser,
}

impl Way {
    const ALL: [Self; 8] =
        [Self::Cron, Self::Poller, Self::Listener, Self::Rabbitmq, Self::Bullmq, Self::Graphile, Self::PgBoss, Self::OrderCloser];

    fn name(self) -> &'static str {
        match self {
            Self::Cron => "cron, each minute",
            Self::Poller => "poller, each second, SKIP LOCKED",
            Self::Listener => "expired keys of Redis alone",
            Self::Rabbitmq => "RabbitMQ, TTL and dead letters",
            Self::Bullmq => "BullMQ",
            Self::Graphile => "graphile-worker",
            Self::PgBoss => "pg-boss",
            Self::OrderCloser => "order-closer",
        }
    }

    /// Its name in `benches/peers/products.js`.
    fn product(self) -> &'static str {
        match self {
            Self::Cron => "cron",
            Self::Poller => "poller",
            Self::Listener => "listener",
            Self::Rabbitmq => "rabbitmq",
            Self::Bullmq => "bullmq",
            Self::Graphile => "graphile",
            Self::PgBoss => "pgboss",
            Self::OrderCloser => "",
        }
    }

    /// Why it can't take part, if it can't.
    fn missing(self, products: &Result<(), String>) -> Option<String> {
        match self {
            Self::OrderCloser => None,
            Self::Rabbitmq if RabbitMq::version().is_none() => Some("RabbitMQ is not installed (rabbitmq-server)".into()),
            _ => products.as_ref().err().cloned(),
        }
    }

    /// How long it is watched: whole periods of one that sleeps for long.
    fn window(self, seconds: u32) -> Millis {
        1_000 * Millis::from(if self == Self::Cron { seconds.next_multiple_of(60) } else { seconds })
    }

    /// How long is waited for the last order of its window.
    fn last(self) -> Millis {
        if self == Self::Cron { 61_000 } else { LAST }
    }

    fn color(self) -> plots::RGBColor {
        match self {
            Self::Cron => plots::GREY,
            Self::Poller => plots::PURPLE,
            Self::Listener => plots::VERMILION,
            Self::Rabbitmq => plots::ORANGE,
            Self::Bullmq => plots::GREEN,
            Self::Graphile => plots::SKY,
            Self::PgBoss => plots::BLACK,
            Self::OrderCloser => plots::BLUE,
        }
    }
}

/// What falls due, and how contestants heard of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Case {
    /// So many pending; they were heard of in the order of their deadlines.
    Ascending(u32),
    /// The same in random order.
    Random(u32),
    /// So many due at one instant.
    Burst(u32),
}

impl Case {
    fn name(self) -> String {
        match self {
            Self::Ascending(pending) => format!("{} pending, deadlines in ascending order", grouped(pending.into())),
            Self::Random(pending) => format!("{} pending, deadlines in random order", grouped(pending.into())),
            Self::Burst(orders) => format!("{} due at once", grouped(orders.into())),
        }
    }
}

/// All turns, in alternation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Peers {
    versions: Vec<String>,
    left_out: Vec<String>,
    turns: Vec<Turn>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Turn {
    case: Case,
    way: Way,
    lateness: Lateness,
    /// Processor time from the window's beginning to its end, of the closing process and of all servers with it; seconds.
    own_s: f64,
    all_s: f64,
    window_s: f64,
}

/// Measures.
pub async fn run(options: &Options, progress: &Progress) -> Peers {
    let products = peers::install();
    let left_out = Way::ALL.iter().filter_map(|way| Some(format!("{}: {}", way.name(), way.missing(&products)?))).collect::<Vec<_>>();
    left_out.iter().for_each(|reason| progress.result(&format!("left out: {reason}")));
    let ways: Vec<Way> = Way::ALL.into_iter().filter(|way| way.missing(&products).is_none()).collect();
    let mut sizes: Vec<u32> = options.sizes.iter().copied().filter(|size| *size <= LARGEST).collect();
    sizes.sort_unstable();
    let largest = sizes.split_off(sizes.len().saturating_sub(2));
    let mut cases: Vec<Case> = largest.iter().flat_map(|size| [Case::Ascending(*size), Case::Random(*size)]).collect();
    cases.push(Case::Burst(BURST.min(options.bursts.iter().copied().max().unwrap_or(BURST))));
    progress.begin("peers", options.rounds as usize * cases.len() * ways.len());
    let mut versions: Vec<String> = RabbitMq::version().map(|version| format!("RabbitMQ {version}")).into_iter().collect();
    versions.extend(peers::versions(&["bullmq", "graphile-worker", "pg-boss", "amqplib", "ioredis", "pg"]));
    let mut measured = Peers { versions, left_out, turns: Vec::new() };
    for round in 0..options.rounds {
        for case in &cases {
            for way in &ways {
                // Its period alone makes it late: one window of a whole minute tells as much as three.
                if *way == Way::Cron && round > 0 {
                    continue;
                }
                progress.step(&format!("{}: {}, round {}", case.name(), way.name(), round + 1));
                let turn = turn(*case, *way, options.seconds).await;
                let (own, all) = (turn.own_s, turn.all_s);
                progress.result(&format!("{}; processor {own:.2} s, with servers {all:.2} s of {:.0}", turn.lateness, turn.window_s));
                measured.turns.push(turn);
            }
        }
    }
    measured
}

/// Who closes.
enum Closer {
    Peer(Peer),
    Daemon(Daemon),
}

/// One contestant on servers of its own, alone on the machine.
async fn turn(case: Case, way: Way, seconds: u32) -> Turn {
    let server = servers::postgres();
    let redis = if way == Way::Listener { Redis::options().saving().with_notifications().start() } else { servers::redis() };
    let rabbitmq = (way == Way::Rabbitmq).then(RabbitMq::start);
    let shop = servers::shop_on(&server, None).await;
    let amqp = rabbitmq.as_ref().map_or(String::new(), RabbitMq::url);
    let peer = || Peer::start(way.product(), Task::Close, &shop.database.url, &redis.url(), &amqp);
    let peer = (way != Way::OrderCloser).then(peer);
    let orders = filled(case, &shop, peer.as_ref(), &redis).await;
    let closer = match peer {
        Some(peer) => {
            peer.work();
            Closer::Peer(peer)
        }
        None => Closer::Daemon(servers::daemon(&shop.settings(&redis)).await),
    };
    let own = match &closer {
        Closer::Peer(peer) => peer.pid(),
        Closer::Daemon(daemon) => daemon.pid(),
    };
    let used = || {
        let others = [Some(server.pid()), Some(redis.pid()), rabbitmq.as_ref().map(RabbitMq::pid)];
        let others: Duration = others.into_iter().flatten().map(usage::processor_time).sum();
        let own = usage::processor_time(own);
        (own.as_secs_f64(), (own + others).as_secs_f64())
    };
    let (from, until, last) = match case {
        Case::Ascending(_) | Case::Random(_) => {
            tokio::time::sleep(Duration::from_millis(WARM_UP.unsigned_abs())).await;
            let from = orders::now();
            (from, from + way.window(seconds), way.last())
        }
        Case::Burst(_) => {
            assert!(orders::now() < orders.due_from, "{} was told of a burst only when it was due", way.name());
            orders::sleep_until(orders.due_from - 200).await;
            (orders.due_from, orders.due_from + 1, LAST_OF_BURST)
        }
    };
    let before = used();
    orders::sleep_until(until).await;
    while orders::now() < until + last && shop.unpaid_due_until(until).await > 0 {
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let after = used();
    let window_s = (orders::now() - from) as f64 / 1_000.0;
    let lateness = Lateness::of(&lateness::fell_due(&shop, from, until).await);
    if let Closer::Daemon(daemon) = closer {
        daemon.stop().await;
    }
    let faults = shop.faults().await;
    assert!(faults.is_empty(), "{}: {}", way.name(), faults.join("; "));
    Turn { case, way, lateness, own_s: after.0 - before.0, all_s: after.1 - before.1, window_s }
}

/// Takes the orders of a case, and lets the contestant hear of them.
async fn filled(case: Case, shop: &Shop, peer: Option<&Peer>, redis: &Redis) -> Orders {
    let orders = match case {
        Case::Ascending(pending) | Case::Random(pending) => {
            Orders { numbers: 1..i64::from(pending) + 1, due_from: orders::now(), over: LIFETIME }
        }
        // So many that the slowest has heard of all when they fall due.
        Case::Burst(burst) => {
            Orders { numbers: 1..i64::from(burst) + 1, due_from: orders::now() + 8_000 + Millis::from(burst) * 6 / 10, over: 0 }
        }
    };
    shop.take(&orders).await;
    let mut told: Vec<(i64, Millis)> = orders.parts().flatten().collect();
    if matches!(case, Case::Random(_)) {
        told.shuffle(&mut StdRng::seed_from_u64(7));
    }
    match peer {
        Some(peer) => tokio::task::block_in_place(|| peer.fill(&told)),
        None => told.chunks(1_000).for_each(|some| {
            redis.set_all_until(&some.iter().map(|(number, deadline)| (key(*number), *deadline)).collect::<Vec<_>>());
        }),
    }
    shop.settle().await;
    orders
}

/// The medians of a contestant's turns.
struct Medians {
    rounds: usize,
    closed: f64,
    p50: Percentile,
    p99: Percentile,
    max: Percentile,
    percent: [f64; 2],
    seconds: [f64; 2],
}

impl Peers {
    fn medians(&self, case: Case, way: Way) -> Option<Medians> {
        let turns: Vec<&Turn> = self.turns.iter().filter(|turn| turn.case == case && turn.way == way).collect();
        if turns.is_empty() {
            return None;
        }
        let figure = |of: &dyn Fn(&Turn) -> f64| median(&turns.iter().map(|turn| of(turn)).collect::<Vec<_>>());
        let percentile = |of: fn(&Lateness) -> Percentile| Percentile {
            ms: figure(&|turn| of(&turn.lateness).ms),
            at_least: turns.iter().any(|turn| of(&turn.lateness).at_least),
        };
        Some(Medians {
            rounds: turns.len(),
            closed: figure(&|turn| 100.0 * turn.lateness.closed as f64 / turn.lateness.due.max(1) as f64),
            p50: percentile(|lateness| lateness.p50),
            p99: percentile(|lateness| lateness.p99),
            max: percentile(|lateness| lateness.max),
            percent: [figure(&|turn| 100.0 * turn.own_s / turn.window_s), figure(&|turn| 100.0 * turn.all_s / turn.window_s)],
            seconds: [figure(&|turn| turn.own_s), figure(&|turn| turn.all_s)],
        })
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases: Vec<Case> = Vec::new();
        for turn in &self.turns {
            if !cases.contains(&turn.case) {
                cases.push(turn.case);
            }
        }
        cases
    }
}

impl Figures for Peers {
    const TITLE: &str = "Peers";
    const ABOUT: &str = "Other ways and other products, each alone with a PostgreSQL of its own that all of them close orders in, by the same \
        UPDATE under the row's lock. So many orders are pending, with 30 minutes to pay; contestants heard of them in the order of their \
        deadlines or in random order, and lateness (the time of the commit, as PostgreSQL recorded it, minus the deadline) is of those that \
        fell due in the measured window; what was open 3 s after it (cron: a minute), 60 s after a burst, counts with the time since its deadline, and the \
        figure is marked ≥. Contestants take turns; figures are medians of the rounds. RabbitMQ: one durable queue of persistent messages, \
        each with its own TTL, whose dead letters are consumed; BullMQ: delayed jobs; graphile-worker and pg-boss: jobs with the time of the \
        deadline, polled every half second; eight closures at a time. cron runs once, for whole minutes. Processor time is that of the \
        closing process, and of PostgreSQL, Redis and RabbitMQ with it.";

    fn tables(&self) -> Vec<Table> {
        self.cases()
            .into_iter()
            .map(|case| {
                let processor = if matches!(case, Case::Burst(_)) { "processor" } else { "of a core" };
                let (own, all) = (format!("{processor}, closer"), format!("{processor}, with servers"));
                let mut table = Table::new([&case.name(), "rounds", "closed", "p50", "p99", "max", &own, &all]);
                for way in Way::ALL {
                    let Some(Medians { rounds, closed, p50, p99, max, percent, seconds }) = self.medians(case, way) else { continue };
                    let [own, all] = match case {
                        Case::Burst(_) => seconds.map(|seconds| format!("{seconds:.2} s")),
                        Case::Ascending(_) | Case::Random(_) => percent.map(|percent| format!("{percent:.1} %")),
                    };
                    let [p50, p99, max] = [p50, p99, max].map(|figure| figure.to_string());
                    table.row([way.name().into(), rounds.to_string(), format!("{closed:.0} %"), p50, p99, max, own, all]);
                }
                table
            })
            .collect()
    }

    fn goals(&self) -> Vec<Goal> {
        let own = |case: Case| Some((case, self.medians(case, Way::OrderCloser)?));
        let goal = |(case, own): (Case, Medians)| match case {
            Case::Burst(_) => Goal::at_most(format!("order-closer, {}: max", case.name()), own.max.ms, 1_000.0, "ms"),
            Case::Ascending(_) | Case::Random(_) => Goal::at_most(format!("order-closer, {}: p99", case.name()), own.p99.ms, 9.0, "ms"),
        };
        self.cases().into_iter().filter_map(own).map(goal).collect()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!("{}.", self.versions.join(", "))];
        notes.extend(self.left_out.iter().map(|reason| format!("Left out: {reason}.")));
        notes
    }

    fn plot(&self, folder: &Path) -> (&'static str, &'static str) {
        let file = "peers.svg";
        let lines = |is_random: bool| -> Vec<Line> {
            let point = |way: Way, case: Case| {
                let pending = match case {
                    Case::Random(pending) if is_random => pending,
                    Case::Ascending(pending) if !is_random => pending,
                    _ => return None,
                };
                let p99 = self.medians(case, way)?.p99;
                Some((f64::from(pending), p99.ms, p99.at_least))
            };
            let line =
                |way: Way| Line { color: way.color(), points: self.cases().into_iter().filter_map(|case| point(way, case)).collect() };
            Way::ALL.map(line).into()
        };
        let (ascending, random) = (lines(false), lines(true));
        let decades = [plots::decades(&ascending), plots::decades(&random)];
        let range = (decades[0].0.min(decades[1].0), decades[0].1.max(decades[1].1));
        plots::page(&folder.join(file), 440, |page| {
            let rest = plots::legend(page, &Way::ALL.map(|way| (way.name(), way.color())))?;
            let titles = ["Ascending deadlines: 99 of 100 (▲ at least)", "Random deadlines: 99 of 100 (▲ at least)"];
            for (half, (title, lines)) in rest.split_evenly((1, 2)).iter().zip(titles.into_iter().zip([ascending, random])) {
                LogLines { title, x: "pending orders", y: "lateness, ms", range, lines }.draw(half)?;
            }
            Ok(())
        });
        (file, "Lateness of order-closer and other products, by the number of pending orders")
    }
}
