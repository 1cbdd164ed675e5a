//! `order-closer targets`: who is told of closures, and how that goes.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{
    cli::{
        CommandResult, Exit, Failure,
        events::{json, tables},
        print,
    },
    config::Config,
    order::{printable, rfc3339},
    outbox::{Backlog, State, TargetState},
    store::{self, Outbox},
};

/// How much is given up, or made due, by one transaction.
const PIECE: u32 = 1_000;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Arguments {
    /// Print one JSON object on each line.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Ask a target again that wants no more events (410), or rests.
    Resume {
        /// Its name.
        name: String,
    },
    /// Give up what waits for a target that is not in the configuration any more.
    Drop {
        /// Its name.
        name: String,
    },
}

pub(super) async fn run(config: &Config, arguments: Arguments) -> CommandResult {
    let store = store::open(config).await?;
    let outbox = tables(store.as_ref())?;
    let done = match arguments.command {
        None => list(config, outbox, arguments.json).await,
        Some(Command::Resume { name }) => resume(config, outbox, &name).await,
        Some(Command::Drop { name }) => drop_all(config, outbox, &name).await,
    };
    store.close().await;
    done
}

/// A target as it is printed.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    name: String,
    configured: bool,
    pub(super) state: &'static str,
    resting_until: Option<String>,
    waiting: u64,
    dead: u64,
    oldest_waiting: Option<String>,
    failing_since: Option<String>,
    last_success: Option<String>,
    last_error: Option<String>,
}

impl Shown {
    fn new(name: &str, configured: bool, backlog: Option<&Backlog>, state: Option<&TargetState>) -> Self {
        let time = |time: Option<i64>| time.map(rfc3339);
        Self {
            name: name.to_owned(),
            configured,
            state: state.map_or(State::Ok, |state| state.state).name(),
            resting_until: time(state.and_then(|state| state.resting_until)),
            waiting: backlog.map_or(0, |backlog| backlog.waiting),
            dead: backlog.map_or(0, |backlog| backlog.dead),
            oldest_waiting: time(backlog.and_then(|backlog| backlog.oldest)),
            failing_since: time(state.and_then(|state| state.failing_since)),
            last_success: time(state.and_then(|state| state.last_success_at)),
            last_error: state.and_then(|state| state.last_error.clone()),
        }
    }

    fn line(&self) -> String {
        let mut line = format!("{}  {}", self.name, self.state);
        let mut add = |text: String| line.push_str(&text);
        if let Some(until) = &self.resting_until {
            add(format!(" until {until}"));
        }
        if !self.configured {
            add(", not in the configuration".into());
        }
        add(format!("  {} waiting", self.waiting));
        if let Some(oldest) = &self.oldest_waiting {
            add(format!(" since {oldest}"));
        }
        add(format!(", {} dead letters", self.dead));
        if let Some(since) = &self.failing_since {
            add(format!("; failing since {since}"));
        }
        if let Some(success) = &self.last_success {
            add(format!("; last success at {success}"));
        }
        if let Some(error) = &self.last_error {
            add(format!("; last error: {error}"));
        }
        printable(line)
    }
}

/// All targets: those of the configuration first, then those that our tables know besides.
async fn shown(config: &Config, outbox: &Outbox) -> Result<Vec<Shown>, Failure> {
    let (backlog, states) = (outbox.backlog().await?, outbox.target_states(None).await?);
    let named: Vec<&str> = config.events.targets().collect();
    let known = backlog.iter().map(|backlog| backlog.target.as_str()).chain(states.iter().map(|state| state.target.as_str()));
    let others: BTreeSet<&str> = known.filter(|name| !named.contains(name)).collect();
    let show = |name: &str, configured| {
        let backlog = backlog.iter().find(|backlog| backlog.target == name);
        Shown::new(name, configured, backlog, states.iter().find(|state| state.target == name))
    };
    Ok(named.iter().map(|name| show(name, true)).chain(others.iter().map(|name| show(name, false))).collect())
}

async fn list(config: &Config, outbox: &Outbox, as_json: bool) -> CommandResult {
    for target in shown(config, outbox).await? {
        print(&if as_json { json(&target)? } else { target.line() });
    }
    Ok(Exit::Done)
}

async fn resume(config: &Config, outbox: &Outbox, name: &str) -> CommandResult {
    if outbox.is_outdated() {
        return Err(Failure::new(Exit::Configuration, outbox.missing()));
    }
    if !outbox.resume_target(name).await? && !config.events.targets().any(|target| target == name) {
        return Err(unknown(name));
    }
    while outbox.make_due(name, PIECE).await? >= u64::from(PIECE) {}
    print(&format!("{name}: is asked again"));
    Ok(Exit::Done)
}

async fn drop_all(config: &Config, outbox: &Outbox, name: &str) -> CommandResult {
    if config.events.targets().any(|target| target == name) {
        let message = format!("{name} is in the configuration; remove it there first");
        return Err(Failure::new(Exit::Usage, message));
    }
    let known = outbox.target_states(None).await?.iter().any(|state| state.target == name);
    let mut dropped = 0;
    loop {
        let piece = outbox.give_up(name, PIECE).await?;
        dropped += piece;
        if piece == 0 {
            break;
        }
    }
    if dropped == 0 && !known {
        return Err(unknown(name));
    }
    outbox.forget_target(name).await?;
    print(&format!("{name}: {dropped} given up"));
    Ok(Exit::Done)
}

fn unknown(name: &str) -> Failure {
    Failure::new(Exit::Usage, format!("no target is called {name:?}, and no event waits for one"))
}
