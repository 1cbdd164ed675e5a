//! `order-closer explain`: why an order was closed, or is not.

use std::{sync::Arc, time::Duration};

use crate::{
    cli::{
        CommandResult, Exit, Failure,
        dead_letters::text,
        events::{json, line},
        print,
    },
    close::Bounds,
    config::Config,
    explain::{Explainer, Explanation, KeyState},
    order::Printable,
    outbox::Letter,
    redis::Commands,
    store,
    trigger::compare_clocks,
};

/// How long Redis may take, the connection included.
const REDIS: Duration = Duration::from_secs(3);

pub(super) async fn run(config: &Config, id: &str, as_json: bool) -> CommandResult {
    let store = store::open(config).await?;
    let bounds = Arc::new(Bounds::default());
    compare_clocks(store.as_ref(), &config.redis, &bounds).await;
    let redis = Commands::new(&config.redis).map_err(|error| error.to_string());
    let explainer = Explainer::of(config, &store, bounds, redis, REDIS);
    let id = explainer.read(id).map_err(|reason| Failure::new(Exit::Usage, reason))?;
    let explanation = explainer.explain(&id).await?;
    store.close().await;
    if as_json {
        print(&json(&explanation)?);
    } else {
        show(&explanation);
    }
    Ok(Exit::Done)
}

/// The sentence, and below it what it is made of.
fn show(explanation: &Explanation) {
    let Explanation { rows, key, pause, dead_letter, undelivered, events, next, to_do, notes, unknown, .. } = explanation;
    print(explanation.sentence());
    let row = |name: &str, text: &str| print(&format!("  {name:<12} {text}"));
    if *rows == 1 {
        row("row", &row_text(explanation));
    }
    row("rule", &rule_text(explanation));
    match (key.state, &key.expires) {
        (KeyState::Expires, Some(at)) => row("key", &format!("{}, expires at {at}", Printable(&key.name))),
        (KeyState::NoTtl, _) => row("key", &format!("{}, does not expire", Printable(&key.name))),
        (KeyState::None, _) => row("key", &format!("{}: there is none", Printable(&key.name))),
        (KeyState::Expires | KeyState::Unknown, _) => row("key", &format!("{}: not known", Printable(&key.name))),
    }
    if let Some(verdict) = explanation.verdict {
        row("verdict", &format!("{verdict}, if nobody holds its row"));
    }
    if let Some(pause) = pause.as_ref().filter(|pause| pause.paused) {
        let (who, reason) = (pause.who.as_deref().unwrap_or_default(), pause.reason.as_deref().unwrap_or_default());
        row("pause", &format!("since {}, by {}: {}", pause.since.as_deref().unwrap_or_default(), Printable(who), Printable(reason)));
    }
    dead_letter.iter().for_each(|letter: &Letter| row("dead letter", &text(letter)));
    events.iter().for_each(|event| row("event", &line(event)));
    undelivered.iter().for_each(|letter| row("undelivered", &text(letter)));
    if let Some(next) = next {
        let at = next.at.as_ref().map_or_else(String::new, |at| format!(", at {at}"));
        row("closes by", &format!("{}{at}", next.trigger));
    }
    to_do.iter().for_each(|what| row("to do", what));
    notes.iter().for_each(|note| row("note", note));
    unknown.iter().for_each(|unknown| row("not known", &format!("{}: {}", unknown.what, Printable(&unknown.why))));
}

fn row_text(explanation: &Explanation) -> String {
    let Explanation { status, unpaid, deadline_column, deadline_stored, deadline_zone, deadline, seconds_left, .. } = explanation;
    let status = status.as_ref().map_or_else(|| "NULL".into(), |status| Printable(status).to_string());
    let kind = if *unpaid { "unpaid" } else { "not unpaid" };
    let stored = deadline_stored.as_ref().map_or_else(|| "NULL".into(), |stored| Printable(stored).to_string());
    let zone = deadline_zone.as_ref().map_or_else(String::new, |zone| format!(", read in {zone}"));
    let meaning = deadline.as_ref().map_or_else(|| "no deadline".into(), Clone::clone);
    let left = seconds_left.map_or_else(String::new, |left| format!(" ({left:.3} s left)"));
    format!("status {status} ({kind}); {deadline_column} is {stored}{zone}: understood as {meaning}{left}")
}

fn rule_text(Explanation { rule, table, filter, passes_filter, .. }: &Explanation) -> String {
    let filter = filter.as_ref().map_or_else(String::new, |filter| {
        let passes = match passes_filter {
            Some(true) => ", which lets it through",
            Some(false) => ", which hides it",
            None => "",
        };
        format!(", filter {}{passes}", Printable(filter.trim()))
    });
    format!("{rule}: table {table}{filter}")
}
