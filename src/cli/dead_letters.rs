//! `order-closer dead-letters`: what was given up, and what is to become of it.

use serde::Serialize;
use uuid::Uuid;

use crate::{
    cli::{
        CommandResult, Exit, Failure,
        events::{Line, json, line, tables},
        print,
    },
    config::Config,
    order::{OrderId, Printable, rfc3339},
    outbox::{Address, DeadLetter, Death, Event, EventQuery},
    store::{self, Outbox, Store},
};

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
        /// All that are listed.
        #[arg(long, conflicts_with = "ids")]
        all: bool,
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
        Command::Retry { all: true, .. } => retry_all(outbox).await,
        Command::Retry { ids, all: false } => change(outbox, ids.iter().map(address), Change::Retry).await,
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
    for letter in outbox.dead_letters().await?.into_iter().map(Shown::from).filter(|letter| !letter.dropped) {
        print(&if as_json { json(&letter)? } else { letter.line() });
    }
    Ok(Exit::Done)
}

async fn show(outbox: &Outbox, (id, address): &(String, Address), as_json: bool) -> CommandResult {
    let letters = outbox.dead_letters().await?;
    let letters: Vec<Shown> = letters.into_iter().filter(|letter| letter.is(address)).map(Shown::from).collect();
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

async fn retry_all(outbox: &Outbox) -> CommandResult {
    print(&format!("{} put back", outbox.revive_all().await?));
    Ok(Exit::Done)
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Retry,
    Drop,
}

async fn change(outbox: &Outbox, named: impl Iterator<Item = (String, Address)>, change: Change) -> CommandResult {
    let mut strangers = Vec::new();
    for (id, address) in named {
        let (found, done) = match change {
            Change::Retry => (outbox.revive(&address).await?, "put back"),
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
