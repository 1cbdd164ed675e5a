//! `order-closer dead-letters`: what was given up, and what is to become of it.

use serde::Serialize;
use uuid::Uuid;

use crate::{
    cli::{
        CommandResult, Exit, Failure,
        events::{Line, json, line, tables},
        output, print,
    },
    config::Config,
    order::{OrderId, Printable, rfc3339},
    outbox::{Address, Backlog, DeadLetter, Death, Event, EventQuery, Place},
    store::{self, Outbox, Store},
};

/// How many are read, or put back, at a time.
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
    let address = |id: &String| (id.clone(), address(store.as_ref(), id));
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

/// What an id names; one that can't be of this table may have been of an older one.
fn address(store: &dyn Store, id: &str) -> Address {
    let order = store.id_kind().parse(id.as_bytes()).unwrap_or_else(|_| OrderId::from_database(id));
    Address { order, event: Uuid::try_parse(id).ok() }
}

/// A dead letter as it is printed.
#[derive(Debug, Serialize)]
struct Shown<'e> {
    kind: &'static str,
    id: String,
    order_id: String,
    /// Where an event was to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    attempts: u64,
    failed_at: String,
    error: String,
    dropped: bool,
    /// All that it would have told.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<Line<'e>>,
}

impl From<DeadLetter> for Shown<'_> {
    fn from(letter: DeadLetter) -> Self {
        let (kind, id, order_id, target, Death { attempts, failed_at, error }, dropped) = match letter {
            DeadLetter::Order { id, dropped, death } => ("order", id.as_str().to_owned(), id.as_str().to_owned(), None, death, dropped),
            DeadLetter::Event { id, order_id, target, death } => ("event", id.to_string(), order_id, Some(target), death, false),
        };
        Self { kind, id, order_id, target, attempts, failed_at: rfc3339(failed_at), error, dropped, event: None }
    }
}

impl Shown<'_> {
    fn line(&self) -> String {
        let Self { kind, id, order_id, target, attempts, failed_at, error, dropped, .. } = self;
        let (id, order_id, error) = (Printable(id), Printable(order_id), Printable(error));
        let what = target.as_ref().map_or_else(|| format!("{kind} {id}"), |target| format!("{kind} {id} of order {order_id} to {target}"));
        let dropped = if *dropped { "; dropped" } else { "" };
        let tries = if *attempts == 1 { "1 try".into() } else { format!("{attempts} tries") };
        format!("{what}  {tries}, the last at {failed_at}: {error}{dropped}")
    }
}

async fn list(outbox: &Outbox, as_json: bool) -> CommandResult {
    let mut place = Some(Place::FIRST);
    while let Some(begin) = place.filter(|_| output::is_read()) {
        let (letters, next) = outbox.dead_letters(&begin, PAGE).await?;
        for letter in letters.into_iter().map(Shown::from).filter(|letter| !letter.dropped) {
            print(&if as_json { json(&letter)? } else { letter.line() });
        }
        place = next;
    }
    Ok(Exit::Done)
}

async fn show(outbox: &Outbox, (id, address): &(String, Address), as_json: bool) -> CommandResult {
    let letters: Vec<Shown> = outbox.dead_letters_of(address).await?.into_iter().map(Shown::from).collect();
    if letters.is_empty() {
        return Err(unknown(std::slice::from_ref(id)));
    }
    let event = match address.event {
        Some(event) => outbox.events(&EventQuery { id: Some(event), limit: 1, ..EventQuery::default() }).await?.pop(),
        None => None,
    };
    for letter in letters {
        let event = event.as_ref().filter(|_| letter.target.is_some());
        print(&if as_json { json(&Shown { event: event.map(Line::from), ..letter })? } else { with_event(&letter, event) });
    }
    Ok(Exit::Done)
}

fn with_event(letter: &Shown, event: Option<&Event>) -> String {
    event.map_or_else(|| letter.line(), |event| format!("{}\n  {}", letter.line(), line(event)))
}

/// Puts everything back, piece by piece; of events only what somebody in the configuration can be told, or this target.
async fn retry_all(config: &Config, outbox: &Outbox, target: Option<&str>) -> CommandResult {
    let (mut revived, piece) = (0, u64::from(PAGE));
    let mut last = if target.is_none() { piece } else { 0 };
    while last >= piece {
        last = outbox.revive_some_orders(PAGE).await?;
        revived += last;
    }
    for target in config.events.targets().filter(|name| target.is_none_or(|target| target == *name)) {
        last = piece;
        while last >= piece {
            last = outbox.revive_some_events(target, PAGE).await?;
            revived += last;
        }
    }
    print(&format!("{revived} put back"));
    let named: Vec<String> = config.events.targets().map(str::to_owned).collect();
    for Backlog { target: stranger, dead, .. } in outbox.strangers(&named).await?.iter().filter(|left| left.dead > 0) {
        if target.is_none_or(|target| target == stranger) {
            print(&format!("{dead} left: {stranger} is not in the configuration (order-closer targets drop {stranger})"));
        }
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
