//! The commands that we send: to the one server, or to whom of a cluster they concern.

mod hints;
mod keyed;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use fred::{
    clients::Client,
    error::Error,
    interfaces::{ClientLike, ConfigInterface},
};

pub use hints::{Claimed, DelayQueue, DueMembers, Group, StreamEntry};
pub use keyed::Life;

use super::{
    cluster::Cluster,
    error::{RedisError, Result, Said},
    link::{PATIENCE, tls_connector},
    primaries::{Primaries, Primary},
    server::{Server, fields},
    supervisor::Supervisor,
};
use crate::config::{KeyPrefix, Redis, RedisAddress};

/// Supervised connections for commands; their copies share them.
#[derive(Debug, Clone)]
pub struct Commands {
    servers: Arc<Servers>,
    /// The ACL rule for the keys of orders.
    orders: Arc<str>,
    prefix: Arc<str>,
    writes: bool,
}

/// Who takes the commands.
#[derive(Debug)]
enum Servers {
    /// One server.
    One(Arc<Supervisor>),
    /// Those of a cluster.
    Cluster(Cluster),
}

/// The ACL rule for keys with this prefix, and what stands before their ids.
fn of_orders(prefix: &KeyPrefix) -> (Arc<str>, Arc<str>) {
    let prefix = prefix.get().unwrap_or_default();
    (format!("~{prefix}*").into(), prefix.into())
}

impl Commands {
    /// Begins to connect, and does not wait for it.
    ///
    /// # Errors
    /// Says what is wrong with the configuration.
    pub fn new(redis: &Redis) -> Result<Self> {
        Ok(Self::through(
            match redis.url.address {
                RedisAddress::Cluster { .. } => {
                    check_authorities(redis)?;
                    Servers::Cluster(Cluster::start(redis))
                }
                RedisAddress::Tcp { .. } | RedisAddress::Unix(_) | RedisAddress::Sentinels(_) | RedisAddress::Nowhere => {
                    Servers::One(Arc::new(Supervisor::start(redis)?))
                }
            },
            redis,
        ))
    }

    /// Connects, and waits for it; for a cluster, until its nodes are known.
    ///
    /// # Errors
    /// Says why Redis can't be reached, or is none for us.
    pub async fn connect(redis: &Redis) -> Result<Self> {
        Ok(Self::through(
            match redis.url.address {
                RedisAddress::Cluster { .. } => Servers::Cluster(Cluster::connect(redis).await?),
                RedisAddress::Tcp { .. } | RedisAddress::Unix(_) | RedisAddress::Sentinels(_) | RedisAddress::Nowhere => {
                    Servers::One(Arc::new(Supervisor::connect(redis).await?))
                }
            },
            redis,
        ))
    }

    fn through(servers: Servers, redis: &Redis) -> Self {
        let (orders, prefix) = of_orders(&redis.key_prefix);
        Self { servers: Arc::new(servers), orders, prefix, writes: true }
    }

    /// The same connections, for orders whose keys have this prefix.
    #[must_use]
    pub fn of(&self, prefix: &KeyPrefix) -> Self {
        let (orders, prefix) = of_orders(prefix);
        Self { servers: Arc::clone(&self.servers), orders, prefix, writes: self.writes }
    }

    /// The same, of which whatever would change something in Redis fails: also the touch of a key whose time is over, which
    /// would have Redis delete it and say so.
    #[must_use]
    pub fn reading_only(self) -> Self {
        Self { writes: false, ..self }
    }

    /// Whether there is no Redis (`redis.url` is none): every command fails, and says so.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        match &*self.servers {
            Servers::One(supervisor) => supervisor.is_absent(),
            Servers::Cluster(_) => false,
        }
    }

    /// Each primary by itself, as they are and will be.
    #[must_use]
    pub fn primaries(&self, redis: &Redis) -> Primaries {
        match &*self.servers {
            Servers::One(_) => Primaries::one(Primary { redis: redis.clone(), commands: self.clone() }),
            Servers::Cluster(cluster) => Primaries::of(self.clone(), cluster.watch()),
        }
    }

    /// The same, through the connection to one node.
    pub(super) fn at(&self, node: &Arc<Supervisor>) -> Self {
        Self { servers: Arc::new(Servers::One(Arc::clone(node))), ..self.clone() }
    }

    /// Whether this key is one of that primary.
    #[must_use]
    pub fn has(&self, key: &str, primary: &Primary) -> bool {
        match &*self.servers {
            Servers::One(_) => true,
            Servers::Cluster(cluster) => {
                cluster.watch().borrow().owner(key).is_some_and(|(_, member)| member.redis.url == primary.redis.url)
            }
        }
    }

    /// Has it looked up soon which primaries there are.
    pub fn look_again(&self) {
        if let Servers::Cluster(cluster) = &*self.servers {
            cluster.look_again();
        }
    }

    /// What is wrong with these connections: that there is none (`connect`), or that Redis refuses a command of ours for want of
    /// a right, memory or time, by its name (`exists`).
    #[must_use]
    pub fn troubles(&self) -> BTreeMap<&'static str, RedisError> {
        match &*self.servers {
            Servers::One(supervisor) => supervisor.troubles(),
            Servers::Cluster(cluster) => {
                let map = cluster.watch().borrow().clone();
                let mut troubles = BTreeMap::new();
                for (node, member) in map.members.iter() {
                    for (what, error) in member.supervisor.troubles() {
                        troubles.entry(what).or_insert_with(|| error.of_node(node));
                    }
                }
                if let Some(failure) = map.failure {
                    troubles.insert("connect", failure);
                }
                troubles
            }
        }
    }

    /// The server that is connected, as far as it tells what it is; of several, one.
    #[must_use]
    pub fn server(&self) -> Option<Server> {
        match &*self.servers {
            Servers::One(supervisor) => supervisor.server(),
            Servers::Cluster(cluster) => cluster.watch().borrow().members.values().find_map(|member| member.supervisor.server()),
        }
    }

    /// These settings with the address at which the server is, where sentinels have named that.
    #[must_use]
    pub fn whereabouts(&self, redis: &Redis) -> Redis {
        let url = self.server().and_then(|server| server.endpoint().map(|at| redis.url.at(at)));
        Redis { url: url.unwrap_or_else(|| redis.url.clone()), ..redis.clone() }
    }

    /// Cuts every subscriber's connection; returns how many there were.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn kill_subscribers(&self) -> Result<u64> {
        self.write("+client|kill", async |client| client.custom(fred::cmd!("CLIENT"), vec!["KILL", "TYPE", "pubsub"]).await).await
    }

    /// Reads a configuration parameter of the server.
    ///
    /// # Errors
    /// Says why Redis refused; a managed one may not let anybody read its configuration.
    pub async fn config(&self, name: &str) -> Result<String> {
        let mut values: HashMap<String, String> = self.run("+config|get", async |client| client.config_get(name).await).await?;
        values.remove(name).ok_or_else(|| RedisError::Rejected(Said::new(format!("Redis has no parameter {name}"), "nothing")))
    }

    /// Sets a configuration parameter of the server.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn set_config(&self, name: &str, value: &str) -> Result<()> {
        self.write("+config|set", async |client| client.config_set(name, value).await).await
    }

    /// The server's clock, in microseconds since 1970 UTC.
    ///
    /// # Errors
    /// Says why Redis did not answer.
    pub async fn time(&self) -> Result<i64> {
        let (seconds, micros): (i64, i64) =
            self.run("+time", async |client| client.custom(fred::cmd!("TIME"), Vec::<String>::new()).await).await?;
        Ok(seconds * 1_000_000 + micros)
    }

    /// A few hundred keys, whichever come first.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn some_keys(&self) -> Result<Vec<String>> {
        let scan = async |client: Client| client.custom(fred::cmd!("SCAN"), vec!["0", "COUNT", "500"]).await;
        let (_, keys): (String, Vec<String>) = self.run("+scan", scan).await?;
        Ok(keys)
    }

    /// A section of INFO, as its fields.
    ///
    /// # Errors
    /// Says why Redis did not answer.
    pub async fn info(&self, section: &str) -> Result<HashMap<String, String>> {
        let text: String = self.run("+info", async |client| client.custom(fred::cmd!("INFO"), vec![section]).await).await?;
        Ok(fields(&text))
    }

    /// The same of a command that changes something.
    async fn write<T>(&self, needs: &str, command: impl AsyncFnOnce(Client) -> std::result::Result<T, Error>) -> Result<T> {
        self.may_write()?;
        self.run(needs, command).await
    }

    fn may_write(&self) -> Result<()> {
        if self.writes { Ok(()) } else { Err(RedisError::NotNow(Said::new("a shadow changes nothing in Redis".to_owned(), "nothing"))) }
    }

    /// Runs a command about no key: on one server, whichever is connected.
    async fn run<T>(&self, needs: &str, command: impl AsyncFnOnce(Client) -> std::result::Result<T, Error>) -> Result<T> {
        self.any().await?.run(needs, PATIENCE, command).await
    }

    /// Runs a command about this key where it is. The command is told whether it has to say ASKING first.
    async fn run_on<T, F>(&self, key: &str, needs: &str, command: impl Fn(Client, bool) -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, Error>>,
    {
        match &*self.servers {
            // Boxed: futures within futures have a limit.
            Servers::One(supervisor) => Box::pin(supervisor.run(needs, PATIENCE, async |client| command(client, false).await)).await,
            Servers::Cluster(cluster) => Box::pin(cluster.run(key, needs, PATIENCE, command)).await,
        }
    }

    /// A server that is connected; where none is, one that says why.
    pub(super) async fn any(&self) -> Result<Arc<Supervisor>> {
        match &*self.servers {
            Servers::One(supervisor) => Ok(Arc::clone(supervisor)),
            Servers::Cluster(cluster) => {
                let map = cluster.map(PATIENCE).await?;
                let all = || map.members.values().map(|member| &member.supervisor);
                let one = all().find(|supervisor| supervisor.server().is_some()).or_else(|| all().next());
                one.map(Arc::clone).ok_or_else(|| RedisError::unreachable("the cluster has no primaries"))
            }
        }
    }

    /// The server that has a key.
    pub(super) async fn at_key(&self, key: &str) -> Result<Arc<Supervisor>> {
        if let Servers::Cluster(cluster) = &*self.servers
            && let Some((_, member)) = cluster.map(PATIENCE).await?.owner(key)
        {
            return Ok(Arc::clone(&member.supervisor));
        }
        self.any().await
    }

    /// The ACL rule for the keys of orders.
    pub(super) fn orders(&self) -> &str {
        &self.orders
    }

    pub(super) fn order_key(&self, id: &str) -> String {
        format!("{}{id}", self.prefix)
    }
}

/// Fails if the authorities to trust can't be read, where any are needed.
fn check_authorities(redis: &Redis) -> Result<()> {
    if redis.url.is_encrypted() { tls_connector(redis).map(drop) } else { Ok(()) }
}
