//! The hosts of one database: which of them takes writes.
//!
//! Where the URL names several, each is asked several times a second, over a connection of its own, and none waits for
//! another. One that takes writes is *in use*; when it stops doing so and another does, that one is, and whatever still
//! waits for the host before is told at once that it waits in vain.
//!
//! Of several that take writes the one on the latest timeline is used (PostgreSQL counts promotions; one on an earlier timeline
//! than was seen is not used at all), then the one that is in use, then the first of the URL. Without timelines, as in MySQL and MariaDB, nobody can tell which of two primaries is
//! the right one; that is said as an error.

mod choice;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use sqlx::{Connection, Database, SqlSafeStr};
use tokio::{sync::mpsc, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    config::DatabaseUrl,
    store::{
        OpenError, Settings, StoreError,
        dialect::{Dialect, DriverOptions, sorted},
        driver::{Columns, Driver},
    },
};
use choice::{choose, disputed};

/// How often each host is asked.
const EVERY: Duration = Duration::from_millis(250);

/// The same of one that does not answer while another takes writes: each refusal of a login is a line in its log.
const EVERY_ABSENT: Duration = Duration::from_secs(2);

/// How long one may take to answer, and how long to be connected to.
const ANSWER: Duration = Duration::from_millis(750);
const CONNECT: Duration = Duration::from_secs(2);

/// How long others are waited for once one takes writes: one before it, or on a later timeline, may only be slower.
const OTHERS: Duration = Duration::from_millis(250);

type Link<D> = <<D as Dialect>::Driver as Database>::Connection;

/// What is known of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has not answered yet.
    Unknown,
    /// It takes writes, on this timeline, if it counts them.
    Primary(Option<i64>),
    /// It answers, and takes none.
    Standby,
    /// It does not answer, or not as it should.
    Away(StoreError),
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("no answer yet"),
            Self::Primary(Some(timeline)) => write!(f, "takes writes (timeline {timeline})"),
            Self::Primary(None) => f.write_str("takes writes"),
            Self::Standby => f.write_str("takes no writes: a standby, or made read-only"),
            Self::Away(StoreError::Unavailable(reason)) => f.write_str(reason),
            Self::Away(error) => write!(f, "{error}"),
        }
    }
}

/// A host, as it is told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSeen {
    /// Where it is, as in the URL.
    pub place: String,
    /// Whether it is the one in use.
    pub in_use: bool,
    /// Whether it takes writes.
    pub takes_writes: bool,
    /// Whether it answers.
    pub answers: bool,
    /// What is known of it, for people.
    pub standing: String,
}

/// One host.
#[derive(Debug)]
pub(super) struct Host<D: Dialect> {
    /// The URL that names it alone.
    pub(super) url: DatabaseUrl,
    /// Its options without what was learned of its zone.
    pub(super) plain: DriverOptions<D>,
    options: RwLock<DriverOptions<D>>,
}

/// For how long one host is in use.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    /// Which turn it is; each has another number.
    pub(super) number: u64,
    host: usize,
    /// Cancelled when another host's turn has come.
    pub(super) over: CancellationToken,
}

/// All hosts of a database.
#[derive(Debug)]
pub(super) struct Hosts<D: Dialect> {
    all: Vec<Host<D>>,
    seen: Mutex<Seen>,
    connect: Duration,
    /// How often the way to the database was found again after it was lost.
    found: AtomicU64,
}

#[derive(Debug)]
struct Seen {
    turn: Turn,
    standings: Vec<Standing>,
    /// The latest timeline on which one took writes.
    latest: Option<i64>,
    /// It was said that several take writes.
    disputed: bool,
}

impl Seen {
    fn learn(&mut self, at: usize, standing: Standing) {
        if let Standing::Primary(timeline) = standing {
            self.latest = self.latest.max(timeline);
        }
        self.standings[at] = standing;
    }
}

/// Whoever asks the hosts, for as long as this is kept.
#[derive(Debug, Default)]
pub(super) struct Watch(JoinSet<()>);

impl<D: Dialect> Hosts<D> {
    /// The hosts of these settings; where there are several, with the one that takes writes in use.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] that names each host and why it is not taken; [`StoreError::Refused`] where all refuse this user.
    pub(super) async fn find(settings: &Settings) -> Result<Arc<Self>, OpenError> {
        let url = &settings.database.url;
        let host = |url: DatabaseUrl| {
            let plain = D::options(settings, &url)?;
            Ok(Host { url, options: RwLock::new(plain.clone()), plain })
        };
        let all = url.each_host().into_iter().map(host).collect::<Result<Vec<_>, OpenError>>()?;
        let turn = Turn { number: 0, host: 0, over: CancellationToken::new() };
        let seen = Seen { turn, standings: vec![Standing::Unknown; all.len()], latest: None, disputed: false };
        let connect = url.connect_timeout().unwrap_or(CONNECT).min(settings.acquire_timeout());
        let hosts = Arc::new(Self { all, seen: Mutex::new(seen), connect, found: AtomicU64::new(0) });
        if hosts.are_several() {
            hosts.look_for_primary().await;
            hosts.none_takes_writes()?;
        }
        Ok(hosts)
    }

    /// Whether there is any choice.
    pub(super) fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// The way to the database was lost, and is there again: connections of before may never hear anything any more.
    pub(super) fn found_again(&self) {
        self.found.fetch_add(1, Ordering::AcqRel);
    }

    /// How often that was so.
    pub(super) fn found(&self) -> u64 {
        self.found.load(Ordering::Acquire)
    }

    /// The turn of the host in use.
    pub(super) fn turn(&self) -> Turn {
        self.seen().turn.clone()
    }

    /// The host whose turn this is.
    pub(super) fn host(&self, turn: &Turn) -> &Host<D> {
        &self.all[turn.host]
    }

    /// How to connect to it.
    pub(super) fn options(&self, turn: &Turn) -> DriverOptions<D> {
        self.host(turn).options.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes connections to come otherwise, to each host.
    pub(super) fn change_options(&self, change: impl Fn(DriverOptions<D>) -> DriverOptions<D>) {
        for host in &self.all {
            let mut options = host.options.write().unwrap_or_else(PoisonError::into_inner);
            *options = change(options.clone());
        }
    }

    /// What is known of each, where there are several.
    pub(super) fn known(&self) -> Vec<HostSeen> {
        let seen = self.seen();
        let of = |(at, standing): (usize, &Standing)| HostSeen {
            place: self.all[at].url.place(),
            in_use: at == seen.turn.host,
            takes_writes: matches!(standing, Standing::Primary(_)),
            answers: matches!(standing, Standing::Primary(_) | Standing::Standby),
            standing: standing.to_string(),
        };
        if self.are_several() { seen.standings.iter().enumerate().map(of).collect() } else { Vec::new() }
    }

    /// Asks every host once, and waits for all.
    pub(super) async fn look(self: &Arc<Self>) {
        let mut answers = self.ask_all();
        while let Some((at, standing)) = answers.recv().await {
            self.note(at, standing);
        }
    }

    /// The same for as long as it takes to know the one to use.
    async fn look_for_primary(self: &Arc<Self>) {
        let (mut answers, mut until) = (self.ask_all(), Instant::now() + self.connect + ANSWER);
        while let Ok(Some((at, standing))) = tokio::time::timeout_at(until, answers.recv()).await {
            if matches!(standing, Standing::Primary(_)) {
                until = until.min(Instant::now() + OTHERS);
            }
            let mut seen = self.seen();
            seen.learn(at, standing);
            seen.turn.host = choose(&seen.standings, 0, seen.latest);
        }
    }

    fn ask_all(self: &Arc<Self>) -> mpsc::Receiver<(usize, Standing)> {
        let (answered, answers) = mpsc::channel(self.all.len());
        for at in 0..self.all.len() {
            let (hosts, answered) = (Arc::clone(self), answered.clone());
            tokio::spawn(async move {
                let standing = hosts.ask(at, &mut None).await;
                // Whoever no longer waits has heard enough.
                answered.send((at, standing)).await.ok();
            });
        }
        answers
    }

    /// Says what each host is while none takes writes.
    ///
    /// # Errors
    /// That none does.
    pub(super) fn none_takes_writes(&self) -> Result<(), StoreError> {
        self.one_takes_writes(&self.seen())
    }

    fn one_takes_writes(&self, seen: &Seen) -> Result<(), StoreError> {
        if seen.standings.iter().any(|standing| matches!(standing, Standing::Primary(timeline) if *timeline >= seen.latest)) {
            return Ok(());
        }
        let told = |(at, standing): (usize, &Standing)| {
            let left_behind = if matches!(standing, Standing::Primary(_)) { ", left behind by a failover" } else { "" };
            format!("{}: {standing}{left_behind}", self.all[at].url.place())
        };
        let told: Vec<String> = seen.standings.iter().enumerate().map(told).collect();
        let reason = format!("none of the hosts can be written to ({})", told.join("; "));
        let refused = |standing: &Standing| {
            let Standing::Away(StoreError::Refused { cure, .. }) = standing else { return None };
            Some(cure.clone())
        };
        match seen.standings.iter().map(refused).collect::<Option<Vec<_>>>() {
            Some(cures) => Err(StoreError::Refused { reason, cure: cures.into_iter().next().unwrap_or_default() }),
            None => Err(StoreError::Unavailable(reason)),
        }
    }

    /// Asks the hosts again and again, while the answer is kept.
    pub(super) fn watch(self: &Arc<Self>) -> Watch {
        let mut watch = Watch::default();
        if self.are_several() {
            for at in 0..self.all.len() {
                watch.0.spawn(watch_one(Arc::downgrade(self), at));
            }
        }
        watch
    }

    /// Asks a host what it is, over this connection if there is one.
    async fn ask(&self, at: usize, connection: &mut Option<Link<D>>) -> Standing {
        let standing = match self.answer(at, connection).await {
            Ok(standing) => standing,
            Err(error) => Standing::Away(error),
        };
        if matches!(standing, Standing::Away(_)) {
            // Not by a word: who does not answer would not hear it.
            drop(connection.take());
        }
        standing
    }

    async fn answer(&self, at: usize, connection: &mut Option<Link<D>>) -> Result<Standing, StoreError> {
        let link = match connection {
            Some(link) => link,
            None => {
                let plain = &self.all[at].plain;
                let made = tokio::time::timeout(self.connect, Link::<D>::connect_with(plain)).await;
                connection.insert(made.map_err(|_| no_answer(self.connect))?.map_err(sorted::<D>)?)
            }
        };
        let rows = tokio::time::timeout(ANSWER, D::Driver::script(link, D::STANDING.into_sql_str())).await;
        let rows = rows.map_err(|_| no_answer(ANSWER))?.map_err(sorted::<D>)?;
        let row = rows.last().ok_or(sqlx::Error::RowNotFound).map_err(sorted::<D>)?;
        let mut columns = Columns::<D::Driver>::of(row);
        let mut next = || columns.optional_number().map_err(sorted::<D>);
        Ok(if next()?.unwrap_or(0) == 0 { Standing::Primary(next()?) } else { Standing::Standby })
    }

    /// Takes in what a host is now, and ends the turn of the one in use if it is another's.
    fn note(&self, at: usize, standing: Standing) {
        let mut seen = self.seen();
        let place = |at: usize| self.all[at].url.place();
        // A server that is down is so in several words.
        let is_news = std::mem::discriminant(&seen.standings[at]) != std::mem::discriminant(&standing);
        if is_news && seen.standings[at] != Standing::Unknown {
            info!(host = place(at), was = %seen.standings[at], is = %standing, "a host of the database has changed");
        }
        seen.learn(at, standing);
        let Seen { turn, standings, latest, disputed: _ } = &mut *seen;
        let chosen = choose(standings, turn.host, *latest);
        if chosen != turn.host {
            warn!(
                host = place(chosen), before = place(turn.host), why = %standings[turn.host], timeline = %standings[chosen],
                "the database has failed over: another host takes the writes now"
            );
            turn.over.cancel();
            *turn = Turn { number: turn.number + 1, host: chosen, over: CancellationToken::new() };
        }
        let rivals = disputed(standings);
        // Whoever waits for the host in use hears of that one alone.
        if is_news && let Err(error) = self.one_takes_writes(&seen) {
            warn!(
                reason = %error,
                fix = "promote a standby. One that was left behind lacks what was paid since: it is used if order-closer starts anew \
                       while no later one answers",
                "no host of the database can be used; waiting for one"
            );
        }
        if rivals.len() > 1 && !seen.disputed {
            error!(
                hosts = rivals.iter().map(|at| place(*at)).collect::<Vec<_>>().join(", "),
                used = place(seen.turn.host),
                fix =
                    "let only one of them take writes: stop the other, or make it a standby (MySQL and MariaDB: SET GLOBAL read_only = 1)",
                "several hosts of the database take writes; orders are closed on one of them alone"
            );
        }
        seen.disputed = rivals.len() > 1;
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_answer(within: Duration) -> StoreError {
    StoreError::Unavailable(format!("no answer within {}", humantime::format_duration(within)))
}

/// Asks one host until nobody has the hosts any more.
async fn watch_one<D: Dialect>(hosts: Weak<Hosts<D>>, at: usize) {
    let mut connection = None;
    while let Some(hosts) = hosts.upgrade() {
        let standing = hosts.ask(at, &mut connection).await;
        let is_away = matches!(standing, Standing::Away(_));
        hosts.note(at, standing);
        let pause = if is_away && hosts.none_takes_writes().is_ok() { EVERY_ABSENT } else { EVERY };
        drop(hosts);
        tokio::time::sleep(pause).await;
    }
}
