//! Whether this instance closes what is its own.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::Instant};
use tracing::error;

use crate::{
    close::{Gate, Inbox, Outage, Reminder, Stats},
    store::{Store, StoreError},
    trigger::passes::Passes,
};

/// How long the database may take to answer the smallest of questions.
const ANSWER: Duration = Duration::from_millis(500);

/// What was answered within this is as good as new: shards of one database ask at about the same time.
const MOMENT: Duration = Duration::from_millis(250);

/// Orders that wait for so long while none is looked at are somebody else's to close.
const STUCK: Duration = Duration::from_millis(1_200);

/// How this instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Condition {
    /// It closes what is its own.
    pub(super) fit: bool,
    /// It has more to do than that, and gets on with it.
    pub(super) busy: bool,
}

/// Examines this instance before each heartbeat.
#[derive(Debug)]
pub(super) struct Fitness {
    pub(super) store: Arc<dyn Store>,
    pub(super) pulse: Arc<Pulse>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) stats: Arc<Stats>,
    pub(super) outage: Arc<Outage>,
    pub(super) gate: Arc<Gate>,
    pub(super) passes: Arc<Passes>,
    pub(super) progress: Progress,
    /// Nothing where another table says it.
    pub(super) silence: Option<Silence>,
}

impl Fitness {
    /// Asks the database, and looks at what was done since it was asked last.
    pub(super) async fn examine(&mut self) -> Condition {
        let fault = self.pulse.fault(self.store.as_ref()).await;
        // Whoever closes orders says it once there is one to be closed.
        let silence = self.silence.as_mut();
        let silent = silence.and_then(|silence| silence.lasts(fault.is_some() && !self.outage.lasts(), Instant::now()));
        if let (Some(since), Some(fault)) = (silent, &fault) {
            error!(since_s = since.as_secs(), reason = %fault, cure = fault.cure(), "the database does not answer; no order can be closed");
        }
        let answers = fault.is_none() && !self.outage.lasts();
        let counts = self.stats.counts();
        // Whoever may not close is as fit as all others.
        let stuck = self.progress.is_stuck(self.gate.is_open() && self.inbox.queued() > 0, counts.looks, Instant::now());
        // Those that met a lock are among what waits.
        let waiting = self.inbox.waiting() > 0;
        let closed_before = std::mem::replace(&mut self.progress.closed, counts.closed);
        // Perhaps another instance is answered that asks before closing.
        let fit = answers && !stuck && !self.passes.are_rejected() && !self.inbox.refuses_all() && !self.inbox.is_unanswered();
        Condition { fit, busy: waiting && counts.closed > closed_before }
    }
}

/// Whether a database answers, as one of those who ask has found last, for all of them.
#[derive(Debug, Default)]
pub struct Pulse(Mutex<Option<Answer>>);

/// When it was asked for, and what was wrong with it.
type Answer = (Instant, Option<StoreError>);

impl Pulse {
    /// What is wrong with the answer, which is at most a moment old.
    async fn fault(&self, store: &dyn Store) -> Option<StoreError> {
        let mut last = self.0.lock().await;
        if let Some((_, fault)) = last.as_ref().filter(|(at, _)| at.elapsed() < MOMENT) {
            return fault.clone();
        }
        let fault = match tokio::time::timeout(ANSWER, store.clock()).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error),
            Err(_) => Some(StoreError::Unavailable(format!("no answer within {}", humantime::format_duration(ANSWER)))),
        };
        *last = Some((Instant::now(), fault.clone()));
        fault
    }
}

/// How long the database has not answered while there was no order to be closed.
#[derive(Debug, Default)]
pub(super) struct Silence(Option<(Instant, Reminder)>);

impl Silence {
    /// For how long, each time that a minute of it has passed.
    fn lasts(&mut self, silent: bool, now: Instant) -> Option<Duration> {
        if !silent {
            self.0 = None;
            return None;
        }
        let (since, said) = self.0.get_or_insert((now, Reminder::said(now)));
        said.is_due(now).then(|| now - *since)
    }
}

/// What was done, as of the last examination.
#[derive(Debug, Default)]
pub(super) struct Progress {
    closed: u64,
    looks: u64,
    /// Since when orders wait and none is looked at.
    idle_since: Option<Instant>,
}

impl Progress {
    fn is_stuck(&mut self, waiting: bool, looks: u64, now: Instant) -> bool {
        let moves = std::mem::replace(&mut self.looks, looks) != looks;
        if moves || !waiting {
            self.idle_since = None;
            return false;
        }
        now - *self.idle_since.get_or_insert(now) >= STUCK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_and_looks_at_nothing_is_stuck() {
        let (mut progress, begin) = (Progress::default(), Instant::now());
        let mut at = |halves: u32, waiting, looks| progress.is_stuck(waiting, looks, begin + halves * Duration::from_millis(500));
        assert!(!at(0, true, 10));
        assert!(!at(1, true, 10), "it may have just begun");
        assert!(!at(2, true, 10));
        assert!(!at(3, true, 11), "it moves");
        assert!(!at(4, true, 11));
        assert!(!at(6, true, 11));
        assert!(at(7, true, 11));
        assert!(at(8, true, 11));
        assert!(!at(9, false, 11), "nothing waits");
        assert!(!at(10, true, 11));
        assert!(at(13, true, 11));
        assert!(!at(14, true, 12), "it moves again");
    }

    #[test]
    fn silence_is_worth_a_word_each_minute() {
        let (mut silence, begin) = (Silence::default(), Instant::now());
        let mut at = |second: u64, silent| silence.lasts(silent, begin + Duration::from_secs(second)).map(|since| since.as_secs());
        let said: Vec<u64> = (0..150).filter_map(|second| at(second, true)).collect();
        assert_eq!(said, [60, 120]);
        assert_eq!(at(150, false), None);
        assert_eq!((at(151, true), at(210, true), at(211, true)), (None, None, Some(60)), "it begins anew");
    }
}
