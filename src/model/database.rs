//! An orders table in memory, with row locks and transactions as READ COMMITTED has them.
//!
//! A statement takes effect at one instant, somewhere on its way there and back. A row that is locked is read as it was last
//! committed; SKIP LOCKED skips it, an update waits for it. What a transaction writes is seen by others when it is committed, and
//! never if it is dropped, save while its commit is on its way: then nobody knows.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::SqlStr;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    daemon::Node,
    plan::Kind,
    planted::Planted,
    transaction::Open,
    world::{CLOSED, Pause, UNPAID, World, id, number},
};
use crate::{
    config::{Events, RuleName},
    order::{IdKind, OrderId, Row},
    store::{
        Backend, Catalogue, Census, Claim, ClockReading, Counted, Cursor, DueQuery, Fields, HostSeen, Inspected, Limits, Link,
        MappedColumn, Obstacle, OpenError, Outbox, Page, Pool, Statement, Store, StoreError, Transaction, Value, WITH_PAUSES, Window, Work,
    },
};

pub(super) type Result<T> = std::result::Result<T, StoreError>;

/// A daemon's way to the table.
pub(super) struct Connections {
    world: Arc<World>,
    node: Arc<Node>,
    rule: RuleName,
    unpaid: Vec<String>,
    outbox: Outbox,
    halted: watch::Sender<Option<String>>,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("node", &self.node.number).finish_non_exhaustive()
    }
}

/// Of our own tables that of the pauses, which is only read; of what is given up none can be written.
#[derive(Debug, Clone)]
struct Pauses {
    world: Arc<World>,
    node: Arc<Node>,
}

#[async_trait]
impl Backend for Pauses {
    async fn read(&self) -> Result<Box<dyn Link>> {
        Ok(Box::new(self.clone()))
    }

    async fn begin(&self) -> Result<Box<dyn Work>> {
        Err(StoreError::Unavailable("there is none".into()))
    }
}

#[async_trait]
impl Link for Pauses {
    async fn fetch(&mut self, _: &Statement, _: &[Value]) -> Result<Vec<Fields>> {
        self.node.trip(&self.world, None).await?;
        let pause = self.world.state().pause;
        let fields = pause.map(|Pause { since, rate }| {
            let (rule, since, for_good) = ("".into(), since.into(), Value::Integer(None));
            Fields::of(["orders".into(), rule, since, for_good, "a test".into(), "nemesis".into(), Value::Integer(rate.map(i64::from))])
        });
        self.node.back(&self.world).await;
        Ok(fields.into_iter().collect())
    }

    async fn change(&mut self, _: &Statement, _: &[Value]) -> Result<u64> {
        Err(StoreError::Unavailable("it is only read".into()))
    }

    async fn script(&mut self, _: SqlStr) -> Result<()> {
        Err(StoreError::Unavailable("it is only read".into()))
    }
}

impl Connections {
    pub(super) fn new(world: &Arc<World>, node: &Arc<Node>) -> Self {
        let rule = RuleName::default();
        let mut unpaid = vec![UNPAID.to_owned()];
        match world.planted {
            Some(Planted::PaidIsUnpaid) => unpaid.push(super::world::PAID.into()),
            Some(Planted::ClosedIsUnpaid) => unpaid.push(CLOSED.into()),
            _ => {}
        }
        let pauses = Pauses { world: Arc::clone(world), node: Arc::clone(node) };
        let version = if world.plan.has(Kind::Pauses) { WITH_PAUSES } else { 0 };
        let outbox = Outbox::of_version(version, pauses, &rule);
        Self { world: Arc::clone(world), node: Arc::clone(node), rule, unpaid, outbox, halted: watch::Sender::new(None) }
    }

    async fn rows(&self, ids: &[OrderId]) -> Result<Vec<Row>> {
        self.node.trip(&self.world, None).await?;
        let rows = ids.iter().filter_map(|id| row(&self.world, id, false)).collect();
        self.node.back(&self.world).await;
        Ok(rows)
    }
}

/// A row as it was last committed.
pub(super) fn row(world: &World, order: &OrderId, locked: bool) -> Option<Row> {
    let hasty = if world.planted == Some(Planted::HastyJudge) { 20_000 } else { 0 };
    let now = world.shown() + hasty;
    let state = world.state();
    let row = state.orders.get(&number(order.as_str())?)?;
    Some(Row { id: order.clone(), status: Some(row.status.into()), deadline: Some(row.deadline), now, locked })
}

/// What only a server has; no part of the core asks for it.
fn not_in_memory() -> StoreError {
    StoreError::TimedOut("not in memory".into())
}

#[async_trait]
impl Store for Connections {
    fn rule(&self) -> &RuleName {
        &self.rule
    }

    fn id_kind(&self) -> IdKind {
        IdKind::Integer { min: 0, max: i64::MAX.into() }
    }

    fn unpaid(&self) -> &[String] {
        &self.unpaid
    }

    async fn refresh(&self) -> std::result::Result<(), OpenError> {
        self.node.trip(&self.world, None).await.map_err(OpenError::from)
    }

    async fn identity(&self) -> Result<String> {
        self.node.trip(&self.world, None).await.map(|()| "a database".into())
    }

    async fn is_another(&self) -> Result<bool> {
        Ok(false)
    }

    async fn running_for(&self) -> Result<Option<Duration>> {
        Ok(None)
    }

    fn turn(&self) -> u64 {
        0
    }

    async fn look_at_hosts(&self) -> Vec<HostSeen> {
        Vec::new()
    }

    fn columns(&self) -> Vec<String> {
        Vec::new()
    }

    fn obstacles(&self) -> Vec<Obstacle> {
        Vec::new()
    }

    async fn reach(&self) -> Result<()> {
        self.node.trip(&self.world, None).await
    }

    async fn begin(&self, limits: Limits) -> Result<Box<dyn Transaction>> {
        self.node.trip(&self.world, None).await?;
        Ok(Box::new(Open::new(&self.world, &self.node, limits)))
    }

    async fn due(&self, query: &DueQuery) -> Result<Page> {
        self.node.trip(&self.world, None).await?;
        let (from, until) = query.window.bounds();
        if !self.world.reads(until <= 0).await {
            return Err(StoreError::TimedOut("too long".into()));
        }
        let now = self.world.shown();
        let is_blind = match self.world.planted {
            Some(Planted::BlindSweep) => until <= 0,
            Some(Planted::BlindLookAhead) => until > 0,
            _ => false,
        };
        let until = if until <= 0 && self.world.planted == Some(Planted::LateSweep) { -5_000_000 } else { until };
        let place = |number: u32, deadline: i64| (deadline, number);
        let after = query.after.as_ref().and_then(|cursor| {
            let (_, deadline, id) = cursor.parts();
            Some(place(number(id)?, deadline.parse().ok()?))
        });
        let mut places: Vec<(i64, u32)> = {
            let state = self.world.state();
            let unpaid = state.orders.iter().filter(|(_, order)| order.status == UNPAID && !is_blind);
            let within = unpaid.filter(|(_, order)| (from..=until).contains(&(order.deadline - now)));
            let within = within.filter(|(number, _)| !self.world.plan.tells_shares || query.shares.have(&id(**number)));
            within.map(|(number, order)| place(*number, order.deadline)).filter(|place| after.is_none_or(|after| *place > after)).collect()
        };
        places.sort_unstable();
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        let next = (places.len() > limit).then(|| {
            let (deadline, number) = places[limit - 1];
            Cursor::from_parts(0, deadline.to_string(), id(number))
        });
        let read = |(deadline, number): &(i64, u32)| Row {
            id: id(*number),
            status: Some(UNPAID.into()),
            deadline: Some(*deadline),
            now,
            locked: false,
        };
        let rows = places.iter().take(limit).map(read).collect();
        self.node.back(&self.world).await;
        Ok(Page { rows, next, reads: 1, asked: None })
    }

    async fn count(&self, _: Window) -> Result<Counted> {
        Ok(Counted::default())
    }

    async fn count_up_to(&self, _: Window, _: u32) -> Result<u64> {
        Ok(0)
    }

    async fn claimed_twice(&self) -> Result<Option<Claim>> {
        Ok(None)
    }

    async fn count_untaken(&self) -> Result<u64> {
        Ok(0)
    }

    async fn clock(&self) -> Result<ClockReading> {
        let asked = Instant::now();
        self.node.trip(&self.world, None).await?;
        let micros = self.world.shown();
        self.node.back(&self.world).await;
        Ok(ClockReading { micros, round_trip: asked.elapsed() })
    }

    async fn takes_writes(&self) -> Result<bool> {
        Err(not_in_memory())
    }

    async fn catalogue(&self) -> Result<Catalogue> {
        Err(not_in_memory())
    }

    async fn census(&self) -> Result<Census> {
        Err(not_in_memory())
    }

    async fn look(&self, ids: &[OrderId]) -> Result<Vec<Row>> {
        self.rows(ids).await
    }

    async fn inspect(&self, _: &OrderId) -> Result<Vec<Inspected>> {
        Err(not_in_memory())
    }

    fn mapped(&self) -> [MappedColumn; 3] {
        [("orders.id", "text"), ("orders.status", "integer"), ("orders.deadline", "integer")].map(|(key, type_name)| MappedColumn {
            key,
            name: key.into(),
            type_name: type_name.into(),
        })
    }

    fn time_zone(&self) -> String {
        "UTC".into()
    }

    async fn asked_about(&self, ids: &[OrderId]) -> Result<Vec<(Row, String)>> {
        Ok(self.rows(ids).await?.into_iter().map(|row| (row, "{}".into())).collect())
    }

    fn zone_matters(&self) -> bool {
        false
    }

    async fn zone_changed(&self) -> Result<Option<String>> {
        Ok(None)
    }

    async fn zone_differs(&self) -> Result<Option<String>> {
        Ok(None)
    }

    fn halted(&self) -> watch::Receiver<Option<String>> {
        self.halted.subscribe()
    }

    async fn without_transactions(&self) -> Result<Option<String>> {
        Ok(None)
    }

    fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    fn outbox_apart(&self, _: usize) -> Outbox {
        self.outbox.clone()
    }

    fn pools(&self) -> Vec<Pool> {
        Vec::new()
    }

    fn set_targets(&self, _: &Events) {}

    async fn close(&self) {}
}

impl Node {
    /// A statement's way to the database, and what may become of it there.
    pub(super) async fn trip(&self, world: &World, transaction: Option<u64>) -> Result<()> {
        self.thawed().await;
        let slow = world.state().slow;
        if !slow.is_zero() {
            sleep(slow).await;
        }
        world.way().await;
        if world.state().database_down || transaction.is_some_and(|number| world.is_dead(number)) {
            return Err(StoreError::Unavailable("connection refused".into()));
        }
        if world.goes_wrong(Kind::Failing) && world.chance(0.05) {
            return Err(match world.draw(0, 5) {
                0 => StoreError::Unavailable("connection reset".into()),
                1 => StoreError::TimedOut("too long".into()),
                2 => StoreError::Conflict("a deadlock".into()),
                3 => StoreError::Locked("a table".into()),
                _ => StoreError::Rejected("a statement".into()),
            });
        }
        Ok(())
    }

    /// Its answer's way back.
    pub(super) async fn back(&self, world: &World) {
        world.way().await;
        self.thawed().await;
    }
}
