//! Reads whether closing is paused, again and again, and opens or shuts the gate.
//!
//! Before the first answer the gate is shut; while there is none, the last one counts. Where our tables can't hold a pause it is open until
//! they are made or upgraded: whoever wants a pause makes them just then, and the daemons run.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::{
    close::{Gate, Passage, Reminder},
    metric,
    outbox::{LatestPauses, Pause},
    store::{Outbox, Store, StoreError},
};

/// How often; every daemon honours a pause within a second.
const EVERY: Duration = Duration::from_millis(400);

/// How often it is asked whether there are tables now; pauses are read at once then.
const LOOKING: Duration = Duration::from_millis(800);

/// Reads pauses.
#[derive(Debug)]
pub struct PauseWatch {
    /// Whose pauses.
    pub store: Arc<dyn Store>,
    /// What is opened and shut.
    pub gate: Arc<Gate>,
    /// When to stop.
    pub stop: CancellationToken,
    /// What other rules of the table have read.
    latest: Arc<LatestPauses>,
    /// Our tables, once they hold pauses.
    tables: OnceLock<Outbox>,
    /// Whether pauses have been read.
    known: AtomicBool,
    /// When it was said that they can't be.
    denied: Mutex<Reminder>,
}

impl PauseWatch {
    /// A gate, and whoever opens and shuts it: open at first where our tables can't hold a pause.
    #[must_use]
    pub fn of(store: &Arc<dyn Store>, stop: &CancellationToken) -> Self {
        let passage = if store.outbox().has_pauses() { Passage::Shut(None) } else { Passage::Open };
        Self {
            store: Arc::clone(store),
            gate: Arc::new(Gate::new(passage)),
            stop: stop.clone(),
            latest: Arc::default(),
            tables: OnceLock::new(),
            known: AtomicBool::new(false),
            denied: Mutex::default(),
        }
    }

    /// The same beside other rules of this table, which read for each other.
    #[must_use]
    pub fn beside(self, latest: &Arc<LatestPauses>) -> Self {
        Self { latest: Arc::clone(latest), ..self }
    }

    /// Reads again and again.
    pub async fn run(self) {
        self.stop.run_until_cancelled(self.read_again_and_again()).await;
    }

    async fn read_again_and_again(&self) {
        let mut known: Option<Pause> = None;
        loop {
            match self.read().await {
                Ok(pause) => {
                    say(known.as_ref(), pause.as_ref());
                    known = pause;
                }
                // Whoever closes orders says that the database is away.
                Err(error) => debug!(%error, "whether closing is paused could not be read, and is as it was"),
            }
            tokio::time::sleep(if self.tables.get().is_some() { EVERY } else { LOOKING }).await;
        }
    }

    /// Reads once, and opens or shuts the gate. Where the database has refused that from the start, it is open: orders close as
    /// they did before there were pauses.
    ///
    /// # Errors
    /// As the database says, sorted; the gate is as it was.
    pub async fn read(&self) -> Result<Option<Pause>, StoreError> {
        let Some(tables) = self.tables().await? else { return Ok(None) };
        let pause = match tables.latest_pause_of_rule(&self.latest).await {
            Err(StoreError::Rejected(reason)) => {
                if !self.known.load(Ordering::Acquire) {
                    self.gate.set(Passage::Open);
                }
                if self.denied.lock().unwrap_or_else(PoisonError::into_inner).is_due(Instant::now()) {
                    let cure = "grant this user SELECT on order_closer_pauses; `order-closer check` prints the statement";
                    error!(reason, cure, "whether closing is paused can't be read, and no other pause is honoured");
                }
                return Ok(None);
            }
            pause => pause?,
        };
        self.known.store(true, Ordering::Release);
        let passage = match &pause {
            None => Passage::Open,
            Some(Pause { rate: Some(rate), .. }) => Passage::Rate(*rate),
            Some(Pause { left, .. }) => Passage::Shut(left.and_then(|left| Instant::now().checked_add(left))),
        };
        self.gate.set(passage);
        metric::PAUSED.set(f64::from(u8::from(self.gate.is_shut())), &[self.store.rule().label()]);
        Ok(pause)
    }

    /// Our tables, if they hold pauses by now.
    async fn tables(&self) -> Result<Option<&Outbox>, StoreError> {
        if let Some(known) = self.tables.get() {
            return Ok(Some(known));
        }
        let opened = self.store.outbox();
        if opened.has_pauses() {
            return Ok(Some(self.tables.get_or_init(|| opened.clone())));
        }
        let now = match opened.by_now().await {
            Ok(now) => now,
            // They are there, and not for this user.
            Err(StoreError::Rejected(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        if !now.has_pauses() {
            return Ok(None);
        }
        info!("the tables order_closer_* are there now: pauses are honoured at once, and all else that needs them after a restart");
        Ok(Some(self.tables.get_or_init(|| now)))
    }
}

/// Says what is new.
fn say(before: Option<&Pause>, pause: Option<&Pause>) {
    let same = |one: &Pause, other: &Pause| (one.since, one.rate, &one.rule) == (other.since, other.rate, &other.rule);
    match (before, pause) {
        (Some(before), Some(pause)) if same(before, pause) => {}
        (_, Some(Pause { reason, who, left, rate: None, .. })) => {
            let for_s = left.map(|left| left.as_secs());
            warn!(reason, who, for_s, "closing is paused; `order-closer resume` ends that");
        }
        (_, Some(Pause { reason, who, rate: Some(rate), .. })) => {
            info!(reason, who, per_second = rate, "closing goes on, but only so many orders a second");
        }
        (Some(_), None) => info!("closing goes on"),
        (None, None) => {}
    }
}
