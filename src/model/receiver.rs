//! Who is told of closures.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::sleep;

use super::{
    daemon::Node,
    outbox::place,
    plan::Kind,
    world::{World, number},
};
use crate::outbox::{Answer, Event, Rest, Target};

/// How long a delivery may take.
const LIMIT: Duration = Duration::from_secs(1);

/// A daemon's way to the receiver.
#[derive(Debug)]
pub(super) struct Receiver {
    world: Arc<World>,
    node: Arc<Node>,
}

impl Receiver {
    pub(super) fn new(world: &Arc<World>, node: &Arc<Node>) -> Self {
        Self { world: Arc::clone(world), node: Arc::clone(node) }
    }

    fn takes(&self, event: &Event) {
        let at = self.world.now();
        self.world.state().told.push((place(&event.id), at));
    }

    async fn answer(&self, event: &Event) -> Answer {
        let is_refused = number(&event.order_id).is_some_and(|order| self.world.refuses_events_of(order));
        if is_refused && self.world.goes_wrong(Kind::Refusals) {
            return Answer::failed("answered 422");
        }
        if self.world.goes_wrong(Kind::Told) {
            match self.world.draw(0, 9) {
                0 => return Answer::failed("answered 500"),
                1 => {
                    self.takes(event);
                    return Answer::failed("the answer was lost");
                }
                2 => {
                    sleep(LIMIT).await;
                    return Answer::failed("no whole answer");
                }
                3 => {
                    sleep(self.world.millis(0, 900)).await;
                }
                4 => {
                    let rest = self.world.millis(100, 1_500);
                    let rest = Rest { event: rest, target: rest.min(Duration::from_millis(500)) };
                    return Answer::Failed { reason: "answered 429".into(), rest: Some(rest) };
                }
                5 => return Answer::Away { reason: "answered 503 by a proxy".into() },
                _ => {}
            }
        }
        self.takes(event);
        Answer::Delivered
    }
}

#[async_trait]
impl Target for Receiver {
    fn name(&self) -> &'static str {
        "receiver"
    }

    fn concurrency(&self) -> usize {
        4
    }

    fn timeout(&self) -> Duration {
        LIMIT
    }

    async fn deliver(&self, event: &Event) -> Answer {
        self.node.thawed().await;
        self.world.way().await;
        let answer = self.answer(event).await;
        self.node.back(&self.world).await;
        answer
    }
}

impl World {
    /// Whether the receiver takes no event of this order for a while.
    pub(super) fn refuses_events_of(&self, order: u32) -> bool {
        self.plan.has(Kind::Refusals) && order.is_multiple_of(4)
    }
}
