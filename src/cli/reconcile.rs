//! `order-closer reconcile`: one pass over what is overdue, for cron.
//!
//! Reads the same pages as the daemon's sweep and closes them in the same transactions, so it may run
//! beside any number of daemons and of its own kind. Orders that another transaction holds are tried again
//! at the end.

mod pass;
mod textfile;

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures::future::join_all;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tokio::time::{Instant, timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use pass::Pass;

use crate::{
    app::{open_and_rehearse, settings_of},
    cli::{
        CommandResult, Exit, Failure,
        asking::{self, Means},
        complain,
        left_out::LeftOut,
        patience, print,
        shards::sharings,
        some_rules, worst,
    },
    close::{Bounds, Clearance, Clearances, Inbox, Lateness, Stats, Why},
    config::{Config, Oldest, Retry, RuleName, Span, Which},
    order::Printable,
    redis::RedisError,
    store::{self, Sharing, Store, Window},
    trigger::{PauseWatch, accept_clock, compare_clocks, left_alone, since},
};

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
    let began = Instant::now();
    let rules = some_rules(config, arguments.rule.as_deref())?;
    let sharing_of = sharings(&rules);
    let passes = rules.into_iter().map(|config| {
        let (arguments, sharing) = (&arguments, sharing_of(&config));
        async move {
            let (mut store, mut report) = (None, None);
            let ended = pass_over(&config, arguments, (&sharing, &mut store), &mut report).await;
            (store, Passed { rule: config.which, report, took: began.elapsed(), ended })
        }
    });
    let (stores, passed): (Vec<_>, Vec<_>) = join_all(passes).await.into_iter().unzip();
    let left = || arguments.max_duration.map_or(Duration::MAX, |limit| limit.get().saturating_sub(began.elapsed()));
    for store in stores.into_iter().flatten() {
        if !arguments.dry_run
            && let Err(error) = store.outbox().unpack_all(left()).await
        {
            complain(&format!("what was recorded of closures is not listed and told yet: {error}"));
        }
        store.close().await;
    }
    let (mut exit, mut left_out) = (Exit::Done, LeftOut::default());
    for Passed { rule, ended, .. } in &passed {
        exit = worst(exit, ended.as_ref().map_or_else(|failure| failure.exit, |exit| *exit));
        if let Err(failure) = ended
            && let Err(Failure { message, .. }) = left_out.add(rule, failure.clone())
        {
            Voice::of(rule).complain(&message);
        }
    }
    let exit = left_out.end(exit)?;
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
async fn pass_over(
    config: &Config,
    arguments: &Arguments,
    (sharing, opened): (&Sharing, &mut Option<Arc<dyn Store>>),
    told: &mut Option<Report>,
) -> CommandResult {
    let started = Instant::now();
    // A dry run may be made by a user who has no right to update.
    let settings = settings_of(config).sharing(sharing);
    let store = if arguments.dry_run { store::open(settings).await? } else { open_and_rehearse(config, settings).await? };
    opened.replace(Arc::clone(&store));
    let deadline = arguments.max_duration.and_then(|limit| started.checked_add(limit.get()));
    let oldest = arguments.oldest.unwrap_or(config.sweep.oldest).get();
    let bounds = Arc::new(Bounds::new(oldest));
    let mut ahead = None;
    if arguments.accept_clock {
        let limit = patience(deadline);
        let accepted = timeout(limit, accept_clock(store.as_ref(), &config.redis)).await;
        if let Err(error) = accepted.unwrap_or_else(|_| Err(RedisError::timed_out(limit))) {
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
    let means = Means { store: &store, inbox: &inbox, bounds: &bounds, gate: &pauses.gate, stats: &stats, deadline };
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
        Self(if rule.is_one_of_several { format!("{}: ", rule.name.in_full()) } else { String::new() })
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

impl Arguments {
    /// Whether the database's clock is to be taken as it is.
    pub(super) fn accepts_clock(&self) -> bool {
        self.accept_clock
    }

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
