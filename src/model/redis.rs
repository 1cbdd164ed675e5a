//! Keys with a time to live, the notifications that follow when they are noticed to have expired, and the hash of heartbeats.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::{sleep, timeout};

use super::{
    daemon::Node,
    plan::Kind,
    world::{World, number},
};
use crate::{
    redis::{Expiries, Expiry, RedisError, Said},
    trigger::{Hash, Keys, Touch, Unanswered},
};

/// A daemon's way to Redis.
#[derive(Debug)]
pub(super) struct Redis {
    world: Arc<World>,
    node: Arc<Node>,
}

impl Redis {
    pub(super) fn new(world: &Arc<World>, node: &Arc<Node>) -> Self {
        Self { world: Arc::clone(world), node: Arc::clone(node) }
    }

    /// The way there; whether somebody answers.
    async fn trip(&self, limit: Duration) -> bool {
        let trip = async {
            self.node.thawed().await;
            self.world.way().await;
            if self.world.state().redis_away {
                // Some are refused, and some not answered.
                sleep(if self.world.chance(0.5) { limit * 2 } else { Duration::ZERO }).await;
                return false;
            }
            true
        };
        timeout(limit, trip).await.unwrap_or(false)
    }
}

impl World {
    /// What Redis does when it comes across a key: one that has expired goes, and all who listen are told.
    pub(super) fn notice(self: &Arc<Self>, order: u32) -> Expiry {
        let now = self.redis_now();
        let found = self.state().keys.get(&order).copied();
        match found {
            None => Expiry::NoKey,
            Some(at) if at > now => Expiry::At(at),
            Some(_) => {
                self.state().keys.remove(&order);
                self.announce(order);
                Expiry::NoKey
            }
        }
    }

    /// Publishes that an order's key has expired.
    pub(super) fn announce(self: &Arc<Self>, order: u32) {
        for node in self.nodes() {
            let is_bad = self.goes_wrong(Kind::Hints);
            let copies = if is_bad { [0, 0, 1, 1, 2][usize::try_from(self.draw(0, 5)).unwrap_or_default()] } else { 1 };
            for _ in 0..copies {
                let (node, world) = (Arc::clone(&node), Arc::clone(self));
                let delay = if is_bad { self.millis(0, 800) } else { Duration::ZERO };
                tokio::spawn(async move {
                    sleep(delay).await;
                    world.way().await;
                    node.thawed().await;
                    node.hear(order);
                });
            }
        }
    }
}

#[async_trait]
impl Keys for Redis {
    async fn expiries(&self, keys: &[String], limit: Duration) -> Result<Expiries, Unanswered> {
        if !self.trip(limit).await {
            return Err(Unanswered::Away("no answer".into()));
        }
        let now = self.world.redis_now();
        let order = |key: &String| key.strip_prefix("order_").and_then(number);
        let expiry = |order| {
            *self.world.state().asked.entry(order).or_default() += 1;
            self.world.notice(order)
        };
        let keys = keys.iter().map(|key| order(key).map_or(Expiry::NoKey, expiry)).collect();
        self.node.back(&self.world).await;
        Ok(Expiries { now, keys })
    }

    async fn life(&self) -> Option<String> {
        let answers = self.trip(Duration::from_millis(300)).await;
        answers.then(|| self.world.state().life.to_string())
    }
}

#[async_trait]
impl Touch for Redis {
    async fn touch(&self, keys: Vec<String>, limit: Duration) -> Result<u64, RedisError> {
        if !self.trip(limit).await {
            return Err(RedisError::Unreachable(Said { reason: "no answer".into(), fix: String::new() }));
        }
        self.world.state().touches += 1;
        let orders = keys.iter().filter_map(|key| key.strip_prefix("order_").and_then(number));
        let there = orders.filter(|order| self.world.notice(*order) != Expiry::NoKey).count();
        self.node.back(&self.world).await;
        Ok(there as u64)
    }
}

#[async_trait]
impl Hash for Redis {
    async fn exchange(&self, group: &str, own: &str, said: &str) -> Option<HashMap<String, String>> {
        if !self.trip(Duration::from_millis(300)).await || (self.world.goes_wrong(Kind::Unseen) && self.world.chance(0.3)) {
            return None;
        }
        let fields = {
            let mut state = self.world.state();
            let hash = state.board.entry(group.to_owned()).or_default();
            hash.insert(own.to_owned(), said.to_owned());
            hash.clone()
        };
        self.node.back(&self.world).await;
        Some(fields)
    }

    async fn remove(&self, group: &str, names: Vec<String>) {
        if self.trip(Duration::from_millis(300)).await
            && let Some(hash) = self.world.state().board.get_mut(group)
        {
            names.iter().for_each(|name| drop(hash.remove(name)));
        }
    }
}
