//! The part of the daemon that answers over HTTP, where that is wanted: what is measured, what works, who may ask.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    runtime::Handle,
    sync::{Mutex, Semaphore, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    app::RunError,
    close::{Gate, Inbox, Outage, Requests},
    config::{Config, Live, Sweep},
    http::{self, Access, Desk},
    ops::{Gauges, Measured, Overdues, Readiness},
    redis::Commands,
    store::Store,
    trigger::{Membership, Passes},
};

/// What is ready to serve before there is anything to serve.
#[derive(Debug)]
pub(super) struct Serving {
    address: SocketAddr,
    access: Access,
    measured: Measured,
    /// Taken by whoever answers.
    free: AtomicBool,
}

/// What there is to tell of.
pub(super) struct Parts {
    pub(super) store: Arc<dyn Store>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) outage: Arc<Outage>,
    pub(super) gate: Arc<Gate>,
    pub(super) passes: Arc<Passes>,
    pub(super) commands: Commands,
    pub(super) peers: Arc<Membership>,
    pub(super) subscribed: watch::Receiver<bool>,
    pub(super) requests: Requests,
    pub(super) sweep: Live<Sweep>,
}

impl Serving {
    /// As the configuration says; nothing where nobody is to be answered.
    ///
    /// # Errors
    /// Says which file can't be used, and why.
    pub(super) fn of(config: &Config) -> Result<Option<Self>, RunError> {
        let Some(address) = config.http.listen.get() else { return Ok(None) };
        let access = Access::new(&config.http).map_err(RunError::Configuration)?;
        let measured = Measured::begin().map_err(RunError::System)?;
        Ok(Some(Self { address, access, measured, free: AtomicBool::new(true) }))
    }

    /// Who may ask.
    pub(super) fn access(&self) -> Access {
        self.access.clone()
    }

    /// Tells of one more rule.
    pub(super) fn add(&self, parts: Parts, stop: &CancellationToken, running: &mut JoinSet<()>) {
        let Parts { store, inbox, outage, gate, passes, commands, peers, subscribed, requests, sweep } = parts;
        let gauges = Gauges {
            measured: self.measured.clone(),
            inbox: Arc::clone(&inbox),
            peers: Arc::clone(&peers),
            outage: Arc::clone(&outage),
            passes: Arc::clone(&passes),
            store: Arc::clone(&store),
            subscribed: subscribed.clone(),
            stop: stop.clone(),
        };
        let overdues = Overdues {
            store: Arc::clone(&store),
            inbox: Arc::clone(&inbox),
            gate: Arc::clone(&gate),
            sweep: sweep.clone(),
            stop: stop.clone(),
        };
        running.spawn(gauges.run());
        running.spawn(overdues.run());
        if !self.free.swap(false, Ordering::Relaxed) {
            return;
        }
        let readiness = Readiness {
            store: Arc::clone(&store),
            inbox: Arc::clone(&inbox),
            outage,
            gate,
            passes,
            sweep: sweep.clone(),
            commands,
            peers,
            subscribed,
            reached: Mutex::default(),
        };
        let desk = Desk {
            runtime: Handle::current(),
            readers: Arc::new(Semaphore::new(http::READERS)),
            sweep,
            readiness: Arc::new(readiness),
            measured: self.measured.clone(),
            requests: Arc::new(requests),
            store,
            inbox,
        };
        running.spawn(http::serve(self.address, desk, self.access.clone(), stop.clone()));
    }
}
