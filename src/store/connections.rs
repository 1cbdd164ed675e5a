//! The connections of a store, in two pools: one for the transactions that close orders, and one for all that reads and
//! for our own tables, so that neither waits for the other.
//!
//! The stores of several rules share the pools. In each every rule has one connection that no other may use, so that none
//! waits for a rule in trouble. Of shards there may be more than a server takes connections: they have none of their own.
//!
//! A connection is proved writable by the beginning of its transaction, in the same trip. After a failover the pool's
//! connections may lead to a server that still answers and takes no writes: each such one is closed, and the next tried,
//! down to a new one, whose answer counts. After a time without any answer no connection of before is used again: a router
//! may have forgotten it, and each would have to be waited for.

mod pools;

use std::{
    fmt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use sqlx::{
    Connection, Database, Pool, SqlSafeStr,
    pool::{PoolConnection, PoolOptions},
};

use crate::store::{
    self, Limits, LockWait, Settings, StoreError,
    dialect::{Dialect, DriverOptions, sorted},
    driver::Driver,
    hosts::{HostSeen, Hosts, Watch},
    own::{Backend, Link, Open, Work},
    session::{Session, Shared, proved},
    statement::sql,
};
use pools::{Places, Pooled};

/// How long a pool may take before its database is asked directly: a pool tries a refused connection again and again, and
/// says why only at the end.
const SOON: Duration = Duration::from_millis(100);

/// How long the beginning of a transaction may take: a connection whose other end is gone does not answer at all.
const ANSWER: Duration = Duration::from_secs(2);

/// How long [`Connections::reach`] takes at the most.
const REACH: Duration = Duration::from_secs(1);

/// How a dialect connects.
pub(super) struct Plan {
    /// What a new session for closing runs first.
    pub(super) closing: String,
    /// What every other new session runs first.
    pub(super) reading: String,
    /// How long a statement may take, and how long one that only reads.
    pub(super) timeout: Duration,
    pub(super) reading_timeout: Duration,
    /// For how long a connection may be idle.
    pub(super) idle: Option<Duration>,
    /// For how long a connection is used; only where all transactions share one.
    pub(super) one_writer_for: Option<Duration>,
}

/// How many connections read beside those that are each rule's own: for the sweep, the look-ahead, the pruner, whoever
/// asks, and whoever counts.
const READERS: usize = 4;

/// The connections of a store.
pub(super) struct Connections<D: Dialect> {
    hosts: Arc<Hosts<D>>,
    /// Who asks the hosts.
    watch: Arc<Watch>,
    closing: Arc<Pooled<D>>,
    reading: Arc<Pooled<D>>,
    places: [Places; 2],
    /// The one session that writes, where a second would only be in its way, and for how long it is used.
    writer: Option<(Shared<D>, Duration)>,
    /// What a connection of [`Self::reading`] runs first.
    set_up: String,
    timeout: Duration,
    reading_timeout: Duration,
    acquire: Duration,
    /// How many connections for closing have been made.
    made: Arc<AtomicU64>,
    refused: Arc<AtomicBool>,
    /// Whether the database did not answer at all when a connection was made last.
    lost: Arc<AtomicBool>,
}

impl<D: Dialect> fmt::Debug for Connections<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("closing", &self.closing.pool()).field("reading", &self.reading.pool()).finish_non_exhaustive()
    }
}

impl<D: Dialect> Connections<D> {
    /// Connects when it must.
    pub(super) fn new(hosts: &Arc<Hosts<D>>, plan: Plan, settings: &Settings) -> Self {
        // Of many shards none has connections of its own, and all share a few.
        let (own, sharers) = if settings.sharing.is_of_shards { (0, READERS) } else { (1, settings.sharing.rules) };
        let Plan { closing, reading, timeout, reading_timeout, idle, one_writer_for } = plan;
        let set_up = |script: String| if settings.read_only { format!("{}; {script}", D::READ_ONLY) } else { script };
        let (closing, reading) = (set_up(closing), set_up(reading));
        let acquire = settings.acquire_timeout();
        let made = Arc::new(AtomicU64::new(0));
        let pool = |size: usize, set_up: String, count: bool| {
            let made = Arc::clone(&made);
            pool_options::<D>(size, set_up, acquire, move || {
                made.fetch_add(u64::from(count), Ordering::Relaxed);
            })
            .idle_timeout(idle.unwrap_or(Duration::from_mins(10)))
            .max_lifetime(one_writer_for.unwrap_or(Duration::from_mins(30)))
        };
        let closers = if one_writer_for.is_some() { 1 } else { settings.database.connections };
        let closing = pool(closers, closing, true).test_before_acquire(false);
        let readers = pool(READERS + sharers, reading.clone(), false);
        let places = [Places::of(closers, own * sharers, own), Places::of(READERS + sharers, own * sharers, own)];
        // There is no server that could have gone away.
        let readers = readers.test_before_acquire(one_writer_for.is_none());
        let writer = one_writer_for.map(|kept| (Shared::default(), kept));
        Self {
            hosts: Arc::clone(hosts),
            watch: Arc::new(hosts.watch()),
            closing: Arc::new(Pooled::new(hosts, closing)),
            reading: Arc::new(Pooled::new(hosts, readers)),
            places,
            writer,
            set_up: reading,
            timeout,
            reading_timeout,
            acquire,
            made,
            refused: Arc::default(),
            lost: Arc::default(),
        }
    }

    /// The same for another rule.
    pub(super) fn beside(&self) -> Self {
        Self {
            hosts: Arc::clone(&self.hosts),
            watch: Arc::clone(&self.watch),
            closing: Arc::clone(&self.closing),
            reading: Arc::clone(&self.reading),
            places: self.places.each_ref().map(Places::beside),
            writer: self.writer.clone(),
            set_up: self.set_up.clone(),
            timeout: self.timeout,
            reading_timeout: self.reading_timeout,
            acquire: self.acquire,
            made: Arc::clone(&self.made),
            refused: Arc::clone(&self.refused),
            lost: Arc::clone(&self.lost),
        }
    }

    /// Further connections, which nobody else uses.
    pub(super) fn apart(self: &Arc<Self>, size: usize) -> Apart<D> {
        let reading = &self.reading.options;
        let pool = pool_options::<D>(size, self.set_up.clone(), self.acquire, || {})
            .idle_timeout(reading.get_idle_timeout())
            .max_lifetime(reading.get_max_lifetime())
            .test_before_acquire(reading.get_test_before_acquire());
        Apart { store: Arc::clone(self), pool: Pooled::new(&self.hosts, pool) }
    }

    /// The hosts, and which is in use.
    pub(super) fn hosts(&self) -> &Arc<Hosts<D>> {
        &self.hosts
    }

    /// How many connections for closing have been made.
    pub(super) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Asks each host what it is now, where there are several.
    pub(super) async fn look_at_hosts(&self) -> Vec<HostSeen> {
        if self.hosts.are_several() {
            self.hosts.look().await;
        }
        self.hosts.known()
    }

    /// Takes a connection from a pool, or says why none can be made.
    async fn acquire(pool: &Pool<D::Driver>) -> Result<PoolConnection<D::Driver>, sqlx::Error> {
        let mut acquiring = pin!(pool.acquire());
        if let Ok(acquired) = tokio::time::timeout(SOON, &mut acquiring).await {
            return acquired;
        }
        let options = pool.connect_options();
        tokio::select! {
            acquired = &mut acquiring => return acquired,
            attempt = <D::Driver as Database>::Connection::connect_with(&options) => {
                tokio::time::timeout(SOON, attempt?.close()).await.ok();
            }
        }
        acquiring.await
    }

    async fn session(&self, pooled: &Pooled<D>, timeout: Duration) -> Result<Session<D>, StoreError> {
        loop {
            let (turn, pool) = pooled.now();
            // Whoever waits for a host whose turn is over waits for the next one; likewise for connections to the same one.
            match turn.over.run_until_cancelled(Self::acquire(&pool)).await {
                Some(Err(sqlx::Error::PoolClosed)) if !pooled.pool().is_closed() => {}
                Some(taken) => return Ok(Session::new(taken.map_err(sorted::<D>)?, timeout, &self.refused).in_turn(&turn)),
                None => {}
            }
        }
    }

    /// The same for this rule, which waits for a place first.
    async fn session_in(&self, pool: &Pooled<D>, places: &Places, timeout: Duration) -> Result<Session<D>, StoreError> {
        // Never closed.
        let place = places.take().await.map_err(|_| sorted::<D>(sqlx::Error::PoolClosed))?;
        Ok(self.session(pool, timeout).await?.on(place))
    }

    /// Makes a first connection; an error is the driver's own.
    pub(super) async fn first(&self) -> Result<(), sqlx::Error> {
        Self::acquire(&self.reading.pool()).await.map(drop)
    }

    /// The pools, as they are now.
    pub(super) fn pools(&self) -> Vec<store::Pool> {
        let pools = [("closing", self.closing.pool()), ("reading", self.reading.pool())];
        let of = |(name, pool): (&'static str, Pool<D::Driver>)| store::Pool {
            name,
            open: pool.size() as usize,
            idle: pool.num_idle(),
            limit: pool.options().get_max_connections() as usize,
        };
        pools.map(of).into()
    }

    /// Makes connections to come otherwise.
    pub(super) fn change_options(&self, change: impl Fn(DriverOptions<D>) -> DriverOptions<D>) {
        self.hosts.change_options(change);
        for pooled in [&self.closing, &self.reading] {
            let (turn, pool) = pooled.now();
            pool.set_connect_options(self.hosts.options(&turn));
        }
    }

    /// A session that only reads.
    pub(super) async fn read(&self) -> Result<Session<D>, StoreError> {
        let [_, reading] = &self.places;
        self.session_in(&self.reading, reading, self.reading_timeout).await
    }

    /// A session in a transaction that closes orders.
    pub(super) async fn begin(&self, limits: Limits) -> Result<Session<D>, StoreError> {
        match &self.writer {
            Some((shared, kept)) => self.take_turn(shared, *kept, limits).await,
            None => {
                let [closing, _] = &self.places;
                // However long the other orders of this rule take; that is no fault of the database.
                let place = closing.take().await.map_err(|_| sorted::<D>(sqlx::Error::PoolClosed))?;
                match tokio::time::timeout(self.acquire, self.writable(limits)).await {
                    Ok(session) => Ok(session?.on(place)),
                    Err(_) => Err(sorted::<D>(sqlx::Error::PoolTimedOut)),
                }
            }
        }
    }

    async fn writable(&self, limits: Limits) -> Result<Session<D>, StoreError> {
        let strict = self.hosts.are_several();
        loop {
            let made = self.made.load(Ordering::Relaxed);
            let mut session = self.session(&self.closing, self.timeout).await?;
            // With others to choose from, one that was made read-only is not used, whatever this account may do there.
            let refused = strict || self.refused.load(Ordering::Relaxed);
            session.limited(D::LIMITED_BY_TIME && limits.wait != LockWait::Patiently);
            let begun = tokio::time::timeout(ANSWER, session.begin(D::begin(limits, refused))).await;
            match begun.unwrap_or_else(|_| Err(StoreError::Unavailable(no_answer(ANSWER)))) {
                Ok(()) => {
                    self.refused.store(false, Ordering::Relaxed);
                    if limits.wait != LockWait::Patiently {
                        session.cut_off(limits.statement, || self.reading.pool());
                    }
                    return Ok(session);
                }
                // It may have been idle since before its server went away.
                Err(_) if self.made.load(Ordering::Relaxed) == made => {}
                Err(error) => return Err(self.told(error)),
            }
        }
    }

    /// Names all hosts in an error, where none of several takes writes.
    fn told(&self, error: StoreError) -> StoreError {
        let is_away = matches!(error, StoreError::Unavailable(_)) && self.hosts.are_several();
        if is_away { self.hosts.none_takes_writes().err().unwrap_or(error) } else { error }
    }

    /// Takes the session that all share, as soon as nobody else has it. It does not go through the pool each time, whose
    /// tasks the next one would wait for.
    async fn take_turn(&self, shared: &Shared<D>, kept: Duration, limits: Limits) -> Result<Session<D>, StoreError> {
        let mut home = Arc::clone(shared).lock_owned().await;
        let mut session = match home.take().filter(|session| session.age() < kept) {
            Some(session) => session,
            None => self.session(&self.closing, self.timeout).await?,
        };
        session.returns_to(home);
        session.begin(D::begin(limits, false)).await?;
        Ok(session)
    }

    /// A transaction on our own tables. Where there is one writer it takes its turn with all others: whoever wrote beside it
    /// would only be in its way.
    async fn begin_own(
        &self,
        begin: &'static str,
        session: impl Future<Output = Result<Session<D>, StoreError>>,
    ) -> Result<Box<dyn Work>, StoreError> {
        let session = match self.writer {
            Some(_) => self.begin(Limits::BRIEF).await?,
            None => {
                let mut session = session.await?;
                session.begin(begin.into_sql_str()).await?;
                session
            }
        };
        Ok(Box::new(Open(session)))
    }

    /// Makes one connection, outside of the pools, and proves it writable.
    pub(super) async fn reach(&self) -> Result<(), StoreError> {
        let strict = self.hosts.are_several() || self.refused.load(Ordering::Relaxed);
        let options = self.hosts.options(&self.hosts.turn());
        let attempt = async {
            let mut connection = <D::Driver as Database>::Connection::connect_with(&options).await?;
            let rows = D::Driver::script(&mut connection, D::proof(strict).into_sql_str()).await;
            connection.close().await.ok();
            rows
        };
        let limit = self.timeout.min(REACH);
        let Ok(answer) = tokio::time::timeout(limit, attempt).await else {
            self.lost.store(true, Ordering::Relaxed);
            return Err(self.told(StoreError::Unavailable(no_answer(limit))));
        };
        // A file has no way to it, and one writer, who is not to have another beside him.
        if answer.is_ok() && self.lost.swap(false, Ordering::Relaxed) && self.writer.is_none() {
            self.hosts.found_again();
        }
        let proof = match answer.map_err(sorted::<D>) {
            Ok(rows) => proved::<D>(&rows),
            // Whoever holds it shows that it can be written.
            Err(StoreError::Locked(_)) => Ok(()),
            Err(error) => Err(error),
        };
        proof.map_err(|error| self.told(error))
    }

    /// Closes all, once they are not in use.
    pub(super) async fn close(&self) {
        if let Some((shared, _)) = &self.writer {
            drop(shared.lock().await.take());
        }
        self.closing.pool().close().await;
        self.reading.pool().close().await;
    }
}

/// Connections to the same database, beside those of the store.
pub(super) struct Apart<D: Dialect> {
    store: Arc<Connections<D>>,
    pool: Pooled<D>,
}

impl<D: Dialect> fmt::Debug for Apart<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Apart").field("pool", &self.pool.pool()).finish_non_exhaustive()
    }
}

/// A pool whose connections run `set_up` first, and tell when they are made.
fn pool_options<D: Dialect>(
    size: usize,
    set_up: String,
    acquire: Duration,
    made: impl Fn() + Send + Sync + 'static,
) -> PoolOptions<D::Driver> {
    PoolOptions::new().max_connections(u32::try_from(size).unwrap_or(u32::MAX)).acquire_timeout(acquire).after_connect(
        move |connection, _| {
            made();
            let set_up = sql(set_up.clone());
            Box::pin(async move { D::Driver::script(connection, set_up).await.map(drop) })
        },
    )
}

fn no_answer(within: Duration) -> String {
    format!("no answer within {}", humantime::format_duration(within))
}

#[async_trait]
impl<D: Dialect> Backend for Arc<Connections<D>> {
    async fn read(&self) -> Result<Box<dyn Link>, StoreError> {
        Ok(Box::new(Connections::read(self).await?))
    }

    async fn begin(&self) -> Result<Box<dyn Work>, StoreError> {
        let [_, reading] = &self.places;
        self.begin_own(D::BEGIN, self.session_in(&self.reading, reading, self.timeout)).await
    }
}

#[async_trait]
impl<D: Dialect> Backend for Apart<D> {
    async fn read(&self) -> Result<Box<dyn Link>, StoreError> {
        Ok(Box::new(self.store.session(&self.pool, self.store.timeout).await?))
    }

    async fn begin(&self) -> Result<Box<dyn Work>, StoreError> {
        self.store.begin_own(D::BEGIN_OF_RELAYS, self.store.session(&self.pool, self.store.timeout)).await
    }
}
