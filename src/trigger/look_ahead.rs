//! Reads what falls due within the next seconds, so that the pacer knows of each order before its deadline.
//!
//! A small query at a fixed rate: each look reaches twice as far as the time until the next, so that one may fail. It is slowed
//! only while its query times out again and again, as [`super::rest`] has it. What no look has seen, because it was written too
//! late or the table could not be read, the sweep finds.
//!
//! The orders of other instances are left to these, and not even read where the database can tell whose they are. When it changes
//! whose orders are whose, there is a look at once.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    close::Inbox,
    config::Live,
    order::Shares,
    store::{Store, StoreError, Window},
    trigger::{
        beat::Beat,
        clock::DatabaseClock,
        membership::Membership,
        pacer::Upcoming,
        pages::{PageRead, Pages},
        passes::{Pass, Passes},
        rest::{Cost, Rest, SLOW},
        slow::{self, Turns},
        witness::Witness,
    },
    watchdog,
};

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(100);

/// A look that takes long makes the next reach further, but no further than this: more rows are more pages.
const FURTHEST: Duration = Duration::from_mins(1);

/// Looks ahead until it is told to stop.
#[derive(Debug)]
pub struct LookAhead {
    /// The orders.
    pub store: Arc<dyn Store>,
    /// Who remembers which of them were settled.
    pub inbox: Arc<Inbox>,
    /// Who compares them with their keys before that.
    pub witness: Option<Arc<Witness>>,
    /// Whose orders are not for us.
    pub peers: Arc<Membership>,
    /// Who waits for them to fall due.
    pub upcoming: mpsc::Sender<Vec<Upcoming>>,
    /// How far ahead, how many at a time.
    pub settings: Live<crate::config::Sweep>,
    /// Who is told that a look ended well.
    pub passes: Arc<Passes>,
    /// Who else may be slow.
    pub turns: Arc<Turns>,
    /// When others look, too.
    pub beat: Beat,
    /// When to stop.
    pub stop: CancellationToken,
}

impl LookAhead {
    /// Looks again and again.
    pub async fn run(self) {
        tokio::select! {
            biased;
            () = self.look_again_and_again() => {}
            () = self.stop.cancelled() => {}
        }
    }

    async fn look_again_and_again(&self) {
        let (mut settings, mut sharing) = (self.settings.clone(), self.peers.sharing());
        let (mut away, mut was_slow, mut was_long) = (false, false, false);
        let (mut clock, mut took) = (DatabaseClock::default(), Duration::ZERO);
        let mut rest = Rest::default();
        loop {
            let ahead = settings.get().ahead.get();
            if ahead.is_zero() {
                self.passes.rest(Pass::LookAhead);
                watchdog::waiting(settings.changed()).await;
                continue;
            }
            let pause = (ahead / 2).max(SHORTEST);
            rest.rests(pause);
            let _turn = if rest.is_slow() { Some(watchdog::waiting(self.turns.take()).await) } else { None };
            let began = Instant::now();
            sharing.mark_unchanged();
            let looked = self.run_once(ahead + self.beat.whole(took.min(FURTHEST)), &mut clock).await;
            took = began.elapsed();
            let (mut cost, is_long) = (Cost::default(), took >= SLOW || looked.is_err());
            // The database is quick again: a sweep that rests because it was not may be sooner, too.
            if std::mem::replace(&mut was_long, is_long) && !is_long {
                self.inbox.want_sweep();
            }
            match looked {
                Ok(seen) => {
                    self.passes.ended(Pass::LookAhead);
                    if std::mem::take(&mut away) {
                        info!("looking ahead again");
                    }
                    debug!(seen, "looked ahead");
                }
                Err(error) => {
                    self.passes.failed(Pass::LookAhead, &error);
                    if !std::mem::replace(&mut away, true) {
                        warn!(%error, "the look-ahead failed, and what falls due is found when it is overdue; trying again");
                    }
                    if slow::is_slow(self.store.as_ref(), &error).await {
                        cost.timed_out(took);
                    }
                }
            }
            let rests = rest.after(&cost);
            if rest.is_slow() && !was_slow {
                slow::say(self.store.as_ref(), "look-ahead", rests).await;
            }
            was_slow = rest.is_slow();
            let at =
                if was_slow { Instant::now() + rests } else { self.beat.near(began + pause.max(took + SHORTEST), pause, Instant::now()) };
            let changed = async {
                tokio::select! {
                    () = settings.changed() => {}
                    // Whoever shares with us ends with us.
                    Ok(()) = sharing.changed(), if !was_slow => {}
                }
            };
            watchdog::waiting(timeout_at(at, changed)).await.unwrap_or_default();
        }
    }

    /// One look; returns how many orders it saw.
    ///
    /// # Errors
    /// As the database says; what was seen until then has been passed on.
    async fn run_once(&self, ahead: Duration, clock: &mut DatabaseClock) -> Result<usize, StoreError> {
        let ours = self.peers.shares();
        let mut pages = Pages::of(self.store.as_ref(), Window::ahead(ahead), self.settings.get().page).of_shares(ours);
        let mut seen = 0;
        while let Some(page) = pages.next().await? {
            if let Some(row) = page.rows.first()
                && clock.learn(row.now, page.asked, page.answered)
            {
                let reading = self.store.clock().await?;
                let answered = Instant::now();
                clock.learn(reading.micros, answered - reading.round_trip, answered);
            }
            seen += page.rows.len();
            self.pass_on(page, ours, clock).await;
        }
        Ok(seen)
    }

    /// All that is seen ahead passes here.
    async fn pass_on(&self, page: PageRead, ours: Shares, clock: &DatabaseClock) {
        let mut upcoming = Vec::with_capacity(page.rows.len());
        for row in page.rows.into_iter().filter(|row| ours.have(&row.id)) {
            let Some(deadline) = row.deadline else { continue };
            self.inbox.reopen(&row.id, page.asked);
            upcoming.push(Upcoming { id: row.id, deadline, at: clock.instant_of(deadline).unwrap_or(page.answered) });
        }
        if let Some(witness) = &self.witness {
            witness.foresee(upcoming.iter().map(|order| (order.id.clone(), order.deadline)).collect());
        }
        if !upcoming.is_empty() {
            // Fails only when the pacer has stopped, and then so do we.
            self.upcoming.send(upcoming).await.ok();
        }
    }
}
