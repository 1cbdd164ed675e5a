//! `order-closer targets`: who is told of closures, and how that goes.

use crate::{
    cli::{
        CommandResult, Exit, Failure, each_table,
        events::{json, tables},
        output, print, store_of,
    },
    config::Config,
    order::{Printable, did_you_mean, printable},
    outbox::{Dropped, TargetStatus},
    store::Outbox,
};

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
    let (mut found, mut names, mut listed) = (Found::Nowhere, Vec::new(), 0);
    // Each orders table has deliveries and states of targets of its own.
    for config in each_table(config.of_each_rule()) {
        let store = store_of(&config).await?;
        let outbox = tables(store.as_ref())?;
        let ended = match &arguments.command {
            None => list(&config, outbox, arguments.json).await.map(|count| {
                listed += count;
                Found::Done
            }),
            Some(Command::Resume { name }) => resume(&config, outbox, name).await,
            Some(Command::Drop { name }) => drop_all(&config, outbox, name).await,
        };
        store.close().await;
        found = found.max(ended?);
        names.extend(config.events.target_names());
    }
    if arguments.command.is_none() && listed == 0 {
        output::say_empty("no targets: events.webhooks and events.stream name none, and nothing waits for one of before");
    }
    match (arguments.command, found) {
        (None, _) | (Some(_), Found::Done) => Ok(Exit::Done),
        (Some(Command::Resume { name } | Command::Drop { name }), found) => Err(found.failure(&name, &names)),
    }
}

/// What became of a target beside one table; where there are several, the greatest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    /// It is not known there.
    Nowhere,
    /// It is in the configuration, and so nothing of it can be given up.
    Configured,
    /// What was asked for was done.
    Done,
}

impl Found {
    fn failure(self, name: &str, names: &[String]) -> Failure {
        let message = if self == Self::Configured {
            format!("{name} is in the configuration; remove it there first")
        } else {
            let meant = did_you_mean(name, names.iter().map(String::as_str));
            format!("no target is called {}, and no event waits for one{meant}", Printable(&format!("{name:?}")))
        };
        Failure::new(Exit::Usage, message)
    }
}

fn text(target: &TargetStatus) -> String {
    let mut line = format!("{}  {}", target.name, target.state);
    let mut add = |text: String| line.push_str(&text);
    if let Some(until) = &target.resting_until {
        add(format!(" until {until}"));
    }
    if !target.configured {
        add(", not in the configuration".into());
    }
    add(format!("  {} waiting", target.waiting));
    if let Some(oldest) = &target.oldest_waiting {
        add(format!(" since {oldest}"));
    }
    add(format!(", {} dead letters", target.dead));
    if let Some(since) = &target.failing_since {
        add(format!("; failing since {since}"));
    }
    if let Some(success) = &target.last_success {
        add(format!("; last success at {success}"));
    }
    if let Some(error) = &target.last_error {
        add(format!("; last error: {error}"));
    }
    printable(line)
}

async fn list(config: &Config, outbox: &Outbox, as_json: bool) -> Result<usize, Failure> {
    let targets = outbox.targets(&config.events.target_names()).await?;
    for target in &targets {
        print(&if as_json { json(target)? } else { text(target) });
    }
    Ok(targets.len())
}

async fn resume(config: &Config, outbox: &Outbox, name: &str) -> Result<Found, Failure> {
    if outbox.is_outdated() {
        return Err(Failure::new(Exit::Configuration, outbox.missing()));
    }
    if !outbox.resume(name, &config.events.target_names()).await? {
        return Ok(Found::Nowhere);
    }
    print(&format!("{}: is asked again", Printable(name)));
    Ok(Found::Done)
}

async fn drop_all(config: &Config, outbox: &Outbox, name: &str) -> Result<Found, Failure> {
    Ok(match outbox.drop_target(name, &config.events.target_names()).await? {
        Dropped::Events(count) => {
            print(&format!("{}: {count} given up", Printable(name)));
            Found::Done
        }
        Dropped::Unknown => Found::Nowhere,
        Dropped::Configured => Found::Configured,
    })
}
