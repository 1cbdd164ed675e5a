//! Dead letters as commands and HTTP show them, and what both do with all of them at once.

use serde::Serialize;
use uuid::Uuid;

use super::{Address, Backlog, DeadLetter, Death, Result};
use crate::{
    config::RuleName,
    order::{IdKind, OrderId, rfc3339},
    store::Outbox,
};

/// How many are put back at a time.
const PIECE: u32 = 1_000;

/// A dead letter as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Letter {
    /// The rule of the order.
    pub rule: String,
    /// The shard that the order is in, where orders are in several places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// `order` or `event`.
    pub kind: &'static str,
    /// The id of the one or of the other.
    pub id: String,
    /// The order.
    pub order_id: String,
    /// Where an event was to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// How often it was tried.
    pub attempts: u64,
    /// When the last attempt failed, in RFC 3339.
    pub failed_at: String,
    /// What that said.
    pub error: String,
    /// Whether nobody wants to hear of it any more.
    pub dropped: bool,
}

impl Letter {
    /// One of these tables.
    #[must_use]
    pub fn of(letter: DeadLetter, outbox: &Outbox) -> Self {
        let (rule, kind, id, order_id, target, Death { attempts, failed_at, error }, dropped) = match letter {
            DeadLetter::Order { rule, id, dropped, death } => {
                (rule, "order", id.as_str().to_owned(), id.as_str().to_owned(), None, death, dropped)
            }
            DeadLetter::Event { rule, id, order_id, target, death } => {
                (rule, "event", id.to_string(), order_id, Some(target), death, false)
            }
        };
        let shard = outbox.rule().shard().map(str::to_owned);
        Self { rule, shard, kind, id, order_id, target, attempts, failed_at: rfc3339(failed_at), error, dropped }
    }
}

impl Address {
    /// What a text names; one that can't be the id of an order of this table may have been of an older one.
    #[must_use]
    pub fn of(text: &str, kind: &IdKind) -> Self {
        let order = kind.parse(text.as_bytes()).unwrap_or_else(|_| OrderId::from_database(text));
        Self { order, event: Uuid::try_parse(text).ok() }
    }
}

/// What was put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutBack {
    /// How many orders and events.
    pub count: u64,
    /// What is left, since nobody in the configuration can be told.
    pub left: Vec<Backlog>,
}

impl Outbox {
    /// Puts everything back, piece by piece; of events only what one of the targets that are `named` can be told; with a
    /// `target` the events of that one alone.
    ///
    /// # Errors
    /// As the database says, sorted; what was put back before stays so.
    pub async fn revive_all(&self, named: &[String], target: Option<&str>) -> Result<PutBack> {
        let (mut count, piece) = (0, u64::from(PIECE));
        let mut last = if target.is_none() { piece } else { 0 };
        while last >= piece {
            last = self.revive_some_orders(PIECE).await?;
            count += last;
        }
        for name in named.iter().filter(|name| target.is_none_or(|target| target == *name)) {
            last = piece;
            while last >= piece {
                last = self.revive_some_events(name, PIECE).await?;
                count += last;
            }
        }
        let mut left = self.strangers(named).await?;
        left.retain(|left| left.dead > 0 && target.is_none_or(|target| target == left.target));
        Ok(PutBack { count, left })
    }

    /// Forgets, piece by piece, the orders that a rule has given up, dropped ones among them; returns how many.
    ///
    /// # Errors
    /// As the database says, sorted; what was forgotten before stays so.
    pub async fn forget_orders_of(&self, rule: &RuleName) -> Result<u64> {
        let (outbox, mut count) = (self.of_another_rule(rule), 0);
        loop {
            let piece = outbox.dead_orders(None, PIECE).await?.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
            outbox.forget_dead_orders(&piece).await?;
            count += piece.len() as u64;
            if piece.len() < PIECE as usize {
                return Ok(count);
            }
        }
    }
}
