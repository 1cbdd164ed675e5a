//! Dead letters: orders that could not be closed, and events that could not be delivered.

use uuid::Uuid;

use super::{Result, audit::uuid};
use crate::{
    config::RuleName,
    order::{OrderId, rfc3339},
    store::{Fields, Link, Outbox, Value, Words, finish, listed},
};

/// Something that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadLetter {
    /// An order that its database refuses to close.
    Order {
        /// Its rule.
        rule: String,
        /// The order.
        id: OrderId,
        /// Whether somebody has said that he does not want to hear of it any more.
        dropped: bool,
        /// What became of it.
        death: Death,
    },
    /// An event that a target does not take.
    Event {
        /// The rule that closed its order.
        rule: String,
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
    /// The deadline for which it was closed, in microseconds since 1970 UTC, where it is given up because that was undone.
    pub undone: Option<i64>,
}

/// What to say of an order whose closure was undone.
pub const UNDONE: &str = "its closure was undone: the order is unpaid again, with the deadline for which it was closed; \
    a trigger, or a program that saved what it had read before, has put its status back";

impl DeadOrder {
    /// One whose closure for this deadline was undone.
    #[must_use]
    pub fn undone(id: OrderId, attempts: u32, deadline: Option<i64>) -> Self {
        Self { id, attempts, error: format!("{UNDONE}{}", deadline.map_or_else(String::new, closed_for)), undone: deadline }
    }
}

/// How the reason of an undone closure names its deadline.
fn closed_for(deadline: i64) -> String {
    format!(" (it was closed for {})", rfc3339(deadline))
}

/// Whether an order was given up, for this reason, because its closure for another deadline was undone.
pub(super) fn is_undone_of_another(reason: &str, deadline: Option<i64>) -> bool {
    let for_which = reason.strip_prefix(UNDONE).filter(|deadline| !deadline.is_empty());
    for_which.zip(deadline).is_some_and(|(for_which, deadline)| for_which != closed_for(deadline))
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
        let (column, rule, update) = if self.has_rules() {
            (", rule", format!(", '{}'", self.rule()), format!(", rule = '{}'", self.rule()))
        } else {
            ("", String::new(), String::new())
        };
        // In: ?1 the order, ?2 how often it was tried, ?3 the error. Out: one row. Locks it.
        let bury = words.statement(&format!(
            "INSERT INTO {} (orders_table, order_id, attempts, failed_at, error, dropped{column}) VALUES ({}, ?1, ?2, {now}, ?3, 0{rule}) \
             {} attempts = ?2, failed_at = {now}, error = ?3{update}",
            words.dead_letters(),
            words.orders_table,
            words.or_update,
            now = words.now
        ));
        for DeadOrder { id, attempts, error, .. } in orders {
            link.change(&bury, &[id.as_str().into(), i64::from(*attempts).into(), error.as_str().into()]).await?;
        }
        Ok(())
    }

    /// One page of the dead letters: orders first, dropped ones among them, then events, target by target; and where the next
    /// one begins, unless this was the last.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn dead_letters(&self, place: &Place, limit: u32) -> Result<(Vec<DeadLetter>, Option<Place>)> {
        let letters = match place {
            Place::Orders { after } => self.dead_orders_where(after.as_ref(), " > ?2", i64::from(limit)).await?,
            Place::Events { target, after } => {
                let condition = format!("d.target = ?2 AND d.event_id > '{after}'");
                self.dead_events_where(&condition, Some(target), i64::from(limit)).await?
            }
        };
        if letters.len() < limit as usize {
            let last = if let Place::Events { target, .. } = place { target } else { "" };
            let next = self.addressed_after(last).await?;
            return Ok((letters, next.map(|target| Place::Events { target, after: Uuid::nil() })));
        }
        let next = letters.last().map(|letter| match letter {
            DeadLetter::Order { id, .. } => Place::Orders { after: Some(id.clone()) },
            DeadLetter::Event { id, target, .. } => Place::Events { target: target.clone(), after: *id },
        });
        Ok((letters, next))
    }

    /// The dead letters that have this address.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn dead_letters_of(&self, address: &Address) -> Result<Vec<DeadLetter>> {
        let mut letters = self.dead_orders_where(Some(&address.order), " = ?2", 1).await?;
        if let Some(event) = address.event {
            letters.extend(self.dead_events_where(&format!("d.event_id = '{event}'"), None, i64::from(u32::MAX)).await?);
        }
        Ok(letters)
    }

    async fn dead_orders_where(&self, id: Option<&OrderId>, compared: &str, limit: i64) -> Result<Vec<DeadLetter>> {
        let words = &self.words;
        // In: ?1 how many, ?2 an order. Out: dead orders by their ids. Locks nothing.
        let orders = words.statement(&format!(
            "SELECT {}, dropped, attempts, failed_at, error FROM {} WHERE {}{} ORDER BY order_id LIMIT ?1",
            words.dead_id,
            words.dead_letters(),
            self.ours_by_rule(""),
            id.map(|_| format!(" AND order_id{compared}")).unwrap_or_default()
        ));
        let mut values = vec![limit.into()];
        values.extend(id.map(|id| id.as_str().into()));
        let letter = |mut fields: Fields| {
            Ok(DeadLetter::Order {
                rule: self.rule().to_string(),
                id: order(&mut fields)?,
                dropped: fields.integer()? != 0,
                death: death(&mut fields)?,
            })
        };
        self.backend.read().await?.fetch(&orders, &values).await?.into_iter().map(letter).collect()
    }

    async fn dead_events_where(&self, condition: &str, target: Option<&str>, limit: i64) -> Result<Vec<DeadLetter>> {
        let words = &self.words;
        // In: ?1 how many, ?2 a target. Out: dead events by their ids. Locks nothing.
        let events = words.passing(&format!(
            "SELECT {}, CAST(d.event_id AS CHAR(36)), e.order_id, d.target, d.attempts, d.failed_at, d.error FROM {} d JOIN {} e ON e.id = d.event_id \
             WHERE {} AND {condition} AND d.due_at IS NULL ORDER BY d.event_id, d.target LIMIT ?1",
            self.rule_of_event(),
            words.deliveries(),
            words.events(),
            words.ours("d.")
        ));
        let mut values = vec![limit.into()];
        values.extend(target.map(Into::into));
        let letter = |mut fields: Fields| {
            let (rule, id) = (fields.text()?, uuid(&fields.text()?)?);
            Ok(DeadLetter::Event { rule, id, order_id: fields.text()?, target: fields.text()?, death: death(&mut fields)? })
        };
        self.backend.read().await?.fetch(&events, &values).await?.into_iter().map(letter).collect()
    }

    /// How many dead letters there are, dropped orders not among them. Reads all our deliveries; locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn count_dead_letters(&self) -> Result<u64> {
        let words = &self.words;
        // Out: the number of dead orders, and of dead events for each target.
        let counts = words.statement(&format!(
            "SELECT COUNT(*) FROM {} WHERE {} AND dropped = 0 UNION ALL SELECT COUNT(*) FROM {} WHERE {} AND due_at IS NULL",
            words.dead_letters(),
            self.ours_by_rule(""),
            words.deliveries(),
            words.ours("")
        ));
        let mut count = 0;
        for mut fields in self.backend.read().await?.fetch(&counts, &[]).await? {
            count += fields.integer()?.unsigned_abs();
        }
        Ok(count)
    }

    /// How many orders each rule has given up that is none of these, dropped ones not among them. Locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn given_up_by_others(&self, rules: &[RuleName]) -> Result<Vec<(String, u64)>> {
        if !self.has_rules() {
            return Ok(Vec::new());
        }
        let words = &self.words;
        // A rule's name has neither quotes nor backslashes.
        let rules: Vec<String> = rules.iter().map(|rule| format!("'{rule}'")).collect();
        // Out: rules, each with the number of its dead orders. Locks nothing.
        let counts = words.statement(&format!(
            "SELECT rule, COUNT(*) FROM {} WHERE {} AND rule NOT IN ({}) AND dropped = 0 GROUP BY rule ORDER BY rule",
            words.dead_letters(),
            words.ours(""),
            rules.join(", ")
        ));
        let count = |mut fields: Fields| Ok((fields.text()?, fields.integer()?.unsigned_abs()));
        self.backend.read().await?.fetch(&counts, &[]).await?.into_iter().map(count).collect()
    }

    /// One page of the orders that are dead letters, by their ids, each with the reason where it was not dropped; the next begins
    /// after the last of them.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn dead_orders(&self, after: Option<&OrderId>, limit: u32) -> Result<Vec<(OrderId, Option<String>)>> {
        let words = &self.words;
        // In: ?1 how many, ?2 an order. Out: ids and reasons. Locks nothing.
        let page = words.statement(&format!(
            "SELECT {}, CASE WHEN dropped = 0 THEN error END FROM {} WHERE {}{} ORDER BY order_id LIMIT ?1",
            words.dead_id,
            words.dead_letters(),
            self.ours_by_rule(""),
            if after.is_some() { " AND order_id > ?2" } else { "" }
        ));
        let mut values = vec![i64::from(limit).into()];
        values.extend(after.map(|id| id.as_str().into()));
        let found = self.backend.read().await?.fetch(&page, &values).await?;
        found.into_iter().map(|mut fields| Ok((order(&mut fields)?, fields.optional_text()?))).collect()
    }

    /// Puts an order or an event back, to be tried anew; an event for this target only, if one is named. Returns whether there
    /// was such a dead letter.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn revive(&self, address: &Address, target: Option<&str>) -> Result<bool> {
        let orders = target.is_none().then(|| format!("{} AND order_id = ?1", self.revive_orders()));
        self.change_dead(address, orders.as_deref(), &self.revive_events(), target).await
    }

    /// Puts a piece of the orders back, save those that were dropped; returns how many.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn revive_some_orders(&self, limit: u32) -> Result<u64> {
        let words = &self.words;
        // In: ?1 how many. Out: dead orders. Locks nothing.
        let some = words.statement(&format!(
            "SELECT {} FROM {} WHERE {} AND dropped = 0 ORDER BY order_id LIMIT ?1",
            words.dead_id,
            words.dead_letters(),
            self.ours_by_rule("")
        ));
        let some = self.backend.read().await?.fetch(&some, &[i64::from(limit).into()]).await?;
        let some = some.into_iter().map(|mut fields| order(&mut fields)).collect::<Result<Vec<_>>>()?;
        self.forget_dead_orders(&some).await?;
        Ok(some.len() as u64)
    }

    /// Puts a piece of the events back that this target was to be told; returns how many.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn revive_some_events(&self, target: &str, limit: u32) -> Result<u64> {
        let words = &self.words;
        let some = self.some_deliveries(target, " AND due_at IS NULL ORDER BY event_id", limit).await?;
        if some.is_empty() {
            return Ok(0);
        }
        let revive = words.passing(&format!("{} AND target = ?1 AND event_id IN ({})", self.revive_events(), listed(some.iter())));
        let mut work = self.backend.begin().await?;
        let revived = work.link().change(&revive, &[target.into()]).await;
        finish(work, revived).await
    }

    fn revive_orders(&self) -> String {
        format!("DELETE FROM {} WHERE {}", self.words.dead_letters(), self.ours_by_rule(""))
    }

    fn revive_events(&self) -> String {
        let Words { now, .. } = self.words;
        format!(
            "UPDATE {} SET due_at = {now}, attempts = 0, claimed_by = NULL{} WHERE {} AND due_at IS NULL",
            self.words.deliveries(),
            if self.knows_targets() { ", failing_since = NULL" } else { "" },
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
        let orders =
            format!("UPDATE {} SET dropped = 1 WHERE {} AND order_id = ?1 AND dropped = 0", words.dead_letters(), self.ours_by_rule(""));
        let events = format!("DELETE FROM {} WHERE {ours} AND due_at IS NULL", words.deliveries());
        self.change_dead(address, Some(&orders), &events, None).await
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
    async fn change_dead(&self, address: &Address, orders: Option<&str>, events: &str, target: Option<&str>) -> Result<bool> {
        let mut work = self.backend.begin().await?;
        let link = work.link();
        let changed = async {
            let mut changed = 0;
            if let Some(orders) = orders {
                changed += link.change(&self.words.statement(orders), &[address.order.as_str().into()]).await?;
            }
            if let Some(event) = address.event {
                let to = if target.is_some() { " AND target = ?1" } else { "" };
                let events = self.words.passing(&format!("{events} AND event_id = '{event}'{to}"));
                let values: Vec<Value> = target.into_iter().map(Value::from).collect();
                changed += link.change(&events, &values).await?;
            }
            Ok(changed > 0)
        };
        let changed = changed.await;
        finish(work, changed).await
    }
}

/// A place in the list of dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Among the orders.
    Orders {
        /// After this one.
        after: Option<OrderId>,
    },
    /// Among the events of a target.
    Events {
        /// The target.
        target: String,
        /// After this event.
        after: Uuid,
    },
}

impl Place {
    /// Where the list begins.
    pub const FIRST: Self = Self::Orders { after: None };
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
