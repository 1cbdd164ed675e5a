//! Looks after the connection for commands.
//!
//! A task holds one [`Connection`] at a time, and throws it away for a new one when an audit, a second apart, or the answer to
//! a command shows that it is unfit: nobody answers, the server has become a replica, its name leads elsewhere. Meanwhile
//! commands fail at once, with the reason.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use backon::{BackoffBuilder, ExponentialBuilder};
use fred::{clients::Client, error::Error, interfaces::ClientLike, types::config::PerformanceConfig};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval_at},
};
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

use super::{
    connection::Connection,
    error::{RedisError, Result, sort},
    link::{PATIENCE, tls_connector},
    secrets::Secrets,
    server::Server,
};
use crate::config::Redis;

/// How often a connection is audited.
pub const AUDIT: Duration = Duration::from_secs(1);

/// The pauses between attempts to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// For how long it is believed that Redis can't run a command, when nobody has tried again.
const NOT_NOW: Duration = Duration::from_mins(1);

/// Whether commands can be sent.
#[derive(Clone)]
enum State {
    Connecting,
    Ready(Client, Server),
    /// Why the last attempt to connect failed.
    Failed(RedisError),
}

/// A supervised connection.
pub(super) struct Supervisor {
    state: watch::Receiver<State>,
    /// What makes a command's caller doubt the connection.
    doubts: mpsc::Sender<RedisError>,
    /// The commands, of those that were noted, that Redis refuses at the moment.
    refused: Mutex<BTreeMap<&'static str, (RedisError, Instant)>>,
    /// There is no Redis, and nothing wrong with that.
    absent: bool,
    secrets: Secrets,
    _keeper: AbortOnDropHandle<()>,
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").finish_non_exhaustive()
    }
}

impl Supervisor {
    /// Begins to connect, and does not wait for it.
    pub(super) fn start(redis: &Redis) -> Result<Self> {
        if redis.url.is_encrypted() {
            tls_connector(redis)?;
        }
        Ok(Self::keeping(redis, None))
    }

    /// Connects, and waits for it.
    pub(super) async fn connect(redis: &Redis) -> Result<Self> {
        let connection = Connection::open(redis, time_limit).await?;
        Ok(Self::keeping(redis, Some(connection)))
    }

    fn keeping(redis: &Redis, connection: Option<Connection>) -> Self {
        let absent = redis.url.is_none();
        let first = if absent { State::Failed(RedisError::none()) } else { connection.as_ref().map_or(State::Connecting, ready) };
        let (told, state) = watch::channel(first);
        let (doubts, doubted) = mpsc::channel(1);
        let keeper = tokio::spawn(keep(redis.clone(), connection, told, doubted));
        let secrets = Secrets::of(redis);
        Self { state, doubts, refused: Mutex::default(), absent, secrets, _keeper: AbortOnDropHandle::new(keeper) }
    }

    /// Whether there is no Redis, and every command is answered with that.
    pub(super) fn is_absent(&self) -> bool {
        self.absent
    }

    /// Runs a command, which is answered within `limit`; `needs` are the ACL rules without which it is denied.
    pub(super) async fn run<T>(
        &self,
        needs: &str,
        limit: Duration,
        command: impl AsyncFnOnce(Client) -> std::result::Result<T, Error>,
    ) -> Result<T> {
        let (client, _) = self.ready(limit).await?;
        let id = client.id().to_owned();
        let answer = tokio::select! {
            // The client keeps what it can't send at the moment, whatever its time limit.
            answer = tokio::time::timeout(limit, command(client)) => match answer {
                Ok(answer) => answer.map_err(|error| sort(&error, &self.secrets, needs)),
                Err(_) => Err(RedisError::timed_out(limit)),
            },
            error = self.lost(&id) => Err(error),
        };
        if let Err(error @ RedisError::NotOurs(_)) = &answer
            && self.uses(&id)
        {
            // Full means that it is doubted already.
            self.doubts.try_send(error.clone()).ok();
        }
        answer
    }

    /// Sorts what became of one command of a pipeline; `needs` are the ACL rules without which it is denied.
    pub(super) fn sort(&self, error: &Error, needs: &str) -> RedisError {
        sort(error, &self.secrets, needs)
    }

    /// What is wrong: the connection, or the commands that Redis refuses, each with what it is for.
    pub(super) fn troubles(&self) -> BTreeMap<&'static str, RedisError> {
        if self.absent {
            return BTreeMap::new();
        }
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        // What Redis can't do for a time it may be able to again, though no order has come that would need it.
        let counts = |(error, at): &(RedisError, Instant)| !matches!(error, RedisError::NotNow(_)) || at.elapsed() < NOT_NOW;
        let kept = refused.iter().filter(|(_, refusal)| counts(refusal));
        let mut troubles: BTreeMap<_, _> = kept.map(|(name, (error, _))| (*name, error.clone())).collect();
        drop(refused);
        if let State::Failed(error) = &*self.state.borrow() {
            troubles.insert("connect", error.clone());
        }
        troubles
    }

    /// The server that is connected.
    pub(super) fn server(&self) -> Option<Server> {
        match &*self.state.borrow() {
            State::Ready(_, server) => Some(server.clone()),
            State::Connecting | State::Failed(_) => None,
        }
    }

    /// Waits while it connects, and no longer.
    async fn ready(&self, limit: Duration) -> Result<(Client, Server)> {
        let mut state = self.state.clone();
        let known = async { state.wait_for(|state| !matches!(state, State::Connecting)).await.map(|state| state.clone()) };
        match tokio::time::timeout(limit, known).await {
            Ok(Ok(State::Ready(client, server))) => Ok((client, server)),
            Ok(Ok(State::Failed(error))) => Err(error),
            Ok(Ok(State::Connecting) | Err(_)) => Err(RedisError::unreachable("the connection was closed")),
            Err(_) => Err(RedisError::timed_out(limit)),
        }
    }

    fn uses(&self, id: &str) -> bool {
        matches!(&*self.state.borrow(), State::Ready(client, _) if client.id() == id)
    }

    /// Waits until this connection is given up.
    async fn lost(&self, id: &str) -> RedisError {
        let mut state = self.state.clone();
        let is_another = |state: &State| !matches!(state, State::Ready(client, _) if client.id() == id);
        match state.wait_for(is_another).await.as_deref() {
            Ok(State::Failed(error)) => error.clone(),
            Ok(State::Connecting | State::Ready(..)) | Err(_) => RedisError::unreachable("the connection was lost"),
        }
    }

    /// Remembers whether Redis refuses a command, for those that have nobody who says so.
    pub(super) fn note(&self, name: &'static str, error: Option<&RedisError>) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            None => drop(refused.remove(name)),
            Some(error @ (RedisError::Denied(_) | RedisError::NotNow(_))) => drop(refused.insert(name, (error.clone(), Instant::now()))),
            // That is about the connection, or about one key.
            Some(_) => {}
        }
    }
}

fn ready(connection: &Connection) -> State {
    State::Ready(connection.link.client.clone(), connection.server.clone())
}

/// The client itself gives a command up, too: one that its caller merely no longer waits for would stay queued.
fn time_limit(performance: &mut PerformanceConfig) {
    performance.default_command_timeout = PATIENCE;
}

/// Connects, audits, and connects anew, for as long as anybody sends commands.
async fn keep(redis: Redis, mut connection: Option<Connection>, state: watch::Sender<State>, mut doubts: mpsc::Receiver<RedisError>) {
    let pauses = ExponentialBuilder::default().with_min_delay(PAUSES.0).with_max_delay(PAUSES.1).without_max_times().with_jitter();
    let mut pause = pauses.build();
    while !redis.url.is_none() {
        let opened = match connection.take() {
            Some(connection) => Ok(connection),
            None => Connection::open(&redis, time_limit).await,
        };
        let error = match opened {
            Ok(connection) => {
                // Those are about another connection.
                while doubts.try_recv().is_ok() {}
                state.send_replace(ready(&connection));
                pause = pauses.build();
                audit(connection, &mut doubts).await
            }
            Err(error) => error,
        };
        debug!(%error, "no connection for commands; connecting anew");
        state.send_replace(State::Failed(error));
        tokio::time::sleep(pause.next().unwrap_or(PAUSES.1)).await;
    }
}

/// Audits a connection until it is unfit, and says why.
async fn audit(mut connection: Connection, doubts: &mut mpsc::Receiver<RedisError>) -> RedisError {
    let mut ticks = interval_at(Instant::now() + AUDIT, AUDIT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            error = connection.ended() => return error,
            Some(error) = doubts.recv() => return error,
            _ = ticks.tick() => {}
        }
        let another = connection.until_another();
        tokio::select! {
            audited = connection.audit() => if let Err(error) = audited { return error },
            // A server that is stopped would be waited for.
            error = another => return error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::error::Said, *};

    #[tokio::test(start_paused = true)]
    async fn what_redis_can_not_do_for_a_time_is_no_trouble_for_ever() {
        let supervisor = Supervisor::start(&Redis::default()).expect("it needs no certificates");
        let has = |name| supervisor.troubles().contains_key(name);
        supervisor.note("exists", Some(&RedisError::NotNow(Said::new("CLUSTERDOWN", ""))));
        supervisor.note("pttl", Some(&RedisError::Denied(Said::new("NOPERM", ""))));
        assert!(has("exists") && has("pttl"));
        tokio::time::advance(NOT_NOW).await;
        assert!(!has("exists") && has("pttl"), "a right is not given by itself");
        supervisor.note("pttl", None);
        assert!(!has("pttl"));
    }
}
