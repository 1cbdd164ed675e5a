//! Each primary by itself: its settings, and its connection for commands.

use tokio::sync::watch;

use super::{cluster::Map, commands::Commands, error::RedisError};
use crate::config::Redis;

/// A server whose keys expire and are announced.
#[derive(Debug, Clone)]
pub struct Primary {
    /// The settings with its own address.
    pub redis: Redis,
    /// Its own connection for commands.
    pub commands: Commands,
}

impl Primary {
    /// Its address, which tells it from the others.
    #[must_use]
    pub fn name(&self) -> String {
        self.redis.url.to_string()
    }
}

/// Which primaries there are.
#[derive(Debug)]
pub struct Primaries(Kind);

#[derive(Debug)]
enum Kind {
    One(Box<Primary>),
    Cluster { commands: Commands, map: watch::Receiver<Map> },
}

impl Primaries {
    pub(super) fn one(primary: Primary) -> Self {
        Self(Kind::One(Box::new(primary)))
    }

    pub(super) fn of(commands: Commands, map: watch::Receiver<Map>) -> Self {
        Self(Kind::Cluster { commands, map })
    }

    /// Those that there are now, and why that could not be read anew, if it could not.
    pub fn now(&mut self) -> (Vec<Primary>, Option<RedisError>) {
        match &mut self.0 {
            Kind::One(primary) => (vec![(**primary).clone()], None),
            Kind::Cluster { commands, map } => {
                let map = map.borrow_and_update().clone();
                let primary = |redis: &Redis, commands| Primary { redis: redis.clone(), commands };
                let all = map.members.values().map(|member| primary(&member.redis, commands.at(&member.supervisor)));
                (all.collect(), map.failure)
            }
        }
    }

    /// Waits until [`Primaries::now`] says something else.
    pub async fn changed(&mut self) {
        if let Kind::Cluster { map, .. } = &mut self.0
            && map.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}
