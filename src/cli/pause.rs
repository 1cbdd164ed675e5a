//! `order-closer pause`, `resume`, `status`: closing stops for a while, for every daemon, `reconcile` and `close`.

use std::{collections::BTreeSet, time::Duration};

use serde::Serialize;

use crate::{
    cli::{CommandResult, Exit, Failure, each_table, events::json, left_out::LeftOut, print, some_rules, store_of, worst},
    config::{Config, Span},
    order::{Printable, rfc3339},
    outbox::{Pause, PauseStatus, Wanted, check_reason, time_for},
    store::{Outbox, Store, StoreError, Window},
};

#[derive(Debug, clap::Args)]
pub(super) struct Begin {
    /// The rule whose orders wait; all without.
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// How long, such as 1h; until `resume` without.
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Span>,
    /// Why: it stands in the log, in `status` and in the audit log.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct End {
    /// The rule whose orders go on; all without.
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// Close what is overdue by now at so many orders a second, such as 100/s.
    #[arg(long, value_name = "N/s", value_parser = rate)]
    rate: Option<u32>,
}

fn reason(text: &str) -> Result<String, String> {
    check_reason(text).map(|()| text.to_owned())
}

fn rate(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    match number.parse() {
        Ok(rate) if rate > 0 => Ok(rate),
        _ => Err("a rate is a whole number of orders a second, such as 100/s".into()),
    }
}

pub(super) async fn begin(config: &Config, arguments: Begin) -> CommandResult {
    let who = who();
    let length = arguments.length.map(Span::get);
    let (mut paused, mut left_out) = (0, LeftOut::default());
    for (config, rule) in wanted(config, arguments.rule.as_deref())? {
        if left_out.skips(&config) {
            continue;
        }
        let wanted = Wanted { rule: &rule, reason: &arguments.reason, who: &who };
        match pause(&config, &wanted, length).await {
            Ok(()) => paused += 1,
            Err(failure) => left_out.add(&config.which, failure)?,
        }
    }
    if let Some(Failure { exit, message, .. }) = left_out.failure() {
        let others = if paused > 0 { "\nin all others closing is paused; pause again when these can be reached" } else { "" };
        return Err(Failure::new(exit, format!("{message}{others}")));
    }
    let until = arguments.length.map_or_else(|| "until `order-closer resume`".into(), |length| format!("for {length}"));
    let what = arguments.rule.map_or_else(|| "closing".into(), |rule| format!("closing of the rule {rule}"));
    print(&format!("{what} is paused {until}; every daemon honours that within a second"));
    Ok(Exit::Done)
}

async fn pause(config: &Config, wanted: &Wanted<'_>, length: Option<Duration>) -> Result<(), Failure> {
    let store = store_of(config).await?;
    tables(store.as_ref())?.pause(wanted, length, None).await?;
    store.close().await;
    Ok(())
}

pub(super) async fn end(config: &Config, arguments: End) -> CommandResult {
    let who = who();
    let (mut said, mut left_out) = (BTreeSet::new(), LeftOut::default());
    for (config, rule) in wanted(config, arguments.rule.as_deref())? {
        if left_out.skips(&config) {
            continue;
        }
        let wanted = Wanted { rule: &rule, reason: "resumed", who: &who };
        match resume(&config, &wanted, arguments.rate).await {
            Ok(resumed) => drop(said.insert(resumed)),
            Err(failure) => left_out.add(&config.which, failure)?,
        }
    }
    said.iter().for_each(|said| print(said));
    left_out.end(Exit::Done)
}

/// Ends the pause of one table, and returns what there is to say of that.
async fn resume(config: &Config, wanted: &Wanted<'_>, rate: Option<u32>) -> Result<String, Failure> {
    let store = store_of(config).await?;
    let resumed = go_on(config, store.as_ref(), wanted, rate).await?;
    let pause = store.outbox().pause_of_rule().await?;
    store.close().await;
    Ok(match pause {
        // That of one rule may have ended beside that of all.
        Some(Pause { rate: None, .. }) => {
            format!("the rule {} is paused still, as all rules are; `order-closer resume` without --rule ends that", wanted.rule)
        }
        Some(_) | None => resumed,
    })
}

async fn go_on(config: &Config, store: &dyn Store, wanted: &Wanted<'_>, rate: Option<u32>) -> Result<String, Failure> {
    let outbox = tables(store)?;
    let Some(rate) = rate else {
        return Ok(match outbox.unpause(wanted).await? {
            0 => "closing was not paused".into(),
            _ => "closing goes on".into(),
        });
    };
    let overdue = overdue(config, store).await?;
    let length = time_for(overdue, rate);
    outbox.pause(wanted, Some(length), Some(rate)).await?;
    let seconds = humantime::format_duration(Duration::from_secs(length.as_secs()));
    Ok(format!("closing goes on, at {rate} orders a second for {seconds}: {overdue} are overdue"))
}

/// Whose pauses are wanted: those of the rule that was named, or of all rules of each table.
fn wanted(config: &Config, rule: Option<&str>) -> Result<Vec<(Config, String)>, Failure> {
    if let Some(rule) = rule {
        let tables = each_table(some_rules(config, Some(rule))?);
        return Ok(tables.into_iter().map(|config| (config, rule.to_owned())).collect());
    }
    Ok(each_table(config.of_each_rule()).into_iter().map(|config| (config, String::new())).collect())
}

/// A rule as `status` prints it.
#[derive(Debug, Serialize)]
struct State {
    #[serde(flatten)]
    pause: PauseStatus,
    overdue: u64,
}

pub(super) async fn status(config: &Config, as_json: bool) -> CommandResult {
    let (mut exit, mut left_out) = (Exit::Done, LeftOut::default());
    for config in config.of_each_rule() {
        if left_out.skips(&config) {
            continue;
        }
        match show(&config, as_json).await {
            Ok(shown) => exit = worst(exit, shown),
            Err(failure) => left_out.add(&config.which, failure)?,
        }
    }
    left_out.end(exit)
}

async fn show(config: &Config, as_json: bool) -> CommandResult {
    let store = store_of(config).await?;
    let pause = store.outbox().pause_of_rule().await?;
    let overdue = overdue(config, store.as_ref()).await?;
    let rule = store.rule();
    let said = format!("{}: {}; {overdue} orders overdue", rule.in_full(), line(pause.as_ref()));
    let state = State { pause: PauseStatus::of(rule, pause), overdue };
    store.close().await;
    print(&if as_json { json(&state)? } else { said });
    Ok(if state.pause.paused { Exit::Unfinished } else { Exit::Done })
}

fn line(pause: Option<&Pause>) -> String {
    match pause {
        None => "closing".to_owned(),
        Some(Pause { rate: Some(rate), .. }) => format!("closing at most {rate} orders a second"),
        Some(Pause { left, reason, who, since, .. }) => {
            let left = left.map_or_else(
                || "until `order-closer resume`".to_owned(),
                |left| format!("for another {}", humantime::format_duration(Duration::from_secs(left.as_secs()))),
            );
            format!("paused since {} {left}, by {}: {}", rfc3339(*since), Printable(who), Printable(reason))
        }
    }
}

/// How many orders wait to be closed; those that are left alone do not.
async fn overdue(config: &Config, store: &dyn Store) -> Result<u64, StoreError> {
    Ok(store.count(Window::overdue(config.sweep.oldest.get())).await?.orders)
}

/// Our own tables, which must be able to hold a pause.
fn tables(store: &dyn Store) -> Result<&Outbox, Failure> {
    let outbox = store.outbox();
    if outbox.has_pauses() { Ok(outbox) } else { Err(Failure::new(Exit::Configuration, outbox.missing())) }
}

/// Who sits at this terminal, as far as the environment knows.
fn who() -> String {
    let user = ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()));
    format!("{}@{}", user.unwrap_or_else(|| "somebody".into()), gethostname::gethostname().to_string_lossy())
}
