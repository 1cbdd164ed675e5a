//! While the database can't be used: said at once and each minute, probed by one, and over for all at the first success of anybody.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::{Mutex as Turn, Notify},
    time::Instant,
};
use tracing::{error, info, warn};

use crate::{
    close::reminder::Reminder,
    store::{Store, StoreError},
    watchdog,
};

/// The pause between two probes, where they end at once; of shards there are many that probe one database.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_OF_SHARDS: Duration = Duration::from_millis(100);

/// How long after another a probe begins that hangs, as all do where the way is lost: the first that begins when it is there again
/// says so, however long the others still wait.
const NEXT: Duration = Duration::from_millis(200);

/// Whether the database can be used, as far as is known.
#[derive(Debug)]
pub struct Outage {
    store: Arc<dyn Store>,
    /// Cheap to ask after each success.
    lasts: AtomicBool,
    known: Mutex<Option<Known>>,
    prober: Turn<()>,
    /// Wakes those who wait when the database may be there again.
    over: Notify,
}

/// What is known of an outage.
#[derive(Debug)]
struct Known {
    since: Instant,
    fault: StoreError,
    said: Reminder,
}

impl Outage {
    /// No outage of this store's database is known yet.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, lasts: AtomicBool::new(false), known: Mutex::default(), prober: Turn::default(), over: Notify::new() }
    }

    /// Whether the database can't be used, as far as is known.
    #[must_use]
    pub fn lasts(&self) -> bool {
        self.lasts.load(Ordering::Acquire)
    }

    /// Waits until the database answers again, after `orders` could not be looked at because of this fault.
    pub async fn sit_out(&self, orders: usize, fault: &StoreError) {
        self.begin(orders, fault);
        let over = self.over.notified();
        tokio::select! {
            biased;
            () = watchdog::waiting(over) => {}
            _turn = self.prober.lock() => {
                let pause = if self.store.rule().shard().is_some() { PAUSE_OF_SHARDS } else { PAUSE };
                until_answered(pause, || self.store.reach(), |fault| self.begin(orders, &fault)).await;
                self.over.notify_waiters();
            }
        }
    }

    /// Says it at once, and each minute again.
    fn begin(&self, orders: usize, fault: &StoreError) {
        let now = Instant::now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever has stopped it has said so.
        let halted = self.store.halted().borrow().is_some();
        if let Some(Known { since, fault: before, said }) = &mut *known {
            before.clone_from(fault);
            if !halted && said.is_due(now) {
                error!(since_s = (now - *since).as_secs(), reason = %fault, cure = fault.cure(), "no order can be closed");
            }
            return;
        }
        *known = Some(Known { since: now, fault: fault.clone(), said: Reminder::said(now) });
        self.lasts.store(true, Ordering::Release);
        if halted {
        } else if let StoreError::Refused { cure, .. } = fault {
            error!(orders, reason = %fault, cure, "the database refuses this daemon; no order can be closed until that is mended");
        } else if matches!(fault, StoreError::Rejected(_)) {
            error!(orders, reason = %fault, "the orders table no longer fits the configuration; no order can be closed until that is mended");
        } else {
            warn!(orders, reason = %fault, "database unavailable; waiting for it");
        }
    }

    /// A transaction has ended as it should. Returns whether that ends an outage.
    pub fn succeeded(&self) -> bool {
        if !self.lasts.swap(false, Ordering::AcqRel) {
            return false;
        }
        self.known.lock().unwrap_or_else(PoisonError::into_inner).take();
        info!("database available again");
        self.over.notify_waiters();
        true
    }

    /// Waits until an outage has lasted so long, and returns what the database says.
    pub async fn lasts_for(&self, limit: Duration) -> StoreError {
        loop {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|known| (known.since, known.fault.clone()));
            match known {
                Some((since, fault)) if since.elapsed() >= limit => return fault,
                Some((since, _)) => tokio::time::sleep_until(since + limit).await,
                None => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

/// Probes until one ends well; says how others fail.
async fn until_answered<P: Future<Output = Result<(), StoreError>>>(pause: Duration, probe: impl Fn() -> P, failed: impl Fn(StoreError)) {
    let mut probes = FuturesUnordered::new();
    let mut next = Instant::now() + pause;
    loop {
        tokio::select! {
            biased;
            Some(ended) = probes.next() => match ended {
                Ok(()) => return,
                Err(fault) => {
                    failed(fault);
                    watchdog::turned();
                    if probes.is_empty() {
                        next = next.min(Instant::now() + pause);
                    }
                }
            },
            () = tokio::time::sleep_until(next) => {
                probes.push(probe());
                next = Instant::now() + NEXT;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A probe that begins before the way is there again hangs for a second.
    #[tokio::test(start_paused = true)]
    async fn the_way_is_found_soon_after_it_is_there_again() {
        for lost_for in [1_000, 1_050, 1_100, 1_500, 7_777, 8_000].map(Duration::from_millis) {
            let (back, begun) = (Instant::now() + lost_for, std::cell::Cell::new(0));
            let probe = || async {
                begun.set(begun.get() + 1);
                if Instant::now() >= back {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                Err(StoreError::Unavailable("no answer".into()))
            };
            until_answered(PAUSE, probe, |_| {}).await;
            assert!(Instant::now() - back <= NEXT, "{:?} after {lost_for:?}", Instant::now() - back);
            assert!(begun.get() <= lost_for.as_millis() / 100 + 1, "{} probes in {lost_for:?}", begun.get());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_at_once_is_tried_again_after_a_pause() {
        let (began, failures) = (Instant::now(), std::cell::Cell::new(0));
        let probe =
            || async { if began.elapsed() >= Duration::from_secs(1) { Ok(()) } else { Err(StoreError::Unavailable("refused".into())) } };
        until_answered(PAUSE, probe, |_| failures.set(failures.get() + 1)).await;
        assert_eq!((failures.get(), began.elapsed()), (19, Duration::from_secs(1)));
    }
}
