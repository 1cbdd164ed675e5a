//! Which instance tries an order first, when several close the orders of one table.
//!
//! Every instance has a heartbeat on a [`Board`]: a field of one hash in Redis, or a row of our own tables where there is no
//! Redis, whose text it changes twice a second and which says whether the instance is *fit* ([`heartbeat`]). Whoever sees its
//! count go up knows that its instance lives; no clocks are compared. All orders fall into [shares](Shares) by their ids, and the
//! living and fit divide these evenly: each belongs to the one whose hash with it is the highest ([rendezvous hashing]), of those
//! who have not their part already. So all agree without a word, and an instance that joins or dies moves few others' orders.
//!
//! Guarantees:
//!
//! - Correctness never depends on it, only the amount of work: the others step in when an order stays open, and without
//!   Redis each instance tries them all.
//! - Within two seconds of an instance's silence or unfitness its orders belong to the others. Where all are unfit, they go on
//!   sharing: it is their database.
//! - Only those are peers that close the same orders in the same database, by whatever URL each reaches it, and nobody else
//!   can pretend to be one.
//!
//! [rendezvous hashing]: https://www.microsoft.com/en-us/research/wp-content/uploads/2017/02/HRW98.pdf

mod board;
mod first_edition;
mod fitness;
mod heartbeat;
mod peers;
#[cfg(test)]
mod schedules;

use std::{
    pin::pin,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use futures::future::join_all;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use uuid::Uuid;

use crate::{
    close::{Gate, Inbox, Outage, Share, Stats},
    config::{Database, Rule},
    order::{OrderId, Shares},
    store::Store,
    trigger::passes::Passes,
};
pub use board::Board;
use board::BoardError;
#[cfg(test)]
pub use board::Hash;
use first_edition::FirstEdition;
pub use first_edition::first_edition_lives;
pub use fitness::Pulse;
use fitness::{Condition, Fitness, Progress, Silence};
use heartbeat::{Group, Heartbeat};
use peers::{Division, FORGOTTEN, Known, Peers};

/// How often an instance changes its field.
const BEAT: Duration = Duration::from_millis(500);

/// At each such beat the database is asked which one it is, and Redis whether a daemon of the first edition runs.
const RARELY: u64 = 20;

/// How long the database may take to say which one it is.
const IDENTITY: Duration = Duration::from_secs(1);

/// More fields than this were not written by instances; what has so many is left alone for so long, in which it is forgotten.
const CROWD: usize = 10_000;
const CROWD_REST: Duration = Duration::from_mins(2);
const _: () = assert!(CROWD_REST.as_secs() > FORGOTTEN.as_secs(), "a hash of heartbeats lives for so long after the last of them");

/// How long saying goodbye may take.
const FAREWELL: Duration = Duration::from_millis(300);

/// The instances that close the orders of our table, as far as we know.
#[derive(Debug)]
pub struct Membership {
    peers: RwLock<Peers>,
    /// Which shares were ours when they were last divided, for whoever waits for a change.
    shares: watch::Sender<Shares>,
}

/// What a heartbeat is made of.
#[derive(Debug)]
pub struct Heart {
    /// The way to the others.
    pub board: Board,
    /// Whether the database answers, as others have found that ask it, too.
    pub pulse: Arc<Pulse>,
    /// Whose orders are closed; the shards of a rule in one database have one heartbeat, and more of them may come.
    pub bodies: mpsc::UnboundedReceiver<Body>,
    /// Ends it.
    pub stop: CancellationToken,
}

/// A table's part in a heartbeat.
#[derive(Debug)]
pub struct Body {
    /// Which orders are closed.
    pub rule: Rule,
    /// Where they are.
    pub database: Database,
    /// Whose identity the group has.
    pub store: Arc<dyn Store>,
    /// What waits.
    pub inbox: Arc<Inbox>,
    /// What was done.
    pub stats: Arc<Stats>,
    /// Whether the database can be used.
    pub outage: Arc<Outage>,
    /// Whether closing is paused.
    pub gate: Arc<Gate>,
    /// How look-ahead and sweep ended.
    pub passes: Arc<Passes>,
}

impl Heart {
    /// That of one table.
    #[must_use]
    pub fn of(body: Body, board: Board, pulse: Arc<Pulse>, stop: CancellationToken) -> Self {
        let (bodies, heard) = mpsc::unbounded_channel();
        // There is a receiver.
        bodies.send(body).ok();
        Self { board, pulse, bodies: heard, stop }
    }
}

impl Default for Membership {
    fn default() -> Self {
        Self::named(&Uuid::new_v4().to_string())
    }
}

impl Membership {
    /// One of this name.
    pub(crate) fn named(name: &str) -> Self {
        Self { peers: RwLock::new(Peers::new(name)), shares: watch::Sender::new(Shares::ALL) }
    }

    /// How long after its deadline it is for us to try an order: zero if we are the first.
    #[must_use]
    pub fn patience(&self, id: &OrderId) -> Duration {
        self.read(|peers| peers.patience(id, Instant::now()))
    }

    /// Whether we are the first to try an order.
    #[must_use]
    pub fn is_ours(&self, id: &OrderId) -> bool {
        self.patience(id).is_zero()
    }

    /// The shares of which we are the first to try the orders.
    #[must_use]
    pub fn shares(&self) -> Shares {
        self.read(|peers| peers.shares(Instant::now()))
    }

    /// Tells when these have changed.
    pub(super) fn sharing(&self) -> watch::Receiver<Shares> {
        self.shares.subscribe()
    }

    /// Whether another instance hears crowds of notifications for us.
    #[must_use]
    pub fn other_hears(&self) -> bool {
        self.read(|peers| peers.other_hears(Instant::now()))
    }

    /// How many others there are, and whether we tell them that we are fit.
    #[must_use]
    pub fn seen(&self) -> (usize, bool) {
        self.read(|peers| (peers.known(Instant::now()).living, peers.is_fit()))
    }

    /// Keeps the heartbeat until it is told to stop, and then says goodbye.
    pub async fn run(self: Arc<Self>, heart: Heart) {
        let Heart { board, pulse, mut bodies, stop } = heart;
        let Some(Some(first)) = stop.run_until_cancelled(bodies.recv()).await else { return };
        let (rule, database, store) = (first.rule.clone(), first.database.clone(), Arc::clone(&first.store));
        let mut session = Session {
            membership: &self,
            rule,
            database,
            board,
            store,
            pulse,
            bodies,
            tables: Vec::new(),
            group: None,
            known: Known::default(),
            alone: false,
            crowd: None,
        };
        session.take_in(first);
        stop.run_until_cancelled(session.beat_for_ever()).await;
        session.leave().await;
    }

    fn read<T>(&self, question: impl FnOnce(&Peers) -> T) -> T {
        question(&self.peers.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Peers) -> T) -> T {
        change(&mut self.peers.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Share for Membership {
    fn is_ours(&self, id: &OrderId) -> bool {
        self.patience(id).is_zero()
    }

    fn instances(&self) -> u32 {
        self.read(|peers| peers.instances(Instant::now()))
    }
}

/// The heartbeat while it runs.
struct Session<'m> {
    membership: &'m Membership,
    rule: Rule,
    database: Database,
    board: Board,
    store: Arc<dyn Store>,
    pulse: Arc<Pulse>,
    bodies: mpsc::UnboundedReceiver<Body>,
    tables: Vec<Table>,
    /// Unknown until the database has said which one it is.
    group: Option<Group>,
    known: Known,
    /// It was said that others can't be seen.
    alone: bool,
    /// When the hash was found to have a crowd of fields.
    crowd: Option<Instant>,
}

/// One of the tables whose orders are closed.
struct Table {
    inbox: Arc<Inbox>,
    fitness: Fitness,
    older: FirstEdition,
}

impl Session<'_> {
    fn take_in(&mut self, body: Body) {
        let Body { rule, database, store, inbox, stats, outage, gate, passes } = body;
        let fitness = Fitness {
            store,
            pulse: Arc::clone(&self.pulse),
            inbox: Arc::clone(&inbox),
            stats,
            outage,
            gate,
            passes,
            progress: Progress::default(),
            // What all find alike is said once.
            silence: self.tables.is_empty().then(Silence::default),
        };
        self.tables.push(Table { inbox, fitness, older: FirstEdition::new(&rule, &database) });
    }

    async fn beat_for_ever(&mut self) {
        let mut ticks = tokio::time::interval(BEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for beat in 0.. {
            self.share_until(ticks.tick()).await;
            if beat % RARELY == 0 || self.group.is_none() {
                self.join().await;
            }
            while let Ok(body) = self.bodies.try_recv() {
                self.take_in(body);
            }
            let condition = self.examine().await;
            let is_crowded = self.crowd.is_some_and(|at| at.elapsed() < CROWD_REST);
            if let Some(group) = self.group.clone().filter(|_| !is_crowded) {
                let ended = self.beat(beat, condition, &group).await;
                self.say_once(ended, &group);
            }
            self.look_for_older(beat).await;
            let known = self.membership.read(|peers| peers.known(Instant::now()));
            if known != self.known {
                info!(others = known.living, unfit = known.unfit, was = self.known.living, "other instances close orders of this table");
            }
            self.known = known;
        }
    }

    /// Divides the shares until then: now, and whenever another instance is given up.
    async fn share_until(&self, then: impl Future) {
        let mut then = pin!(then);
        loop {
            let until = self.share();
            tokio::select! {
                biased;
                _ = &mut then => return,
                () = sleep_until(until) => {}
            }
        }
    }

    /// Divides the shares; returns until when that holds.
    fn share(&self) -> Instant {
        let now = Instant::now();
        let Division { ours, until, .. } = self.membership.change(|peers| peers.divide(now).clone());
        if self.membership.shares.send_if_modified(|shares| std::mem::replace(shares, ours) != ours) {
            // Another's orders may be ours now.
            self.tables.iter().for_each(|table| table.inbox.want_sweep());
        }
        until.unwrap_or(now + BEAT)
    }

    /// Looks for daemons of the first edition, which know nothing of groups.
    async fn look_for_older(&mut self, beat: u64) {
        let Board::Redis(commands) = &self.board else { return };
        let asked = self.tables.iter_mut().filter(|table| beat.is_multiple_of(RARELY) || table.older.is_suspect());
        let learnt = asked.map(async |Table { older, .. }| {
            if let Ok(fields) = commands.fields(&older.key).await {
                older.learn(fields);
            }
        });
        join_all(learnt).await;
    }

    /// Of all tables: where one can't be closed, another instance may try all of them.
    async fn examine(&mut self) -> Condition {
        let mut all = Condition { fit: true, busy: false };
        for Table { fitness, .. } in &mut self.tables {
            let Condition { fit, busy } = fitness.examine().await;
            all = Condition { fit: all.fit && fit, busy: all.busy || busy };
        }
        all
    }

    /// Goes into the group of the database as it is now.
    async fn join(&mut self) {
        // It may be away; then it is the one that it was.
        let Ok(Ok(identity)) = tokio::time::timeout(IDENTITY, self.store.identity()).await else { return };
        let group = Group::of(&self.rule, self.database.time_zone.as_ref(), &identity);
        if self.group.as_ref().map(Group::key) != Some(group.key()) {
            self.leave().await;
            self.membership.change(Peers::forget);
            self.group = Some(group);
        }
    }

    async fn beat(&mut self, beat: u64, condition: Condition, group: &Group) -> Result<(), BoardError> {
        let Condition { fit, busy } = condition;
        let own = self.membership.read(|peers| peers.own().to_owned());
        let text = Heartbeat { beat, fit, busy }.written(&own, group);
        let key = group.key();
        let fields = self.board.exchange(key, &own, &text).await?;
        if fields.len() > CROWD {
            self.crowd = Some(Instant::now());
            return Err(BoardError::Crowd(fields.len()));
        }
        let forgotten = self.membership.change(|peers| peers.learn(fields, fit, group, Instant::now()));
        if !forgotten.is_empty() {
            self.board.remove(key, forgotten).await?;
        }
        Ok(())
    }

    fn say_once(&mut self, ended: Result<(), BoardError>, group: &Group) {
        match ended {
            Ok(()) => self.alone = false,
            // Without a connection nobody is seen either; others say so.
            Err(error) if error.is_refusal() && !std::mem::replace(&mut self.alone, true) => warn!(
                %error, fix = error.fix(), key = group.key(),
                "other instances can't be seen, and each tries every order; what has heartbeats must be ours alone"
            ),
            Err(error) => debug!(%error, key = group.key(), "no heartbeat"),
        }
    }

    /// Whoever is missed without a goodbye is given up a moment later.
    async fn leave(&self) {
        let Some(group) = &self.group else { return };
        let own = self.membership.read(|peers| peers.own().to_owned());
        tokio::time::timeout(FAREWELL, self.board.remove(group.key(), vec![own])).await.ok();
    }
}
