//! The payment provider, asked before an order closes. Who is said to be closed can't be paid there any more: his session has
//! been expired, as `docs/ask.md` has it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::sleep;

use super::{
    daemon::Node,
    history::What,
    plan::Kind,
    planted::Planted,
    world::{World, id, number},
};
use crate::ask::{Answer, Question, Respondent};

/// How long a request may take.
const LIMIT: Duration = Duration::from_secs(1);

/// A daemon's way to the provider.
#[derive(Debug)]
pub(super) struct Provider {
    world: Arc<World>,
    node: Arc<Node>,
}

impl Provider {
    pub(super) fn new(world: &Arc<World>, node: &Arc<Node>) -> Self {
        Self { world: Arc::clone(world), node: Arc::clone(node) }
    }

    fn answer(&self, order: u32) -> Answer {
        let mut state = self.world.state();
        if state.paid.contains(&order) {
            return Answer::Paid;
        }
        if state.paying.contains(&order) {
            return Answer::Later(Duration::from_millis(200));
        }
        state.expired.insert(order);
        Answer::Close
    }
}

#[async_trait]
impl Respondent for Provider {
    async fn ask(&self, questions: &[Question]) -> Result<HashMap<String, Answer>, String> {
        self.node.thawed().await;
        self.world.way().await;
        let mut answers = HashMap::new();
        let mut delay = Duration::ZERO;
        if self.world.goes_wrong(Kind::Receiver) {
            match self.world.draw(0, 8) {
                0 => return Err("answered 500".into()),
                1 => {
                    sleep(LIMIT).await;
                    return Err("no whole answer".into());
                }
                // Of others than were asked about, and nothing of these.
                2 => return Ok(HashMap::from([("999999".into(), Answer::Close)])),
                3 => delay = self.world.millis(0, 1_500),
                _ => {}
            }
        }
        let leaves_out = self.world.goes_wrong(Kind::Receiver) && self.world.chance(0.2);
        for (at, question) in questions.iter().enumerate() {
            if leaves_out && at % 2 == 0 {
                continue;
            }
            if let Some(order) = number(question.id.as_str()) {
                answers.insert(order, (question.deadline, self.answer(order)));
            }
        }
        sleep(delay.min(LIMIT)).await;
        if delay >= LIMIT {
            return Err("no whole answer".into());
        }
        self.node.back(&self.world).await;
        let mut told: Vec<_> = answers.into_iter().collect();
        told.sort_unstable_by_key(|(order, _)| *order);
        let mut answers = HashMap::new();
        for (order, (deadline, answer)) in told {
            self.world.note(order, What::Answered { by: self.node.number, deadline, answer: answer.name() });
            let answer = if self.world.planted == Some(Planted::AlwaysClose) { Answer::Close } else { answer };
            answers.insert(id(order).as_str().to_owned(), answer);
        }
        Ok(answers)
    }
}
