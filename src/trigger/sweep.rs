//! Reads the table for what is due and what soon will be: whatever notification was lost, its order
//! is found here.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    close::{Inbox, Offer},
    order::{Row, Trigger},
    store::{DueQuery, Store, StoreError},
    trigger::{clock::DatabaseClock, membership::Membership, pacer::Upcoming},
};

/// The sweep rests so many times as long as its queries took, beyond what their rows were worth, when that
/// happened twice in a row.
const REST_FACTOR: u32 = 19;

/// The shortest rest, when the database has failed.
const SHORTEST_REST: Duration = Duration::from_millis(100);

/// The longest rest that makes the sweep look further ahead: more rows are more pages, and each is a slow query.
const FURTHEST_REST: Duration = Duration::from_mins(1);

/// What reading one row may cost; a query that takes longer lacks an index.
const FAIR_COST: Duration = Duration::from_micros(20);

/// What a query may cost besides its rows.
const FAIR_START: Duration = Duration::from_millis(5);

/// What one pass found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// Orders past their deadline.
    pub overdue: u64,
    /// Orders due within the horizon.
    pub upcoming: u64,
    /// How much longer the queries took than a good index would have let them.
    pub excess: Duration,
    /// When the first overdue order of another instance is for us to try, if it is open then.
    pub step_in: Option<Instant>,
}

/// Sweeps on a timer and whenever somebody asks, until it is told to stop.
#[derive(Debug)]
pub struct Sweep {
    /// The orders.
    pub store: Arc<dyn Store>,
    /// Who closes the overdue ones.
    pub inbox: Arc<Inbox>,
    /// Whose orders are not for us, or not yet.
    pub peers: Arc<Membership>,
    /// Who waits for those to come.
    pub upcoming: mpsc::Sender<Vec<Upcoming>>,
    /// When, how far ahead, how many at a time.
    pub settings: crate::config::Sweep,
    /// When to stop.
    pub stop: CancellationToken,
}

impl Sweep {
    /// Sweeps again and again.
    pub async fn run(self) {
        let mut away = false;
        let mut slow = false;
        let mut excess_before = Duration::ZERO;
        let mut clock = DatabaseClock::default();
        loop {
            let swept = tokio::select! {
                swept = self.run_once(self.ahead(excess_before * REST_FACTOR), &mut clock) => swept,
                () = self.stop.cancelled() => return,
            };
            let mut step_in = None;
            let rest = match swept {
                Ok(found) => {
                    step_in = found.step_in;
                    if std::mem::take(&mut away) {
                        info!("sweeping again");
                    }
                    debug!(overdue = found.overdue, upcoming = found.upcoming, "swept");
                    // Once is a hiccup of the database, and no reason to be late for what comes after it.
                    let lasting = found.excess.min(std::mem::replace(&mut excess_before, found.excess));
                    let rest = lasting * REST_FACTOR;
                    let slow_now = rest > self.settings.every.get();
                    if slow_now && !slow {
                        warn!(
                            excess_ms = lasting.as_millis(),
                            next_in_s = rest.as_secs_f64(),
                            "the sweep's query is slow, and it sweeps less often; `order-closer check` shows the index that it needs"
                        );
                    }
                    slow = slow_now;
                    rest
                }
                Err(error) => {
                    excess_before = Duration::ZERO;
                    if !std::mem::replace(&mut away, true) {
                        warn!(%error, "the sweep failed; trying again");
                    }
                    // Not deaf to whoever knows that the database is back.
                    SHORTEST_REST
                }
            };
            tokio::select! {
                () = self.pause(rest, step_in) => {}
                () = self.stop.cancelled() => return,
            }
        }
    }

    /// Rests, then waits for the timer, the time to step in, or somebody to ask.
    async fn pause(&self, rest: Duration, step_in: Option<Instant>) {
        tokio::time::sleep(rest).await;
        let timer = self.settings.every.get().saturating_sub(rest);
        let step_in = step_in.map_or(timer, |at| at.saturating_duration_since(Instant::now()));
        tokio::select! {
            () = tokio::time::sleep(timer.min(step_in)) => {}
            () = self.inbox.sweep_wanted() => {}
        }
    }

    /// How far to look ahead, when a rest of this length may follow: what falls due meanwhile is to be known before.
    fn ahead(&self, rest: Duration) -> Duration {
        let ahead = self.settings.ahead.get();
        if ahead.is_zero() { ahead } else { ahead + rest.min(FURTHEST_REST) }
    }

    /// One pass over all that is due within the horizon. Waits while the inbox has a page to work at: what is
    /// read now would only queue behind it, and most of it is queued already.
    ///
    /// # Errors
    /// As the database says; what was found until then has been passed on.
    async fn run_once(&self, ahead: Duration, clock: &mut DatabaseClock) -> Result<Found, StoreError> {
        let mut found = Found::default();
        let mut query = DueQuery { ahead, limit: self.settings.page, after: None };
        loop {
            self.inbox.fewer_than(self.settings.page as usize).await;
            let asked = Instant::now();
            let page = self.store.due(&query).await?;
            let answered = Instant::now();
            let fair = FAIR_START + FAIR_COST * u32::try_from(page.rows.len()).unwrap_or(u32::MAX);
            found.excess += (answered - asked).saturating_sub(fair);
            if let Some(row) = page.rows.first()
                && clock.learn(row.now, asked, answered)
            {
                let reading = self.store.clock().await?;
                let answered = Instant::now();
                clock.learn(reading.micros, answered - reading.round_trip, answered);
            }
            self.pass_on(&page.rows, (asked, answered), clock, &mut found).await;
            query.after = page.next;
            if query.after.is_none() {
                return Ok(found);
            }
        }
    }

    async fn pass_on(&self, rows: &[Row], (asked, answered): (Instant, Instant), clock: &DatabaseClock, found: &mut Found) {
        let mut upcoming = Vec::new();
        for row in rows {
            let (Some(deadline), Some(remaining)) = (row.deadline, row.remaining()) else { continue };
            let patience = self.peers.patience(&row.id);
            if row.is_overdue() {
                found.overdue += 1;
                let patience = patience.saturating_sub(Duration::from_micros(remaining.unsigned_abs()));
                if !patience.is_zero() {
                    let at = answered + patience;
                    found.step_in = Some(found.step_in.map_or(at, |before| before.min(at)));
                    continue;
                }
                while self.inbox.offer_found(row, Trigger::Sweep, asked) == Offer::Full {
                    self.inbox.space().await;
                    if self.stop.is_cancelled() {
                        return;
                    }
                }
            } else {
                found.upcoming += 1;
                self.inbox.reopen(&row.id, asked);
                if !patience.is_zero() {
                    continue;
                }
                upcoming.push(Upcoming { id: row.id.clone(), deadline, at: clock.instant_of(deadline).unwrap_or(answered) });
            }
        }
        if !upcoming.is_empty() {
            // Fails only when the pacer has stopped, and then so do we.
            self.upcoming.send(upcoming).await.ok();
        }
    }
}
