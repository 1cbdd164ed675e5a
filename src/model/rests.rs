//! How long the readers of the table rest, and how late that makes orders: one daemon, whose reads take as long as a test says.

use std::{sync::Arc, time::Duration};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::time::sleep;

use super::{
    daemon::Daemon,
    history::{What, Wrong, judge},
    plan::Plan,
    world::{Order, Read, Reading, UNPAID, World},
};
use crate::trigger::LONGEST_READ;

/// A daemon that looks so many seconds ahead, or not at all.
async fn daemon(seed: u64, ahead: u64, reading: Reading) -> (Arc<World>, Daemon) {
    let world = World::new(seed, Plan::quiet(Duration::from_secs(ahead)), None);
    world.read_like(reading);
    let daemon = Daemon::start(&world, 1).await;
    (world, daemon)
}

/// Whatever becomes of hints and of some pages, each order closes once, never early, and within the sweep's interval and two
/// pages.
#[tokio::test(start_paused = true)]
async fn every_order_closes_in_time() {
    for seed in 0..100 {
        let mut random = StdRng::seed_from_u64(seed);
        let slowest = random.random_range(1..400_u64);
        let failing = if random.random_bool(0.5) { 0.1 } else { 0.0 };
        let ahead = [0, 2][usize::from(random.random_bool(0.7))];
        let (world, daemon) =
            daemon(seed, ahead, Box::new(move |world| (world.millis(0, slowest), failing > 0.0 && world.chance(failing)))).await;
        let count = random.random_range(1..300_u32);
        for number in 0..count {
            let deadline = world.now() + random.random_range(-2_000..6_000) * 1_000;
            world.state().orders.insert(number, Order { status: UNPAID, deadline, poison: false });
            world.note(number, What::Created { deadline });
            for _ in 0..random.random_range(0..3) {
                // Early, of strangers, or repeated.
                world.announce(random.random_range(0..count + 50));
            }
            if random.random_bool(0.1) {
                extend(&world, random.random_range(0..=number), random.random_range(500..4_000) * 1_000);
            }
            if random.random_bool(0.05) {
                daemon.node.inbox.want_sweep();
            }
            sleep(Duration::from_millis(random.random_range(0..30))).await;
        }
        sleep(Duration::from_secs(40)).await;
        assert!(daemon.stop(&world).await, "seed {seed}");
        let mut violations = judge(&world);
        if failing > 0.0 {
            violations.retain(|violation| violation.wrong != Wrong::Late);
        }
        assert!(violations.is_empty(), "seed {seed}: {}", violations[0]);
        if failing == 0.0 {
            // A rest is nine times as long as what is slow about it, and five seconds at the most.
            let most = 1_000 + 11 * i64::try_from(slowest).expect("small") + 100;
            let born_late = 2_000;
            let lateness = |what: &What, at: i64| if let What::Closed { deadline, .. } = what { (at - deadline) / 1_000 } else { 0 };
            let latest = world.state().history.iter().map(|entry| lateness(&entry.what, entry.at)).max().unwrap_or_default();
            assert!(latest <= most + born_late, "seed {seed}: {latest} ms late, pages of {slowest} ms");
        }
    }
}

/// Gives an unpaid order more time.
fn extend(world: &World, number: u32, by: i64) {
    let more = world.now() + by;
    let mut state = world.state();
    let Some(order) = state.orders.get_mut(&number).filter(|order| order.status == UNPAID && order.deadline < more) else { return };
    order.deadline = more;
    drop(state);
    world.note(number, What::Extended { deadline: more });
}

/// Orders that can't be closed fill page after page; one that nobody has announced does not wait for them.
#[tokio::test(start_paused = true)]
async fn an_order_is_found_soon_behind_pages_of_those_that_can_not_be_closed() {
    const REFUSED: u32 = 900_000;
    let (world, daemon) = daemon(4, 0, Box::new(|world| (world.millis(100, 400), false))).await;
    let hour_ago = world.now() - 3_600_000_000;
    for number in 0..40_000 {
        let order = Order { status: UNPAID, deadline: hour_ago + i64::from(number), poison: true };
        world.state().orders.insert(REFUSED + number, order);
    }
    sleep(Duration::from_secs(30)).await;
    for number in 0..200 {
        let deadline = world.now() - 1_000;
        world.state().orders.insert(number, Order { status: UNPAID, deadline, poison: false });
        sleep(Duration::from_millis(537)).await;
    }
    sleep(Duration::from_secs(10)).await;
    daemon.kill(&world).await;
    let lateness = |what: &What, at: i64| if let What::Closed { deadline, .. } = what { Some((at - deadline) / 1_000) } else { None };
    let closed: Vec<i64> = world.state().history.iter().filter_map(|entry| lateness(&entry.what, entry.at)).collect();
    let late: Vec<i64> = closed.iter().copied().filter(|late| *late > 4_500).collect();
    assert!(closed.len() == 200 && late.is_empty(), "{} closed, of which late by ms: {late:?}", closed.len());
}

fn rests(reads: &[Read]) -> Vec<Duration> {
    reads.windows(2).map(|pair| pair[1].at - pair[0].at - pair[0].took).collect()
}

/// Two of five passes are slow: no rest is longer for it.
#[tokio::test(start_paused = true)]
async fn a_hiccup_delays_nothing() {
    let hiccup = |world: &World| (Duration::from_millis(if world.draw(0, 7) == 0 { 3_500 } else { 2 }), false);
    let (world, _daemon) = daemon(1, 0, Box::new(hiccup)).await;
    sleep(Duration::from_secs(60)).await;
    let rests = rests(&world.were_read(true));
    let long = rests.iter().filter(|rest| **rest > Duration::from_millis(1_100)).count();
    assert!(rests.len() > 30 && long * 10 <= rests.len(), "{rests:?}");
}

/// While all queries time out, both readers together take a tenth of the time, and rest for a minute at the most.
#[tokio::test(start_paused = true)]
async fn queries_that_time_out_take_a_tenth_of_the_time() {
    for (seconds, share) in [(1, 0.11), (3, 0.11), (LONGEST_READ.as_secs(), 0.105)] {
        let (world, daemon) = daemon(2, 2, Box::new(move |_| (Duration::from_secs(seconds), true))).await;
        let (looks, sweeps) = (|| world.were_read(false).len(), || world.were_read(true).len());
        sleep(Duration::from_secs(120)).await;
        let before = looks() + sweeps();
        sleep(Duration::from_secs(2_000)).await;
        let taken = (looks() + sweeps() - before) as f64 * seconds as f64 / 2_000.0;
        assert!(taken <= share && taken > share / 3.0, "{taken} of the time for queries of {seconds} s");
        // Quick again.
        world.read_like(Box::new(|_| (Duration::from_millis(2), false)));
        sleep(Duration::from_secs(140)).await;
        let (looked, swept) = (looks(), sweeps());
        sleep(Duration::from_secs(20)).await;
        assert!(looks() >= looked + 15 && sweeps() >= swept + 15);
        daemon.kill(&world).await;
    }
}

/// However often somebody asks, there is a tenth of a second between passes, and after slow ones ten seconds.
#[tokio::test(start_paused = true)]
async fn requests_are_heard_but_not_all() {
    for (takes, least, most) in [(2, 100, 1_100), (2_000, 10_000, 12_100)] {
        let (world, daemon) = daemon(3, 0, Box::new(move |_| (Duration::from_millis(takes), false))).await;
        for _ in 0..10_000 {
            daemon.node.inbox.want_sweep();
            sleep(Duration::from_millis(10)).await;
        }
        let steps: Vec<Duration> = world.were_read(true).windows(2).skip(5).map(|pair| pair[1].at - pair[0].at).collect();
        assert!(!steps.is_empty() && steps.iter().all(|step| (least..=most).contains(&step.as_millis())), "{steps:?}");
        daemon.kill(&world).await;
    }
}
