//! What keeps an order from closing though its row calls it due.
//!
//! - The database's clock has jumped: what is due only by the jump waits. This host's steady clock knows how much time has
//!   passed, so what the other may show is known to a few milliseconds, once it has been read.
//! - The order has been overdue for so long that its mapping is more likely to be wrong than the daemon to have slept, unless
//!   somebody asks for it by name.
//!
//! - Somebody was to be asked about it, and was not, or about another deadline.
//!
//! All are judged by the row that the closing transaction has read, so whatever brought the order passes here.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    close::Pending,
    order::{Row, Trigger, Verdict, judge},
};

/// A clock that is ahead of what it can show by more than this has jumped.
pub const JUMP: Duration = Duration::from_secs(5);

/// Steady clocks differ by no more than one part in so many.
const DRIFT: i64 = 1_000;

/// The bounds of one table's closures.
#[derive(Debug, Default)]
pub struct Bounds {
    oldest: Mutex<Option<Duration>>,
    clock: Mutex<Option<Known>>,
}

/// By how many microseconds the database's clock is ahead of this host's, which began with `start`: an answer tells that the
/// clock showed something between the question and the answer, and no more.
#[derive(Debug, Clone, Copy)]
struct Known {
    start: Instant,
    at: Instant,
    least: i64,
    most: i64,
    jumped: Option<Duration>,
}

impl Known {
    /// What the database's clock may show at the most.
    fn most(self, now: Instant) -> i64 {
        self.most + micros(self.start, now) + micros(self.at, now) / DRIFT
    }

    /// What it shows at the least, unless it was set back.
    fn least(self, now: Instant) -> i64 {
        self.least + micros(self.start, now) - micros(self.at, now) / DRIFT
    }
}

impl Bounds {
    /// Leaves alone what has been overdue for longer than that.
    #[must_use]
    pub fn new(oldest: Option<Duration>) -> Self {
        Self { oldest: Mutex::new(oldest), clock: Mutex::default() }
    }

    /// Leaves alone what has been overdue for longer than that, from now on.
    pub fn set_oldest(&self, oldest: Option<Duration>) {
        *self.oldest.lock().unwrap_or_else(PoisonError::into_inner) = oldest;
    }

    /// What has been overdue for longer is left alone.
    #[must_use]
    pub fn oldest(&self) -> Option<Duration> {
        *self.oldest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges a row that was read after `asked`.
    pub(super) fn judge(&self, unpaid: &[String], pending: &Pending, row: Option<&Row>, asked: Instant) -> Verdict {
        let verdict = self.judge_row(unpaid, pending.trigger, row, asked);
        if verdict.is_close() && !pending.may.close(row.and_then(|row| row.deadline), asked) {
            return Verdict::Unasked;
        }
        verdict
    }

    /// Judges a row that was read after `asked`, whether or not somebody is to be asked about its order.
    pub fn judge_row(&self, unpaid: &[String], trigger: Trigger, row: Option<&Row>, asked: Instant) -> Verdict {
        let Some(row) = row else { return judge(unpaid, None) };
        let counted = self.counted(row.now, asked);
        let verdict = if counted == row.now { judge(unpaid, Some(row)) } else { judge(unpaid, Some(&Row { now: counted, ..row.clone() })) };
        if let Verdict::Close { overdue } = verdict
            && self.oldest().is_some_and(|oldest| overdue > oldest)
            && !is_by_name(trigger)
        {
            return Verdict::NotDue { remaining: None };
        }
        verdict
    }

    /// Takes in that the database's clock showed `now` after `asked`, and returns the time that counts: the same, unless the
    /// clock has jumped.
    pub fn counted(&self, now: i64, asked: Instant) -> i64 {
        let answered = Instant::now();
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = clock.as_mut() else {
            *clock = Some(Known { start: asked, at: answered, least: now - micros(asked, answered), most: now, jumped: None });
            return now;
        };
        let most = known.most(answered);
        let beyond = now.saturating_sub(most);
        let jump = Duration::from_micros(u64::try_from(beyond).unwrap_or_default());
        if jump > JUMP {
            known.jumped = Some(jump);
            // Not what it may show at the most: an order would be early by as much as an answer took.
            return known.least(answered);
        }
        let start = known.start;
        let (asked_at, answered_at) = (micros(start, asked), micros(start, answered));
        let most = (now - asked_at).min(known.most(answered) - answered_at);
        let least = now - answered_at;
        let before = known.least(answered) - answered_at;
        // What was known to be more, unless the clock was set back since.
        let least = if before <= most { least.max(before) } else { least };
        *known = Known { start, at: answered, least, most, jumped: None };
        now
    }

    /// By how much the database's clock is ahead of what it can show, as of its last reading.
    pub fn jumped(&self) -> Option<Duration> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner).and_then(|known| known.jumped)
    }

    /// Whether the database's clock has been read.
    #[cfg(test)]
    pub(crate) fn know_the_clock(&self) -> bool {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The database's clock is right as it is.
    pub fn accept_clock(&self) {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The database's clock can show no more than this, at this moment: another clock says so.
    pub fn distrust_clock(&self, most: i64, at: Instant) {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = Some(Known { start: at, at, least: most, most, jumped: None });
    }
}

/// Whether somebody has asked for the order, or for all orders of its age.
fn is_by_name(trigger: Trigger) -> bool {
    matches!(trigger, Trigger::Request | Trigger::Reconcile)
}

/// Microseconds from one instant to another, negative if that was before.
fn micros(start: Instant, end: Instant) -> i64 {
    let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    match end.checked_duration_since(start) {
        Some(after) => micros(after),
        None => -micros(start.duration_since(end)),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::close::clearance::{May, Permit};
    use crate::order::OrderId;

    const SECOND: i64 = 1_000_000;
    const START: i64 = 1_700_000_000 * SECOND;

    fn due(bounds: &Bounds, trigger: Trigger, deadline: i64, now: i64) -> Verdict {
        let id = OrderId::from_database("1");
        let row = Row { id: id.clone(), status: Some("0".into()), deadline: Some(deadline), now, locked: true };
        bounds.judge_row(&["0".into()], trigger, Some(&row), Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_closes_but_for_the_deadline_about_which_somebody_was_asked() {
        let now = Instant::now();
        let id = OrderId::from_database("1");
        let row = Row { id: id.clone(), status: Some("0".into()), deadline: Some(START - 7), now: START, locked: true };
        let permit = Permit { deadline: START - 7, until: now + Duration::from_secs(5), asked_at: None, answer: "close" };
        let closes = |may, after| {
            let pending = Pending { may, ..Pending::new(id.clone(), Trigger::Sweep) };
            Bounds::default().judge(&["0".into()], &pending, Some(&row), now + Duration::from_secs(after)).is_close()
        };
        assert!(closes(May::Close, 9) && closes(May::CloseUnasked, 9) && !closes(May::Look, 0));
        assert!(closes(May::CloseFor(permit), 4) && !closes(May::CloseFor(permit), 5), "for a while");
        assert!(!closes(May::CloseFor(Permit { deadline: START - 8, ..permit }), 0), "another deadline");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_only_by_a_jump_waits_until_the_clock_is_back() {
        let bounds = Bounds::default();
        assert!(due(&bounds, Trigger::Sweep, START - 1, START).is_close());
        advance(Duration::from_secs(10)).await;
        let now = START + 10 * SECOND;
        let hour = 3_600 * SECOND;
        for trigger in Trigger::ALL {
            assert!(due(&bounds, trigger, now - SECOND, now + hour).is_close(), "due without the jump");
            let Verdict::NotDue { remaining: Some(remaining) } = due(&bounds, trigger, now + 60 * SECOND, now + hour) else {
                panic!("due only by the jump");
            };
            assert!(remaining.abs_diff(Duration::from_secs(60)) < Duration::from_millis(100), "{remaining:?}");
        }
        assert!(bounds.jumped().is_some_and(|by| by.as_secs() == 3_599 || by.as_secs() == 3_600), "{:?}", bounds.jumped());
        advance(Duration::from_millis(60_100)).await;
        assert!(due(&bounds, Trigger::Sweep, now + 60 * SECOND, now + 60 * SECOND + hour).is_close(), "its time has come");
        assert!(due(&bounds, Trigger::Sweep, now + 60 * SECOND, now + 60 * SECOND).is_close());
        assert_eq!(bounds.jumped(), None, "the clock is back");
    }

    /// An answer that took long says little: what it leaves open is not taken for time that has passed.
    #[tokio::test(start_paused = true)]
    async fn a_jump_makes_nothing_early_by_what_an_answer_took() {
        let (bounds, asked) = (Bounds::default(), Instant::now());
        advance(Duration::from_millis(1_500)).await;
        // Read at the very end of these one and a half seconds.
        bounds.counted(START, asked);
        for later in [10, 1_000, 1_990] {
            advance(Duration::from_millis(later) - (Instant::now() - asked).saturating_sub(Duration::from_millis(1_500))).await;
            let passed = i64::try_from(later).expect("short") * 1_000;
            let jumped = START + passed + 3_600 * SECOND;
            let due = |deadline| due(&bounds, Trigger::Sweep, deadline, jumped).is_close();
            assert!(!due(START + passed + 1_000), "{later} ms: early");
            assert!(due(START + passed - 1_502_000), "{later} ms: late");
        }
        // A quick answer narrows it down, and so does none that takes long again.
        let (asked, passed) = (Instant::now(), 1_990_000);
        bounds.counted(START + passed, asked);
        advance(Duration::from_secs(1)).await;
        bounds.counted(START + passed, asked);
        assert!(due(&bounds, Trigger::Sweep, START + passed + 990_000, START + 3_600 * SECOND).is_close());
        assert!(!due(&bounds, Trigger::Sweep, START + passed + 1_001_000, START + 3_600 * SECOND).is_close());
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_that_is_accepted_is_none() {
        let bounds = Bounds::default();
        bounds.counted(START, Instant::now());
        assert!(!due(&bounds, Trigger::Expired, START + 10 * SECOND, START + 20 * SECOND).is_close());
        bounds.accept_clock();
        assert!(due(&bounds, Trigger::Expired, START + 10 * SECOND, START + 20 * SECOND).is_close());
        assert_eq!(bounds.jumped(), None);
    }

    /// Clocks that drift, answers that are late, steps within the limit: no jump. A clock that is set back closes nothing early.
    #[tokio::test(start_paused = true)]
    async fn what_clocks_do_otherwise_is_no_jump() {
        let (bounds, start) = (Bounds::default(), Instant::now());
        for round in 0..2_000 {
            let asked = Instant::now();
            let shown = START + micros(start, asked) + micros(start, asked) / 5_000 + (round % 7) * 100_000;
            advance(Duration::from_millis(if round % 50 == 0 { 9_000 } else { 3 })).await;
            assert_eq!(bounds.counted(shown, asked), shown, "round {round}");
            advance(Duration::from_millis(900)).await;
        }
        let now = START + micros(start, Instant::now());
        assert_eq!(bounds.counted(now - 3_600 * SECOND, Instant::now()), now - 3_600 * SECOND);
        assert_eq!(bounds.jumped(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_old_closes_for_whoever_names_it() {
        let day = 86_400 * SECOND;
        let bounds = Bounds::new(Some(Duration::from_secs(30 * 86_400)));
        for trigger in [Trigger::Expired, Trigger::Pacer, Trigger::Sweep] {
            assert!(due(&bounds, trigger, START - 29 * day, START).is_close());
            assert_eq!(due(&bounds, trigger, START - 31 * day, START), Verdict::NotDue { remaining: None });
        }
        for trigger in [Trigger::Request, Trigger::Reconcile] {
            assert!(due(&bounds, trigger, START - 31 * day, START).is_close());
        }
        assert!(due(&Bounds::default(), Trigger::Sweep, START - 9_999 * day, START).is_close());
    }
}
