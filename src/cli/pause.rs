//! `order-closer pause`, `resume`, `status`: closing stops for a while, for every daemon, `reconcile` and `close`.

use std::{collections::BTreeSet, time::Duration};

use serde::Serialize;

use crate::{
    cli::{CommandResult, Exit, Failure, each_table, events::json, print, some_rules, store_of},
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
    for (config, rule) in wanted(config, arguments.rule.as_deref())? {
        let store = store_of(&config).await?;
        let wanted = Wanted { rule: &rule, reason: &arguments.reason, who: &who };
        tables(store.as_ref())?.pause(&wanted, length, None).await?;
        store.close().await;
    }
    let until = arguments.length.map_or_else(|| "until `order-closer resume`".into(), |length| format!("for {length}"));
    let what = arguments.rule.map_or_else(|| "closing".into(), |rule| format!("closing of the rule {rule}"));
    print(&format!("{what} is paused {until}; every daemon honours that within a second"));
    Ok(Exit::Done)
}

pub(super) async fn end(config: &Config, arguments: End) -> CommandResult {
    let who = who();
    let mut said = BTreeSet::new();
    for (config, rule) in wanted(config, arguments.rule.as_deref())? {
        let store = store_of(&config).await?;
        let wanted = Wanted { rule: &rule, reason: "resumed", who: &who };
        let resumed = resume(&config, store.as_ref(), &wanted, arguments.rate).await?;
        // That of one rule may have ended beside that of all.
        said.insert(match store.outbox().pause_of_rule().await? {
            Some(Pause { rate: None, .. }) => {
                format!("the rule {rule} is paused still, as all rules are; `order-closer resume` without --rule ends that")
            }
            Some(_) | None => resumed,
        });
        store.close().await;
    }
    said.iter().for_each(|said| print(said));
    Ok(Exit::Done)
}

async fn resume(config: &Config, store: &dyn Store, wanted: &Wanted<'_>, rate: Option<u32>) -> Result<String, Failure> {
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
    let mut exit = Exit::Done;
    for config in config.of_each_rule() {
        let store = store_of(&config).await?;
        let pause = store.outbox().pause_of_rule().await?;
        let overdue = overdue(&config, store.as_ref()).await?;
        let rule = store.rule();
        let said = format!("{}: {}; {overdue} orders overdue", rule.in_full(), line(pause.as_ref()));
        let state = State { pause: PauseStatus::of(rule, pause), overdue };
        store.close().await;
        print(&if as_json { json(&state)? } else { said });
        if state.pause.paused {
            exit = Exit::Unfinished;
        }
    }
    Ok(exit)
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
