//! What several daemons leave to each other, and what an heir makes of it: quiet servers, and daemons that are killed.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{
    daemon::Daemon,
    history::{What, judge},
    plan::Plan,
    world::{Order, UNPAID, World},
};

/// How long daemons need to learn of each other, and to give one up.
const ACQUAINTED: Duration = Duration::from_secs(3);
const GIVEN_UP: i64 = 2_000_000;

/// How late an order may be, in microseconds.
const ON_TIME: i64 = 50_000;

/// Daemons that know each other.
async fn daemons(seed: u64, count: u32, tells_shares: bool) -> (Arc<World>, Vec<Daemon>) {
    let world = World::new(seed, Plan { tells_shares, ..Plan::quiet(Duration::from_secs(2)) }, None);
    let mut daemons = Vec::new();
    for number in 1..=count {
        daemons.push(Daemon::start(&world, number).await);
    }
    sleep(ACQUAINTED).await;
    (world, daemons)
}

/// An order, and its key, which expires so much later.
fn create(world: &World, number: u32, due_in: Duration, later: Duration) {
    let micros = |time: Duration| i64::try_from(time.as_micros()).expect("small");
    let deadline = world.now() + micros(due_in);
    let (at, expires) = (world.by_redis(deadline) + micros(later), deadline + micros(later));
    let mut state = world.state();
    state.orders.insert(number, Order { status: UNPAID, deadline, poison: false });
    state.keys.insert(number, at);
    drop(state);
    world.note(number, What::Created { deadline });
    world.note(number, What::Key { expires });
}

/// Of each closure its order, its deadline, how late it was and what led to it.
fn closures(world: &World) -> Vec<(u32, i64, i64, &'static str)> {
    let closure = |entry: &super::history::Entry| {
        let What::Closed { deadline, trigger, .. } = entry.what else { return None };
        Some((entry.order, deadline, entry.at - deadline, trigger))
    };
    world.state().history.iter().filter_map(closure).collect()
}

/// Each key is asked for by the daemon alone whose order it is, whether the database reads out others' or not.
#[tokio::test(start_paused = true)]
async fn the_orders_of_others_are_left_to_them() {
    for tells_shares in [false, true] {
        let (world, _daemons) = daemons(1, 3, tells_shares).await;
        for number in 0..100 {
            create(&world, number, Duration::from_millis(4_000 + u64::from(number)), Duration::ZERO);
        }
        sleep(Duration::from_secs(5)).await;
        let asked: Vec<u32> = world.state().asked.values().copied().collect();
        assert_eq!(asked, [1; 100]);
        let late: Vec<_> = closures(&world).into_iter().filter(|closure| closure.2 > ON_TIME).collect();
        assert!(late.is_empty() && closures(&world).len() == 100, "{late:?}");
        assert!(judge(&world).is_empty());
    }
}

/// From two seconds after its death the orders of a daemon close on time, and those whose keys contradict them wait for these,
/// whenever it dies between two looks ahead of the others.
#[tokio::test(start_paused = true)]
async fn an_heir_is_on_time_and_compares_keys() {
    for seed in 0..8 {
        let (world, mut daemons) = daemons(seed, 3, seed % 2 == 0).await;
        for number in 0..300 {
            let later = if number % 10 == 0 { Duration::from_secs(70) } else { Duration::ZERO };
            create(&world, number, Duration::from_millis(4_000 + u64::from(number) * 20), later);
        }
        sleep(Duration::from_millis(3_500 + 125 * seed)).await;
        let died = world.now();
        daemons.remove(0).kill(&world).await;
        sleep(Duration::from_secs(90)).await;
        let closures = closures(&world);
        assert_eq!(closures.len(), 300, "seed {seed}");
        let is_late = |(order, deadline, late, _): &(u32, i64, i64, &str)| {
            let is_affected = (died..died + GIVEN_UP).contains(deadline);
            order % 10 != 0 && *late > if is_affected { 2 * GIVEN_UP } else { ON_TIME }
        };
        let late: Vec<_> = closures.iter().filter(|closure| is_late(closure)).collect();
        assert!(late.is_empty(), "seed {seed}: {late:?}");
        let early: Vec<_> = closures.iter().filter(|(order, _, late, _)| order % 10 == 0 && *late < 70_000_000).collect();
        assert!(early.is_empty(), "seed {seed}: {early:?}");
    }
}

/// One alone has each key expire at its deadline, and closes its order when that is announced. Beside others, whom each
/// notification would wake, it waits for none, and has keys expire together.
#[tokio::test(start_paused = true)]
async fn beside_others_keys_expire_together() {
    for (count, trigger, most) in [(1, "expired", 100), (2, "pacer", 60)] {
        let (world, _daemons) = daemons(3, count, true).await;
        for number in 0..100 {
            create(&world, number, Duration::from_millis(4_000 + u64::from(number) * 10), Duration::ZERO);
        }
        sleep(Duration::from_secs(6)).await;
        let closures = closures(&world);
        let late: Vec<_> = closures.iter().filter(|closure| closure.2 > ON_TIME).collect();
        assert!(late.is_empty() && closures.len() == 100, "{count} daemons: {late:?}");
        // A sweep may be sooner by chance.
        let others: Vec<_> = closures.iter().filter(|closure| closure.3 != trigger).collect();
        assert!(others.len() < 5 && others.iter().all(|closure| closure.3 == "sweep"), "{count} daemons: {others:?}");
        let touches = world.state().touches;
        assert!(touches <= most && touches >= most / 3 && world.state().keys.is_empty(), "{count} daemons: {touches} touches");
    }
}
