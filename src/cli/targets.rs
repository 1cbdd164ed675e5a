//! `order-closer targets`: who is told of closures, and how that goes.

use crate::{
    cli::{
        CommandResult, Exit, Failure, each_table,
        events::{json, tables},
        output, print, store_of,
    },
    config::Config,
    order::{did_you_mean, printable},
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
    let (mut done, mut unknown, mut listed) = (false, None, 0);
    // Each orders table has deliveries and states of targets of its own.
    for config in each_table(config.of_each_rule()) {
        let store = store_of(&config).await?;
        let outbox = tables(store.as_ref())?;
        let ended = match &arguments.command {
            None => list(&config, outbox, arguments.json).await.map(|count| {
                listed += count;
                Exit::Done
            }),
            Some(Command::Resume { name }) => resume(&config, outbox, name).await,
            Some(Command::Drop { name }) => drop_all(&config, outbox, name).await,
        };
        store.close().await;
        match ended {
            Ok(_) => done = true,
            Err(failure) if failure.exit == Exit::Usage => unknown = Some(failure),
            Err(failure) => return Err(failure),
        }
    }
    if arguments.command.is_none() && listed == 0 {
        output::say_empty("no targets: events.webhooks and events.stream name none, and nothing waits for one of before");
    }
    unknown.filter(|_| !done).map_or(Ok(Exit::Done), Err)
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

async fn resume(config: &Config, outbox: &Outbox, name: &str) -> CommandResult {
    if outbox.is_outdated() {
        return Err(Failure::new(Exit::Configuration, outbox.missing()));
    }
    if !outbox.resume(name, &config.events.target_names()).await? {
        return Err(unknown(config, name));
    }
    print(&format!("{name}: is asked again"));
    Ok(Exit::Done)
}

async fn drop_all(config: &Config, outbox: &Outbox, name: &str) -> CommandResult {
    match outbox.drop_target(name, &config.events.target_names()).await? {
        Dropped::Events(count) => print(&format!("{name}: {count} given up")),
        Dropped::Unknown => return Err(unknown(config, name)),
        Dropped::Configured => {
            return Err(Failure::new(Exit::Usage, format!("{name} is in the configuration; remove it there first")));
        }
    }
    Ok(Exit::Done)
}

fn unknown(config: &Config, name: &str) -> Failure {
    let all = config.events.target_names();
    let meant = did_you_mean(name, all.iter().map(String::as_str));
    Failure::new(Exit::Usage, format!("no target is called {name:?}, and no event waits for one{meant}"))
}
