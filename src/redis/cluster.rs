//! A cluster: which primary has which keys, and a supervised connection for commands to each of them.
//!
//! A task asks for the whole cluster every second, and at once when a node says that a key has moved or when a connection is
//! lost. It compares what should be with what is: a question without an answer changes nothing, and the next one makes up for
//! it. Who answered last is asked first, then the others, and when none of them knows more than its own minority, or none
//! answers, the nodes of the URL. A primary without slots has no keys, and counts as soon as it has some.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fred::{clients::Client, error::Error, interfaces::ClientLike, types::Value};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info};

use super::{
    error::{RedisError, Result, Said},
    link::{Link, Login, PATIENCE},
    slots::Slots,
    supervisor::{AUDIT, Supervisor},
};
use crate::config::{Endpoint, Redis, RedisAddress};

/// How long a node may take to say what it knows of the cluster.
const LIMIT: Duration = Duration::from_millis(500);

/// Two questions are at least so far apart.
const APART: Duration = Duration::from_millis(100);

/// For how long a node is left alone that has not answered in time.
const REST: Duration = Duration::from_secs(1);

/// How often a command follows its key.
const REDIRECTS: usize = 3;

/// What a node needs to let us do, so that the others are found.
const NEEDS: &str = "+cluster|slots +cluster|info";

/// A primary of a cluster.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) redis: Redis,
    pub(super) supervisor: Arc<Supervisor>,
    rests_until: Mutex<Option<Instant>>,
}

impl Member {
    /// Runs a command on this node, unless it has not answered a moment ago.
    pub(super) async fn run<T>(
        &self,
        needs: &str,
        limit: Duration,
        command: impl AsyncFnOnce(Client) -> std::result::Result<T, Error>,
    ) -> Result<T> {
        let rests = || self.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        if rests().is_some_and(|until| until > Instant::now()) {
            return Err(RedisError::unreachable("it did not answer a moment ago"));
        }
        // One that refuses connections says so at once, and costs nothing.
        timeout(limit, self.supervisor.run(needs, limit, command)).await.unwrap_or_else(|_| {
            *rests() = Some(Instant::now() + REST);
            Err(RedisError::timed_out(limit))
        })
    }
}

/// What is known of the cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Map {
    pub(super) slots: Arc<Slots>,
    pub(super) members: Arc<BTreeMap<Endpoint, Arc<Member>>>,
    /// Why that could not be read anew when it was tried last.
    pub(super) failure: Option<RedisError>,
}

impl Map {
    /// Who has this key.
    pub(super) fn owner(&self, key: &str) -> Option<(&Endpoint, &Arc<Member>)> {
        self.members.get_key_value(self.slots.owner(key)?)
    }
}

/// Where a node sends us for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Redirect {
    /// To another, from now on.
    Moved,
    /// To another, for this once: the slot is on its way.
    Ask(Endpoint),
}

impl Redirect {
    /// Reads `MOVED 3999 host:port` or `ASK 3999 host:port`; nothing from any other error.
    pub(super) fn read(error: &Error, asked: &Endpoint) -> Option<Self> {
        let mut words = error.details().split_whitespace();
        match words.next()? {
            "MOVED" => Some(Self::Moved),
            "ASK" => {
                let (host, port) = words.nth(1)?.rsplit_once(':')?;
                let host = if host.is_empty() { asked.host.clone() } else { host.trim_matches(['[', ']']).to_owned() };
                Some(Self::Ask(Endpoint { host, port: port.parse().ok()? }))
            }
            _ => None,
        }
    }
}

/// A cluster that is looked after.
pub(super) struct Cluster {
    map: watch::Receiver<Map>,
    wake: Arc<Notify>,
    _keeper: AbortOnDropHandle<()>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("map", &self.map).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Begins to look for the nodes, and does not wait for it.
    pub(super) fn start(redis: &Redis) -> Self {
        Self::keeping(Keeper::new(redis))
    }

    /// Looks for the nodes, and waits until they are known.
    pub(super) async fn connect(redis: &Redis) -> Result<Self> {
        let keeper = Keeper::new(redis);
        keeper.look().await;
        let failure = keeper.told.borrow().failure.clone();
        failure.map_or_else(|| Ok(Self::keeping(keeper)), Err)
    }

    fn keeping(keeper: Keeper) -> Self {
        let (map, wake) = (keeper.told.subscribe(), Arc::clone(&keeper.wake));
        Self { map, wake, _keeper: AbortOnDropHandle::new(tokio::spawn(keeper.run())) }
    }

    /// What is known now; at the start, before anything is, waits for it.
    pub(super) async fn map(&self, limit: Duration) -> Result<Map> {
        let mut map = self.map.clone();
        let known = timeout(limit, map.wait_for(|map| !map.members.is_empty() || map.failure.is_some())).await;
        let map = match known {
            Ok(Ok(map)) => map.clone(),
            Ok(Err(_)) => return Err(RedisError::unreachable("the connection was closed")),
            Err(_) => return Err(RedisError::timed_out(limit)),
        };
        match &map.failure {
            Some(error) if map.members.is_empty() => Err(error.clone()),
            Some(_) | None => Ok(map),
        }
    }

    /// What is known, and will be.
    pub(super) fn watch(&self) -> watch::Receiver<Map> {
        self.map.clone()
    }

    /// Has the cluster asked for soon.
    pub(super) fn look_again(&self) {
        self.wake.notify_one();
    }

    /// Runs a command about this key at whoever has it. The command is told whether it has to say ASKING first.
    pub(super) async fn run<T, F>(&self, key: &str, needs: &str, limit: Duration, command: impl Fn(Client, bool) -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, Error>>,
    {
        let until = Instant::now() + limit;
        let mut ask = None;
        for _ in 0..REDIRECTS {
            let left = until.saturating_duration_since(Instant::now());
            let mut changes = self.map.clone();
            changes.mark_unchanged();
            let map = self.map(left).await?;
            let asking = ask.take().and_then(|at| map.members.get_key_value(&at));
            let Some((node, member)) = asking.or_else(|| map.owner(key)) else {
                return Err(RedisError::NotNow(Said::new(format!("nobody in the cluster has the slot of {key}"), "see CLUSTER SLOTS")));
            };
            let once = async |client| match command(client, asking.is_some()).await {
                Err(error) => Redirect::read(&error, node).map_or(Err(error), |redirect| Ok(Err(redirect))),
                Ok(answer) => Ok(Ok(answer)),
            };
            match member.run(needs, left, once).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(Redirect::Ask(at))) => ask = Some(at),
                Ok(Err(Redirect::Moved)) => {
                    self.look_again();
                    // By a look that is under way, or by the next one.
                    timeout(until.saturating_duration_since(Instant::now()), changes.changed()).await.ok();
                }
                Err(error) => {
                    if matches!(error, RedisError::Unreachable(_) | RedisError::NotOurs(_)) {
                        self.look_again();
                    }
                    return Err(error.of_node(node));
                }
            }
        }
        Err(RedisError::NotNow(Said::new(format!("the slot of {key} is on its way from node to node"), "nothing: it will arrive")))
    }
}

/// Keeps the map as the cluster is.
struct Keeper {
    redis: Redis,
    told: watch::Sender<Map>,
    wake: Arc<Notify>,
    /// Who answered last.
    first: Mutex<Option<Endpoint>>,
}

impl Keeper {
    fn new(redis: &Redis) -> Self {
        Self { redis: redis.clone(), told: watch::Sender::new(Map::default()), wake: Arc::default(), first: Mutex::default() }
    }

    async fn run(self) {
        loop {
            self.look().await;
            timeout(AUDIT, self.wake.notified()).await.ok();
            tokio::time::sleep(APART).await;
        }
    }

    /// Asks for the cluster, and makes the connections be what they should be.
    async fn look(&self) {
        let found = self.ask().await;
        let now = self.told.borrow().clone();
        let next = match found.and_then(|slots| self.change(&now, slots)) {
            Ok(map) => map,
            Err(error) => {
                debug!(%error, "the cluster's nodes could not be read");
                Map { failure: Some(error), ..now.clone() }
            }
        };
        self.told.send_if_modified(|map| {
            let is_same = next.slots == map.slots && next.failure == map.failure;
            if !is_same {
                *map = next;
            }
            !is_same
        });
    }

    /// Keeps the connections to those who are still primaries, and begins those to the new ones.
    fn change(&self, now: &Map, slots: Slots) -> Result<Map> {
        if *now.slots == slots {
            return Ok(Map { failure: None, ..now.clone() });
        }
        let mut members = BTreeMap::new();
        for node in slots.primaries() {
            let member = match now.members.get(node) {
                Some(member) => Arc::clone(member),
                None => {
                    let redis = Redis { url: self.redis.url.at(node), ..self.redis.clone() };
                    let supervisor = Arc::new(Supervisor::start(&redis)?);
                    Arc::new(Member { redis, supervisor, rests_until: Mutex::default() })
                }
            };
            members.insert(node.clone(), member);
        }
        let list = |members: &BTreeMap<Endpoint, Arc<Member>>| members.keys().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        if !now.members.is_empty() && now.members.keys().ne(members.keys()) {
            info!(now = list(&members), was = list(&now.members), "the cluster's primaries");
        }
        Ok(Map { slots: Arc::new(slots), members: Arc::new(members), failure: None })
    }

    async fn ask(&self) -> Result<Slots> {
        let members = Arc::clone(&self.told.borrow().members);
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let order = members.iter().filter(|(node, _)| Some(*node) == first.as_ref());
        let order = order.chain(members.iter().filter(|(node, _)| Some(*node) != first.as_ref()));
        let mut minority = None;
        for (node, member) in order {
            match member.run(NEEDS, LIMIT, questions).await.and_then(|answer| read(&answer, node)) {
                Ok((slots, true)) => {
                    *self.first.lock().unwrap_or_else(PoisonError::into_inner) = Some(node.clone());
                    return Ok(slots);
                }
                Ok((slots, false)) => minority = minority.or(Some(slots)),
                Err(error) => debug!(%node, %error, "a node does not say what it knows of the cluster"),
            }
        }
        // Those of the URL may be the very nodes that hang, and what is known of a minority is something.
        let limit = if minority.is_some() { LIMIT } else { PATIENCE };
        match (self.ask_seeds(limit).await, minority) {
            (Ok((slots, false)), minority) => Ok(minority.unwrap_or(slots)),
            (Ok((slots, true)), _) | (Err(_), Some(slots)) => Ok(slots),
            (Err(error), None) => Err(error),
        }
    }

    /// Asks all nodes of the URL at once; the first that sees the whole cluster counts.
    async fn ask_seeds(&self, limit: Duration) -> Result<(Slots, bool)> {
        let RedisAddress::Cluster { seeds, .. } = &self.redis.url.address else {
            return Err(RedisError::unreachable("no cluster is named"));
        };
        let one = async |seed| match timeout(limit, self.ask_seed(seed)).await {
            Ok(answer) => answer.map_err(|error| error.of_node(seed)),
            Err(_) => Err(RedisError::timed_out(limit).of_node(seed)),
        };
        let mut answers: FuturesUnordered<_> = seeds.iter().map(one).collect();
        let (mut minority, mut failure) = (None, None);
        while let Some(answer) = answers.next().await {
            match answer {
                Ok((slots, true)) => return Ok((slots, true)),
                Ok(answer) => minority = minority.or(Some(answer)),
                // A server's own words say more than its silence.
                Err(error) if matches!(failure, None | Some(RedisError::Unreachable(_))) => failure = Some(error),
                Err(_) => {}
            }
        }
        minority.ok_or_else(|| failure.unwrap_or_else(|| RedisError::unreachable("no node is named")))
    }

    async fn ask_seed(&self, seed: &Endpoint) -> Result<(Slots, bool)> {
        let link = Link::open_named(&self.redis, Login::of(&self.redis), seed).await?;
        let here = Redis { url: self.redis.url.at(seed), ..self.redis.clone() };
        match link.ask(questions(link.client.clone()), NEEDS).await {
            // A Redis without cluster mode, and a sentinel.
            Err(RedisError::Rejected(said)) if said.reason.contains("cluster support disabled") => Err(RedisError::no_cluster(&here)),
            Err(RedisError::Rejected(said)) if said.reason.to_ascii_lowercase().contains("unknown command") => {
                Err(RedisError::no_cluster(&here))
            }
            answer => read(&answer?, seed),
        }
    }
}

async fn questions(client: Client) -> std::result::Result<(String, Value), Error> {
    let pipeline = client.pipeline();
    pipeline.custom::<(), _>(fred::cmd!("CLUSTER"), vec!["INFO"]).await?;
    pipeline.custom::<(), _>(fred::cmd!("CLUSTER"), vec!["SLOTS"]).await?;
    let mut answers = pipeline.all::<Vec<Value>>().await?.into_iter();
    let info = answers.next().unwrap_or(Value::Null).convert()?;
    Ok((info, answers.next().unwrap_or(Value::Null)))
}

/// The slots, and whether the node that was asked sees a cluster that works. One without slots has nothing to say.
fn read((info, slots): &(String, Value), asked: &Endpoint) -> Result<(Slots, bool)> {
    match Slots::read(slots, asked) {
        Some(slots) if !slots.primaries().is_empty() => Ok((slots, info.contains("cluster_state:ok"))),
        Some(_) => {
            Err(RedisError::NotNow(Said::new("nobody in the cluster has slots", "give slots to its nodes: redis-cli --cluster create")))
        }
        None => Err(RedisError::Rejected(Said::new("its answer to CLUSTER SLOTS is none", "see what CLUSTER SLOTS says"))),
    }
}
