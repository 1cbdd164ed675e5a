//! One pass over what is overdue, by the daemon's own workers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use indicatif::ProgressBar;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::Arguments;
use crate::{
    cli::Failure,
    close::{Alone, Bounds, Clearance, Closer, Follow, Gate, Inbox, Offer, Outage, Stats, Worker},
    config::Config,
    order::{OrderId, Trigger},
    outbox::UNDONE,
    store::{DueQuery, Store, StoreError, Window},
    trigger::Pages,
    watchdog::Watchdog,
};

/// For how long orders that another transaction holds are tried again at the end, and how often they are asked after.
const HELD_PATIENCE: Duration = Duration::from_millis(1_500);
const HELD_POLL: Duration = Duration::from_millis(20);

/// For how long a database that is away is waited for; cron comes again.
const AWAY_PATIENCE: Duration = Duration::from_secs(5);

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_millis(100);

/// One pass while it runs.
pub(super) struct Pass {
    store: Arc<dyn Store>,
    pub(super) worker: Worker,
    workers: JoinSet<()>,
    pub(super) progress: ProgressBar,
    deadline: Option<Instant>,
    pub(super) overdue: u64,
    /// Orders that could not be closed, and why. An id that stands in two rows is found twice.
    pub(super) failed: BTreeMap<OrderId, String>,
    pub(super) out_of_time: bool,
    pub(super) paused: bool,
}

/// Why a wait has ended.
enum Waited {
    Enough,
    OutOfTime,
    Paused,
    Unavailable(StoreError),
}

impl Pass {
    pub(super) fn new(
        config: &Config,
        store: &Arc<dyn Store>,
        (inbox, stats, clearance): (Arc<Inbox>, Arc<Stats>, Arc<dyn Clearance>),
        (bounds, gate): (Arc<Bounds>, Arc<Gate>),
        progress: ProgressBar,
        deadline: Option<Instant>,
    ) -> Self {
        let worker = Worker {
            inbox,
            gate,
            clearance,
            closer: Closer::within(Arc::clone(store), bounds),
            batch_size: config.close.batch_size,
            share: Arc::new(Alone),
            later: mpsc::channel(1).0,
            closed: watch::Sender::new(()),
            stats,
            outage: Arc::new(Outage::new(Arc::clone(store))),
            rejections: Arc::default(),
            follow: Follow::Pass,
            stop: CancellationToken::new(),
        };
        let mut workers = JoinSet::new();
        worker.spawn(config.close.workers, &Watchdog::default(), &mut workers);
        Self {
            store: Arc::clone(store),
            worker,
            workers,
            progress,
            deadline,
            overdue: 0,
            failed: BTreeMap::new(),
            out_of_time: false,
            paused: false,
        }
    }

    /// Finds what is overdue, page by page, and lets it be closed.
    pub(super) async fn all(&mut self, page: u32, oldest: Option<Duration>, arguments: &Arguments) -> Result<(), Failure> {
        let inbox = Arc::clone(&self.worker.inbox);
        let store = Arc::clone(&self.store);
        let mut pages = Pages::of(store.as_ref(), Window::overdue(oldest), page);
        let mut ended = Waited::Enough;
        loop {
            let left = arguments.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.done(arguments.dry_run)));
            if left == 0 || self.is_late() || self.is_paused(arguments.dry_run) {
                break;
            }
            let limit = page.min(u32::try_from(left).unwrap_or(u32::MAX));
            pages.limit(limit);
            let Some(page) = pages.next().await? else { break };
            for row in page.rows.iter().filter(|row| row.is_overdue()) {
                self.overdue += 1;
                while !arguments.dry_run
                    && matches!(ended, Waited::Enough)
                    && inbox.offer_found(row, Trigger::Reconcile, page.asked) == Offer::Full
                {
                    ended = self.wait(inbox.space()).await;
                }
            }
            if arguments.dry_run {
                self.progress.set_position(self.overdue);
            } else if matches!(ended, Waited::Enough) {
                ended = match arguments.limit {
                    Some(_) => self.wait(inbox.idle()).await,
                    None => self.wait(inbox.fewer_than(limit as usize)).await,
                };
            }
            if pages.is_at_end() || !matches!(ended, Waited::Enough) {
                break;
            }
        }
        if matches!(ended, Waited::Enough) {
            ended = self.wait(inbox.idle()).await;
        }
        if matches!(ended, Waited::Enough) {
            let released = async {
                while inbox.held().is_some() {
                    tokio::time::sleep(HELD_POLL).await;
                }
            };
            ended = self.wait(async { drop(tokio::time::timeout(HELD_PATIENCE, released).await) }).await;
        }
        inbox.close();
        self.worker.stop.cancel();
        while self.workers.join_next().await.is_some() {}
        self.failed.extend(inbox.left().into_iter().map(|(id, reason, _)| (id, reason)));
        match ended {
            Waited::Enough => self.name_undone(oldest, page).await,
            Waited::OutOfTime | Waited::Paused => Ok(()),
            Waited::Unavailable(error) => Err(error.into()),
        }
    }

    /// Names orders that are unpaid again though this pass has closed them; they were due before all others.
    async fn name_undone(&mut self, oldest: Option<Duration>, limit: u32) -> Result<(), Failure> {
        if self.worker.stats.closed() == 0 {
            return Ok(());
        }
        let page = self.store.due(&DueQuery::of(Window::overdue(oldest), limit)).await?;
        let undone = self.worker.closer.undone(page.rows.iter().filter_map(|row| Some((&row.id, row.deadline?))));
        self.failed.extend(undone.into_iter().map(|id| (id, UNDONE.to_owned())));
        Ok(())
    }

    /// How many orders count towards `--limit`.
    fn done(&self, dry_run: bool) -> u64 {
        if dry_run { self.overdue } else { self.worker.stats.closed() }
    }

    /// Waits, but not beyond `--max-duration`, nor for a database that stays away.
    async fn wait(&mut self, enough: impl Future<Output = ()>) -> Waited {
        let late = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let shown = async {
            loop {
                self.progress.set_position(self.worker.stats.closed());
                tokio::time::sleep(PROGRESS).await;
            }
        };
        let waited = tokio::select! {
            biased;
            () = enough => Waited::Enough,
            () = late => Waited::OutOfTime,
            () = self.worker.gate.shut() => Waited::Paused,
            error = self.worker.outage.lasts_for(AWAY_PATIENCE) => Waited::Unavailable(error),
            () = shown => Waited::Enough,
        };
        self.out_of_time |= matches!(waited, Waited::OutOfTime);
        self.paused |= matches!(waited, Waited::Paused);
        waited
    }

    fn is_paused(&mut self, dry_run: bool) -> bool {
        self.paused |= !dry_run && self.worker.gate.is_shut();
        self.paused
    }

    fn is_late(&mut self) -> bool {
        self.out_of_time |= self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        self.out_of_time
    }
}
