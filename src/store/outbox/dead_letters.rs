//! Dead letters: orders that could not be closed, and events that could not be delivered.

use uuid::Uuid;

use super::{
    Link, Outbox, Result,
    audit::uuid,
    link::{Fields, finish},
};
use crate::order::OrderId;

/// Something that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadLetter {
    /// An order that its database refuses to close.
    Order {
        /// The order.
        id: String,
        /// Whether somebody has said that he does not want to hear of it any more.
        dropped: bool,
        /// What became of it.
        death: Death,
    },
    /// An event that a target does not take.
    Event {
        /// The event.
        id: Uuid,
        /// Its order.
        order_id: String,
        /// The target.
        target: String,
        /// What became of it.
        death: Death,
    },
}

/// How something came to be given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// How often it was tried.
    pub attempts: u64,
    /// When the last attempt failed, in microseconds since 1970 UTC.
    pub failed_at: i64,
    /// What that said.
    pub error: String,
}

/// An order that is to be given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadOrder {
    /// The order.
    pub id: OrderId,
    /// How often it was tried.
    pub attempts: u32,
    /// What the last attempt said.
    pub error: String,
}

impl Outbox {
    /// Gives orders up: sweeps pass them over until they are put back.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn bury(&self, orders: &[DeadOrder]) -> Result<()> {
        let mut work = self.backend.begin().await?;
        let buried = self.bury_in(work.link(), orders).await;
        finish(work, buried).await
    }

    async fn bury_in(&self, link: &mut dyn Link, orders: &[DeadOrder]) -> Result<()> {
        let table = self.words.dead_letters();
        let delete = self.words.statement(&format!("DELETE FROM {table} WHERE order_id = ?1"));
        let insert = self.words.statement(&format!(
            "INSERT INTO {table} (order_id, attempts, failed_at, error, dropped) VALUES (?1, ?2, {}, ?3, 0)",
            self.words.now
        ));
        for DeadOrder { id, attempts, error } in orders {
            link.change(&delete, &[id.as_str().into()]).await?;
            link.change(&insert, &[id.as_str().into(), i64::from(*attempts).into(), error.as_str().into()]).await?;
        }
        Ok(())
    }

    /// All dead letters: orders first, dropped ones among them, then events.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn dead_letters(&self) -> Result<Vec<DeadLetter>> {
        let words = &self.words;
        let mut letters = self.dead_orders().await?;
        let events = words.statement(&format!(
            "SELECT CAST(d.event_id AS CHAR(36)), e.order_id, d.target, d.attempts, d.failed_at, d.error FROM {} d JOIN {} e ON e.id = d.event_id \
             WHERE d.due_at IS NULL ORDER BY d.failed_at, d.event_id, d.target",
            words.deliveries(),
            words.events()
        ));
        for mut fields in self.backend.read().await?.fetch(&events, &[]).await? {
            let id = uuid(&fields.text()?)?;
            letters.push(DeadLetter::Event { id, order_id: fields.text()?, target: fields.text()?, death: death(&mut fields)? });
        }
        Ok(letters)
    }

    /// The dead letters that are orders, dropped ones among them.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn dead_orders(&self) -> Result<Vec<DeadLetter>> {
        let words = &self.words;
        let orders = words.statement(&format!(
            "SELECT {}, dropped, attempts, failed_at, error FROM {} ORDER BY failed_at, order_id",
            words.dead_id,
            words.dead_letters()
        ));
        let mut letters = Vec::new();
        for mut fields in self.backend.read().await?.fetch(&orders, &[]).await? {
            letters.push(DeadLetter::Order { id: fields.text()?, dropped: fields.integer()? != 0, death: death(&mut fields)? });
        }
        Ok(letters)
    }

    /// Puts an order or an event back, to be tried anew; returns whether there was such a dead letter.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn revive(&self, id: &str) -> Result<bool> {
        let (words, now) = (&self.words, self.words.now);
        let orders = format!("DELETE FROM {} WHERE order_id = ?1", words.dead_letters());
        let events =
            format!("UPDATE {} SET due_at = {now}, attempts = 0, claimed_by = NULL WHERE due_at IS NULL AND event_id", words.deliveries());
        self.change_dead(id, &orders, &events).await
    }

    /// Drops a dead letter: an event is never delivered, an order stays passed over, and is no longer listed.
    /// Returns whether there was such a dead letter.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn discard(&self, id: &str) -> Result<bool> {
        let words = &self.words;
        let orders = format!("UPDATE {} SET dropped = 1 WHERE order_id = ?1 AND dropped = 0", words.dead_letters());
        let events = format!("DELETE FROM {} WHERE due_at IS NULL AND event_id", words.deliveries());
        self.change_dead(id, &orders, &events).await
    }

    /// Forgets orders that are dead letters no longer, because they are paid, closed or gone.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn forget_dead_orders(&self, ids: &[OrderId]) -> Result<()> {
        let delete = self.words.statement(&format!("DELETE FROM {} WHERE order_id = ?1", self.words.dead_letters()));
        let mut work = self.backend.begin().await?;
        let mut forgotten = Ok(0);
        for id in ids {
            forgotten = work.link().change(&delete, &[id.as_str().into()]).await;
            if forgotten.is_err() {
                break;
            }
        }
        finish(work, forgotten.map(drop)).await
    }

    /// Changes what has this id, which may be an order's or an event's; `events` ends where its value follows.
    async fn change_dead(&self, id: &str, orders: &str, events: &str) -> Result<bool> {
        let mut work = self.backend.begin().await?;
        let mut changed = work.link().change(&self.words.statement(orders), &[id.into()]).await;
        if let (Ok(found), Ok(event)) = (&changed, Uuid::try_parse(id)) {
            let found = *found;
            let events = self.words.passing(&format!("{events} = '{event}'"));
            changed = work.link().change(&events, &[]).await.map(|more| found + more);
        }
        finish(work, changed.map(|changed| changed > 0)).await
    }
}

fn death(fields: &mut Fields) -> Result<Death> {
    Ok(Death {
        attempts: fields.integer()?.unsigned_abs(),
        failed_at: fields.optional_integer()?.unwrap_or(0),
        error: fields.optional_text()?.unwrap_or_default(),
    })
}
