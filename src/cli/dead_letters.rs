//! `order-closer dead-letters`: what was given up, and what is to become of it.

use serde::Serialize;
use uuid::Uuid;

use crate::{
    cli::{
        Exit, Failure, Outcome,
        events::{json_line, tables},
        print,
    },
    config::Config,
    order::rfc3339,
    store::{self, DeadLetter, Death, EventQuery, Outbox},
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
    },
    /// Put them back: an order is closed, or an event delivered, as if it had never failed.
    Retry {
        /// The ids of orders or events.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Drop them: an event is never delivered, an order left unpaid and no longer listed.
    Drop {
        /// The ids of orders or events.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

pub(super) async fn run(config: &Config, command: Command) -> Outcome {
    let store = store::open(config).await?;
    let outbox = tables(store.as_ref())?;
    let exit = match command {
        Command::List { json } => list(outbox, json).await,
        Command::Show { id } => show(outbox, &id).await,
        Command::Retry { ids } => change(outbox, &ids, Change::Retry).await,
        Command::Drop { ids } => change(outbox, &ids, Change::Drop).await,
    };
    store.close().await;
    exit
}

/// A dead letter as it is printed.
#[derive(Debug, Serialize)]
struct Shown {
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
}

impl From<DeadLetter> for Shown {
    fn from(letter: DeadLetter) -> Self {
        let (kind, id, order_id, target, Death { attempts, failed_at, error }, dropped) = match letter {
            DeadLetter::Order { id, dropped, death } => ("order", id.clone(), id, None, death, dropped),
            DeadLetter::Event { id, order_id, target, death } => ("event", id.to_string(), order_id, Some(target), death, false),
        };
        Self { kind, id, order_id, target, attempts, failed_at: rfc3339(failed_at), error, dropped }
    }
}

impl Shown {
    fn line(&self) -> String {
        let Self { kind, id, order_id, target, attempts, failed_at, error, dropped } = self;
        let what = target.as_ref().map_or_else(|| format!("{kind} {id}"), |target| format!("{kind} {id} of order {order_id} to {target}"));
        let dropped = if *dropped { "; dropped" } else { "" };
        let tries = if *attempts == 1 { "1 try".into() } else { format!("{attempts} tries") };
        format!("{what}  {tries}, the last at {failed_at}: {error}{dropped}")
    }

    fn json(&self) -> Result<String, Failure> {
        serde_json::to_string(self).map_err(|error| Failure::new(Exit::Software, error.to_string()))
    }
}

async fn list(outbox: &Outbox, json: bool) -> Outcome {
    for letter in outbox.dead_letters().await?.into_iter().map(Shown::from).filter(|letter| !letter.dropped) {
        print(&if json { letter.json()? } else { letter.line() });
    }
    Ok(Exit::Done)
}

async fn show(outbox: &Outbox, id: &str) -> Outcome {
    let letters = outbox.dead_letters().await?;
    let letters: Vec<Shown> = letters.into_iter().map(Shown::from).filter(|letter| letter.id == id).collect();
    if letters.is_empty() {
        return Err(unknown(&[id]));
    }
    letters.iter().for_each(|letter| print(&letter.line()));
    if let Ok(event) = Uuid::try_parse(id) {
        for event in outbox.events(&EventQuery { id: Some(event), limit: 1, ..EventQuery::default() }).await? {
            print(&json_line(&event)?);
        }
    }
    Ok(Exit::Done)
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Retry,
    Drop,
}

async fn change(outbox: &Outbox, ids: &[String], change: Change) -> Outcome {
    let mut strangers = Vec::new();
    for id in ids {
        let (found, done) = match change {
            Change::Retry => (outbox.revive(id).await?, "put back"),
            Change::Drop => (outbox.discard(id).await?, "dropped"),
        };
        if found {
            print(&format!("{id}: {done}"));
        } else {
            strangers.push(id.as_str());
        }
    }
    if strangers.is_empty() { Ok(Exit::Done) } else { Err(unknown(&strangers)) }
}

fn unknown(ids: &[&str]) -> Failure {
    Failure::new(Exit::Usage, format!("no dead letter has the id {}", ids.join(" or ")))
}
