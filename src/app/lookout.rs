//! Which tables a pattern in `orders.table` stands for: looked up at the start, and again and again, so that the table of another
//! month joins while the daemon runs. A database that is away has its tables looked up when it is back.

use std::time::Duration;

use futures::future::join_all;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error, info};

use super::{RunError, opening::settings_of, places::Places};
use crate::{
    config::Config,
    ops::ServiceManager,
    store::{self, OpenError, StoreError},
    watchdog,
};

/// How often catalogues are read.
const EVERY: Duration = Duration::from_secs(10);

/// How often those are that could not be read.
const AGAIN: Duration = Duration::from_secs(1);

/// For how long a daemon that starts waits for all catalogues.
const AT_START: Duration = Duration::from_secs(3);

/// Looks tables up.
#[derive(Debug)]
pub(super) struct Lookout {
    config: Config,
    patterns: Vec<Config>,
    places: Places,
}

impl Lookout {
    /// For all patterns of these settings.
    pub(super) fn of(config: &Config, places: &Places) -> Self {
        Self { config: config.clone(), patterns: config.patterns(), places: places.clone() }
    }

    /// Looks all up, and waits until there is any table.
    ///
    /// # Errors
    /// Says which pattern no table fits.
    pub(super) async fn begin(&self, manager: &ServiceManager) -> Result<(), RunError> {
        loop {
            let looked = join_all(self.patterns.iter().map(|pattern| timeout(AT_START, self.look(pattern)))).await;
            for error in looked.into_iter().flatten().filter_map(Result::err) {
                if error.needs_a_hand() && !matches!(error, OpenError::Store(StoreError::Refused { .. })) {
                    return Err(RunError::Configuration(error.to_string()));
                }
            }
            if self.patterns.is_empty() || self.config.of_each_rule().iter().any(|rule| !rule.is_pattern()) {
                return Ok(());
            }
            manager.starting("waiting for the database");
            watchdog::waiting(sleep(AGAIN)).await;
        }
    }

    /// Looks up again and again; tells when there is another table.
    pub(super) async fn run(self, news: mpsc::Sender<()>, stop: CancellationToken) {
        let all = join_all(self.patterns.iter().map(|pattern| self.watch(pattern, &news)));
        stop.run_until_cancelled(all).await;
        // Without patterns there is nothing to do until then.
        stop.cancelled().await;
    }

    async fn watch(&self, pattern: &Config, news: &mpsc::Sender<()>) {
        let place = self.places.place(pattern);
        let mut said = false;
        loop {
            let looked = self.look(pattern).instrument(place.span()).await;
            let missing = looked.is_err();
            match looked {
                Ok(new) => {
                    said = false;
                    if !new.is_empty() {
                        place.span().in_scope(|| info!(tables = new.join(", "), "tables were found that orders.table means"));
                        // Only closed when nobody starts anything any more.
                        news.send(()).await.ok();
                    }
                }
                Err(error) if error.needs_a_hand() && !std::mem::replace(&mut said, true) => {
                    place.span().in_scope(|| error!(reason = %error, cure = error.cure(), "tables can't be looked up; trying again"));
                }
                // Whoever waits for the database says so.
                Err(_) => {}
            }
            sleep(if missing { AGAIN } else { EVERY }).await;
        }
    }

    async fn look(&self, config: &Config) -> Result<Vec<String>, OpenError> {
        let Some(pattern) = &config.which.pattern else { return Ok(Vec::new()) };
        let place = self.places.place(config);
        let settings = settings_of(config).sharing(&place.sharing);
        let looked = store::find_tables(pattern, &settings).await.map(|names| config.found.add(pattern, names));
        if let Err(error @ OpenError::Store(StoreError::Unavailable(_))) = &looked
            && let Some(cure) = error.cure().filter(|_| config.which.name.shard().is_some())
        {
            place.say_away(error, cure);
        }
        looked
    }
}
