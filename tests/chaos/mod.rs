//! Chaos: a shop at work, three daemons, and whatever can go wrong, several things at a time; afterwards the whole history is judged.
//!
//! `make chaos` runs it for ten minutes; `docs/chaos.md` says what can be chosen, and how a run is read. What the service does and
//! what goes wrong follow from the seed; what processes make of it, and when, does not.

mod checker;
mod database;
mod faults;
mod keys;
mod nemesis;
mod plan;
mod redis;
mod report;
mod scene;
mod service;
mod shop;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use faults::{Layout, What};
use plan::{Options, Plan};
use scene::{Scene, now};
use service::Account;

use crate::support::Kind;

/// What daemons may take for the next order that is overdue, or the next event that is not told, once the last fault is mended:
/// `sweep.every`, a question's timeout and pause, and much more than that for a machine that is busy with other things.
const NEXT: Duration = Duration::from_secs(60);

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} can't be read")))
}

const DATABASES: [(&str, Kind); 2] = [("postgres", Kind::Postgres), ("mariadb", Kind::MariaDb)];
const REDIS: [(&str, Layout); 2] = [("alone", Layout::Alone), ("cluster", Layout::Cluster)];

/// Those of them that this variable names: all, unless it is set.
fn chosen<T: Copy>(all: [(&str, T); 2], variable: &str) -> Vec<T> {
    let only: Option<String> = setting(variable);
    let chosen: Vec<T> = all.iter().filter(|(name, _)| only.as_ref().is_none_or(|only| only == name)).map(|(_, one)| *one).collect();
    assert!(!chosen.is_empty(), "{variable} is {} or {}", all[0].0, all[1].0);
    chosen
}

fn name<T: PartialEq>(all: [(&'static str, T); 2], one: &T) -> &'static str {
    all.into_iter().find(|(_, other)| other == one).expect("a name").0
}

/// Which of its faults a violation takes is found by leaving out others; their moments stay as they are.
fn leave_only(plan: &mut Plan, names: &str) {
    let names: Vec<&str> = names.split(',').map(str::trim).filter(|name| *name != "none").collect();
    let known: Vec<&str> = What::ALL.iter().map(What::name).collect();
    let unknown = names.iter().find(|name| !known.contains(name));
    assert!(unknown.is_none(), "there is no fault {unknown:?}, only none, {}", known.join(", "));
    plan.faults.retain(|fault| names.contains(&fault.what.name()));
}

/// Runs the plan of these options to its end, and judges what happened; returns what must not have.
async fn run(options: Options) -> Result<(), String> {
    let Options { seed, seconds, rate, kind, layout, .. } = options;
    let (database, redis) = (name(DATABASES, &kind), name(REDIS, &layout));
    let again = format!("make chaos SEED={seed} SECONDS={seconds} RATE={rate} DATABASE={database} REDIS={redis}");
    eprintln!("{again}");
    if scene::faketime().is_none() {
        eprintln!("no clock is skewed: the package faketime is not installed");
    }
    let mut plan = Plan::new(&options);
    if let Some(only) = setting::<String>("CHAOS_FAULTS") {
        leave_only(&mut plan, &only);
    }
    let scene = Arc::new(Scene::open(&options).await);
    if scene.disks.iter().any(Option::is_none) {
        eprintln!("no disk is full: only root may mount one");
    }
    let service = tokio::spawn(service::work(Arc::clone(&scene), plan.steps.clone()));
    let happened = nemesis::work(&scene, &plan.faults).await;
    let account = service.await.expect("the service works to the end");
    scene.until(plan.last_deadline() + 1).await;
    let due = scene.elapsed();
    settle(&scene, &account).await;
    let (settled, judged) = (scene.elapsed(), now());
    // What nobody changes any more is read as a whole.
    let mut text = stop(&scene).await;
    let histories = checker::histories(&scene, &account).await;
    let lines = scene.lines().await;
    let wrong = checker::judge(&histories, &happened, &checker::unanswered(&lines), judged);
    let stock = scene.shop.stock().await;
    let wrong_stock = checker::wrong_stock(&histories, &stock);
    let closures: usize = histories.values().map(|history| history.closures.len()).sum();
    eprintln!(
        "{} steps ({} without an answer), {} orders, {closures} closures, {} faults; all was settled {:.1} s after the last deadline\n{}",
        plan.steps.len(),
        account.unanswered(),
        histories.len(),
        happened.len(),
        (settled - due) as f64 / 1e3,
        report::lateness(&histories, &happened)
    );
    if !wrong.is_empty() {
        text += &report::violations(&wrong, &histories, &account, &happened, &lines, scene.began);
    }
    if !wrong_stock.is_empty() {
        text += &format!("the stock of these articles is wrong (what it must be, what it is): {wrong_stock:?}\n");
    }
    for (place, lines) in &lines {
        let panics: Vec<&String> = lines.iter().map(|(_, line)| line).filter(|line| line.contains("panicked")).collect();
        if !panics.is_empty() {
            text += &format!("daemon {place} has panicked: {panics:?}\n");
        }
    }
    let kept = !text.is_empty() && !options.harmful;
    if let Some(folder) = setting::<String>("CHAOS_LOGS").or_else(|| kept.then(|| "target/chaos".into())) {
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        for (place, lines) in &lines {
            let file = format!("{folder}/daemon-{place}.log");
            let lines: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
            std::fs::write(&file, lines.join("\n")).expect("a file can be written");
        }
        let latest = report::latest(&histories, &account, &happened, &lines, scene.began);
        std::fs::write(format!("{folder}/latest-orders.txt"), latest).expect("a file can be written");
        text += &if text.is_empty() { String::new() } else { format!("all that the daemons have said is in {folder}\n") };
    }
    if !text.is_empty() {
        return Err(format!("{text}again: {again}"));
    }
    if closures == 0 { Err(format!("nothing was closed; again: {again}")) } else { Ok(()) }
}

/// The same, where nothing may be wrong.
async fn holds(options: Options) {
    if let Err(text) = run(options).await {
        panic!("{text}");
    }
}

/// Stops the daemons; returns what was wrong with their ends.
async fn stop(scene: &Scene) -> String {
    let mut text = String::new();
    for (number, place) in scene.places.iter().enumerate() {
        let daemon = place.daemon().await;
        let running = daemon.ended().is_none();
        daemon.terminate();
        let status = daemon.wait().await;
        if !running || !status.success() {
            text += &format!("daemon {number} ended with {status}{}\n", if running { "" } else { ", by itself" });
        }
    }
    text
}

/// Waits until nothing is overdue and everything is told, or nothing comes of waiting: what is left then is among the violations.
async fn settle(scene: &Scene, account: &Account) {
    let (mut least, mut since) = (usize::MAX, Instant::now());
    while since.elapsed() < NEXT {
        let began = Instant::now();
        let left = checker::unsettled(scene, account, now()).await;
        if left == 0 {
            return;
        }
        if left < least {
            (least, since) = (left, Instant::now());
        }
        tokio::time::sleep(began.elapsed().max(Duration::from_millis(500))).await;
    }
}

/// On each database, and with each Redis, one after the other.
async fn on_each(seed: u64, seconds: u64, rate: u32) {
    let (kinds, layouts) = (chosen(DATABASES, "CHAOS_DATABASE"), chosen(REDIS, "CHAOS_REDIS"));
    let seconds = seconds / (kinds.len() * layouts.len()) as u64;
    for kind in kinds {
        for layout in &layouts {
            holds(Options { seed, seconds, rate, kind, layout: *layout, harmful: false }).await;
        }
    }
}

/// Seeds that have passed: another one in each run would make of the tests of a change a search for what it has not broken.
const SEEDS: [u64; 4] = [1, 2, 3, 11];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_minute() {
    let seed = setting("CHAOS_SEED").unwrap_or(SEEDS[0]);
    holds(Options { seed, seconds: 30, rate: 60, kind: Kind::Postgres, layout: Layout::Alone, harmful: false }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_on_postgres() {
    holds(Options { seed: SEEDS[1], seconds: 60, rate: 100, kind: Kind::Postgres, layout: Layout::Alone, harmful: false }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_on_mariadb() {
    holds(Options { seed: SEEDS[2], seconds: 60, rate: 100, kind: Kind::MariaDb, layout: Layout::Alone, harmful: false }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_with_a_cluster() {
    holds(Options { seed: SEEDS[3], seconds: 60, rate: 100, kind: Kind::Postgres, layout: Layout::Cluster, harmful: false }).await;
}

/// By real servers and real daemons, whose settings break what is promised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_must_not_be_is_noticed() {
    let options = Options { seed: 4, seconds: 10, rate: 60, kind: Kind::Postgres, layout: Layout::Alone, harmful: true };
    let text = run(options).await.expect_err("promises were broken");
    for violation in
        ["EarlyByItsKey", "ClosedThoughPaidAtProvider", "Twice", "NotWhole", "WrongEvents", "the stock of these articles is wrong"]
    {
        assert!(text.contains(violation), "{violation} was not noticed:\n{text}");
    }
    assert!(text.contains("again: make chaos SEED=4 SECONDS=10 RATE=60 DATABASE=postgres REDIS=alone"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make chaos"]
async fn as_long_as_you_like() {
    let seed = setting("CHAOS_SEED").unwrap_or_else(|| rand::random::<u64>() >> 32);
    // What an optimized build does: a step takes all processes together about 4 ms of a core.
    let cores = std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX));
    let rate = setting("CHAOS_RATE").unwrap_or(cores.saturating_mul(200).min(300));
    on_each(seed, setting("CHAOS_SECONDS").unwrap_or(600), rate).await;
}
