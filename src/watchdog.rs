//! Whether every loop of the daemon still turns.
//!
//! A loop tells by itself: whenever one of its statements has ended, well or not, and each second while it has nothing to do
//! ([`waiting`]). When all have turned the watchdog is fed, and the next round begins. So it is fed by the last of them, by no
//! timer: while one loop hangs it is not fed, however busy the others are.
//!
//! What a loop waits for beyond that, such as a database's answer, has a limit of its own; its end is a turn.

use std::{
    fmt,
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// How often a loop turns that has nothing to do.
const IDLE: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// The loop that runs in this task.
    static LOOP: Loop;
}

/// This loop has made progress.
pub fn turned() {
    LOOP.try_with(Loop::turned).ok();
}

/// Waits for something that may never come, and turns meanwhile.
pub async fn waiting<T>(wait: impl Future<Output = T>) -> T {
    if LOOP.try_with(|_| ()).is_err() {
        return wait.await;
    }
    let mut wait = pin!(wait);
    loop {
        turned();
        if let Ok(done) = tokio::time::timeout(IDLE, &mut wait).await {
            turned();
            return done;
        }
    }
}

/// Watches loops, if somebody wants to know.
#[derive(Debug, Clone, Default)]
pub struct Watchdog(Option<Arc<Watched>>);

impl Watchdog {
    /// A watchdog, and what feeds it. Must not block: a loop calls it.
    #[must_use]
    pub fn new(feed: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(Watched { round: Mutex::default(), feed: Box::new(feed) })))
    }

    /// Watches this loop from now on until it ends.
    pub fn watch<F: Future>(&self, name: &'static str, run: F) -> impl Future<Output = F::Output> + use<F> {
        let watched = self.0.as_ref().map(|watched| watched.begin(name));
        async move {
            match watched {
                Some(watched) => LOOP.scope(watched, run).await,
                None => run.await,
            }
        }
    }

    /// The loops that have not turned since the watchdog was fed.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let Some(watched) = &self.0 else { return Vec::new() };
        watched.round().iter().filter(|seat| !seat.turned.load(Ordering::Acquire)).map(|seat| seat.name).collect()
    }
}

/// The loops, and whether they have turned in this round.
struct Watched {
    round: Mutex<Vec<Arc<Seat>>>,
    feed: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug)]
struct Seat {
    name: &'static str,
    turned: AtomicBool,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("round", &self.round).finish_non_exhaustive()
    }
}

impl Watched {
    fn begin(self: &Arc<Self>, name: &'static str) -> Loop {
        let seat = Arc::new(Seat { name, turned: AtomicBool::new(false) });
        self.round().push(Arc::clone(&seat));
        Loop { seat, watched: Arc::clone(self) }
    }

    /// Feeds the watchdog when all have turned, and begins the next round.
    fn end_round(&self, round: &[Arc<Seat>]) {
        if !round.is_empty() && round.iter().all(|seat| seat.turned.load(Ordering::Acquire)) {
            round.iter().for_each(|seat| seat.turned.store(false, Ordering::Release));
            (self.feed)();
        }
    }

    fn round(&self) -> MutexGuard<'_, Vec<Arc<Seat>>> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One loop that is watched.
#[derive(Debug)]
struct Loop {
    seat: Arc<Seat>,
    watched: Arc<Watched>,
}

impl Loop {
    fn turned(&self) {
        // Once in a round is enough.
        if !self.seat.turned.load(Ordering::Acquire) {
            let round = self.watched.round();
            self.seat.turned.store(true, Ordering::Release);
            self.watched.end_round(&round);
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let mut round = self.watched.round();
        round.retain(|seat| !Arc::ptr_eq(seat, &self.seat));
        self.watched.end_round(&round);
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::atomic::AtomicU32};

    use tokio::{sync::Notify, time::sleep};

    use super::*;

    fn counted() -> (Watchdog, Arc<AtomicU32>) {
        let fed = Arc::new(AtomicU32::new(0));
        let feed = Arc::clone(&fed);
        let feed = move || {
            feed.fetch_add(1, Ordering::Relaxed);
        };
        (Watchdog::new(feed), fed)
    }

    /// How often it is fed in a minute.
    async fn in_a_minute(fed: &AtomicU32) -> u32 {
        let before = fed.load(Ordering::Relaxed);
        sleep(Duration::from_mins(1)).await;
        fed.load(Ordering::Relaxed) - before
    }

    async fn busy() {
        loop {
            sleep(Duration::from_millis(10)).await;
            turned();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_fed_while_all_loops_turn_also_those_with_nothing_to_do() {
        let (watchdog, fed) = counted();
        tokio::spawn(watchdog.watch("idle", waiting(pending::<()>())));
        tokio::spawn(watchdog.watch("busy", busy()));
        assert!((50..=65).contains(&in_a_minute(&fed).await));
        assert_eq!(Watchdog::default().missing(), Vec::<&str>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn it_starves_while_one_loop_hangs_and_is_fed_again_when_that_goes_on() {
        let (watchdog, fed) = counted();
        let hangs = Arc::new(Notify::new());
        let until = Arc::clone(&hangs);
        tokio::spawn(watchdog.watch("hanging", async move {
            waiting(sleep(Duration::from_secs(30))).await;
            until.notified().await;
            waiting(pending::<()>()).await;
        }));
        tokio::spawn(watchdog.watch("idle", waiting(pending::<()>())));
        tokio::spawn(watchdog.watch("busy", busy()));
        assert!((20..=35).contains(&in_a_minute(&fed).await), "fed until it hangs");
        assert_eq!(in_a_minute(&fed).await, 0);
        assert_eq!(watchdog.missing(), ["hanging"]);
        hangs.notify_one();
        assert!(in_a_minute(&fed).await >= 50);
    }

    /// Statements that take long, each of which ends: errors are ends, too.
    #[tokio::test(start_paused = true)]
    async fn each_end_of_a_long_wait_is_progress() {
        let (watchdog, fed) = counted();
        tokio::spawn(watchdog.watch("slow", async {
            loop {
                sleep(Duration::from_secs(10)).await;
                turned();
            }
        }));
        tokio::spawn(watchdog.watch("idle", waiting(pending::<()>())));
        assert!((5..=6).contains(&in_a_minute(&fed).await));
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_has_ended_or_was_cut_off_is_not_missed_and_without_any_it_is_not_fed() {
        let (watchdog, fed) = counted();
        let cut_off = tokio::spawn(watchdog.watch("cut off", pending::<()>()));
        let idle = tokio::spawn(watchdog.watch("idle", waiting(pending::<()>())));
        watchdog.watch("short", async {}).await;
        assert_eq!(in_a_minute(&fed).await, 0);
        cut_off.abort();
        assert!(in_a_minute(&fed).await >= 50);
        idle.abort();
        assert!(idle.await.is_err());
        assert_eq!(in_a_minute(&fed).await, 0);
    }
}
