//! Redis, alone or as a cluster, and what goes wrong with it.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use tokio::task::block_in_place;

use super::{
    faults::{Far, Layout, PRIMARIES, What},
    nemesis::{AGAIN, again_and_again},
    scene::Scene,
    shop::{PASSWORD, USER},
};
use crate::support::{
    Disk, Redis,
    redis::{Cluster, Keep},
};

/// How many slots are on their way at a time.
const SLOTS: usize = 20;

/// The servers.
#[derive(Debug)]
pub enum Servers {
    /// One, which speaks TLS, too.
    Alone(Redis),
    /// A cluster's.
    Cluster(Cluster),
}

impl Servers {
    /// Starts them; one that is alone has its data on this disk.
    pub async fn start(layout: Layout, disk: Option<&Disk>) -> Self {
        let user = format!("user {USER} on >{PASSWORD} ~* &* +@all");
        match (layout, disk) {
            (Layout::Cluster, _) => {
                // A busy machine is no dead node.
                let options = Cluster::options().config("cluster-node-timeout 2000").config(&user);
                Self::Cluster(Cluster::of(PRIMARIES, PRIMARIES, options).await)
            }
            // What is not written there is refused.
            (Layout::Alone, Some(disk)) => Self::Alone(alone(&user).config("appendonly yes").data(disk.folder("redis")).start()),
            (Layout::Alone, None) => Self::Alone(alone(&user).start()),
        }
    }

    /// The URL of the owner.
    pub fn url(&self) -> String {
        match self {
            Self::Alone(redis) => redis.url(),
            Self::Cluster(cluster) => cluster.url(&[0, 1, 2]),
        }
    }

    /// The URL of the daemons.
    pub fn url_of_daemons(&self) -> String {
        let url = match self {
            Self::Alone(redis) => redis.tls_url(),
            Self::Cluster(_) => self.url(),
        };
        url.replacen("://", &format!("://{USER}:{PASSWORD}@"), 1)
    }

    /// The URL of each.
    pub fn urls(&self) -> Vec<String> {
        self.nodes().iter().map(Redis::url).collect()
    }

    /// The authority that signed the certificate, where there is one.
    pub fn ca_file(&self) -> Option<PathBuf> {
        match self {
            Self::Alone(redis) => Some(redis.ca_file()),
            Self::Cluster(_) => None,
        }
    }

    fn nodes(&self) -> &[Redis] {
        match self {
            Self::Alone(redis) => std::slice::from_ref(redis),
            Self::Cluster(cluster) => &cluster.nodes,
        }
    }

    /// Runs a command on each; what changes keys is no replica's.
    fn each(&self, words: &[&str]) {
        for node in self.nodes() {
            if let Err(error) = node.try_command(words) {
                assert!(error.starts_with("READONLY"), "{words:?}: {error}");
            }
        }
    }
}

fn alone(user: &str) -> crate::support::redis::Options {
    Redis::options().with_notifications().tls().config(user)
}

/// Does this to Redis for so long, and mends it.
pub async fn trouble(scene: &Scene, what: What, length: Duration) {
    let mut servers = scene.redis.lock().await;
    match what {
        What::RedisFlushed => again_and_again(length, async || servers.each(&["FLUSHALL"])).await,
        What::RedisFull => {
            servers.each(&["CONFIG", "SET", "maxmemory", "1"]);
            tokio::time::sleep(length).await;
            servers.each(&["CONFIG", "SET", "maxmemory", "0"]);
        }
        What::RedisClientsKilled => {
            again_and_again(length, async || servers.each(&["CLIENT", "KILL", "SKIPME", "yes", "TYPE", "normal"])).await;
        }
        What::RedisSilenced => {
            servers.each(&["CONFIG", "SET", "notify-keyspace-events", ""]);
            tokio::time::sleep(length).await;
            servers.each(&["CONFIG", "SET", "notify-keyspace-events", "Ex"]);
        }
        What::RedisForged => forge(&servers.nodes()[0], length).await,
        What::LoginRefused(Far::Redis) => {
            servers.each(&["ACL", "SETUSER", USER, "resetpass", ">another-password"]);
            refuse(&servers, length).await;
            servers.each(&["ACL", "SETUSER", USER, "resetpass", &format!(">{PASSWORD}")]);
        }
        _ => match &mut *servers {
            Servers::Alone(redis) => of_one(scene, redis, what, length).await,
            Servers::Cluster(cluster) => of_a_node(cluster, what, length).await,
        },
    }
}

/// Closes the daemons' connections, again and again.
async fn refuse(servers: &Servers, length: Duration) {
    again_and_again(length, async || servers.each(&["CLIENT", "KILL", "USER", USER])).await;
}

async fn forge(redis: &Redis, length: Duration) {
    let end = Instant::now() + length;
    let mut number = 0;
    while Instant::now() < end {
        for _ in 0..20 {
            number += 1;
            redis.publish_expired(0, format!("order_{number}").as_bytes());
            redis.publish_expired(0, format!("transfer_{number}").as_bytes());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn of_one(scene: &Scene, redis: &mut Redis, what: What, length: Duration) {
    match what {
        What::RedisFrozen => {
            redis.freeze();
            tokio::time::sleep(length).await;
            redis.thaw();
        }
        What::RedisRestarted | What::RedisRestartedEmpty => {
            let keep = if what == What::RedisRestarted { Keep::Data } else { Keep::Nothing };
            if keep == Keep::Data {
                redis.command(&["SAVE"]);
            }
            redis.kill();
            tokio::time::sleep(length / 3).await;
            block_in_place(|| redis.start_again(keep));
        }
        What::CertificateChanged => {
            block_in_place(|| redis.change_certificates());
            again_and_again(length, async || drop(redis.command(&["CLIENT", "KILL", "USER", USER]))).await;
            std::fs::copy(redis.ca_file(), scene.authority()).expect("a file can be copied");
        }
        what => unreachable!("{what:?} is none of one server"),
    }
}

async fn of_a_node(cluster: &mut Cluster, what: What, length: Duration) {
    match what {
        What::NodeKilled(part) => {
            let node = cluster.leader(part);
            cluster.nodes[node].kill();
            tokio::time::sleep(length).await;
            cluster.until_replaced(node).await;
            block_in_place(|| cluster.start_again(node));
        }
        What::NodeFrozen(part) => {
            let node = cluster.leader(part);
            cluster.nodes[node].freeze();
            tokio::time::sleep(length).await;
            cluster.nodes[node].thaw();
        }
        What::ReplicaPromoted(part) => cluster.fail_over(cluster.follower(part)).await,
        What::SlotsMoved(part) => move_slots(cluster, cluster.leader(part), cluster.leader((part + 1) % PRIMARIES), length).await,
        what => unreachable!("{what:?} is none of a cluster's node"),
    }
    // The next fault finds a replica for each primary, with all of its keys.
    cluster.until_healthy().await;
    for part in 0..PRIMARIES {
        cluster.nodes[cluster.follower(part)].until_replicated().await;
    }
}

/// Some at a time, each on its way for a moment.
async fn move_slots(cluster: &Cluster, from: usize, to: usize, length: Duration) {
    let end = Instant::now() + length;
    while Instant::now() < end {
        let slots = cluster.slots_of(from, SLOTS);
        for slot in &slots {
            cluster.begin_to_move(*slot, from, to);
        }
        tokio::time::sleep(AGAIN).await;
        for slot in slots {
            cluster.finish_to_move(slot, from, to);
        }
        cluster.until_healthy().await;
    }
}
