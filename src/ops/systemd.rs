//! What systemd is told, where it has started the daemon: `man sd_notify`.
//!
//! A thread of its own talks to systemd, for its socket may be full: a systemd that hangs keeps no order waiting.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    time::{Duration, Instant},
};

use sd_notify::NotifyState;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::{ops::Summaries, watchdog::Watchdog};

/// So many words may wait for systemd to take them; it is told nothing more until then.
const QUEUE: usize = 64;

/// How much longer than the database may take each attempt to start is given. What takes longer hangs.
const STARTING: Duration = Duration::from_mins(1);

/// The watchdog is fed no more often.
const FEEDING: Duration = Duration::from_secs(1);

/// How often the status is looked at.
const STATUS: Duration = Duration::from_secs(2);

/// How long the word that the daemon stops may take.
const LAST_WORD: Duration = Duration::from_millis(200);

/// What is to be told.
#[derive(Debug)]
enum Word {
    Starting(Duration, String),
    Ready,
    Reloading,
    Status(String),
    Fed,
    Stopping(oneshot::Sender<()>),
}

/// The service manager, if there is one.
#[derive(Debug, Clone, Default)]
pub struct ServiceManager {
    words: Option<SyncSender<Word>>,
    watchdog: Watchdog,
    /// How long an attempt to start may take.
    starting: Duration,
}

impl ServiceManager {
    /// As `NOTIFY_SOCKET` and `WATCHDOG_USEC` have it. Statements of this daemon take so long at the most.
    #[must_use]
    pub fn of_environment(longest: Duration) -> Self {
        if std::env::var_os("NOTIFY_SOCKET").is_none_or(|socket| socket.is_empty()) {
            return Self::default();
        }
        let limit = sd_notify::watchdog_enabled();
        // A connection, and a statement.
        if let Some(limit) = limit.filter(|limit| *limit <= longest * 2) {
            let (watchdog_s, timeout_s) = (limit.as_secs_f64(), longest.as_secs_f64());
            warn!(
                watchdog_s,
                timeout_s, "WatchdogSec is less than twice database.timeout: a database that hangs would have this daemon killed"
            );
        }
        let (words, to_tell) = sync_channel(QUEUE);
        let fed = words.clone();
        let watchdog = match limit {
            Some(_) => Watchdog::new(move || drop(fed.try_send(Word::Fed))),
            None => Watchdog::default(),
        };
        let watched = watchdog.clone();
        let spawned = std::thread::Builder::new().name("systemd".into()).spawn(move || Teller { watched, limit }.run(&to_tell));
        if let Err(error) = spawned {
            warn!(%error, "the thread that talks to systemd can't start");
        }
        Self { words: Some(words), watchdog, starting: longest.saturating_mul(2).saturating_add(STARTING) }
    }

    /// Who watches loops for it.
    #[must_use]
    pub fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }

    /// The daemon has not started yet, for this reason, and is still at it.
    pub fn starting(&self, why: &str) {
        self.say(|| Word::Starting(self.starting, why.into()));
    }

    /// All has started, or has been read anew.
    pub fn ready(&self) {
        self.say(|| Word::Ready);
    }

    /// The configuration is read anew; [`Self::ready`] comes next.
    pub fn reloading(&self) {
        self.say(|| Word::Reloading);
    }

    /// The daemon stops.
    pub async fn stopping(&self) {
        let (told, heard) = oneshot::channel();
        self.say(|| Word::Stopping(told));
        tokio::time::timeout(LAST_WORD, heard).await.ok();
    }

    /// Tells how the daemon is, whenever that has changed: each rule, where there are several.
    pub async fn tell(self, rules: watch::Receiver<Vec<Summaries>>, stop: CancellationToken) {
        let mut told = String::new();
        while self.words.is_some() {
            let status = match &rules.borrow()[..] {
                [only] => only.line(),
                rules => rules.iter().map(|rule| format!("{}: {}", rule.store.rule(), rule.line())).collect::<Vec<_>>().join(". "),
            };
            if status != told {
                self.say(|| Word::Status(status.clone()));
                told = status;
            }
            if stop.run_until_cancelled(tokio::time::sleep(STATUS)).await.is_none() {
                return;
            }
        }
        stop.cancelled().await;
    }

    fn say(&self, word: impl FnOnce() -> Word) {
        if let Some(words) = &self.words
            && words.try_send(word()).is_err()
        {
            debug!("systemd does not listen");
        }
    }
}

/// Who talks to systemd.
struct Teller {
    watched: Watchdog,
    /// After so long without food the watchdog bites.
    limit: Option<Duration>,
}

impl Teller {
    fn run(self, words: &Receiver<Word>) {
        let half = self.limit.map(|limit| limit / 2);
        let (mut fed, mut told, mut said) = (Instant::now(), None::<Instant>, false);
        loop {
            let word = match half {
                Some(half) => words.recv_timeout(half),
                None => words.recv().map_err(RecvTimeoutError::from),
            };
            match word {
                Ok(Word::Fed) => {
                    (fed, said) = (Instant::now(), false);
                    if told.is_none_or(|told| told.elapsed() >= FEEDING) {
                        told = Some(fed);
                        tell(&[NotifyState::Watchdog]);
                    }
                }
                Ok(word) => word.tell(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if !said && half.is_some_and(|half| fed.elapsed() >= half) {
                let loops = self.watched.missing().join(", ");
                said = !loops.is_empty();
                if said {
                    error!(
                        loops,
                        since_s = fed.elapsed().as_secs(),
                        "these loops do not turn, and systemd is about to restart this daemon"
                    );
                }
            }
        }
    }
}

impl Word {
    fn tell(self) {
        match self {
            Self::Starting(limit, why) => {
                let limit = u32::try_from(limit.as_micros()).unwrap_or(u32::MAX);
                tell(&[NotifyState::ExtendTimeoutUsec(limit), NotifyState::Status(&why)]);
            }
            Self::Ready => tell(&[NotifyState::Ready]),
            Self::Reloading => match NotifyState::monotonic_usec_now() {
                // It wants to know since when.
                Ok(now) => tell(&[NotifyState::Reloading, now]),
                Err(error) => debug!(%error, "the clock can't be read"),
            },
            Self::Status(status) => tell(&[NotifyState::Status(&status)]),
            Self::Fed => tell(&[NotifyState::Watchdog]),
            Self::Stopping(told) => {
                tell(&[NotifyState::Stopping, NotifyState::Status("stopping; finishing what is in hand")]);
                told.send(()).ok();
            }
        }
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        debug!(%error, "systemd can't be told");
    }
}
