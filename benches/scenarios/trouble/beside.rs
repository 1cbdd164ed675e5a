//! Trouble beside the database: with Redis, with another instance, with whoever should read the log.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    servers,
    shop::Shop,
    support::{
        Daemon, Redis,
        proxy::Proxy,
        receiver::Hinting,
        redis::{Flood, Keep},
    },
};

/// What is wrong there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Nuisance {
    /// Somebody publishes notifications of orders that do not exist, 30,000 a second.
    Flood,
    /// Redis answers 250 ms late.
    SlowRedis,
    /// Redis is killed.
    StoppedRedis,
    /// Redis takes everything and answers nothing.
    BlackHoledRedis,
    /// Redis becomes a replica.
    DemotedRedis,
    /// Another instance is stopped, with its connections open.
    FrozenPeer,
    /// Another instance reaches Redis and not its database.
    PeerWithoutDatabase,
    /// Nobody reads the log, at its most talkative.
    UnreadLog,
    /// A webhook's endpoint answers each event with `103 Early Hints` without end.
    EndlessHints,
}

impl Nuisance {
    pub(super) const ALL: [Self; 9] = [
        Self::Flood,
        Self::SlowRedis,
        Self::StoppedRedis,
        Self::BlackHoledRedis,
        Self::DemotedRedis,
        Self::FrozenPeer,
        Self::PeerWithoutDatabase,
        Self::UnreadLog,
        Self::EndlessHints,
    ];

    /// In two lines of a plot.
    pub(super) fn label(self) -> [&'static str; 2] {
        match self {
            Self::Flood => ["30,000/s", "forged"],
            Self::SlowRedis => ["Redis", "slow"],
            Self::StoppedRedis => ["Redis", "stopped"],
            Self::BlackHoledRedis => ["Redis", "black-holed"],
            Self::DemotedRedis => ["Redis", "demoted"],
            Self::FrozenPeer => ["peer", "frozen"],
            Self::PeerWithoutDatabase => ["peer without", "database"],
            Self::UnreadLog => ["log", "unread"],
            Self::EndlessHints => ["webhook", "never ends"],
        }
    }
}

impl std::fmt::Display for Nuisance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Flood => "30,000 forged notifications a second",
            Self::SlowRedis => "Redis answers after 250 ms",
            Self::StoppedRedis => "Redis stopped",
            Self::BlackHoledRedis => "Redis black-holed",
            Self::DemotedRedis => "Redis made a replica",
            Self::FrozenPeer => "another instance frozen",
            Self::PeerWithoutDatabase => "another instance without its database",
            Self::UnreadLog => "nobody reads the log",
            Self::EndlessHints => "an endpoint that sends 103 without end",
        })
    }
}

/// Whoever stands beside the daemon.
#[derive(Debug)]
pub(super) struct Beside {
    nuisance: Nuisance,
    to_redis: Proxy,
    to_database: Proxy,
    peer: Option<Daemon>,
    flood: Option<Flood>,
    hinting: Option<Hinting>,
}

impl Beside {
    /// Starts the daemon, and who else is needed.
    pub(super) async fn open(nuisance: Nuisance, shop: &Shop, redis: &Redis) -> (Self, Daemon) {
        let (to_redis, to_database) = (Proxy::before(&redis.url()), Proxy::before(&shop.database.url));
        let settings = shop.settings(redis);
        let level = if nuisance == Nuisance::UnreadLog { "debug" } else { "info" };
        let own = settings.clone().set("redis.url", to_redis.url(&redis.url())).set("log.level", level);
        let hinting = (nuisance == Nuisance::EndlessHints).then(Hinting::start);
        let own = match &hinting {
            Some(hinting) => {
                shop.make_outbox(redis).await;
                own.set("events.enabled", true).add(&hinting.one_more_webhook("hinting", ""))
            }
            None => own,
        };
        let daemon = servers::daemon(&own).await;
        let peer = match nuisance {
            Nuisance::FrozenPeer => Some(servers::daemon(&settings).await),
            Nuisance::PeerWithoutDatabase => {
                Some(servers::daemon(&settings.set("database.url", to_database.url(&shop.database.url))).await)
            }
            _ => None,
        };
        if peer.is_some() {
            daemon.until_logged("other instances close orders of this table").await;
        }
        (Self { nuisance, to_redis, to_database, peer, flood: None, hinting }, daemon)
    }

    /// Causes the trouble.
    pub(super) fn begin(&mut self, daemon: &Daemon, redis: &Redis) {
        match self.nuisance {
            Nuisance::Flood => self.flood = Some(redis.flood(900_000_000..901_000_000, 30_000)),
            Nuisance::SlowRedis => self.to_redis.delay(Duration::from_millis(125)),
            Nuisance::StoppedRedis => redis.kill(),
            Nuisance::BlackHoledRedis => self.to_redis.black_hole(),
            Nuisance::DemotedRedis => drop(redis.command(&["REPLICAOF", "127.0.0.1", "1"])),
            Nuisance::FrozenPeer => self.peer.iter().for_each(Daemon::freeze),
            Nuisance::PeerWithoutDatabase => self.to_database.black_hole(),
            Nuisance::UnreadLog => daemon.leave_unread(true),
            Nuisance::EndlessHints => self.hinting.iter().for_each(Hinting::begin),
        }
    }

    /// Ends it.
    pub(super) fn end(mut self, daemon: &Daemon, redis: &mut Redis) {
        match self.nuisance {
            Nuisance::StoppedRedis => redis.start_again(Keep::Nothing),
            Nuisance::DemotedRedis => drop(redis.command(&["REPLICAOF", "NO", "ONE"])),
            Nuisance::UnreadLog => daemon.leave_unread(false),
            _ => {}
        }
        self.to_redis.pass();
        self.flood.take().map(Flood::end);
        self.peer.iter().for_each(Daemon::kill);
    }
}
