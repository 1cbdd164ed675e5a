//! Registers timers, whoever wants it, and keeps those in mind that are due before the look-ahead would see them.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::Instant};

use super::{Inbox, Later};
use crate::{
    config::{Live, Sweep},
    order::{OrderId, Trigger},
    outbox::{NewTimer, Registered, TimerState},
    store::{Store, StoreError},
};

/// Registers timers.
#[derive(Debug, Clone)]
pub struct Registrar {
    /// Where they are.
    pub store: Arc<dyn Store>,
    /// What is known of them.
    pub inbox: Arc<Inbox>,
    /// Who looks at one at a time to come.
    pub later: mpsc::Sender<Later>,
    /// How far ahead they are seen.
    pub sweep: Live<Sweep>,
}

impl Registrar {
    /// Registers timers, all or none; returns what came of each, in their order.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn register(&self, timers: &[NewTimer]) -> Result<Vec<Registered>, StoreError> {
        if timers.is_empty() {
            return Ok(Vec::new());
        }
        let asked = Instant::now();
        let registered = self.store.outbox().register(timers).await?;
        let ahead = self.sweep.get().ahead.get();
        for Registered { timer, .. } in &registered {
            let left = Duration::from_micros(u64::try_from(timer.due - timer.now).unwrap_or(0));
            if timer.state == TimerState::Armed && left <= ahead {
                let id = OrderId::from_database(&timer.id);
                self.inbox.reopen(&id, asked);
                // Where there is no room, the sweep finds it. The clock was read before this moment.
                self.later.try_send(Later { id, trigger: Trigger::Pacer, deadline: Some(timer.due), at: Instant::now() + left }).ok();
            }
        }
        Ok(registered)
    }
}
