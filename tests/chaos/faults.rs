//! What can go wrong.

use rand::{Rng, rngs::StdRng};

/// How Redis is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One server, to which daemons speak TLS, each by a network of its own.
    Alone,
    /// Three primaries with a replica each, and no network that could be in trouble: daemons go where nodes say that they are.
    Cluster,
}

/// How many primaries a cluster has.
pub const PRIMARIES: usize = 3;

/// How many daemons there are.
pub const DAEMONS: usize = 3;

/// Something that goes wrong for a while.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fault {
    /// When it begins, in milliseconds since the beginning of the run.
    pub at: i64,
    /// For how long, likewise.
    pub lasts: i64,
    /// What it is.
    pub what: What,
}

/// To whose servers a network leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Far {
    /// Redis.
    Redis,
    /// The database.
    Database,
}

/// What a network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Swallows everything.
    BlackHole,
    /// Delays each way by so many milliseconds.
    Delay(u64),
    /// Cuts connections with RST, again and again.
    Reset,
    /// Ends connections with FIN, again and again.
    Close,
    /// Ends one half of each connection: that towards the server, or the other.
    HalfClose(bool),
    /// Refuses new connections, and cuts those that there are.
    Refuse,
}

/// What a receiver of HTTP does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// Never answers.
    Hangs,
    /// Answers after so many milliseconds.
    Slow(u64),
    /// Answers with 500.
    Fails,
    /// Closes connections.
    Drops,
    /// Answers with 200 and what means nothing.
    Lies,
    /// Answers 429 with `Retry-After: 1`; where it is asked, with 429.
    Later,
}

/// A fault, with what was drawn for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum What {
    /// A daemon is killed with SIGKILL, and started again at the end.
    Killed(usize),
    /// A daemon is stopped with SIGTERM, and started again at the end.
    Terminated(usize),
    /// A daemon stands still.
    Frozen(usize),
    /// A daemon's clock is off by so many seconds.
    Skewed(i64),
    /// A daemon reads other settings, and then the old ones.
    Reloaded(usize),
    /// One daemon's network, or every daemon's.
    Network(Far, Option<usize>, Network),
    /// Redis stands still.
    RedisFrozen,
    /// Redis is killed, and started again with its data.
    RedisRestarted,
    /// Redis is killed, and started again without data.
    RedisRestartedEmpty,
    /// Redis is emptied, again and again.
    RedisFlushed,
    /// Redis has no memory for keys.
    RedisFull,
    /// The connections of Redis's clients are closed, again and again.
    RedisClientsKilled,
    /// Redis announces nothing.
    RedisSilenced,
    /// Expired keys are announced that have not.
    RedisForged,
    /// The password of the daemons' login is another one, there or in the database, and nobody is logged in any more.
    LoginRefused(Far),
    /// The disk of Redis or of the database is full.
    DiskFull(Far),
    /// Redis has a certificate by an authority that the daemons do not trust yet, and closes their connections.
    CertificateChanged,
    /// The primary of a part of the cluster is killed; its replica takes its place, and it becomes the replica.
    NodeKilled(usize),
    /// The primary of a part of the cluster stands still; its replica may take its place.
    NodeFrozen(usize),
    /// The replica of a part of the cluster takes its primary's place in good order.
    ReplicaPromoted(usize),
    /// Slots of a part of the cluster go to the next one.
    SlotsMoved(usize),
    /// A standby takes the primary's place.
    StandbyPromoted,
    /// The database's server is killed, and started again.
    DatabaseKilled,
    /// The database's server stands still.
    DatabaseFrozen,
    /// The daemons' sessions are ended, again and again.
    SessionsCut,
    /// The daemons have no right to change orders, or stock.
    RightsRevoked(bool),
    /// Rows of orders are held.
    RowsHeld,
    /// Rows of the stock are held.
    StockHeld,
    /// The table of orders is locked, or that of the stock.
    TableLocked(bool),
    /// Closing is paused.
    Paused,
    /// The receiver of events.
    Webhook(Receiver),
    /// The receiver that is asked.
    Ask(Receiver),
}

/// What can have only one trouble at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A daemon, its files and its signals.
    Daemon(usize),
    /// The networks to these servers.
    Network(Far),
    /// Redis itself.
    Redis,
    /// The database itself.
    Database,
    /// The pause.
    Pause,
    /// The receiver of events.
    Webhook,
    /// The receiver that is asked.
    Ask,
}

impl What {
    /// Each kind of fault; what is drawn for it stands for any other.
    pub const ALL: [Self; 36] = [
        Self::Killed(0),
        Self::Terminated(0),
        Self::Frozen(0),
        Self::Skewed(0),
        Self::Reloaded(0),
        Self::Network(Far::Redis, Some(0), Network::BlackHole),
        Self::Network(Far::Redis, None, Network::BlackHole),
        Self::Network(Far::Database, Some(0), Network::BlackHole),
        Self::Network(Far::Database, None, Network::BlackHole),
        Self::RedisFrozen,
        Self::RedisRestarted,
        Self::RedisRestartedEmpty,
        Self::RedisFlushed,
        Self::RedisFull,
        Self::RedisClientsKilled,
        Self::RedisSilenced,
        Self::RedisForged,
        Self::DatabaseKilled,
        Self::DatabaseFrozen,
        Self::SessionsCut,
        Self::RightsRevoked(true),
        Self::RowsHeld,
        Self::TableLocked(true),
        Self::Paused,
        Self::Webhook(Receiver::Hangs),
        Self::Ask(Receiver::Hangs),
        Self::LoginRefused(Far::Redis),
        Self::LoginRefused(Far::Database),
        Self::DiskFull(Far::Redis),
        Self::DiskFull(Far::Database),
        Self::StandbyPromoted,
        Self::CertificateChanged,
        Self::NodeKilled(0),
        Self::NodeFrozen(0),
        Self::ReplicaPromoted(0),
        Self::SlotsMoved(0),
    ];

    /// Whether it can happen to a Redis that is set up like this.
    pub fn happens_to(&self, layout: Layout) -> bool {
        match self {
            Self::NodeKilled(_) | Self::NodeFrozen(_) | Self::ReplicaPromoted(_) | Self::SlotsMoved(_) => layout == Layout::Cluster,
            Self::Network(Far::Redis, ..)
            | Self::RedisFrozen
            | Self::RedisRestarted
            | Self::RedisRestartedEmpty
            | Self::CertificateChanged
            | Self::DiskFull(Far::Redis) => layout == Layout::Alone,
            _ => true,
        }
    }

    /// The same kind, with what is drawn for it.
    pub fn drawn(self, random: &mut StdRng) -> Self {
        let which = random.random_range(0..DAEMONS);
        let part = which % PRIMARIES;
        match self {
            Self::Killed(_) => Self::Killed(which),
            Self::Terminated(_) => Self::Terminated(which),
            Self::Frozen(_) => Self::Frozen(which),
            Self::Skewed(_) => Self::Skewed([-86_400, -90, -2, 2, 90, 86_400][random.random_range(0..6)]),
            Self::Reloaded(_) => Self::Reloaded(which),
            Self::Network(far, whose, _) => Self::Network(far, whose.map(|_| which), network(random)),
            Self::RightsRevoked(_) => Self::RightsRevoked(random.random()),
            Self::RowsHeld | Self::StockHeld => [Self::RowsHeld, Self::StockHeld][random.random_range(0..2)],
            Self::TableLocked(_) => Self::TableLocked(random.random()),
            Self::Webhook(_) => Self::Webhook(receiver(random)),
            Self::Ask(_) => Self::Ask(receiver(random)),
            Self::NodeKilled(_) => Self::NodeKilled(part),
            Self::NodeFrozen(_) => Self::NodeFrozen(part),
            Self::ReplicaPromoted(_) => Self::ReplicaPromoted(part),
            Self::SlotsMoved(_) => Self::SlotsMoved(part),
            as_it_is @ (Self::RedisFrozen
            | Self::RedisRestarted
            | Self::RedisRestartedEmpty
            | Self::RedisFlushed
            | Self::RedisFull
            | Self::RedisClientsKilled
            | Self::RedisSilenced
            | Self::RedisForged
            | Self::DatabaseKilled
            | Self::DatabaseFrozen
            | Self::SessionsCut
            | Self::Paused
            | Self::LoginRefused(_)
            | Self::DiskFull(_)
            | Self::CertificateChanged
            | Self::StandbyPromoted) => as_it_is,
        }
    }

    /// The kind's name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Killed(_) => "daemon killed",
            Self::Terminated(_) => "daemon stopped and started",
            Self::Frozen(_) => "daemon frozen",
            Self::Skewed(_) => "daemon's clock skewed",
            Self::Reloaded(_) => "daemon's settings reloaded",
            Self::Network(Far::Redis, Some(_), _) => "network of one daemon to Redis",
            Self::Network(Far::Redis, None, _) => "network of all daemons to Redis",
            Self::Network(Far::Database, Some(_), _) => "network of one daemon to the database",
            Self::Network(Far::Database, None, _) => "network of all daemons to the database",
            Self::RedisFrozen => "Redis frozen",
            Self::RedisRestarted => "Redis killed, its data kept",
            Self::RedisRestartedEmpty => "Redis killed, its data lost",
            Self::RedisFlushed => "Redis flushed",
            Self::RedisFull => "Redis out of memory",
            Self::RedisClientsKilled => "Redis' clients killed",
            Self::RedisSilenced => "Redis' notifications off",
            Self::RedisForged => "notifications forged",
            Self::DatabaseKilled => "database killed",
            Self::DatabaseFrozen => "database frozen",
            Self::SessionsCut => "database sessions cut",
            Self::RightsRevoked(_) => "rights revoked",
            Self::RowsHeld | Self::StockHeld => "rows held",
            Self::TableLocked(_) => "table locked",
            Self::Paused => "paused",
            Self::Webhook(_) => "webhook in trouble",
            Self::Ask(_) => "whoever is asked in trouble",
            Self::LoginRefused(Far::Redis) => "login refused by Redis",
            Self::LoginRefused(Far::Database) => "login refused by the database",
            Self::DiskFull(Far::Redis) => "disk of Redis full",
            Self::DiskFull(Far::Database) => "disk of the database full",
            Self::StandbyPromoted => "standby promoted",
            Self::CertificateChanged => "certificate of Redis changed",
            Self::NodeKilled(_) => "node of the cluster killed",
            Self::NodeFrozen(_) => "node of the cluster frozen",
            Self::ReplicaPromoted(_) => "replica of the cluster promoted",
            Self::SlotsMoved(_) => "slots of the cluster moved",
        }
    }

    /// What has this trouble.
    pub fn subject(&self) -> Subject {
        match self {
            Self::Killed(which) | Self::Terminated(which) | Self::Frozen(which) | Self::Reloaded(which) => Subject::Daemon(*which),
            Self::Skewed(_) => Subject::Daemon(SKEWED),
            Self::Network(far, _, _) => Subject::Network(*far),
            Self::RedisFrozen
            | Self::RedisRestarted
            | Self::RedisRestartedEmpty
            | Self::RedisFlushed
            | Self::RedisFull
            | Self::RedisClientsKilled
            | Self::RedisSilenced
            | Self::RedisForged
            | Self::LoginRefused(Far::Redis)
            | Self::DiskFull(Far::Redis)
            | Self::CertificateChanged
            | Self::NodeKilled(_)
            | Self::NodeFrozen(_)
            | Self::ReplicaPromoted(_)
            | Self::SlotsMoved(_) => Subject::Redis,
            Self::DatabaseKilled
            | Self::DatabaseFrozen
            | Self::SessionsCut
            | Self::RightsRevoked(_)
            | Self::RowsHeld
            | Self::StockHeld
            | Self::TableLocked(_)
            | Self::LoginRefused(Far::Database)
            | Self::DiskFull(Far::Database)
            | Self::StandbyPromoted => Subject::Database,
            Self::Paused => Subject::Pause,
            Self::Webhook(_) => Subject::Webhook,
            Self::Ask(_) => Subject::Ask,
        }
    }

    /// The longest that it lasts, in milliseconds.
    pub fn longest(&self) -> i64 {
        match self {
            Self::TableLocked(_) | Self::DatabaseFrozen | Self::RedisFrozen => 3_000,
            _ => 6_000,
        }
    }
}

/// The daemon whose clock can be skewed.
pub const SKEWED: usize = DAEMONS - 1;

fn network(random: &mut StdRng) -> Network {
    let delay = random.random_range(10..250);
    let towards_server = random.random();
    let all =
        [Network::BlackHole, Network::Delay(delay), Network::Reset, Network::Close, Network::HalfClose(towards_server), Network::Refuse];
    all[random.random_range(0..all.len())]
}

fn receiver(random: &mut StdRng) -> Receiver {
    let slow = random.random_range(50..2_000);
    let all = [Receiver::Hangs, Receiver::Slow(slow), Receiver::Fails, Receiver::Drops, Receiver::Lies, Receiver::Later];
    all[random.random_range(0..all.len())]
}
