//! A transaction on the table in memory: what it writes is seen when it is committed, and its locks are its own until then.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{
    daemon::Node,
    database::{Result, row},
    history::{Entry, What},
    plan::Kind,
    planted::Planted,
    world::{ARTICLES, CLOSED, Lockable, UNPAID, World, number},
};
use crate::{
    order::{OrderId, Row},
    store::{Carried, Limits, NewEvent, StoreError, Transaction, Updated},
};

/// How far a transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    /// Its commit is on its way.
    Committing,
    Ended,
}

/// A transaction.
pub(super) struct Open {
    world: Arc<World>,
    node: Arc<Node>,
    number: u64,
    limits: Limits,
    /// The orders that it closes, each with its deadline.
    writes: Vec<(u32, i64)>,
    restores: Vec<u32>,
    events: Vec<NewEvent>,
    end: End,
}

impl Open {
    pub(super) fn new(world: &Arc<World>, node: &Arc<Node>, limits: Limits) -> Self {
        Self {
            number: world.begin(),
            world: Arc::clone(world),
            node: Arc::clone(node),
            limits,
            writes: Vec::new(),
            restores: Vec::new(),
            events: Vec::new(),
            end: End::Open,
        }
    }

    /// A statement is on its way.
    async fn trip(&self) -> Result<()> {
        self.node.trip(&self.world, Some(self.number)).await
    }

    fn locks(&self, order: u32) -> bool {
        self.world.planted == Some(Planted::NoLock) || self.world.try_lock(Lockable::Order(order), self.number)
    }

    async fn waits_for(&self, row: Lockable) -> Result<()> {
        if self.world.planted == Some(Planted::NoLock) || self.world.lock(row, self.number, self.limits.lock).await {
            return Ok(());
        }
        Err(StoreError::Locked(format!("{row:?} is held")))
    }

    fn write(&mut self, order: u32) {
        let deadline = self.world.state().orders[&order].deadline;
        if !self.writes.iter().any(|(written, _)| *written == order) {
            self.writes.push((order, deadline));
        }
    }

    /// All that it has done is there for others.
    fn apply(&mut self) {
        self.end = End::Ended;
        if !self.world.is_dead(self.number) {
            let (at, shown) = (self.world.now(), self.world.shown());
            let mut state = self.world.state();
            for (order, deadline) in &self.writes {
                let Some(row) = state.orders.get_mut(order) else { continue };
                let before = std::mem::replace(&mut row.status, CLOSED);
                let event = self.events.iter().find(|event| number(event.order.as_str()) == Some(*order));
                let trigger = event.map_or("unknown", |event| event.trigger.name());
                state.history.push(Entry {
                    at,
                    order: *order,
                    what: What::Closed { by: self.node.number, deadline: *deadline, before, trigger },
                });
            }
            state.restored.append(&mut self.restores);
            let forgets = self.world.planted == Some(Planted::NoEvent) && at % 3 == 0;
            for event in self.events.drain(..).skip(usize::from(forgets)) {
                if let Some(order) = number(event.order.as_str()) {
                    state.record(order, event.deadline, (at, shown));
                }
            }
        }
        self.world.release(self.number);
    }

    fn undo(&mut self) {
        self.end = End::Ended;
        if self.world.planted == Some(Planted::HalfRollback) {
            self.world.state().restored.append(&mut self.restores);
        }
        self.world.release(self.number);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        match self.end {
            End::Ended => {}
            End::Open => self.undo(),
            // Whoever sent it is gone.
            End::Committing if self.world.chance(0.5) => self.apply(),
            End::Committing => self.undo(),
        }
    }
}

#[async_trait]
impl Transaction for Open {
    async fn lock(&mut self, ids: &[OrderId]) -> Result<Vec<Row>> {
        self.trip().await?;
        let numbers = ids.iter().filter_map(|id| Some((id, number(id.as_str())?)));
        let there = |number: u32| self.world.state().orders.contains_key(&number);
        let locked = numbers.filter(|(_, number)| there(*number) && self.locks(*number));
        let rows = locked.filter_map(|(id, _)| row(&self.world, id, true)).collect();
        self.node.back(&self.world).await;
        Ok(rows)
    }

    async fn peek(&mut self, ids: &[OrderId]) -> Result<Vec<Row>> {
        self.trip().await?;
        let rows = ids.iter().filter_map(|id| row(&self.world, id, false)).collect();
        self.node.back(&self.world).await;
        Ok(rows)
    }

    async fn close_due(&mut self, ids: &[OrderId]) -> Result<Vec<Row>> {
        if !self.world.plan.fused {
            return Ok(Vec::new());
        }
        self.trip().await?;
        let mut rows = Vec::new();
        for id in ids {
            let Some(order) = number(id.as_str()) else { continue };
            let is_due = |world: &World| row(world, id, true).filter(|row| row.is_overdue() && row.status.as_deref() == Some(UNPAID));
            if is_due(&self.world).is_none() {
                continue;
            }
            self.waits_for(Lockable::Order(order)).await?;
            // By now it may be another's.
            if let Some(row) = is_due(&self.world) {
                self.write(order);
                rows.push(row);
            }
        }
        self.node.back(&self.world).await;
        Ok(rows)
    }

    async fn update(&mut self, ids: &[OrderId]) -> Result<Updated> {
        self.trip().await?;
        for order in ids.iter().filter_map(|id| number(id.as_str())) {
            self.waits_for(Lockable::Order(order)).await?;
            self.write(order);
        }
        self.node.back(&self.world).await;
        Ok(Updated { changed: ids.len() as u64, closed: ids.len() as u64 })
    }

    async fn update_early(&mut self, ids: &[OrderId]) -> Result<Updated> {
        self.update(ids).await
    }

    async fn limit_statements(&mut self, _: Duration) -> Result<()> {
        Ok(())
    }

    async fn check_deferred(&mut self) -> Result<()> {
        Ok(())
    }

    async fn count_closed(&mut self, ids: &[OrderId]) -> Result<u64> {
        Ok(ids.len() as u64)
    }

    fn records(&self) -> bool {
        true
    }

    async fn included(&mut self, _: &[OrderId]) -> Result<HashMap<OrderId, Carried>> {
        Ok(HashMap::new())
    }

    /// Gives the stock of each order back, whose row is locked first.
    async fn run_close_sql(&mut self, ids: &[OrderId]) -> Result<()> {
        self.trip().await?;
        let orders: Vec<u32> = ids.iter().filter_map(|id| number(id.as_str())).collect();
        if orders.iter().any(|order| self.world.state().orders[order].poison) {
            return Err(StoreError::Rejected("a check constraint".into()));
        }
        for order in orders {
            self.waits_for(Lockable::Article(order % ARTICLES)).await?;
            self.restores.push(order);
        }
        self.node.back(&self.world).await;
        Ok(())
    }

    async fn record(&mut self, events: &[NewEvent]) -> Result<()> {
        self.trip().await?;
        self.events.extend(events.iter().cloned());
        Ok(())
    }

    async fn commit(mut self: Box<Self>) -> Result<()> {
        self.end = End::Committing;
        if let Err(error) = self.trip().await {
            self.undo();
            return Err(error);
        }
        if self.world.goes_wrong(Kind::Commits) && self.world.chance(0.2) {
            let is_made = self.world.chance(0.5);
            if is_made {
                self.apply();
            } else {
                self.undo();
            }
            return Err(StoreError::Unavailable("the connection was lost".into()));
        }
        self.apply();
        self.node.back(&self.world).await;
        Ok(())
    }

    async fn rollback(mut self: Box<Self>) {
        self.undo();
    }
}
