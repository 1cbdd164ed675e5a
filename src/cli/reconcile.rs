//! `order-closer reconcile`: one pass over what is overdue, for cron.
//!
//! Reads the same pages as the daemon's sweep and closes them in the same transactions, so it may run
//! beside any number of daemons and of its own kind. Orders that somebody has locked are looked at again
//! at the end.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::{
    app::open_and_rehearse,
    cli::{Exit, Failure, Outcome, complain, print},
    close::{Closer, Lateness, Looked, Outcome as Ended, Pending, Stats, Unfinished},
    config::{Config, Span},
    order::{OrderId, Row, Trigger},
    store::{self, DueQuery, Store},
};

/// How often orders that somebody holds are looked at again, and how long after each other.
const LOCKED_ROUNDS: u32 = 5;
const LOCKED_PAUSE: Duration = Duration::from_millis(300);

/// How many orders that could not be closed are named.
const NAMED: usize = 20;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Only find what is overdue; close nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Look at no more than so many overdue orders.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Begin no further batch after this time, such as 30s.
    #[arg(long, value_name = "TIME")]
    max_duration: Option<Span>,
}

/// What one pass did.
#[derive(Debug, Serialize)]
struct Report {
    overdue: u64,
    closed: u64,
    /// Paid, closed or given more time by somebody else after they were found.
    settled: u64,
    not_found: u64,
    failed: u64,
    dry_run: bool,
    lateness_ms: Lateness,
    duration_ms: u64,
}

pub(super) async fn run(config: &Config, arguments: Arguments) -> Outcome {
    let started = Instant::now();
    // A dry run may be made by a user who has no right to update.
    let store = if arguments.dry_run { store::open(config).await? } else { open_and_rehearse(config).await? };
    let deadline = arguments.max_duration.and_then(|limit| started.checked_add(limit.get()));
    let mut pass = Pass {
        closer: Closer::new(store.clone()),
        stats: Stats::default(),
        progress: progress(store.as_ref(), &arguments).await?,
        deadline,
        batch_size: config.close.batch_size,
        workers: config.close.workers,
        overdue: 0,
        locked: Vec::new(),
        failed: BTreeMap::new(),
        out_of_time: false,
    };
    let ended = pass.all(config.sweep.page, &arguments).await;
    pass.progress.finish_and_clear();
    store.close().await;

    let total = pass.stats.total();
    let report = Report {
        overdue: pass.overdue,
        closed: total.closed,
        settled: total.settled + total.not_due,
        not_found: total.not_found,
        failed: pass.failed.len() as u64,
        dry_run: arguments.dry_run,
        lateness_ms: total.lateness_ms,
        duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    };
    show(&report, arguments.json)?;
    name_failed(&pass);
    ended?;
    Ok(if pass.failed.is_empty() && !pass.out_of_time { Exit::Done } else { Exit::Unfinished })
}

/// A bar on a terminal, nothing elsewhere; only a terminal is worth the count.
async fn progress(store: &dyn Store, arguments: &Arguments) -> Result<ProgressBar, Failure> {
    use std::io::IsTerminal;
    if arguments.json || !std::io::stderr().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let count = store.count_overdue().await?;
    let bar = ProgressBar::new(arguments.limit.map_or(count, |limit| limit.min(count)));
    let style = ProgressStyle::with_template("{spinner} {pos} of {len} overdue orders {wide_bar} {per_sec}, {eta} left")
        .map_err(|error| Failure::new(Exit::Software, error.to_string()))?;
    Ok(bar.with_style(style))
}

/// One pass while it runs.
struct Pass {
    closer: Closer,
    stats: Stats,
    progress: ProgressBar,
    deadline: Option<Instant>,
    batch_size: usize,
    workers: usize,
    overdue: u64,
    locked: Vec<Pending>,
    /// Orders that could not be closed, and why. An id that stands in two rows is found twice.
    failed: BTreeMap<OrderId, String>,
    out_of_time: bool,
}

impl Pass {
    async fn all(&mut self, page: u32, arguments: &Arguments) -> Result<(), Failure> {
        let mut query = DueQuery { ahead: Duration::ZERO, limit: page, after: None };
        let mut left = arguments.limit.unwrap_or(u64::MAX);
        while left > 0 && !self.is_late() {
            query.limit = page.min(u32::try_from(left).unwrap_or(u32::MAX));
            let page = self.closer.store().due(&query).await?;
            let overdue: Vec<&Row> = page.rows.iter().filter(|row| row.deadline.is_some_and(|deadline| deadline <= row.now)).collect();
            self.overdue += overdue.len() as u64;
            left -= (overdue.len() as u64).min(left);
            if arguments.dry_run {
                self.progress.inc(overdue.len() as u64);
            } else {
                self.close(overdue.into_iter().map(pending).collect()).await?;
            }
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        self.revisit_locked().await
    }

    /// Closes these orders in batches, several at the same time.
    async fn close(&mut self, orders: Vec<Pending>) -> Result<(), Failure> {
        let (closer, deadline) = (self.closer.clone(), self.deadline);
        let batches: Vec<Vec<Pending>> = orders.chunks(self.batch_size).map(<[Pending]>::to_vec).collect();
        let mut closing = stream::iter(batches)
            .map(|batch| {
                let closer = &closer;
                async move {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return None;
                    }
                    let mut looked = Vec::with_capacity(batch.len());
                    let ended = close_patiently(closer, batch, &mut looked).await;
                    Some((looked, ended))
                }
            })
            .buffer_unordered(self.workers);
        while let Some(batch) = closing.next().await {
            let Some((looked, ended)) = batch else {
                self.out_of_time = true;
                continue;
            };
            self.stats.looked(&looked);
            self.progress.inc(looked.len() as u64);
            for Looked { pending, outcome } in looked {
                match outcome {
                    Ended::Locked => self.locked.push(pending),
                    Ended::Rejected { reason, .. } => drop(self.failed.insert(pending.id, reason)),
                    Ended::Closed(_) | Ended::Settled { .. } | Ended::NotDue { .. } | Ended::NotFound => {}
                }
            }
            ended?;
        }
        Ok(())
    }

    async fn revisit_locked(&mut self) -> Result<(), Failure> {
        for _ in 0..LOCKED_ROUNDS {
            if self.locked.is_empty() || self.is_late() {
                break;
            }
            tokio::time::sleep(LOCKED_PAUSE).await;
            let again = std::mem::take(&mut self.locked);
            self.progress.inc_length(again.len() as u64);
            self.close(again).await?;
        }
        let still = std::mem::take(&mut self.locked);
        let locked = "locked by another transaction; perhaps a payment in progress";
        self.failed.extend(still.into_iter().map(|pending| (pending.id, locked.to_owned())));
        Ok(())
    }

    fn is_late(&mut self) -> bool {
        self.out_of_time |= self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        self.out_of_time
    }
}

/// Waits a few seconds while nothing can be closed; cron comes again.
async fn close_patiently(closer: &Closer, mut batch: Vec<Pending>, looked: &mut Vec<Looked>) -> Result<(), Failure> {
    let mut pauses = [100, 400, 1_600, 3_200].map(Duration::from_millis).into_iter();
    while let Err(Unfinished { left, fault }) = closer.close(batch, looked).await {
        let Some(pause) = pauses.next() else {
            return Err(fault.into());
        };
        tokio::time::sleep(pause).await;
        batch = left;
    }
    Ok(())
}

fn pending(row: &Row) -> Pending {
    Pending { id: row.id.clone(), trigger: Trigger::Reconcile, rejections: 0 }
}

fn show(report: &Report, json: bool) -> Result<(), Failure> {
    use std::io::IsTerminal;
    if json {
        let text = serde_json::to_string(report).map_err(|error| Failure::new(Exit::Software, error.to_string()))?;
        print(&text);
    } else if std::io::stdout().is_terminal() {
        // Cron mails whatever is printed, so there it stays silent.
        print(&if report.dry_run {
            format!("{} overdue orders; nothing was closed", report.overdue)
        } else {
            format!(
                "{} of {} overdue orders closed, {} settled by others, {} failed, in {:.1} s",
                report.closed,
                report.overdue,
                report.settled,
                report.failed,
                Duration::from_millis(report.duration_ms).as_secs_f64()
            )
        });
    }
    Ok(())
}

fn name_failed(pass: &Pass) {
    for (id, reason) in pass.failed.iter().take(NAMED) {
        complain(&format!("order {id} could not be closed: {reason}"));
    }
    if pass.failed.len() > NAMED {
        complain(&format!("and {} more", pass.failed.len() - NAMED));
    }
    if pass.out_of_time {
        complain("time ran out (--max-duration) before every overdue order was looked at");
    }
}
