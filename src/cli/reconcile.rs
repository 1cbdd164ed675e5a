//! `order-closer reconcile`: one pass over what is overdue, for cron.
//!
//! Reads the same pages as the daemon's sweep and closes them in the same transactions, so it may run
//! beside any number of daemons and of its own kind. Orders that another transaction holds are tried again
//! at the end.

mod textfile;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use futures::future::join_all;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    app::open_and_rehearse,
    cli::{
        CommandResult, Exit, Failure,
        asking::{self, Means},
        complain, print, some_rules, worst,
    },
    close::{Bounds, Clearance, Clearances, Closer, Follow, Gate, Inbox, Lateness, Offer, Outage, Stats, UNDONE, Why, Worker},
    config::{Config, Oldest, Retry, RuleName, Span, Which},
    order::{OrderId, Printable, Trigger},
    store::{self, DueQuery, Settings, Sharing, Store, StoreError, Window},
    trigger::{Pages, PauseWatch, accept_clock, compare_clocks, left_alone, since},
    watchdog::Watchdog,
};

/// For how long orders that another transaction holds are tried again at the end, and how often they are asked after.
const HELD_PATIENCE: Duration = Duration::from_millis(1_500);
const HELD_POLL: Duration = Duration::from_millis(20);

/// For how long a database that is away is waited for; cron comes again.
const AWAY_PATIENCE: Duration = Duration::from_secs(5);

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_millis(100);

/// How many orders that could not be closed are named.
const NAMED: usize = 20;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Close what is overdue of this rule only.
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// Only find what is overdue; close nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object; for several rules one for each, on lines of their own.
    #[arg(long)]
    json: bool,
    /// Print what was done, and what is left alone, also where there is no terminal.
    #[arg(long, conflicts_with = "json")]
    verbose: bool,
    /// Close no more than so many overdue orders.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Begin no further batch after this time, such as 30s.
    #[arg(long, value_name = "TIME")]
    max_duration: Option<Span>,
    /// Leave alone what has been overdue for longer than this, such as 30d, or nothing: none [default: sweep.oldest]
    #[arg(long, value_name = "TIME|none")]
    oldest: Option<Oldest>,
    /// Write the pass' figures to this file, for the textfile collector of Prometheus' node_exporter.
    #[arg(long, value_name = "FILE.prom", conflicts_with = "dry_run", value_parser = textfile::path)]
    textfile: Option<PathBuf>,
    /// Take the database's clock as it is, though it differs from others, and let daemons do so.
    #[arg(long)]
    accept_clock: bool,
}

/// What one pass did.
#[derive(Debug, Serialize)]
struct Report {
    rule: RuleName,
    overdue: u64,
    closed: u64,
    /// Paid, closed or given more time by somebody else after they were found.
    settled: u64,
    not_found: u64,
    failed: u64,
    /// Overdue for longer than `--oldest`, or sweep.oldest.
    left_alone: u64,
    /// Due by their rows, before their keys expire.
    disputed: u64,
    /// Paid, says whoever was asked.
    paid: u64,
    /// To be asked about again, says whoever was asked.
    later: u64,
    /// Whoever was asked has not answered.
    unanswered: u64,
    dry_run: bool,
    /// Closing is paused, or was in the middle of it.
    paused: bool,
    /// Nothing where nothing was closed.
    lateness_ms: Option<Lateness>,
    duration_ms: u64,
}

/// Passes over the orders of all rules at the same time: one that waits keeps no other waiting.
pub(super) async fn run(config: &Config, arguments: Arguments) -> CommandResult {
    let (began, sharing) = (Instant::now(), Sharing::between(config.rule_names().len()));
    let passes = some_rules(config, arguments.rule.as_deref())?.into_iter().map(|config| {
        let (arguments, sharing) = (&arguments, sharing.clone());
        async move {
            let (mut store, mut report) = (None, None);
            let ended = pass(&config, arguments, (&sharing, &mut store), &mut report).await;
            (store, Passed { rule: config.which, report, took: began.elapsed(), ended })
        }
    });
    let (stores, passed): (Vec<_>, Vec<_>) = join_all(passes).await.into_iter().unzip();
    for store in stores.into_iter().flatten() {
        store.close().await;
    }
    let mut exit = Exit::Done;
    for Passed { rule, ended, .. } in &passed {
        exit = worst(exit, ended.as_ref().map_or_else(|failure| failure.exit, |exit| *exit));
        if let Err(Failure { message, .. }) = ended {
            Voice::of(rule).complain(message);
        }
    }
    match &arguments.textfile {
        Some(file) => textfile::tell(file, &passed, exit),
        None => Ok(exit),
    }
}

/// How the pass over a rule's orders ended.
struct Passed {
    rule: Which,
    /// What it did, as far as it came.
    report: Option<Report>,
    took: Duration,
    ended: CommandResult,
}

/// One pass; `told` is what it did, as far as it came.
async fn pass(
    config: &Config,
    arguments: &Arguments,
    (sharing, opened): (&Sharing, &mut Option<Arc<dyn Store>>),
    told: &mut Option<Report>,
) -> CommandResult {
    let started = Instant::now();
    // A dry run may be made by a user who has no right to update.
    let settings = Settings::of(config).sharing(sharing);
    let store = if arguments.dry_run { store::open_with(settings).await? } else { open_and_rehearse(config, settings).await? };
    opened.replace(Arc::clone(&store));
    let deadline = arguments.max_duration.and_then(|limit| started.checked_add(limit.get()));
    let oldest = arguments.oldest.unwrap_or(config.sweep.oldest).get();
    let bounds = Arc::new(Bounds::new(oldest));
    let mut ahead = None;
    if arguments.accept_clock {
        if let Err(error) = accept_clock(store.as_ref(), &config.redis).await {
            complain(&format!("daemons can't be told that the database's clock is right, and have to be started anew: {error}"));
        }
    } else {
        ahead = compare_clocks(store.as_ref(), &config.redis, &bounds).await;
    }
    let older = left_alone(store.as_ref(), oldest).await?;
    let progress = progress(config, store.as_ref(), arguments, oldest).await?;
    let pauses = PauseWatch::of(&store, &CancellationToken::new());
    let paused = pauses.read().await?;
    // Each order is tried once, save those that another transaction holds.
    let retry = Retry { attempts: u32::MAX, initial: Span::from_secs(3_600), max: Span::from_secs(3_600) };
    let (inbox, stats) = (Arc::new(Inbox::new(config.close.inbox, retry)), Arc::new(Stats::default()));
    let means = Means { store: &store, inbox: &inbox, bounds: &bounds, gate: &pauses.gate, stats: &stats };
    let (clearance, _asking) = match arguments.dry_run {
        true => (Arc::new(Clearances::default()) as Arc<dyn Clearance>, None),
        false => asking::clearance(config, means, true).await?,
    };
    let mut pass = Pass::new(config, &store, (inbox, stats, clearance), (bounds, Arc::clone(&pauses.gate)), progress, deadline);
    let watching = AbortOnDropHandle::new(tokio::spawn(pauses.run()));
    let ended = pass.all(config.sweep.page, oldest, arguments).await;
    pass.progress.finish_and_clear();
    drop(watching);

    let total = pass.worker.stats.total();
    let waiting = |whys: &[Why]| whys.iter().map(|why| pass.worker.inbox.waits(*why) as u64).sum::<u64>();
    let report = Report {
        rule: config.which.name.clone(),
        overdue: pass.overdue,
        closed: total.closed,
        settled: total.settled + total.not_due,
        not_found: total.not_found,
        failed: pass.failed.len() as u64,
        left_alone: older.orders,
        disputed: waiting(&[Why::Disputed]),
        paid: waiting(&[Why::Paid]),
        later: waiting(&[Why::Later]),
        // Those included that were still being asked about when time ran out.
        unanswered: waiting(&[Why::Unanswered, Why::Asked]),
        dry_run: arguments.dry_run,
        paused: pass.paused,
        lateness_ms: total.lateness_ms,
        duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    };
    let report = &*told.insert(report);
    let voice = Voice::of(&config.which);
    show(&voice, report, arguments)?;
    if older.orders > 0 && arguments.says_all() {
        let (count, longest) = (older.orders, arguments.oldest.unwrap_or(config.sweep.oldest));
        voice.print(&format!(
            "{count} orders have been overdue for longer than {longest}, since {}, and are left alone; `order-closer reconcile --oldest \
             none` closes them",
            since(&older)
        ));
    }
    name_failed(&voice, &pass);
    if pass.paused {
        let why = paused.map(|pause| format!(" by {}: {}", Printable(&pause.who), Printable(&pause.reason))).unwrap_or_default();
        voice.complain(&format!("closing is paused{why}; nothing more was closed (`order-closer resume` ends that)"));
    }
    if report.disputed > 0 {
        voice.complain(&format!(
            "{} orders wait: their rows call them due, and their keys expire later (orders.disputed; `order-closer check` compares)",
            report.disputed
        ));
    }
    for (orders, what) in [
        (report.paid, "are paid, says whoever was asked, and their rows don't say so"),
        (report.later, "wait, because whoever was asked wants to be asked again"),
        (report.unanswered, "wait, because whoever was asked has not answered"),
    ] {
        if orders > 0 {
            voice.complain(&format!("{orders} orders {what} (close.ask)"));
        }
    }
    if let Some(ahead) = ahead {
        voice.complain(&clock_is_ahead(ahead));
    }
    ended?;
    let none_waits = report.disputed + report.paid + report.later + report.unanswered == 0;
    let all = pass.failed.is_empty() && none_waits && !pass.out_of_time && ahead.is_none();
    Ok(if all { Exit::Done } else { Exit::Unfinished })
}

/// What is said of a rule's orders, with its name where there are several.
struct Voice(String);

impl Voice {
    fn of(rule: &Which) -> Self {
        Self(if rule.is_one_of_several { format!("{}: ", rule.name) } else { String::new() })
    }

    fn print(&self, text: &str) {
        print(&format!("{}{text}", self.0));
    }

    fn complain(&self, text: &str) {
        complain(&format!("{}{text}", self.0));
    }
}

/// What is said of a clock that is ahead of all others.
pub(super) fn clock_is_ahead(by: Duration) -> String {
    format!(
        "the database's clock is {:.0} s ahead of Redis' and of this host's, and what is due only by that waits; if it is right, run \
         `order-closer reconcile --accept-clock`",
        by.as_secs_f64()
    )
}

/// A bar on a terminal, nothing elsewhere; only a terminal is worth the count.
async fn progress(config: &Config, store: &dyn Store, arguments: &Arguments, oldest: Option<Duration>) -> Result<ProgressBar, Failure> {
    use std::io::IsTerminal;
    if arguments.json || config.which.is_one_of_several || !std::io::stderr().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let count = store.count(Window::overdue(oldest)).await?.orders;
    let bar = ProgressBar::new(arguments.limit.map_or(count, |limit| limit.min(count)));
    let style = ProgressStyle::with_template("{spinner} {pos} of {len} overdue orders {wide_bar} {per_sec}, {eta} left")
        .map_err(|error| Failure::new(Exit::Software, error.to_string()))?;
    Ok(bar.with_style(style))
}

/// One pass while it runs.
struct Pass {
    store: Arc<dyn Store>,
    worker: Worker,
    workers: JoinSet<()>,
    progress: ProgressBar,
    deadline: Option<Instant>,
    overdue: u64,
    /// Orders that could not be closed, and why. An id that stands in two rows is found twice.
    failed: BTreeMap<OrderId, String>,
    out_of_time: bool,
    paused: bool,
}

/// Why a wait has ended.
enum Waited {
    Enough,
    OutOfTime,
    Paused,
    Unavailable(StoreError),
}

impl Pass {
    fn new(
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
    async fn all(&mut self, page: u32, oldest: Option<Duration>, arguments: &Arguments) -> Result<(), Failure> {
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
        let page = self.store.due(&DueQuery { window: Window::overdue(oldest), limit, after: None }).await?;
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

impl Arguments {
    /// Whether somebody reads what went well. Cron mails whatever is printed, so there it stays silent, unless it was asked
    /// for nothing but an answer.
    fn says_all(&self) -> bool {
        use std::io::IsTerminal;
        !self.json && (self.verbose || self.dry_run || std::io::stdout().is_terminal())
    }
}

fn show(voice: &Voice, report: &Report, arguments: &Arguments) -> Result<(), Failure> {
    if arguments.json {
        let text = serde_json::to_string(report).map_err(|error| Failure::new(Exit::Software, error.to_string()))?;
        print(&text);
    } else if arguments.says_all() {
        voice.print(&if report.dry_run {
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

fn name_failed(voice: &Voice, pass: &Pass) {
    for (id, reason) in pass.failed.iter().take(NAMED) {
        voice.complain(&format!("order {id} could not be closed: {reason}"));
    }
    if pass.failed.len() > NAMED {
        voice.complain(&format!("and {} more", pass.failed.len() - NAMED));
    }
    if pass.out_of_time {
        voice.complain("time ran out (--max-duration) before every overdue order was looked at");
    }
}
