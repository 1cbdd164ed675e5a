//! The shop: creates orders, pays, cancels, extends and opens them again, by transactions that lock their rows.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::sleep};

use super::{
    history::What,
    plan::Kind,
    world::{CANCELLED, CLOSED, Lockable, Order, PAID, UNPAID, World, micros},
};

/// Opens for business, until all orders are created and what was to become of them has happened.
pub(super) fn open(world: &Arc<World>) -> JoinSet<()> {
    let mut scripts = JoinSet::new();
    for order in 0..world.plan.orders {
        scripts.spawn(life(Arc::clone(world), order));
    }
    scripts
}

/// What becomes of an order.
async fn life(world: Arc<World>, order: u32) {
    let active = world.plan.active;
    sleep(world.millis(0, active.as_millis().try_into().unwrap_or(u64::MAX))).await;
    let deadline = world.now() + 1_000 * world.millis_i64(-300, 4_500);
    let poison = world.plan.has(Kind::Poison) && world.chance(0.1);
    world.state().orders.insert(order, Order { status: UNPAID, deadline, poison });
    world.note(order, What::Created { deadline });
    if poison {
        world.note(order, What::Note("the database refuses to close it"));
    }
    let key = tokio::spawn(write_key(Arc::clone(&world), order, deadline));
    let mut rest = JoinSet::new();
    if world.plan.has(Kind::Payments) && world.chance(0.5) {
        rest.spawn(pays(Arc::clone(&world), order, deadline));
    }
    if world.plan.has(Kind::Extensions) {
        if world.chance(0.4) {
            rest.spawn(extends(Arc::clone(&world), order, deadline));
        }
        if world.chance(0.2) {
            rest.spawn(opens_again(Arc::clone(&world), order));
        }
    }
    if world.plan.has(Kind::Held) && world.chance(0.2) {
        rest.spawn(holds(Arc::clone(&world), order, deadline));
    }
    key.await.ok();
    while rest.join_next().await.is_some() {}
}

async fn write_key(world: Arc<World>, order: u32, deadline: i64) {
    let later = match world.draw(0, 10) {
        0 => return,
        1 | 2 if world.plan.has(Kind::Disputes) => 1_000 * world.millis_i64(65_000, 80_000),
        _ => 0,
    };
    sleep(world.millis(0, 30)).await;
    let at = world.by_redis(deadline + later);
    // A time to live that is over leaves no key.
    if !world.state().redis_away && at > world.redis_now() {
        world.state().keys.insert(order, at);
        world.note(order, What::Key { expires: deadline + later });
    }
}

/// Waits until so many milliseconds before or after a deadline.
pub(super) async fn until(world: &World, deadline: i64, offset: i64) {
    let wait = deadline + offset * 1_000 - world.now();
    sleep(Duration::from_micros(u64::try_from(wait).unwrap_or_default())).await;
}

async fn pays(world: Arc<World>, order: u32, deadline: i64) {
    let offset = if world.chance(0.6) { world.millis_i64(-40, 40) } else { world.millis_i64(-3_000, 3_000) };
    until(&world, deadline, offset).await;
    if world.plan.ask.is_some() {
        // While the customer pays nobody knows.
        if world.chance(0.3) {
            world.state().paying.insert(order);
            sleep(world.millis(1, 400)).await;
        }
        let is_over = {
            let mut state = world.state();
            state.paying.remove(&order);
            state.expired.contains(&order)
        };
        if is_over {
            return;
        }
        world.state().paid.insert(order);
        world.note(order, What::PaidAtProvider);
        if world.chance(0.2) {
            // The callback is lost.
            return;
        }
        sleep(world.millis(0, 1_500)).await;
    }
    let status = if world.chance(0.9) { PAID } else { CANCELLED };
    change(&world, order, move |row| {
        row.status = status;
        What::Status(status)
    })
    .await;
}

async fn extends(world: Arc<World>, order: u32, deadline: i64) {
    until(&world, deadline, world.millis_i64(-2_500, 100)).await;
    let later = deadline + 1_000 * world.millis_i64(-300, 3_000);
    change(&world, order, move |row| {
        row.deadline = later;
        What::Extended { deadline: later }
    })
    .await;
    write_key(world, order, later).await;
}

async fn opens_again(world: Arc<World>, order: u32) {
    for _ in 0..100 {
        sleep(Duration::from_millis(100)).await;
        let closed = world.state().orders[&order].status == CLOSED;
        if closed {
            let deadline = world.now() + 1_000 * world.millis_i64(200, 2_000);
            let mut state = world.state();
            if let Some(row) = state.orders.get_mut(&order) {
                (row.status, row.deadline) = (UNPAID, deadline);
            }
            drop(state);
            world.note(order, What::Reopened { deadline });
            return;
        }
    }
}

/// Another transaction holds the row, or that of its article, around the deadline, and changes nothing.
async fn holds(world: Arc<World>, order: u32, deadline: i64) {
    until(&world, deadline, world.millis_i64(-200, 50)).await;
    let row = if world.chance(0.5) { Lockable::Order(order) } else { Lockable::Article(order % super::world::ARTICLES) };
    let transaction = world.begin();
    if world.lock(row, transaction, Duration::from_secs(2)).await {
        world.note(order, What::Note("another transaction holds its row, or its article"));
        sleep(world.millis(1, 3_000)).await;
        world.release(transaction);
    }
}

/// Changes an unpaid order's row in a transaction that takes its time, as long as the database stays.
async fn change(world: &World, order: u32, change: impl Fn(&mut Order) -> What) {
    loop {
        let transaction = world.begin();
        let is_there = !world.state().database_down;
        if is_there && world.lock(Lockable::Order(order), transaction, Duration::from_secs(2)).await {
            world.note(order, What::Note("the shop has locked its row"));
            sleep(world.millis(0, 8)).await;
            let at = world.now();
            let mut state = world.state();
            if state.orders[&order].status != UNPAID {
                drop(state);
                world.release(transaction);
                return;
            }
            drop(state);
            if !world.is_dead(transaction) {
                state = world.state();
                if let Some(row) = state.orders.get_mut(&order) {
                    let what = change(row);
                    state.history.push(super::history::Entry { at, order, what });
                }
                drop(state);
                world.release(transaction);
                return;
            }
        }
        world.release(transaction);
        sleep(Duration::from_millis(50)).await;
    }
}

impl World {
    fn millis_i64(&self, from: i64, to: i64) -> i64 {
        from + i64::try_from(self.draw(0, (to - from).unsigned_abs())).unwrap_or_default()
    }

    /// Until when the last deadline has come.
    pub(super) fn last_deadline(&self) -> i64 {
        self.state().orders.values().map(|order| order.deadline).max().unwrap_or_default().max(self.began_at() + micros(self.plan.active))
    }
}
