//! `order-closer explain`: why an order was closed, or is not.

use std::{sync::Arc, time::Duration};

use crate::{
    cli::{
        CommandResult, Exit, Failure,
        dead_letters::text,
        events::{json, line},
        left_out::LeftOut,
        print, some_rules, store_of,
    },
    close::Bounds,
    config::{Config, Rule},
    explain::{Explainer, Explanation, KeyState, State},
    order::Printable,
    outbox::Letter,
    redis::Commands,
    trigger::compare_clocks,
};

/// How long Redis may take, the connection included.
const REDIS: Duration = Duration::from_secs(3);

/// As each rule has it that has the order; as all of them, where none has.
pub(super) async fn run(config: &Config, id: &str, rule: Option<&str>, as_json: bool) -> CommandResult {
    let (mut all, mut unreadable, mut left_out) = (Vec::new(), None, LeftOut::default());
    for config in &some_rules(config, rule)? {
        if left_out.skips(config) {
            continue;
        }
        match explained(config, id).await {
            Ok(Ok(explanation)) => all.push(explanation),
            // Timers come last, and only theirs have names such as reminder/1001.
            Ok(Err(reason)) if config.which.name.is_timers() && id.contains('/') => unreadable = Some(reason),
            Ok(Err(reason)) => unreadable = unreadable.or(Some(reason)),
            // Another shard may have it.
            Err(failure) => left_out.add(&config.which, failure)?,
        }
    }
    if let Some(reason) = unreadable.filter(|_| all.is_empty()) {
        return Err(Failure::new(Exit::Usage, reason));
    }
    let nearest = all.iter().map(distance).min();
    if let Some(failure) = left_out.failure().filter(|_| nearest.is_none_or(|nearest| nearest > 1)) {
        return Err(failure);
    }
    all.retain(|explanation| Some(distance(explanation)) == nearest);
    if nearest == Some(2) && config.is_sharded() {
        // Every shard says the same of what it does not have.
        all.truncate(1);
    }
    for explanation in &all {
        if as_json {
            print(&json(explanation)?);
        } else {
            show(explanation);
        }
    }
    left_out.end(Exit::Done)
}

/// How far a rule is from having anything to do with an order.
fn distance(explanation: &Explanation) -> u8 {
    match explanation.state {
        State::NotFound | State::Hidden => 2,
        // To another rule its status may be one of an unpaid order.
        State::Settled => 1,
        State::SeveralRows
        | State::ClaimedTwice
        | State::Closed
        | State::NeverDue
        | State::NotDue
        | State::ClockAhead
        | State::GivenUp
        | State::Undone
        | State::Old
        | State::Halted
        | State::Paused
        | State::Disputed
        | State::Asked
        | State::Held
        | State::Refused
        | State::Due => 0,
    }
}

/// As one rule has it, unless this can't be the id of one of its orders.
async fn explained(config: &Config, id: &str) -> Result<Result<Explanation, String>, Failure> {
    let store = store_of(config).await?;
    let bounds = Arc::new(Bounds::new(config.sweep.oldest.get()));
    compare_clocks(store.as_ref(), &config.redis, &bounds).await;
    let redis = Commands::new(&config.redis).map_err(|error| error.to_string());
    let explainer = Explainer::of(Rule::of(config), config.sweep.ahead.get(), &store, bounds, (redis, REDIS));
    let explained = match explainer.find(id).await? {
        Ok(id) => Ok(explainer.explain(&id).await?),
        Err(reason) => Err(reason),
    };
    store.close().await;
    Ok(explained)
}

/// The sentence, and below it what it is made of.
fn show(explanation: &Explanation) {
    let Explanation { rows, key, pause, dead_letter, undelivered, events, next, to_do, notes, unknown, .. } = explanation;
    let (due, by) = match explanation.is_of_timer() {
        true => ("fire, if nobody holds its row", "fires by"),
        false => ("close, if nobody holds its row", "closes by"),
    };
    print(explanation.sentence());
    let row = |name: &str, text: &str| print(&format!("  {name:<12} {text}"));
    if *rows == 1 {
        row("row", &row_text(explanation));
    }
    row("rule", &rule_text(explanation));
    if let Some(name) = key.name.as_deref().map(Printable) {
        let known = match (key.state, &key.expires) {
            (KeyState::Expires, Some(at)) => format!("{name}, expires at {at}"),
            (KeyState::NoTtl, _) => format!("{name}, does not expire"),
            (KeyState::None, _) => format!("{name}: there is none"),
            (KeyState::Expires | KeyState::Unknown, _) => format!("{name}: not known"),
        };
        row("key", &known);
    }
    if let Some(verdict) = explanation.verdict {
        row("verdict", if verdict == "close" { due } else { verdict });
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
        row(by, &format!("{}{at}", next.trigger));
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
    let status = if explanation.is_of_timer() { format!("state {status}") } else { format!("status {status} ({kind})") };
    format!("{status}; {deadline_column} is {stored}{zone}: understood as {meaning}{left}")
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
