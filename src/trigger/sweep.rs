//! Reads the table for what is overdue: whatever notification was lost, its order is found here.
//!
//! A pass begins on a timer, after each subscription, and whenever somebody asks. How long the sweep rests in between is
//! told in [`super::rest`].
//!
//! A pass goes from the oldest deadline to the latest, and where a hundred thousand orders can't be closed it takes seconds. So
//! beside a pass that takes long, and while the sweep rests from it, what has fallen due of late is read by itself: an order that nobody
//! has announced waits for none of those before it.

use std::{sync::Arc, time::Duration};

use tokio::{sync::MutexGuard, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::{
    close::{Bounds, Inbox, Offer, Reminder},
    config::Live,
    order::Trigger,
    store::{Store, StoreError, Window},
    trigger::{
        beat::Beat,
        membership::Membership,
        overdue,
        pages::{PageRead, Pages},
        passes::{Pass, Passes},
        rest::{Cost, Rest},
        slow::{self, Turns},
    },
    watchdog,
};

/// The shortest rest, whoever asks, and when the database has failed.
const SHORTEST_REST: Duration = Duration::from_millis(100);

/// How often a request may cut the rest after a slow pass short.
const SLOW_REQUEST: Duration = Duration::from_secs(10);

/// For how long the first pass waits for what it will close to be counted.
const COUNTED: Duration = Duration::from_secs(2);

/// What has fallen due since the last pass began is of late, and what has done so this long before: its transaction may have taken
/// a while to commit.
const LATELY: Duration = Duration::from_secs(30);

/// A page that takes longer is worth a question of how long the way there and back is.
const SUSPECT: Duration = Duration::from_millis(50);

/// What one pass found.
#[derive(Debug, Clone, Default)]
struct Found {
    /// Orders past their deadline.
    overdue: u64,
    /// What its pages cost.
    cost: Cost,
    /// When the first overdue order of another instance is for us to try, if it is open then.
    step_in: Option<Instant>,
}

/// When what has fallen due of late is read by itself.
#[derive(Debug)]
struct Lately {
    rest: Rest,
    /// When the last pass began.
    since: Instant,
    next: Instant,
}

/// Sweeps until it is told to stop.
#[derive(Debug)]
pub struct Sweep {
    /// The orders.
    pub store: Arc<dyn Store>,
    /// Who closes them.
    pub inbox: Arc<Inbox>,
    /// Whose orders are not for us, or not yet.
    pub peers: Arc<Membership>,
    /// What closes though it is overdue.
    pub bounds: Arc<Bounds>,
    /// When, how many at a time.
    pub settings: Live<crate::config::Sweep>,
    /// Who is told that a pass ended well.
    pub passes: Arc<Passes>,
    /// Who else may be slow.
    pub turns: Arc<Turns>,
    /// When others sweep, too.
    pub beat: Beat,
    /// When to stop.
    pub stop: CancellationToken,
}

impl Sweep {
    /// Sweeps again and again.
    pub async fn run(self) {
        tokio::select! {
            biased;
            () = self.sweep_again_and_again() => {}
            () = self.stop.cancelled() => {}
        }
    }

    async fn sweep_again_and_again(&self) {
        let counted = tokio::time::timeout(COUNTED, overdue::say(self.store.as_ref(), self.settings.get().oldest.get()));
        if counted.await.is_err() {
            warn!(
                limit_s = COUNTED.as_secs(),
                "what is overdue could not be counted in time; all of it that sweep.oldest allows will be closed now"
            );
        }
        let (mut failing, mut was_slow) = (None, false);
        let mut settings = self.settings.clone();
        let mut rest = Rest::default();
        let mut lately = Lately { rest: Rest::default(), since: Instant::now(), next: Instant::now() };
        let mut last = None;
        loop {
            let every = settings.get().every.get();
            rest.rests(every);
            lately.rest.rests(every);
            let _turn = if was_slow { watchdog::waiting(self.turn(last)).await } else { None };
            let mut found = Found::default();
            let began = Instant::now();
            last = Some(began);
            (lately.since, lately.next) = (began, began + every);
            let length = match self.run_once(&mut found, &mut lately).await {
                Ok(()) => {
                    self.passes.ended(Pass::Sweep);
                    if failing.take().is_some() {
                        info!("sweeping again");
                    }
                    debug!(overdue = found.overdue, "swept");
                    rest.after(&found.cost)
                }
                Err(error) => {
                    self.passes.failed(Pass::Sweep, &error);
                    self.say(&error, &mut failing);
                    if slow::is_slow(self.store.as_ref(), &error).await {
                        found.cost.timed_out(began.elapsed());
                        rest.after(&found.cost)
                    } else {
                        // Not deaf to whoever knows that the database is back.
                        SHORTEST_REST
                    }
                }
            };
            if rest.is_slow() && !was_slow {
                slow::say(self.store.as_ref(), "sweep", length).await;
            }
            was_slow = rest.is_slow();
            let paused = async {
                // A rest that is no longer than usual is followed by a pass soon enough.
                let lately = Some(&mut lately).filter(|_| length > every && !was_slow);
                self.pause(length, was_slow.then_some(began), found.step_in, lately).await;
            };
            tokio::select! {
                biased;
                () = watchdog::waiting(paused) => {}
                () = settings.changed() => {}
            }
        }
    }

    /// Says that a pass failed: at once; and where the next one fails, too, since the database does not let the table be read, then and
    /// each minute again. Nobody else may find that out.
    fn say(&self, error: &StoreError, failing: &mut Option<(Instant, Reminder)>) {
        let now = Instant::now();
        let Some((since, said)) = failing else {
            warn!(%error, "the sweep failed; trying again");
            *failing = Some((now, Reminder::default()));
            return;
        };
        if matches!(error, StoreError::Rejected(_)) && said.is_due(now) {
            let since_s = (now - *since).as_secs();
            error!(since_s, reason = %error, cure = error.cure(), "the orders table can't be read; an order that nobody announces is not closed");
        }
    }

    /// Waits for the turn of one that is slow; whoever asks for a sweep need not.
    async fn turn(&self, last: Option<Instant>) -> Option<MutexGuard<'_, ()>> {
        tokio::select! {
            biased;
            turn = self.turns.take() => Some(turn),
            () = self.requested(last.map_or_else(Instant::now, |last| last + SLOW_REQUEST)) => None,
        }
    }

    /// Waits for the timer, the time to step in, or a request; after a slow pass, which began then, not for any request. Meanwhile reads
    /// what has fallen due of late, if that is wanted.
    async fn pause(&self, rest: Duration, slow: Option<Instant>, step_in: Option<Instant>, mut lately: Option<&mut Lately>) {
        let now = Instant::now();
        let timer = self.beat.near(now + rest, self.settings.get().every.get(), now);
        let (soonest, mut step_in) = (now + SHORTEST_REST, step_in);
        let heard = slow.map_or(soonest, |began| soonest.max(began + SLOW_REQUEST));
        loop {
            let at = step_in.map_or(timer, |at| timer.min(at)).max(soonest);
            let next = lately.as_ref().map(|lately| lately.next).filter(|next| *next < at);
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(next.unwrap_or(at)) => {}
                () = self.requested(heard) => return,
            }
            let Some(lately) = lately.as_deref_mut().filter(|_| next.is_some()) else { return };
            let found = self.look_lately(lately).await;
            step_in = step_in.into_iter().chain(found.step_in).min();
        }
    }

    /// Waits until somebody asks for a sweep, or has asked, but at least until then.
    async fn requested(&self, heard: Instant) {
        tokio::time::sleep_until(heard).await;
        self.inbox.sweep_wanted().await;
    }

    /// One pass over all that is overdue. Waits while the inbox has a page to work at: what is read now would only queue
    /// behind it, and most of it is queued already.
    ///
    /// # Errors
    /// As the database says; what was found until then has been passed on.
    async fn run_once(&self, found: &mut Found, lately: &mut Lately) -> Result<(), StoreError> {
        let settings = self.settings.get();
        let mut pages = Pages::of(self.store.as_ref(), Window::overdue(settings.oldest.get()), settings.page);
        loop {
            watchdog::waiting(self.inbox.fewer_than(settings.page as usize)).await;
            let Some(page) = pages.next().await? else { return Ok(()) };
            found.cost.page(self.excess(&page).await);
            self.pass_on(&page, found).await;
            if Instant::now() >= lately.next && !pages.is_at_end() {
                let step_in = self.look_lately(lately).await.step_in;
                found.step_in = found.step_in.into_iter().chain(step_in).min();
            }
        }
    }

    /// Reads what has fallen due of late. What fails here fails for the pass, too, which says so.
    async fn look_lately(&self, lately: &mut Lately) -> Found {
        let settings = self.settings.get();
        let time = lately.since.elapsed() + LATELY;
        let time = settings.oldest.get().map_or(time, |oldest| oldest.min(time));
        let mut pages = Pages::of(self.store.as_ref(), Window::overdue(Some(time)), settings.page);
        let (mut found, began) = (Found::default(), Instant::now());
        loop {
            match pages.next().await {
                Ok(Some(page)) => {
                    found.cost.page(page.excess());
                    self.pass_on(&page, &mut found).await;
                }
                Ok(None) => break,
                Err(error) => {
                    debug!(%error, "what has fallen due of late could not be read");
                    found.cost.timed_out(began.elapsed());
                    break;
                }
            }
        }
        lately.next = Instant::now() + lately.rest.after(&found.cost);
        found
    }

    /// How much longer a page took than its way and its rows are worth.
    async fn excess(&self, page: &PageRead) -> Duration {
        let excess = page.excess();
        if excess < SUSPECT {
            return excess;
        }
        // One trip for each statement, and one in which the connection was tried.
        let trips = self.store.clock().await.map_or(Duration::ZERO, |reading| reading.round_trip * (page.reads + 1));
        excess.saturating_sub(trips)
    }

    /// All that is found overdue passes here.
    async fn pass_on(&self, page: &PageRead, found: &mut Found) {
        for row in &page.rows {
            let Some(remaining) = row.remaining().filter(|_| row.is_overdue()) else { continue };
            // Due only by a jump of the clock.
            if row.deadline.is_some_and(|deadline| deadline > self.bounds.counted(row.now, page.asked)) {
                continue;
            }
            found.overdue += 1;
            let patience = self.peers.patience(&row.id).saturating_sub(Duration::from_micros(remaining.unsigned_abs()));
            if !patience.is_zero() {
                let at = page.answered + patience;
                found.step_in = Some(found.step_in.map_or(at, |before| before.min(at)));
                continue;
            }
            while self.inbox.offer_found(row, Trigger::Sweep, page.asked) == Offer::Full {
                // A closed one has no space ever, and lets nobody wait for any.
                if self.inbox.is_closed() {
                    return;
                }
                watchdog::waiting(self.inbox.space()).await;
            }
        }
    }
}
