//! The gate before every transaction and every question: open, shut while somebody has paused closing, or open for so many
//! orders a second.
//!
//! What was taken from the inbox before waits here in hand, and is judged by its row when the gate opens.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// Who may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// All.
    Open,
    /// So many a second.
    Rate(u32),
    /// Nobody; until then, if that is known.
    Shut(Option<Instant>),
}

/// The gate.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<State>,
    /// Wakes those who wait for a change, in the order in which they came.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    passage: Passage,
    /// From when on the next order may pass, at a rate.
    next: Option<Instant>,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new(Passage::Open)
    }
}

impl Gate {
    /// A gate.
    #[must_use]
    pub fn new(passage: Passage) -> Self {
        Self { state: Mutex::new(State { passage, next: None }), changed: Notify::new() }
    }

    /// Opens or shuts it; returns whether that is a change.
    pub fn set(&self, passage: Passage) -> bool {
        let mut state = self.lock();
        if state.passage == passage {
            return false;
        }
        // What a slower rate has put off is not for a faster one to wait for.
        *state = State { passage, next: None };
        drop(state);
        self.changed.notify_waiters();
        true
    }

    /// Whether all may pass.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.is_shut() && !matches!(self.lock().passage, Passage::Rate(_))
    }

    /// How many orders may pass together of so many: at a rate those of a tenth of a second, so that what falls due
    /// meanwhile waits for no more.
    #[must_use]
    pub fn most(&self, orders: usize) -> usize {
        match self.lock().passage {
            Passage::Rate(rate) => orders.min(usize::try_from(rate / 10).unwrap_or(usize::MAX)).max(1),
            Passage::Open | Passage::Shut(_) => orders,
        }
    }

    /// Whether nobody may pass.
    #[must_use]
    pub fn is_shut(&self) -> bool {
        matches!(self.lock().passage, Passage::Shut(until) if until.is_none_or(|until| Instant::now() < until))
    }

    /// Waits until it is shut.
    pub async fn shut(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_shut() {
                return;
            }
            changed.await;
        }
    }

    /// Waits until so many orders may pass; whether it had to wait.
    pub async fn pass(&self, orders: usize) -> bool {
        let mut waited = false;
        loop {
            let changed = self.changed.notified();
            let passage = self.lock().passage;
            let until = match passage {
                Passage::Open => return waited,
                Passage::Rate(rate) => match self.take(orders, rate) {
                    None => return waited,
                    Some(at) => Some(at),
                },
                Passage::Shut(Some(until)) if until <= Instant::now() => return waited,
                Passage::Shut(until) => until,
            };
            waited = true;
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until(until) => {}
            }
        }
    }

    /// So many of those that have passed had no business behind it yet: somebody is to be asked about them first.
    pub fn turn_back(&self, orders: usize) {
        if let State { passage: Passage::Rate(rate), next: Some(next) } = &mut *self.lock() {
            *next -= time_of(orders, *rate);
        }
    }

    /// Takes the time of so many orders, or says from when on it can be had.
    fn take(&self, orders: usize, rate: u32) -> Option<Instant> {
        let mut state = self.lock();
        let now = Instant::now();
        match state.next {
            Some(at) if now < at => Some(at),
            Some(_) | None => {
                state.next = Some(now + time_of(orders, rate));
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time of so many orders, of which so many pass in a second.
fn time_of(orders: usize, rate: u32) -> Duration {
    Duration::from_secs_f64(orders as f64 / f64::from(rate))
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_shut_for_so_long_and_no_longer() {
        let began = Instant::now();
        let gate = Gate::new(Passage::Shut(Some(began + Duration::from_secs(60))));
        assert!(gate.is_shut());
        assert!(gate.pass(1).await, "it had to wait");
        assert_eq!(began.elapsed(), Duration::from_secs(60));
        assert!(!gate.is_shut());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_passes_when_it_is_opened() {
        let gate = std::sync::Arc::new(Gate::new(Passage::Shut(None)));
        let waiting = tokio::spawn({
            let gate = std::sync::Arc::clone(&gate);
            async move { gate.pass(10).await }
        });
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert!(!waiting.is_finished());
        assert!(gate.set(Passage::Open));
        assert!(!gate.set(Passage::Open), "no news");
        waiting.await.expect("it passes");
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_pass_in_a_second() {
        let gate = Gate::new(Passage::Rate(100));
        let began = Instant::now();
        for _ in 0..11 {
            gate.pass(50).await;
        }
        assert_eq!(began.elapsed(), Duration::from_secs(5), "500 orders have passed before the last 50");
        assert_eq!((gate.most(500), gate.most(3)), (10, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_are_turned_back_take_no_time() {
        let gate = Gate::new(Passage::Rate(100));
        let began = Instant::now();
        gate.pass(50).await;
        gate.turn_back(40);
        gate.pass(50).await;
        assert_eq!(began.elapsed(), Duration::from_millis(100), "ten have passed before");
    }

    #[tokio::test(start_paused = true)]
    async fn a_faster_rate_waits_for_nothing_that_a_slower_one_has_put_off() {
        let gate = Gate::new(Passage::Rate(1));
        gate.pass(500).await;
        gate.set(Passage::Rate(100));
        let began = Instant::now();
        assert!(!gate.pass(1).await);
        assert_eq!((began.elapsed(), gate.most(500)), (Duration::ZERO, 10));
    }
}
