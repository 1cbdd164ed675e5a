//! `order-closer events`: the audit log.

use std::time::Duration;

use serde::Serialize;

use crate::{
    cli::{CommandResult, Exit, Failure, each_table, left_out::LeftOut, order_id, output, print, some_rules, store_of},
    config::{Config, Span},
    order::Printable,
    outbox::{Closure, Event, EventQuery, Recorded, is_about_pauses},
    store::{Outbox, Store},
};

/// How many events are read at a time.
const PAGE: u32 = 1_000;

/// How far back events are shown when nothing else is asked for.
const RECENT: Duration = Duration::from_hours(24);

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Only those of this rule.
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// Only those of this order.
    #[arg(long, value_name = "ID")]
    order: Option<String>,
    /// Only those no older than this, such as 1h [default: 1d, or everything with --order].
    #[arg(long, value_name = "TIME")]
    since: Option<Span>,
    /// Print one JSON object on each line.
    #[arg(long)]
    json: bool,
}

/// Our own tables, which a command needs.
pub(super) fn tables(store: &dyn Store) -> Result<&Outbox, Failure> {
    let outbox = store.outbox();
    if outbox.is_ready() { Ok(outbox) } else { Err(Failure::new(Exit::Configuration, outbox.missing())) }
}

pub(super) async fn run(config: &Config, arguments: Arguments) -> CommandResult {
    let (mut shown, mut unread, mut left_out) = (None, None, LeftOut::default());
    for config in each_table(some_rules(config, arguments.rule.as_deref())?) {
        if left_out.skips(&config) {
            continue;
        }
        match show(&config, &arguments).await {
            Ok(count) => shown = Some(shown.unwrap_or(0) + count),
            // No order of this table has such an id; one of another may.
            Err(failure) if failure.exit == Exit::Usage => unread = unread.or(Some(failure)),
            Err(failure) => left_out.add(&config.which, failure)?,
        }
    }
    if let Some(failure) = unread.filter(|_| shown.is_none()) {
        return Err(failure);
    }
    if shown.is_none_or(|count| count == 0) {
        let is_recent = arguments.since.is_none() && arguments.order.is_none();
        output::say_empty(if is_recent { "no events of the last day; older ones are shown with --since" } else { "no events" });
    }
    left_out.end(Exit::Done)
}

/// Shows those of one orders table, and returns how many they are.
async fn show(config: &Config, arguments: &Arguments) -> Result<usize, Failure> {
    let store = store_of(config).await?;
    let outbox = tables(store.as_ref())?;
    let since = arguments.since.map(Span::get).or_else(|| arguments.order.is_none().then_some(RECENT));
    let order = arguments.order.as_ref().map(|id| order_id(config, store.as_ref(), id)).transpose()?;
    let rule = arguments.rule.is_some().then(|| store.rule().clone());
    let mut query = EventQuery { rule, order, since, limit: PAGE, ..EventQuery::default() };
    outbox.unpack_what_is_left().await;
    let mut count = 0;
    loop {
        let page = outbox.events(&query).await?;
        count += page.len();
        for event in &page {
            print(&if arguments.json { json(&Recorded::from(event))? } else { line(event) });
        }
        match page.last() {
            Some(last) if page.len() == PAGE as usize && output::is_read() => query.after = Some(last.id),
            _ => break,
        }
    }
    store.close().await;
    Ok(count)
}

/// An event as one readable line.
pub(super) fn line(event: &Event) -> String {
    let Closure { order_id, closed_at, lateness_ms, trigger, instance, order, answer, .. } = Closure::from(event);
    let (order_id, instance, order) = (Printable(order_id), Printable(instance), Printable(order.get()));
    if is_about_pauses(trigger) {
        return format!("{closed_at}  {trigger}  {order}");
    }
    if event.is_of_timer() {
        return format!("{closed_at}  timer {order_id}  fired {lateness_ms:.1} ms after its time ({trigger}, {instance})  {order}");
    }
    let answered = answer.map_or_else(String::new, |answer| format!(", asked: {}", Printable(answer)));
    format!("{closed_at}  order {order_id}  closed {lateness_ms:.1} ms after its deadline ({trigger}, {instance}{answered})  {order}")
}

/// A result as one line of JSON.
pub(super) fn json(result: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(result).map_err(|error| Failure::new(Exit::Software, error.to_string()))
}
