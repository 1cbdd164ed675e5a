//! A Redis Cluster.

use std::time::Duration;

use super::{Keep, Options, Redis, ports, wait};

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;

/// How long a key may be on its way, or the cluster unable to take it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Nodes that know each other: first the primaries, then as many replicas, each of the primary at its place.
#[derive(Debug)]
pub struct Cluster {
    /// The nodes.
    pub nodes: Vec<Redis>,
    primaries: usize,
    options: Options,
}

/// A node as `CLUSTER SLOTS` names it.
type Range = (u16, u16, u16);

impl Cluster {
    /// What each node is started with.
    pub fn options() -> Options {
        Redis::options()
            .config("cluster-enabled yes")
            .config("cluster-node-timeout 1000")
            .config("cluster-replica-validity-factor 0")
            .config("repl-diskless-sync-delay 0")
            .with_notifications()
    }

    /// Starts three primaries and three replicas.
    pub async fn start() -> Self {
        Self::of(3, 3, Self::options()).await
    }

    /// Starts so many primaries, and so many replicas of the first of them.
    pub async fn of(primaries: usize, replicas: usize, options: Options) -> Self {
        let start = |_| options.clone().config(&format!("cluster-port {}", ports::free())).start();
        let cluster = Self { nodes: (0..primaries + replicas).map(start).collect(), primaries, options };
        for (number, node) in cluster.nodes.iter().enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            if number < primaries {
                let part = |number: usize| usize::from(SLOTS) * number / primaries;
                node.command(&["CLUSTER", "ADDSLOTSRANGE", &part(number).to_string(), &(part(number + 1) - 1).to_string()]);
            }
        }
        for node in &cluster.nodes[1..] {
            cluster.meet(node);
        }
        cluster.until_known().await;
        for replica in 0..replicas {
            let (replica, primary) = (&cluster.nodes[primaries + replica], id(&cluster.nodes[replica]));
            wait::until("the replica knows its primary", async || replica.try_command(&["CLUSTER", "REPLICATE", &primary]).is_ok()).await;
        }
        cluster.until_healthy().await;
        for replica in &cluster.nodes[primaries..] {
            replica.until_replicated().await;
        }
        cluster
    }

    /// One more primary, which has no slots yet.
    pub async fn join(&mut self) -> usize {
        let node = self.options.clone().config(&format!("cluster-port {}", ports::free())).start();
        self.nodes.push(node);
        self.meet(self.nodes.last().expect("just pushed"));
        self.until_known().await;
        // Until it has heard of all slots, it refuses keys.
        self.until_healthy().await;
        self.nodes.len() - 1
    }

    /// The node gets to know the first one, and so all.
    fn meet(&self, node: &Redis) {
        let bus = self.nodes[0].config_get("cluster-port");
        node.command(&["CLUSTER", "MEET", "127.0.0.1", &self.nodes[0].port().to_string(), &bus]);
    }

    async fn until_known(&self) {
        let all = self.nodes.len();
        let known = async || {
            self.nodes.iter().all(|node| node.command(&["CLUSTER", "INFO"]).text().contains(&format!("cluster_known_nodes:{all}\r")))
        };
        wait::until("all nodes know each other", known).await;
    }

    /// Waits until every living node sees a cluster that works, and all the same primaries.
    pub async fn until_healthy(&self) {
        let healthy = async || {
            let states: Vec<_> = self
                .nodes
                .iter()
                .filter(|node| node.is_running())
                .filter_map(|node| Some((node.try_command(&["CLUSTER", "INFO"]).ok()?, ranges(node)?)))
                .collect();
            !states.is_empty()
                && states.iter().all(|(info, ranges)| info.text().contains("cluster_state:ok") && *ranges == states[0].1)
                && states[0]
                    .1
                    .iter()
                    .all(|(.., port)| self.at(*port).is_some_and(|node| node.is_running() && node.try_command(&["PING"]).is_ok()))
        };
        wait::until("the cluster is healthy", healthy).await;
    }

    /// The URL, by the ports of these nodes.
    pub fn url(&self, nodes: &[usize]) -> String {
        let hosts: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", self.nodes[*node].port())).collect();
        let password = self.options.password.as_ref().map_or_else(String::new, |password| format!(":{password}@"));
        format!("redis-cluster://{password}{}", hosts.join(","))
    }

    fn at(&self, port: u16) -> Option<&Redis> {
        self.nodes.iter().find(|node| node.port() == port)
    }

    /// The primaries that have slots, as a living node that sees a working cluster names them.
    pub fn primaries(&self) -> Vec<&Redis> {
        let mut ports: Vec<u16> = self.ranges().into_iter().map(|(.., port)| port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports.into_iter().filter_map(|port| self.at(port)).collect()
    }

    fn ranges(&self) -> Vec<Range> {
        let sees = |node: &&Redis| node.try_command(&["CLUSTER", "INFO"]).is_ok_and(|info| info.text().contains("cluster_state:ok"));
        self.nodes.iter().filter(|node| node.is_running()).find(sees).and_then(ranges).unwrap_or_default()
    }

    /// Who has this key.
    pub fn owner(&self, key: &str) -> Option<&Redis> {
        let slot = slot(key);
        let range = self.ranges().into_iter().find(|(first, last, _)| (*first..=*last).contains(&slot))?;
        self.at(range.2)
    }

    /// A replica takes over from its primary, which lives.
    pub async fn fail_over(&self, replica: usize) {
        self.nodes[replica].command(&["CLUSTER", "FAILOVER"]);
        let leads = async || self.nodes[replica].command(&["ROLE"]).array()[0].text() == "master";
        wait::until("the replica has taken over", leads).await;
        self.until_healthy().await;
    }

    /// The number of the node that is the living primary of this part now: itself, or its replica.
    pub fn leader(&self, part: usize) -> usize {
        let is_primary = |node: &usize| self.primaries().iter().any(|primary| primary.port() == self.nodes[*node].port());
        [part, self.primaries + part].into_iter().find(is_primary).expect("the part has a primary")
    }

    /// Waits until this node is no primary any more, as the others see it.
    pub async fn until_replaced(&self, node: usize) {
        let port = self.nodes[node].port();
        wait::until("another is the primary", async || !self.ranges().is_empty() && self.ranges().iter().all(|(.., at)| *at != port)).await;
        self.until_healthy().await;
    }

    /// Moves the slots of one primary in this range to another, one after the other, as `redis-cli --cluster reshard` does.
    pub async fn move_slots(&self, slots: std::ops::Range<u16>, from: usize, to: usize) {
        for slot in slots {
            self.begin_to_move(slot, from, to);
            self.finish_to_move(slot, from, to);
            tokio::task::yield_now().await;
        }
    }

    /// From now on the other one takes what is new in this slot, for whoever asks there.
    pub fn begin_to_move(&self, slot: u16, from: usize, to: usize) {
        let (from, to, slot) = (&self.nodes[from], &self.nodes[to], &slot.to_string());
        to.command(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &id(from)]);
        from.command(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &id(to)]);
    }

    /// What is left in the slot goes to the other one, and then the slot is its.
    pub fn finish_to_move(&self, slot: u16, from: usize, to: usize) {
        let (from, to, slot) = (&self.nodes[from], &self.nodes[to], &slot.to_string());
        let (target, port) = (id(to), to.port().to_string());
        loop {
            let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", slot, "100"]);
            let keys: Vec<String> = keys.array().iter().map(|key| key.text()).collect();
            if keys.is_empty() {
                break;
            }
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            from.command(&words);
        }
        for node in [to, from] {
            node.command(&["CLUSTER", "SETSLOT", slot, "NODE", &target]);
        }
    }

    /// The first slots of a node, so many at the most.
    pub fn slots_of(&self, node: usize, most: usize) -> Vec<u16> {
        let port = self.nodes[node].port();
        let ranges = self.ranges();
        let own = ranges.iter().filter(|(.., at)| *at == port).flat_map(|(first, last, _)| *first..=*last);
        own.take(most).collect()
    }

    /// The number of the node that is no primary of this part, but the other one's replica.
    pub fn follower(&self, part: usize) -> usize {
        2 * part + self.primaries - self.leader(part)
    }

    /// Starts a node again that was killed, with what the cluster has told it.
    pub fn start_again(&mut self, node: usize) {
        self.nodes[node].start_again(Keep::Nothing);
    }

    /// Writes many keys, each with its expiry in milliseconds since 1970, as a client does that follows each key.
    pub async fn set_all_until(&self, keys: &[(String, i64)]) {
        let began = std::time::Instant::now();
        let mut left: Vec<(String, i64)> = keys.to_vec();
        while !left.is_empty() {
            assert!(began.elapsed() < PATIENCE, "{} keys could not be written", left.len());
            let ranges = self.ranges();
            let mut again = Vec::new();
            for node in &self.nodes {
                let (here, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|(key, _)| {
                    let slot = slot(key);
                    ranges.iter().any(|(first, last, port)| *port == node.port() && (*first..=*last).contains(&slot))
                });
                left = others;
                again.extend(node.try_set_all_until(here));
            }
            left.extend(again);
            if !left.is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// First and last slot, and the port of their primary; of a node that answers.
fn ranges(node: &Redis) -> Option<Vec<Range>> {
    let number = |reply: &super::Reply| u16::try_from(reply.integer()).expect("a slot or a port");
    let answer = node.try_command(&["CLUSTER", "SLOTS"]).ok()?;
    let mut ranges: Vec<Range> = answer
        .array()
        .iter()
        .map(|range| (number(&range.array()[0]), number(&range.array()[1]), number(&range.array()[2].array()[1])))
        .collect();
    ranges.sort_unstable();
    Some(ranges)
}

fn id(node: &Redis) -> String {
    node.command(&["CLUSTER", "MYID"]).text()
}

/// The slot of a key without braces: CRC16 (XMODEM).
pub fn slot(key: &str) -> u16 {
    let shift = |crc: u16, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
    key.bytes().fold(0, |crc, byte| (0..8).fold(crc ^ (u16::from(byte) << 8), shift)) % SLOTS
}
