//! What goes wrong while orders come, and is mended at the end.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::sleep};

use super::{daemon::Crew, plan::Kind, world::World};

/// Lets everything go wrong that is to.
pub(super) fn begin(world: &Arc<World>, crew: &Arc<Crew>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for kind in &world.plan.kinds {
        let (world, crew) = (Arc::clone(world), Arc::clone(crew));
        match kind {
            Kind::Hints => drop(tasks.spawn(forge(world))),
            Kind::Redis => drop(tasks.spawn(redis(world))),
            Kind::Slow => drop(tasks.spawn(slow(world))),
            Kind::Failing => drop(tasks.spawn(database(world))),
            Kind::Peers => drop(tasks.spawn(peers(world, crew))),
            Kind::Frozen => drop(tasks.spawn(frozen(world))),
            Kind::Clock => drop(tasks.spawn(clock(world, crew))),
            Kind::Pauses => drop(tasks.spawn(pauses(world))),
            Kind::Payments
            | Kind::Extensions
            | Kind::Disputes
            | Kind::Commits
            | Kind::Held
            | Kind::Poison
            | Kind::Unseen
            | Kind::Receiver
            | Kind::Told
            | Kind::Refusals => {}
        }
    }
    tasks
}

/// Everything is mended.
pub(super) async fn end(world: &Arc<World>, crew: &Arc<Crew>, mut tasks: JoinSet<()>) {
    tasks.shutdown().await;
    {
        let mut state = world.state();
        state.faults_over = true;
        (state.database_down, state.redis_away, state.slow) = (false, false, Duration::ZERO);
    }
    world.set_clock(0);
    if crew.lock().is_empty() {
        crew.start(world).await;
    }
    for node in world.nodes() {
        node.freeze(false);
        node.subscribe(true);
    }
    world.pause(None);
}

/// Redis' own cycle, which comes across expired keys now and then.
pub(super) async fn cycle(world: Arc<World>) {
    loop {
        sleep(Duration::from_millis(100)).await;
        let keys: Vec<u32> = world.state().keys.keys().copied().collect();
        for order in keys {
            if world.chance(0.1) && !world.state().redis_away {
                world.notice(order);
            }
        }
    }
}

/// Notifications of what has not happened.
async fn forge(world: Arc<World>) {
    loop {
        sleep(world.millis(1, 200)).await;
        let order = u32::try_from(world.draw(0, u64::from(world.plan.orders) + 20)).unwrap_or_default();
        world.announce(order);
    }
}

async fn redis(world: Arc<World>) {
    loop {
        sleep(world.millis(100, 2_000)).await;
        world.state().redis_away = true;
        world.nodes().iter().for_each(|node| node.subscribe(false));
        sleep(world.millis(10, 1_500)).await;
        {
            let mut state = world.state();
            state.redis_away = false;
        }
        if world.chance(0.5) {
            let mut state = world.state();
            state.keys.clear();
            state.life += 1;
        }
        world.nodes().iter().for_each(|node| node.subscribe(true));
    }
}

async fn slow(world: Arc<World>) {
    loop {
        sleep(world.millis(10, 1_500)).await;
        world.state().slow = world.millis(5, if world.chance(0.3) { 1_500 } else { 60 });
        sleep(world.millis(10, 1_500)).await;
        world.state().slow = Duration::ZERO;
    }
}

async fn database(world: Arc<World>) {
    loop {
        sleep(world.millis(100, 3_000)).await;
        world.crash();
        sleep(world.millis(1, 1_000)).await;
        world.state().database_down = false;
    }
}

async fn peers(world: Arc<World>, crew: Arc<Crew>) {
    loop {
        sleep(world.millis(50, 1_500)).await;
        let daemons = crew.lock().len();
        if daemons == 0 || (daemons < 4 && world.chance(0.4)) {
            crew.start(&world).await;
            continue;
        }
        let chosen = usize::try_from(world.draw(0, daemons as u64)).unwrap_or_default();
        let daemon = crew.lock().swap_remove(chosen);
        if world.chance(0.5) {
            daemon.kill(&world).await;
        } else {
            daemon.stop(&world).await;
        }
    }
}

async fn frozen(world: Arc<World>) {
    loop {
        sleep(world.millis(50, 1_500)).await;
        let nodes = world.nodes();
        if let Some(node) = nodes.get(usize::try_from(world.draw(0, nodes.len().max(1) as u64)).unwrap_or_default()) {
            node.freeze(true);
            sleep(world.millis(5, 3_500)).await;
            node.freeze(false);
        }
    }
}

/// The clock is set ahead by more than what counts as none, while no daemon starts that has not seen it before.
async fn clock(world: Arc<World>, crew: Arc<Crew>) {
    sleep(world.millis(500, 2_000)).await;
    if world.plan.has(Kind::Peers) {
        return;
    }
    loop {
        let is_known = crew.lock().iter().all(|daemon| daemon.bounds.know_the_clock());
        if is_known {
            world.set_clock(i64::try_from(world.draw(10_000_000, 30_000_000)).unwrap_or_default());
            sleep(world.millis(10, 1_500)).await;
            world.set_clock(0);
        }
        sleep(world.millis(10, 1_500)).await;
    }
}

/// Somebody pauses closing, and ends that or lets it go on slowly.
async fn pauses(world: Arc<World>) {
    loop {
        sleep(world.millis(50, 1_500)).await;
        world.pause(Some(None));
        sleep(world.millis(5, 3_000)).await;
        world.pause(if world.chance(0.7) { None } else { Some(Some(10)) });
    }
}
