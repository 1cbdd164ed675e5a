//! Dead letters: orders that could not be closed, and events that could not be delivered.

use uuid::Uuid;

use super::{Result, audit::uuid};
use crate::{
    order::OrderId,
    store::{Fields, Link, Outbox, Words, finish},
};

/// Something that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadLetter {
    /// An order that its database refuses to close.
    Order {
        /// The order.
        id: OrderId,
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

impl DeadLetter {
    /// Whether this is what the address names.
    #[must_use]
    pub fn is(&self, address: &Address) -> bool {
        match self {
            Self::Order { id, .. } => *id == address.order,
            Self::Event { id, .. } => Some(*id) == address.event,
        }
    }
}

/// What an id names: the order that has it, the event that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The order's id, as its column prints it.
    pub order: OrderId,
    /// The event's id, if it can be one.
    pub event: Option<Uuid>,
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
    /// Gives orders up: sweeps pass them over until they are put back. What was dropped stays dropped.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn bury(&self, orders: &[DeadOrder]) -> Result<()> {
        let mut work = self.backend.begin().await?;
        let buried = self.bury_in(work.link(), orders).await;
        finish(work, buried).await
    }

    async fn bury_in(&self, link: &mut dyn Link, orders: &[DeadOrder]) -> Result<()> {
        let words = &self.words;
        // In: ?1 the order, ?2 how often it was tried, ?3 the error. Out: one row. Locks it.
        let bury = words.statement(&format!(
            "INSERT INTO {} (orders_table, order_id, attempts, failed_at, error, dropped) VALUES ({}, ?1, ?2, {now}, ?3, 0) \
             {} attempts = ?2, failed_at = {now}, error = ?3",
            words.dead_letters(),
            words.orders_table,
            words.or_update,
            now = words.now
        ));
        for DeadOrder { id, attempts, error } in orders {
            link.change(&bury, &[id.as_str().into(), i64::from(*attempts).into(), error.as_str().into()]).await?;
        }
        Ok(())
    }

    /// All dead letters: orders first, dropped ones among them, then events.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn dead_letters(&self) -> Result<Vec<DeadLetter>> {
        let words = &self.words;
        let mut link = self.backend.read().await?;
        let orders = words.statement(&format!(
            "SELECT {}, dropped, attempts, failed_at, error FROM {} WHERE {} ORDER BY failed_at, order_id",
            words.dead_id,
            words.dead_letters(),
            words.ours("")
        ));
        let events = words.statement(&format!(
            "SELECT CAST(d.event_id AS CHAR(36)), e.order_id, d.target, d.attempts, d.failed_at, d.error FROM {} d JOIN {} e ON e.id = d.event_id \
             WHERE {} AND d.due_at IS NULL ORDER BY d.failed_at, d.event_id, d.target",
            words.deliveries(),
            words.events(),
            words.ours("d.")
        ));
        let mut letters = Vec::new();
        for mut fields in link.fetch(&orders, &[]).await? {
            letters.push(DeadLetter::Order { id: order(&mut fields)?, dropped: fields.integer()? != 0, death: death(&mut fields)? });
        }
        for mut fields in link.fetch(&events, &[]).await? {
            let id = uuid(&fields.text()?)?;
            letters.push(DeadLetter::Event { id, order_id: fields.text()?, target: fields.text()?, death: death(&mut fields)? });
        }
        Ok(letters)
    }

    /// How many dead letters there are, dropped orders not among them. Reads all our deliveries; locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn count_dead_letters(&self) -> Result<u64> {
        let words = &self.words;
        // Out: the number of dead orders, and of dead events for each target.
        let counts = words.statement(&format!(
            "SELECT COUNT(*) FROM {} WHERE {ours} AND dropped = 0 UNION ALL SELECT COUNT(*) FROM {} WHERE {ours} AND due_at IS NULL",
            words.dead_letters(),
            words.deliveries(),
            ours = words.ours("")
        ));
        let mut count = 0;
        for mut fields in self.backend.read().await?.fetch(&counts, &[]).await? {
            count += fields.integer()?.unsigned_abs();
        }
        Ok(count)
    }

    /// One page of the orders that are dead letters, dropped ones among them, by their ids; the next begins after the
    /// last of them.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn dead_orders(&self, after: Option<&OrderId>, limit: u32) -> Result<Vec<OrderId>> {
        let words = &self.words;
        // In: ?1 how many, ?2 an order. Out: ids. Locks nothing.
        let page = words.statement(&format!(
            "SELECT {} FROM {} WHERE {}{} ORDER BY order_id LIMIT ?1",
            words.dead_id,
            words.dead_letters(),
            words.ours(""),
            if after.is_some() { " AND order_id > ?2" } else { "" }
        ));
        let mut values = vec![i64::from(limit).into()];
        values.extend(after.map(|id| id.as_str().into()));
        self.backend.read().await?.fetch(&page, &values).await?.iter_mut().map(order).collect()
    }

    /// Puts an order or an event back, to be tried anew; returns whether there was such a dead letter.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn revive(&self, address: &Address) -> Result<bool> {
        let orders = format!("{} AND order_id = ?1", self.revive_orders());
        self.change_dead(address, &orders, &self.revive_events()).await
    }

    /// Puts everything back, save orders that were dropped; returns how many dead letters there were.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn revive_all(&self) -> Result<u64> {
        let words = &self.words;
        let mut work = self.backend.begin().await?;
        let mut revived = work.link().change(&words.statement(&format!("{} AND dropped = 0", self.revive_orders())), &[]).await;
        if let Ok(orders) = revived {
            revived = work.link().change(&words.statement(&self.revive_events()), &[]).await.map(|events| orders + events);
        }
        finish(work, revived).await
    }

    fn revive_orders(&self) -> String {
        format!("DELETE FROM {} WHERE {}", self.words.dead_letters(), self.words.ours(""))
    }

    fn revive_events(&self) -> String {
        let Words { now, .. } = self.words;
        format!(
            "UPDATE {} SET due_at = {now}, attempts = 0, claimed_by = NULL WHERE {} AND due_at IS NULL",
            self.words.deliveries(),
            self.words.ours("")
        )
    }

    /// Drops a dead letter: an event is never delivered, an order stays passed over, and is no longer listed.
    /// Returns whether there was such a dead letter.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn discard(&self, address: &Address) -> Result<bool> {
        let (words, ours) = (&self.words, self.words.ours(""));
        let orders = format!("UPDATE {} SET dropped = 1 WHERE {ours} AND order_id = ?1 AND dropped = 0", words.dead_letters());
        let events = format!("DELETE FROM {} WHERE {ours} AND due_at IS NULL", words.deliveries());
        self.change_dead(address, &orders, &events).await
    }

    /// Forgets orders that are dead letters no longer, because they are paid, closed or gone.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn forget_dead_orders(&self, ids: &[OrderId]) -> Result<()> {
        let delete = self.words.statement(&format!("{} AND order_id = ?1", self.revive_orders()));
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

    /// Changes what has this address; `orders` takes the order as ?1, `events` ends in its condition.
    async fn change_dead(&self, address: &Address, orders: &str, events: &str) -> Result<bool> {
        let mut work = self.backend.begin().await?;
        let mut changed = work.link().change(&self.words.statement(orders), &[address.order.as_str().into()]).await;
        if let (Ok(found), Some(event)) = (&changed, address.event) {
            let found = *found;
            let events = self.words.passing(&format!("{events} AND event_id = '{event}'"));
            changed = work.link().change(&events, &[]).await.map(|more| found + more);
        }
        finish(work, changed.map(|changed| changed > 0)).await
    }
}

fn order(fields: &mut Fields) -> Result<OrderId> {
    fields.text().map(|id| OrderId::from_database(&id))
}

fn death(fields: &mut Fields) -> Result<Death> {
    Ok(Death {
        attempts: fields.integer()?.unsigned_abs(),
        failed_at: fields.optional_integer()?.unwrap_or(0),
        error: fields.optional_text()?.unwrap_or_default(),
    })
}
