//! `order-closer pause`, `resume`, `status`: closing stops for a while, for every daemon, `reconcile` and `close`.

use std::time::Duration;

use serde::Serialize;

use crate::{
    cli::{CommandResult, Exit, Failure, events::json, print},
    config::{Config, RULE, Span},
    order::{Printable, rfc3339},
    outbox::{Pause, PauseStatus, Wanted, check_reason, time_for},
    store::{self, Outbox, Store, StoreError, Window},
};

#[derive(Debug, clap::Args)]
pub(super) struct Begin {
    /// The rule whose orders wait; all without.
    #[arg(long, value_name = "NAME", value_parser = [RULE])]
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
    #[arg(long, value_name = "NAME", value_parser = [RULE])]
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
    let store = store::open(config).await?;
    let outbox = tables(store.as_ref())?;
    let (who, rule) = (who(), arguments.rule.unwrap_or_default());
    let length = arguments.length.map(Span::get);
    outbox.pause(&Wanted { rule: &rule, reason: &arguments.reason, who: &who }, length, None).await?;
    store.close().await;
    let until = arguments.length.map_or_else(|| "until `order-closer resume`".into(), |length| format!("for {length}"));
    print(&format!("closing is paused {until}; every daemon honours that within a second"));
    Ok(Exit::Done)
}

pub(super) async fn end(config: &Config, arguments: End) -> CommandResult {
    let store = store::open(config).await?;
    let outbox = tables(store.as_ref())?;
    let (who, rule) = (who(), arguments.rule.unwrap_or_default());
    let wanted = Wanted { rule: &rule, reason: "resumed", who: &who };
    let said = match arguments.rate {
        None => match outbox.unpause(&wanted).await? {
            0 => "closing was not paused".into(),
            _ => "closing goes on".into(),
        },
        Some(rate) => {
            let overdue = overdue(config, store.as_ref()).await?;
            let length = time_for(overdue, rate);
            outbox.pause(&wanted, Some(length), Some(rate)).await?;
            let seconds = humantime::format_duration(Duration::from_secs(length.as_secs()));
            format!("closing goes on, at {rate} orders a second for {seconds}: {overdue} are overdue")
        }
    };
    store.close().await;
    print(&said);
    Ok(Exit::Done)
}

/// A rule as `status` prints it.
#[derive(Debug, Serialize)]
struct State {
    #[serde(flatten)]
    pause: PauseStatus,
    overdue: u64,
}

pub(super) async fn status(config: &Config, as_json: bool) -> CommandResult {
    let store = store::open(config).await?;
    let pause = store.outbox().pause_of_rule().await?;
    let overdue = overdue(config, store.as_ref()).await?;
    store.close().await;
    let how = line(pause.as_ref());
    let state = State { pause: pause.into(), overdue };
    print(&if as_json { json(&state)? } else { format!("{RULE}: {how}; {overdue} orders overdue") });
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
