//! `order-closer dead-letters`: what was given up, and what is to become of it.

use std::{collections::HashSet, sync::Arc};

use serde::Serialize;

use crate::{
    cli::{
        CommandResult, Exit, Failure,
        events::{self, json, line},
        left_out::LeftOut,
        output, print, some_rules, store_of,
    },
    config::{Config, RuleName},
    order::{Printable, ShellWord},
    outbox::{Address, Backlog, Event, EventQuery, Letter, Place, PutBack, Recorded},
    store::{Outbox, Store},
};

/// How many are read at a time.
const PAGE: u32 = 1_000;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Those of this rule only.
    #[arg(long, global = true, value_name = "NAME")]
    rule: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
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
    /// Forget the orders that a rule has given up that is not in the configuration any more.
    Forget {
        /// The name of the rule.
        #[arg(value_name = "RULE")]
        name: String,
    },
}

pub(super) async fn run(config: &Config, Arguments { rule, command }: Arguments) -> CommandResult {
    let (desks, left_out) = Desk::of(config, rule.as_deref()).await?;
    let ended = match command {
        Command::List { json } => list(&desks, json).await,
        Command::Show { id, json } => show(&desks, &id, json).await,
        Command::Retry { all: true, target, .. } => retry_all(&desks, target.as_deref()).await,
        Command::Retry { ids, all: false, target } => change(&desks, &ids, Change::Retry(target.as_deref())).await,
        Command::Drop { ids } => change(&desks, &ids, Change::Drop).await,
        Command::Forget { name } => forget(config, &desks, &name).await,
    };
    for desk in &desks {
        desk.store.close().await;
    }
    // What is found nowhere may be where nobody looked.
    match (ended, left_out.failure()) {
        (Ok(exit), _) => left_out.end(exit),
        (Err(failure), Some(away)) => Err(Failure::new(away.exit, format!("{}\n{}", away.message, failure.message))),
        (Err(failure), None) => Err(failure),
    }
}

/// The dead letters of a rule.
struct Desk {
    config: Config,
    store: Arc<dyn Store>,
    /// Events are those of all rules of a table, and shown with the first.
    has_events: bool,
}

impl Desk {
    /// Of the rule that was named, or of all.
    async fn of(config: &Config, rule: Option<&str>) -> Result<(Vec<Self>, LeftOut), Failure> {
        let (mut desks, mut tables, mut left_out) = (Vec::new(), HashSet::new(), LeftOut::default());
        for config in some_rules(config, rule)? {
            if left_out.skips(&config) {
                continue;
            }
            let opened = store_of(&config).await.and_then(|store| events::tables(store.as_ref()).map(|_| ()).map(|()| store));
            let store = match opened {
                Ok(store) => store,
                Err(failure) => {
                    left_out.add(&config.which, failure)?;
                    continue;
                }
            };
            desks.push(Self { has_events: tables.insert((config.which.database.clone(), config.orders.table.clone())), config, store });
        }
        Ok((desks, left_out))
    }

    fn outbox(&self) -> &Outbox {
        self.store.outbox()
    }

    fn address(&self, id: &str) -> Address {
        let address = Address::of(id, &self.store.id_kind());
        if self.has_events { address } else { Address { event: None, ..address } }
    }

    async fn letters(&self, id: &str) -> Result<Vec<Letter>, Failure> {
        Ok(self.outbox().dead_letters_of(&self.address(id)).await?.into_iter().map(|letter| Letter::of(letter, self.outbox())).collect())
    }
}

/// Where the dead letter with this id is; nowhere if there is none.
async fn owner<'d>(desks: &'d [Desk], id: &str) -> Result<Option<&'d Desk>, Failure> {
    if let [only] = desks {
        return Ok(Some(only));
    }
    let mut owners = Vec::new();
    for desk in desks {
        if !desk.letters(id).await?.is_empty() {
            owners.push(desk);
        }
    }
    if owners.len() > 1 {
        let rules = owners.iter().map(|desk| desk.store.rule().in_full()).collect::<Vec<_>>().join(", ");
        let with = if owners.iter().any(|desk| desk.store.rule().shard().is_some()) { "--shard" } else { "--rule" };
        let message = format!("{} is a dead letter of the rules {rules}; name one with {with}", Printable(id));
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(owners.pop())
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

pub(super) fn text(Letter { rule: _, shard: _, kind, id, order_id, target, attempts, failed_at, error, dropped }: &Letter) -> String {
    let (id, order_id, error) = (Printable(id), Printable(order_id), Printable(error));
    let what = target
        .as_ref()
        .map_or_else(|| format!("{kind} {id}"), |target| format!("{kind} {id} of order {order_id} to {}", Printable(target)));
    let dropped = if *dropped { "; dropped" } else { "" };
    let tries = if *attempts == 1 { "1 try".into() } else { format!("{attempts} tries") };
    format!("{what}  {tries}, the last at {failed_at}: {error}{dropped}")
}

/// A line about a dead letter, with its rule where there are several.
fn named(desks: &[Desk], letter: &Letter, text: String) -> String {
    if desks.len() > 1 {
        let of = letter.shard.as_ref().map_or_else(|| letter.rule.clone(), |shard| format!("{} ({shard})", letter.rule));
        format!("{}: {text}", Printable(&of))
    } else {
        text
    }
}

async fn list(desks: &[Desk], as_json: bool) -> CommandResult {
    let mut is_empty = true;
    for desk in desks {
        let mut place = Some(Place::FIRST);
        while let Some(begin) = place.filter(|place| output::is_read() && (desk.has_events || matches!(place, Place::Orders { .. }))) {
            let (letters, next) = desk.outbox().dead_letters(&begin, PAGE).await?;
            for letter in letters.into_iter().map(|letter| Letter::of(letter, desk.outbox())).filter(|letter| !letter.dropped) {
                print(&if as_json { json(&letter)? } else { named(desks, &letter, text(&letter)) });
                is_empty = false;
            }
            place = next;
        }
    }
    if is_empty {
        output::say_empty("no dead letters");
    }
    Ok(Exit::Done)
}

async fn show(desks: &[Desk], id: &str, as_json: bool) -> CommandResult {
    let unknown = || unknown(&[id.to_owned()]);
    let desk = owner(desks, id).await?.ok_or_else(unknown)?;
    let letters = desk.letters(id).await?;
    if letters.is_empty() {
        return Err(unknown());
    }
    let event = match desk.address(id).event {
        Some(event) => desk.outbox().events(&EventQuery { id: Some(event), limit: 1, ..EventQuery::default() }).await?.pop(),
        None => None,
    };
    for letter in letters {
        let event = event.as_ref().filter(|_| letter.target.is_some());
        print(&if as_json {
            json(&Shown { event: event.map(Recorded::from), letter })?
        } else {
            named(desks, &letter, with_event(&letter, event))
        });
    }
    Ok(Exit::Done)
}

fn with_event(letter: &Letter, event: Option<&Event>) -> String {
    event.map_or_else(|| text(letter), |event| format!("{}\n  {}", text(letter), line(event)))
}

async fn retry_all(desks: &[Desk], target: Option<&str>) -> CommandResult {
    let (mut all, mut strangers) = (0, Vec::new());
    for desk in desks {
        let PutBack { count, left } = desk.outbox().revive_all(&desk.config.events.target_names(), target).await?;
        all += count;
        if desk.has_events {
            strangers.extend(left);
        }
    }
    print(&format!("{all} put back"));
    for Backlog { target: stranger, dead, .. } in strangers {
        let (stranger, word) = (Printable(&stranger), ShellWord(&stranger));
        print(&format!("{dead} left: {stranger} is not in the configuration (order-closer targets drop {word})"));
    }
    Ok(Exit::Done)
}

#[derive(Debug, Clone, Copy)]
enum Change<'t> {
    Retry(Option<&'t str>),
    Drop,
}

async fn change(desks: &[Desk], ids: &[String], change: Change<'_>) -> CommandResult {
    let mut strangers = Vec::new();
    for id in ids {
        let (mut found, mut done) = (false, "");
        if let Some(desk) = owner(desks, id).await? {
            let (outbox, address) = (desk.outbox(), desk.address(id));
            (found, done) = match change {
                Change::Retry(target) => (outbox.revive(&address, target).await?, "put back"),
                Change::Drop => (outbox.discard(&address).await?, "dropped"),
            };
        }
        if found {
            print(&format!("{}: {done}", Printable(id)));
        } else {
            strangers.push(id.clone());
        }
    }
    if strangers.is_empty() { Ok(Exit::Done) } else { Err(unknown(&strangers)) }
}

/// No other command finds them: those are about the rules of the configuration.
async fn forget(config: &Config, desks: &[Desk], name: &str) -> CommandResult {
    let nothing = || Failure::new(Exit::Usage, format!("no rule called {} has given up orders here", Printable(&format!("{name:?}"))));
    let rule: RuleName = name.parse().map_err(|_| nothing())?;
    if config.rule_names().iter().any(|known| known.as_str() == name) {
        return Err(Failure::new(Exit::Usage, format!("{rule} is in the configuration; its orders can be put back, or dropped")));
    }
    let mut count = 0;
    for desk in desks.iter().filter(|desk| desk.has_events) {
        count += desk.outbox().forget_orders_of(&rule).await?;
    }
    if count == 0 {
        return Err(nothing());
    }
    print(&format!("{rule}: {count} forgotten"));
    Ok(Exit::Done)
}

fn unknown(ids: &[String]) -> Failure {
    Failure::new(Exit::Usage, format!("no dead letter has the id {}", Printable(&ids.join(" or "))))
}
