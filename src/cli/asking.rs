//! What orders have to pass before a command closes them: the witness, and whoever is asked.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    ask::{Ask, Parts, Receiver, WithoutAsking},
    cli::{Exit, Failure, witness},
    close::{Alone, Bounds, Clearance, Clearances, Gate, Inbox, Stats},
    config::Config,
    store::Store,
};

/// What a command closes with.
pub(super) struct Means<'m> {
    pub(super) store: &'m Arc<dyn Store>,
    pub(super) inbox: &'m Arc<Inbox>,
    pub(super) bounds: &'m Arc<Bounds>,
    pub(super) gate: &'m Arc<Gate>,
    pub(super) stats: &'m Arc<Stats>,
    /// When it has to be done.
    pub(super) deadline: Option<Instant>,
}

/// What orders have to pass, and whoever asks about them meanwhile.
pub(super) type Passing = (Arc<dyn Clearance>, Option<AbortOnDropHandle<()>>);

/// As the configuration has it; `asks` unless the command was told to close without.
pub(super) async fn clearance(config: &Config, means: Means<'_>, asks: bool) -> Result<Passing, Failure> {
    let passed = Clearances::default().and(witness(config, means.store, means.deadline).await);
    let Some(settings) = &config.close.ask else { return Ok((Arc::new(passed), None)) };
    if !asks {
        return Ok((Arc::new(passed.and(Some(Arc::new(WithoutAsking)))), None));
    }
    let parts = Parts {
        rule: config.which.name.clone(),
        store: Arc::clone(means.store),
        inbox: Arc::clone(means.inbox),
        bounds: Arc::clone(means.bounds),
        gate: Arc::clone(means.gate),
        stats: Arc::clone(means.stats),
        share: Arc::new(Alone),
        before: Arc::new(passed.clone()),
    };
    let receiver = Receiver::new(&parts.rule, settings).map_err(|reason| Failure::new(Exit::Configuration, reason))?;
    let ask = Ask::new(settings, &receiver, parts);
    let asking = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&ask).run(CancellationToken::new())));
    Ok((Arc::new(passed.and(Some(ask))), Some(asking)))
}
