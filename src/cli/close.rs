//! `order-closer close`: these orders, now, if they are due.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::Serialize;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    app::{open_and_rehearse, settings_of},
    cli::{
        CommandResult, Exit, Failure,
        asking::{self, Means},
        complain, order_id, print,
        reconcile::clock_is_ahead,
        shards::sharings,
        some_rules,
    },
    close::{Bounds, Closed, Closer, Inbox, Looked, Outcome, Requested, Requests, Stats, Why},
    config::Config,
    explain::timer_named,
    order::{OrderId, Printable},
    outbox::UNDONE,
    store::{Sharing, Store, StoreError},
    trigger::{PauseWatch, compare_clocks},
};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The orders' ids; a timer's is its kind and key, as reminder/1001.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// The rule whose orders these are, where an id alone doesn't say which.
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// Ask nobody before (close.ask); each order's event says so.
    #[arg(long)]
    without_asking: bool,
    /// Print one JSON object with counts.
    #[arg(long)]
    json: bool,
}

/// What was done.
#[derive(Debug, Default, Serialize)]
struct Report {
    closed: u64,
    settled: u64,
    not_due: u64,
    not_found: u64,
    failed: u64,
    paid: u64,
    later: u64,
    unanswered: u64,
    disputed: u64,
    paused: bool,
}

impl Report {
    fn waits(&mut self, why: Why) {
        *match why {
            Why::Disputed => &mut self.disputed,
            Why::Paid => &mut self.paid,
            Why::Later => &mut self.later,
            Why::Asked | Why::Unanswered | Why::Elsewhere => &mut self.unanswered,
        } += 1;
    }

    fn looked(&mut self, looked: &Looked) {
        *match looked.outcome {
            Outcome::Closed(_) => &mut self.closed,
            Outcome::Settled { .. } => &mut self.settled,
            Outcome::NotDue { .. } => &mut self.not_due,
            Outcome::NotFound => &mut self.not_found,
            Outcome::Locked { .. } | Outcome::Unasked | Outcome::Rejected { .. } | Outcome::Undone => &mut self.failed,
        } += 1;
    }

    fn is_stuck(&self) -> bool {
        self.paused || self.failed + self.paid + self.later + self.unanswered + self.disputed > 0
    }

    fn seen(&self) -> u64 {
        let looked = self.closed + self.settled + self.not_due + self.not_found + self.failed;
        looked + self.paid + self.later + self.unanswered + self.disputed
    }
}

pub(super) async fn run(config: &Config, arguments: &Arguments) -> CommandResult {
    let mut desks = Vec::new();
    let asks_all = config.is_sharded() && config.only_shard.is_none();
    let rules = some_rules(config, arguments.rule.as_deref())?;
    let sharing_of = sharings(&rules);
    for config in rules {
        let (rule, sharing) = (config.which.clone(), sharing_of(&config));
        let desk = Desk::open(config, &sharing, !arguments.without_asking, desks.is_empty()).await;
        let desk = desk.map_err(|failure| all_are_asked(failure.of(&rule), asks_all))?;
        desks.push(desk);
    }
    let say = |line: String| {
        if !arguments.json {
            print(&line);
        }
    };
    let (mut report, mut unavailable) = (Report::default(), None);
    let (mut named, mut unknown) = (BTreeMap::new(), Vec::new());
    for said in &arguments.ids {
        match owners(&desks, said).await? {
            Some((id, owners)) => drop(named.insert(id, Asked::new(said, owners))),
            None => unknown.push(Printable(said)),
        }
    }
    for name in &unknown {
        report.not_found += 1;
        say(format!("{name}: no such timer"));
    }
    for (id, asked) in &named {
        let Asked { name, owners, .. } = asked;
        match close(owners, id).await {
            Ok(Requested::Waits(why, left)) => {
                report.waits(why);
                say(waits(name, why, left));
            }
            Ok(Requested::Paused) => {
                report.paused = true;
                say(format!("{name}: not looked at, closing is paused; `order-closer status` says why, `order-closer resume` ends that"));
            }
            Ok(Requested::Looked(one)) => {
                report.looked(&one);
                let is_hidden = matches!(one.outcome, Outcome::NotFound) && is_hidden(owners, id).await;
                say(if is_hidden { format!("{name}: no order to be closed, orders.filter hides its row") } else { asked.describe(&one) });
            }
            Err(error) => {
                unavailable = Some(error);
                break;
            }
        }
    }
    for desk in &desks {
        desk.store.close().await;
    }
    if arguments.json {
        print(&serde_json::to_string(&report).map_err(|error| Failure::new(Exit::Software, error.to_string()))?);
    }
    if let Some(error) = unavailable {
        let Failure { exit, message, .. } = error.into();
        return Err(Failure::new(
            exit,
            format!("{} orders were not looked at: {message}", (named.len() + unknown.len()) as u64 - report.seen()),
        ));
    }
    Ok(if report.is_stuck() { Exit::Unfinished } else { Exit::Done })
}

/// Nothing is closed while it is not known whether another shard has an order of that id, too.
fn all_are_asked(Failure { exit, message, .. }: Failure, asks_all: bool) -> Failure {
    let without = if asks_all { "; all shards are asked for an order unless its own is named with --shard" } else { "" };
    Failure::new(exit, format!("{message}{without}"))
}

/// Closes orders of one rule.
struct Desk {
    config: Config,
    store: Arc<dyn Store>,
    requests: Requests,
    _asking: Option<AbortOnDropHandle<()>>,
}

impl Desk {
    async fn open(config: Config, sharing: &Sharing, asks: bool, is_first: bool) -> Result<Self, Failure> {
        let store = open_and_rehearse(&config, settings_of(&config).sharing(sharing)).await?;
        let bounds = Arc::new(Bounds::new(config.sweep.oldest.get()));
        // All rules have the same clock.
        if let Some(ahead) = compare_clocks(store.as_ref(), &config.redis, &bounds).await.filter(|_| is_first) {
            complain(&clock_is_ahead(ahead));
        }
        let pauses = PauseWatch::of(&store, &CancellationToken::new());
        pauses.read().await?;
        let (inbox, stats) = (Arc::new(Inbox::new(config.close.inbox, config.close.retry.clone())), Arc::new(Stats::default()));
        let means = Means { store: &store, inbox: &inbox, bounds: &bounds, gate: &pauses.gate, stats: &stats, deadline: None };
        let (clearance, asking) = asking::clearance(&config, means, asks).await?;
        let closer = Closer::within(Arc::clone(&store), bounds);
        let requests = Requests::new(pauses.gate, closer, clearance, stats, watch::Sender::new(()));
        Ok(Self { config, store, requests, _asking: asking })
    }
}

/// What was asked for, and the rules that may have it.
struct Asked<'d> {
    name: String,
    owners: Vec<&'d Desk>,
    is_timer: bool,
}

impl<'d> Asked<'d> {
    /// A timer goes by the name by which it was asked for.
    fn new(said: &str, owners: Vec<&'d Desk>) -> Self {
        let is_timer = owners.iter().all(|desk| desk.store.rule().is_timers());
        Self { name: Printable(said).to_string(), owners, is_timer }
    }

    fn describe(&self, Looked { outcome, .. }: &Looked) -> String {
        let Self { name, is_timer, .. } = self;
        match outcome {
            Outcome::Closed(Closed { lateness, .. }) if *is_timer => {
                format!("{name}: fired, {:.3} s after it was due", lateness.as_secs_f64())
            }
            Outcome::Closed(Closed { lateness, .. }) => format!("{name}: closed, {:.3} s after its deadline", lateness.as_secs_f64()),
            Outcome::Settled { status: Some(state) } if *is_timer => format!("{name}: left as it is, it is {}", Printable(state)),
            Outcome::Settled { status: Some(status) } => format!("{name}: left as it is, its status is {}", Printable(status)),
            Outcome::Settled { status: None } => format!("{name}: left as it is, its status is NULL"),
            Outcome::NotDue { remaining: Some(remaining) } => format!("{name}: not due for another {:.3} s", remaining.as_secs_f64()),
            Outcome::NotDue { remaining: None } => format!("{name}: has no deadline, and so is never due"),
            Outcome::Unasked => format!("{name}: due, but its deadline has moved since somebody was asked about it; try again"),
            Outcome::NotFound => format!("{name}: no such {}", if *is_timer { "timer" } else { "order" }),
            Outcome::Locked { reason } => format!("{name}: due, but {reason}; try again"),
            // A command remembers no closure.
            Outcome::Undone => format!("{name}: {UNDONE}"),
            Outcome::Rejected { reason, .. } => format!("{name}: due, but its database rejects the closure: {reason}"),
        }
    }
}

/// A table, and the name of its database where databases have names.
type InDatabase = (Option<String>, String);

/// The rules that may have an order: all of one table, for which of them has it its row says. Ids of other tables are others'.
/// None, where it can only be the name of a timer, and there is none of that name.
async fn owners<'d>(desks: &'d [Desk], id: &str) -> Result<Option<(OrderId, Vec<&'d Desk>)>, Failure> {
    let (mut all, mut unread) = (Vec::new(), None);
    for desk in desks {
        let read = match timer_named(desk.store.as_ref(), id).await? {
            Some(timer) => Ok(timer),
            None => order_id(&desk.config, desk.store.as_ref(), id),
        };
        match read {
            Ok(id) => all.push((desk, id)),
            // What the orders' own column takes says more than what timers' does, which come last.
            Err(failure) => unread = unread.or(Some(failure)),
        }
    }
    let mut tables: BTreeMap<InDatabase, Vec<(&Desk, OrderId)>> = BTreeMap::new();
    for (desk, id) in all {
        let table = (desk.config.which.database.clone(), desk.store.outbox().orders_table());
        tables.entry(table).or_default().push((desk, id));
    }
    if tables.len() > 1 {
        let mut found = BTreeMap::new();
        for (table, desks) in &tables {
            if let Some((desk, id)) = desks.first()
                && !desk.store.look(std::slice::from_ref(id)).await?.is_empty()
            {
                found.insert(table.clone(), desks.iter().map(|(desk, _)| desk.store.rule().in_full()).collect::<Vec<_>>().join(", "));
            }
        }
        if found.len() > 1 {
            let rules = found.into_values().collect::<Vec<_>>().join(", ");
            let with =
                if desks.iter().any(|desk| desk.store.rule().shard().is_some()) { "shards with --shard" } else { "rules with --rule" };
            let message = format!("{} is an order of several tables; name one of their {with}: {rules}", Printable(id));
            return Err(Failure::new(Exit::Usage, message));
        }
        if let Some(table) = found.keys().next() {
            tables.retain(|other, _| other == table);
        }
    }
    match (tables.into_values().next(), unread) {
        (Some(desks), _) => {
            let id = desks[0].1.clone();
            Ok(Some((id, desks.into_iter().map(|(desk, _)| desk).collect())))
        }
        (None, _) if id.contains('/') && desks.iter().any(|desk| desk.store.rule().is_timers()) => Ok(None),
        (None, Some(failure)) => Err(failure),
        (None, None) => Err(Failure::new(Exit::Usage, "there is no rule")),
    }
}

/// Closes an order by the rule that has it: to the others it is none of theirs, or settled.
async fn close(desks: &[&Desk], id: &OrderId) -> Result<Requested, StoreError> {
    let distance = |requested: &Requested| match requested {
        Requested::Looked(Looked { outcome: Outcome::NotFound, .. }) => 3,
        Requested::Looked(Looked { outcome: Outcome::Settled { .. }, .. }) => 2,
        // It may be an order of that rule, unless another has it.
        Requested::Paused => 1,
        Requested::Looked(_) | Requested::Waits(..) => 0,
    };
    let mut nearest: Option<Requested> = None;
    for desk in desks {
        let requested = desk.requests.close(id).await?;
        if nearest.as_ref().is_none_or(|nearest| distance(&requested) < distance(nearest)) {
            nearest = Some(requested);
        }
    }
    nearest.ok_or_else(|| StoreError::Unavailable("there is no rule".into()))
}

/// Whether a row of this id is there that is no order by a rule's filter.
async fn is_hidden(desks: &[&Desk], id: &OrderId) -> bool {
    for desk in desks.iter().filter(|desk| desk.config.orders.filter.is_some()) {
        if desk.store.inspect(id).await.is_ok_and(|rows| !rows.is_empty()) {
            return true;
        }
    }
    false
}

/// What to say of an order that is not closed though it is due.
fn waits(name: &str, why: Why, time: Duration) -> String {
    let time = humantime::format_duration(Duration::from_secs(time.as_secs()));
    match why {
        Why::Disputed => format!("{name}: due by its row, but its key is to expire in {time}, and it waits for that (orders.disputed)"),
        Why::Paid => format!("{name}: due by its row, but it is paid, says whoever was asked (close.ask)"),
        Why::Later => format!("{name}: due, but whoever was asked wants to be asked again in {time} (close.ask)"),
        Why::Asked | Why::Unanswered | Why::Elsewhere => {
            format!("{name}: due, but whoever was asked has not answered (close.ask; --without-asking closes it all the same)")
        }
    }
}
