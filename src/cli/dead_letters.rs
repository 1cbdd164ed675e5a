//! `order-closer dead-letters`: what was given up, and what is to become of it.

use serde::Serialize;

use crate::{
    cli::{
        CommandResult, Exit, Failure,
        events::{json, line, tables},
        output, print,
    },
    config::Config,
    order::Printable,
    outbox::{Address, Backlog, Event, EventQuery, Letter, Place, PutBack, Recorded},
    store::{self, Outbox},
};

/// How many are read at a time.
const PAGE: u32 = 1_000;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List orders that could not be closed and events that could not be delivered.
    List {
        /// Print one JSON object on each line.
        #[arg(long)]
        json: bool,
    },
    /// Show all that is known of one, also of an order that was dropped.
    Show {
        /// The id of the order or of the event.
        id: String,
        /// Print one JSON object for each target of an event.
        #[arg(long)]
        json: bool,
    },
    /// Put them back: an order is closed, or an event delivered, as if it had never failed.
    Retry {
        /// The ids of orders or events.
        #[arg(required_unless_present = "all", value_name = "ID")]
        ids: Vec<String>,
        /// All orders that are listed, and all events whose target is in the configuration.
        #[arg(long, conflicts_with = "ids")]
        all: bool,
        /// Of an event only what this target was to be told.
        #[arg(long, value_name = "NAME")]
        target: Option<String>,
    },
    /// Drop them: an event is never delivered, an order left unpaid and no longer listed.
    Drop {
        /// The ids of orders or events.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

pub(super) async fn run(config: &Config, command: Command) -> CommandResult {
    let store = store::open(config).await?;
    let outbox = tables(store.as_ref())?;
    let kind = store.id_kind();
    let address = |id: &String| (id.clone(), Address::of(id, &kind));
    let exit = match command {
        Command::List { json } => list(outbox, json).await,
        Command::Show { id, json } => show(outbox, &address(&id), json).await,
        Command::Retry { all: true, target, .. } => retry_all(config, outbox, target.as_deref()).await,
        Command::Retry { ids, all: false, target } => change(outbox, ids.iter().map(address), Change::Retry(target.as_deref())).await,
        Command::Drop { ids } => change(outbox, ids.iter().map(address), Change::Drop).await,
    };
    store.close().await;
    exit
}

/// A dead letter as it is printed.
#[derive(Debug, Serialize)]
struct Shown<'e> {
    #[serde(flatten)]
    letter: Letter,
    /// All that an event would have told.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<Recorded<'e>>,
}

pub(super) fn text(Letter { kind, id, order_id, target, attempts, failed_at, error, dropped }: &Letter) -> String {
    let (id, order_id, error) = (Printable(id), Printable(order_id), Printable(error));
    let what = target.as_ref().map_or_else(|| format!("{kind} {id}"), |target| format!("{kind} {id} of order {order_id} to {target}"));
    let dropped = if *dropped { "; dropped" } else { "" };
    let tries = if *attempts == 1 { "1 try".into() } else { format!("{attempts} tries") };
    format!("{what}  {tries}, the last at {failed_at}: {error}{dropped}")
}

async fn list(outbox: &Outbox, as_json: bool) -> CommandResult {
    let mut place = Some(Place::FIRST);
    while let Some(begin) = place.filter(|_| output::is_read()) {
        let (letters, next) = outbox.dead_letters(&begin, PAGE).await?;
        for letter in letters.into_iter().map(Letter::from).filter(|letter| !letter.dropped) {
            print(&if as_json { json(&letter)? } else { text(&letter) });
        }
        place = next;
    }
    Ok(Exit::Done)
}

async fn show(outbox: &Outbox, (id, address): &(String, Address), as_json: bool) -> CommandResult {
    let letters: Vec<Letter> = outbox.dead_letters_of(address).await?.into_iter().map(Letter::from).collect();
    if letters.is_empty() {
        return Err(unknown(std::slice::from_ref(id)));
    }
    let event = match address.event {
        Some(event) => outbox.events(&EventQuery { id: Some(event), limit: 1, ..EventQuery::default() }).await?.pop(),
        None => None,
    };
    for letter in letters {
        let event = event.as_ref().filter(|_| letter.target.is_some());
        print(&if as_json { json(&Shown { event: event.map(Recorded::from), letter })? } else { with_event(&letter, event) });
    }
    Ok(Exit::Done)
}

fn with_event(letter: &Letter, event: Option<&Event>) -> String {
    event.map_or_else(|| text(letter), |event| format!("{}\n  {}", text(letter), line(event)))
}

async fn retry_all(config: &Config, outbox: &Outbox, target: Option<&str>) -> CommandResult {
    let PutBack { count, left } = outbox.revive_all(&config.events.target_names(), target).await?;
    print(&format!("{count} put back"));
    for Backlog { target: stranger, dead, .. } in left {
        print(&format!("{dead} left: {stranger} is not in the configuration (order-closer targets drop {stranger})"));
    }
    Ok(Exit::Done)
}

#[derive(Debug, Clone, Copy)]
enum Change<'t> {
    Retry(Option<&'t str>),
    Drop,
}

async fn change(outbox: &Outbox, named: impl Iterator<Item = (String, Address)>, change: Change<'_>) -> CommandResult {
    let mut strangers = Vec::new();
    for (id, address) in named {
        let (found, done) = match change {
            Change::Retry(target) => (outbox.revive(&address, target).await?, "put back"),
            Change::Drop => (outbox.discard(&address).await?, "dropped"),
        };
        if found {
            print(&format!("{}: {done}", Printable(&id)));
        } else {
            strangers.push(id);
        }
    }
    if strangers.is_empty() { Ok(Exit::Done) } else { Err(unknown(&strangers)) }
}

fn unknown(ids: &[String]) -> Failure {
    Failure::new(Exit::Usage, format!("no dead letter has the id {}", Printable(&ids.join(" or "))))
}
