//! What `check` examines of events: our own tables, and the targets as far as that goes without telling them anything.

use std::time::Duration;

use crate::{
    cli::check::Finding,
    config::{Config, EventSource, RuleName, Stream, Webhook},
    order::{Printable, ShellWord, rfc3339},
    outbox::{Backlog, Endpoint, EventQuery, Pause, State, TargetState, webhooks_of},
    store::{Outbox, Store, StoreError},
};

const TABLES: &str = "own tables";

/// Batches of events are unpacked within moments; one that has waited for so long shows that nobody does.
const UNPACKED_WITHIN: Duration = Duration::from_mins(1);

/// `rules` are all those of the configuration.
pub(super) async fn examine(config: &Config, rules: &[RuleName], store: &dyn Store) -> Vec<Finding> {
    let mut findings = tables(config, rules, store).await;
    let untold: Vec<&str> = config.events.untold().collect();
    if !untold.is_empty() {
        let found = format!("enabled is false, so these targets are told nothing: {}", untold.join(", "));
        findings.push(Finding::warn("events", found, "set enabled = true under [events]"));
    } else if !config.events.enabled && is_recorded_elsewhere(store.outbox()).await {
        findings.push(Finding::warn(
            "events",
            "somebody has recorded closures of this table within the last day, and by this configuration none are: nobody is told of those",
            "set enabled = true under [events], with the targets that the daemon has",
        ));
    }
    findings
}

/// Whether events of our orders were written lately.
async fn is_recorded_elsewhere(outbox: &Outbox) -> bool {
    let lately = EventQuery { since: Some(Duration::from_hours(24)), limit: 1, ..EventQuery::default() };
    outbox.is_ready() && outbox.events(&lately).await.is_ok_and(|events| !events.is_empty())
}

async fn tables(config: &Config, rules: &[RuleName], store: &dyn Store) -> Vec<Finding> {
    let outbox = store.outbox();
    if !outbox.is_ready() {
        return vec![match outbox.version() {
            _ if config.events.enabled => Finding::fail(TABLES, outbox.missing(), "order-closer migrate"),
            0 => Finding::ok(TABLES, "none; events and dead letters need them (order-closer migrate)"),
            _ => Finding::warn(TABLES, outbox.missing(), "order-closer migrate"),
        }];
    }
    let mut findings = vec![if outbox.is_outdated() {
        Finding::warn(TABLES, outbox.missing(), "order-closer migrate")
    } else {
        Finding::ok(TABLES, format!("order_closer_*, version {}", outbox.version()))
    }];
    if let Ok(Some(since)) = outbox.batches_wait_since(UNPACKED_WITHIN).await {
        let found = format!("what was recorded of closures in batches has not been told to anybody since {}", rfc3339(since));
        findings.push(Finding::warn("events", found, "start the daemon, or run order-closer deliver; if it runs, its log says why"));
    }
    // Who may not read that may not read the rest either, which is said below.
    if let Ok(Some(Pause { reason, who, rate: None, .. })) = outbox.pause_of_rule().await {
        let found = format!("closing is paused by {}: {}", Printable(&who), Printable(&reason));
        findings.push(Finding::warn("pause", found, "order-closer resume"));
    }
    let known = async {
        Ok::<_, StoreError>((outbox.backlog().await?, outbox.target_states(None).await?, outbox.given_up_by_others(rules).await?))
    };
    match known.await {
        Ok((backlog, states, given_up)) => {
            findings.extend(targets(config, &backlog));
            if config.which.name.is_timers() {
                findings.extend(unknown_targets(config, outbox).await);
            }
            findings.extend(given_up.iter().map(given_up_by));
            findings.extend(states.iter().filter(|state| config.events.targets().any(|name| name == state.target)).filter_map(state));
        }
        Err(error) => {
            findings.push(Finding::fail(TABLES, error.to_string(), "grant SELECT, INSERT, UPDATE and DELETE on the tables order_closer_*"));
        }
    }
    findings
}

/// Whom timers name, and the configuration does not: they would fire, and nobody would be told.
async fn unknown_targets(config: &Config, outbox: &Outbox) -> Option<Finding> {
    const LOOKED_AT: u32 = 1_000;
    let mut unknown = outbox.next_targets(LOOKED_AT).await.ok()?;
    unknown.retain(|target| !config.events.targets().any(|name| name == target));
    let names = unknown.iter().map(|name| Printable(name).to_string()).collect::<Vec<_>>().join(", ");
    let found = format!("timers that are due next name targets that are not in the configuration: {names}");
    (!unknown.is_empty()).then(|| Finding::warn("targets", found, "add them under [timers]; what timers have to tell waits for that"))
}

/// Orders that no rule passes over any more, since the one that has given them up is not in the configuration.
fn given_up_by((rule, orders): &(String, u64)) -> Finding {
    let found = format!("the rule {rule} has given up {orders} orders, and is not in the configuration: no command lists them");
    let fix = format!("put the rule back under that name, or forget that: order-closer dead-letters forget {}", ShellWord(rule));
    Finding::warn("dead letters", found, fix)
}

/// What keeps a target from being told.
fn state(known: &TargetState) -> Option<Finding> {
    const NAME: &str = "targets";
    let TargetState { target, state, resting_until, failing_since, last_error, .. } = known;
    let said = last_error.as_ref().map_or_else(String::new, |error| format!(" ({error})"));
    let time = |time: Option<i64>| time.map(rfc3339).unwrap_or_default();
    match state {
        State::Ok => None,
        State::Troubled => {
            let found = format!("{target} has been failing since {}{said}", time(*failing_since));
            Some(Finding::warn(NAME, found, "mend it; what waits is told then"))
        }
        State::Resting => {
            let found = format!("{target} wants to be left alone until {}{said}", time(*resting_until));
            Some(Finding::warn(NAME, found, format!("wait, or order-closer targets resume {}", ShellWord(target))))
        }
        State::Gone => {
            let found = format!("{target} wants no more events, and is told nothing{said}");
            Some(Finding::fail(NAME, found, format!("order-closer targets resume {target}, or remove it under [events]")))
        }
    }
}

fn targets(config: &Config, backlog: &[Backlog]) -> Vec<Finding> {
    let section = if config.which.name.is_timers() { "timers" } else { "events" };
    let events = &config.events;
    let mut findings: Vec<Finding> =
        events.webhooks.iter().map(|webhook| self::webhook(webhooks_of(&config.which.name), webhook, backlog)).collect();
    if let Some(Stream { key, .. }) = &events.stream {
        findings.push(Finding::ok("stream", format!("{key}{}", waiting(Stream::name(), backlog))));
    }
    let known: Vec<&str> = events.targets().collect();
    for Backlog { target, .. } in backlog.iter().filter(|backlog| !known.contains(&backlog.target.as_str())) {
        findings.push(Finding::warn(
            "targets",
            format!("{target} is not in the configuration{}", waiting(target, backlog)),
            format!("put it back under [{section}], or give up what waits: order-closer targets drop {}", ShellWord(target)),
        ));
    }
    findings
}

fn webhook(list: &str, webhook: &Webhook, backlog: &[Backlog]) -> Finding {
    const NAME: &str = "webhook";
    let found = format!("{}: {}{}", webhook.name, webhook.url, waiting(webhook.name.as_str(), backlog));
    if let Err(reason) = Endpoint::new(list, webhook, &EventSource::default()) {
        return Finding::fail(NAME, reason, format!("fix {list}, {}", webhook.name));
    }
    if webhook.url.is_readable() {
        return Finding::warn(NAME, format!("{found}; what is sent there can be read on its way"), "use https://");
    }
    Finding::ok(NAME, found)
}

fn waiting(target: &str, backlog: &[Backlog]) -> String {
    let of = backlog.iter().find(|backlog| backlog.target == target);
    of.map_or_else(String::new, |Backlog { waiting, dead, .. }| format!(", {waiting} waiting, {dead} dead letters"))
}
