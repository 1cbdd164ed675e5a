//! What our own tables have of an order: closures, what was given up, and whether closing is paused.

use super::{Explainer, Unknown};
use crate::{
    order::OrderId,
    outbox::{Address, DeadLetter, Event, EventQuery, Letter, Pause},
    store::StoreError,
};

/// So many events of an order are read, and of so many of the last it is asked who does not take them.
const EVENTS: u32 = 1_000;
const ASKED: usize = 5;

/// What became of an order so far.
#[derive(Debug, Default)]
pub(super) struct Story {
    pub(super) events: Vec<Event>,
    pub(super) dead_letter: Option<Letter>,
    pub(super) undelivered: Vec<Letter>,
    /// Nothing where it can't be known; nothing in it where closing is not paused.
    pub(super) pause: Option<Option<Pause>>,
    pub(super) unknown: Vec<Unknown>,
}

impl Explainer {
    /// Reads what our tables have of an order.
    pub(super) async fn story(&self, id: &OrderId) -> Story {
        let outbox = self.store.outbox();
        let mut story = Story::default();
        if outbox.is_ready() {
            match self.closures(id).await {
                Ok(read) => story = read,
                Err(error) => story.miss("what our tables have of it", error.to_string()),
            }
        } else {
            story.miss("events, dead letters, pauses", outbox.missing());
        }
        match outbox.pause_of_rule().await {
            Ok(pause) if outbox.has_pauses() => story.pause = Some(pause),
            // Said above, where there are no tables at all.
            Ok(_) if !outbox.is_ready() => {}
            Ok(_) => story.miss("whether closing is paused", outbox.missing()),
            Err(error) => story.miss("whether closing is paused", error.to_string()),
        }
        story
    }

    async fn closures(&self, id: &OrderId) -> Result<Story, StoreError> {
        let outbox = self.store.outbox();
        outbox.unpack_what_is_left().await;
        let events = outbox.events(&EventQuery { order: Some(id.clone()), limit: EVENTS, ..EventQuery::default() }).await?;
        let mut story = Story { events, ..Story::default() };
        let mut letters = outbox.dead_letters_of(&Address { order: id.clone(), event: None }).await?;
        for event in story.events.iter().rev().take(ASKED) {
            let dead = outbox.dead_letters_of(&Address { order: id.clone(), event: Some(event.id) }).await?;
            letters.extend(dead.into_iter().filter(|letter| matches!(letter, DeadLetter::Event { .. })));
        }
        let letters = letters.into_iter().map(|letter| (matches!(letter, DeadLetter::Order { .. }), Letter::of(letter, outbox)));
        for (is_order, letter) in letters {
            if is_order {
                story.dead_letter = Some(letter);
            } else {
                story.undelivered.push(letter);
            }
        }
        Ok(story)
    }
}

impl Story {
    pub(super) fn miss(&mut self, what: &'static str, why: String) {
        self.unknown.push(Unknown { what, why });
    }
}
