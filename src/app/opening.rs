//! The way to an open store: for the daemon, which waits for it, and for commands, which do not.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use backon::{BackoffBuilder, ExponentialBuilder};
use tracing::{debug, error, info, warn};

use super::places::{Place, Places};
use crate::{
    close::Reminder,
    config::{Config, Rule},
    ops::ServiceManager,
    outbox,
    shadow::{Past, Plan},
    store::{self, Claim, Obstacle, OpenError, Rehearsed, Settings, Shadow, Store, StoreError},
    trigger::{LONGEST_READ, claimed_twice},
    watchdog,
};

/// For how long a rehearsal is tried again that meets locks, and after which pause.
const REHEARSAL_PATIENCE: Duration = Duration::from_secs(1);
const REHEARSAL_PAUSE: Duration = Duration::from_millis(50);

/// Opens the store and shows that every statement of a closure is accepted.
///
/// # Errors
/// As [`store::open`], [`store::tables_for`] and [`store::rehearse`] say; [`StoreError::Refused`] with all rights that are
/// missing, if that may be why.
pub async fn open_and_rehearse(config: &Config, settings: Settings) -> Result<Arc<dyn Store>, OpenError> {
    open(config, settings).await
}

/// What the configuration says of who is told of a rule's closures.
#[must_use]
pub fn told_of(config: &Config) -> outbox::Settings<'_> {
    outbox::Settings { rule: &config.which.name, events: &config.events, redis: &config.redis }
}

/// What the configuration says of a rule's store.
#[must_use]
pub fn settings_of(config: &Config) -> Settings {
    Settings::of(Rule::of(config), &config.database, &config.events)
}

async fn open(config: &Config, settings: Settings) -> Result<Arc<dyn Store>, OpenError> {
    let opened = try_to_open(config, settings).await;
    let Err(error @ (OpenError::Missing(_) | OpenError::Store(StoreError::Rejected(_)))) = &opened else { return opened };
    match store::lacking_rights(&settings_of(config)).await {
        Ok(grants) if !grants.is_empty() => Err(StoreError::Refused { reason: error.to_string(), cure: grants.join(" ") }.into()),
        Ok(_) | Err(_) => opened,
    }
}

async fn try_to_open(config: &Config, settings: Settings) -> Result<Arc<dyn Store>, OpenError> {
    let store = store::open(settings).await?;
    if let Some(reason) = store.zone_changed().await? {
        return Err(OpenError::Zone(reason));
    }
    store::tables_for(&config.events, store.as_ref())?;
    let began = Instant::now();
    loop {
        match store::rehearse(store.as_ref()).await {
            // It meets those who close orders just now; a lock that lasts is another matter.
            Err(StoreError::Locked(_) | StoreError::Conflict(_)) if began.elapsed() < REHEARSAL_PATIENCE => {}
            rehearsed => return Ok(rehearsed.map(|()| store)?),
        }
        tokio::time::sleep(REHEARSAL_PAUSE).await;
    }
}

/// One of several databases that is away for so long is not just starting.
const AWAY: Duration = Duration::from_secs(3);

/// A rule whose table fits.
#[derive(Debug)]
pub(super) struct Opened {
    /// The settings as this rule has them.
    pub(super) config: Config,
    pub(super) store: Arc<dyn Store>,
    /// Its database.
    pub(super) place: Arc<Place>,
    /// The store's own self, where it is a shadow.
    pub(super) shadow: Option<Shadowed>,
}

/// A rule that is only watched.
#[derive(Debug, Clone)]
pub(super) struct Shadowed {
    pub(super) store: Arc<Shadow>,
    /// The same table by the column with the time of the last change, if one is named.
    pub(super) changes: Option<Arc<dyn Store>>,
    /// The orders that were closed before, likewise.
    pub(super) past: Option<Past>,
}

/// How the daemon's rules are opened.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub(super) places: Places,
    pub(super) manager: ServiceManager,
    /// Nothing is closed, and this is how that is told.
    pub(super) shadow: Option<Plan>,
}

/// A rule that does not fit its table.
#[derive(Debug)]
pub(super) struct Unfit {
    pub(super) config: Config,
    pub(super) reason: String,
}

/// Opens a rule's store, however long something is missing that can come: the database, a login, a table, a right.
///
/// # Errors
/// [`Unfit`] with what no server can mend.
pub(super) async fn wait_for_store(config: Config, way: Way) -> Result<Opened, Unfit> {
    let mut pauses = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(2))
        .without_max_times()
        .with_jitter()
        .build();
    let mut waiting: Option<Waiting> = None;
    let place = way.places.place(&config);
    loop {
        way.manager.starting("waiting for the database");
        let settings = settings_of(&config).reading_within(LONGEST_READ).sharing(&place.sharing);
        let opened = match &way.shadow {
            None => open(&config, settings).await.map(|store| (store, None)),
            Some(plan) => open_shadow(&config, settings, plan).await.map(|shadowed| (Arc::clone(&shadowed.store) as _, Some(shadowed))),
        };
        let error = match opened {
            Ok((store, shadow)) => {
                place.compare_clocks(&config, store.as_ref()).await;
                return examined(config, store, place, shadow).await;
            }
            Err(error) => error,
        };
        let Some(cure) = error.cure() else { return Err(Unfit { reason: unmendable(&error), config }) };
        if config.which.name.shard().is_some() && matches!(error, OpenError::Store(StoreError::Unavailable(_))) {
            // Said once for all of them.
            place.say_away(&error, cure);
        } else {
            waiting.get_or_insert_with(Waiting::new).say(&error, cure);
        }
        watchdog::waiting(tokio::time::sleep(pauses.next().unwrap_or_default())).await;
    }
}

/// Opens a store that only reads. No closure is rehearsed, for which it would have to write.
async fn open_shadow(config: &Config, settings: Settings, plan: &Plan) -> Result<Shadowed, OpenError> {
    let past = match &plan.changed_at {
        Some(column) => {
            let mut by_changes = config.clone();
            by_changes.orders.deadline.column = column.clone();
            by_changes.orders.deadline.plus = None;
            let mut closed = config.clone();
            closed.orders.unpaid = vec![config.orders.closed.clone()].into();
            let open =
                async |config: Config| Ok::<_, OpenError>(Shadow::open(settings.clone().about(Rule::of(&config))).await? as Arc<dyn Store>);
            Some(Past { closed: open(closed).await?, changes: open(by_changes).await? })
        }
        None => None,
    };
    let changes = past.as_ref().map(|past| Arc::clone(&past.changes));
    let store = Shadow::open(settings).await?;
    match store.zone_changed().await? {
        Some(reason) => Err(OpenError::Zone(reason)),
        None => Ok(Shadowed { store, changes, past }),
    }
}

/// Says what there is to say of a store before the first order is closed.
async fn examined(config: Config, store: Arc<dyn Store>, place: Arc<Place>, shadow: Option<Shadowed>) -> Result<Opened, Unfit> {
    if let Ok(Some(Claim { id, rule })) = claimed_twice(store.as_ref()).await {
        let own = store.rule();
        let reason = format!(
            "the rules {own} and {rule} both take the order {id}, which neither would close; see that no row passes the filters of both"
        );
        return Err(Unfit { config, reason });
    }
    info!(database = %config.database.url, table = %config.orders.table, "orders table fits");
    for Obstacle { what, fix, .. } in store.obstacles() {
        warn!(reason = what, fix, "orders may never close");
    }
    if shadow.is_some() {
        return Ok(Opened { config, store, place, shadow });
    }
    match store::rehearse_on_an_order(store.as_ref()).await {
        Rehearsed::Closable(order) => debug!(%order, "a closure was tried on it and rolled back"),
        Rehearsed::NotTried(reason) => debug!(reason, "no closure was tried on an order"),
        Rehearsed::Refused { id, reason, lacking: true } => {
            let fix =
                store::lacking_rights(&settings_of(&config)).await.ok().map(|grants| grants.join(" ")).filter(|grants| !grants.is_empty());
            error!(order = %id, reason, fix, "a closure was tried on this order, and what it lacks every order will lack");
        }
        Rehearsed::Refused { id, reason, lacking: false } => {
            warn!(order = %id, reason, "a closure was tried on this order and refused; others may be refused, too");
        }
    }
    Ok(Opened { config, store, place, shadow })
}

fn unmendable(error: &OpenError) -> String {
    match error {
        OpenError::Store(_) => {
            format!("the database does not understand what orders and close.sql in the configuration make of its tables: {error}")
        }
        OpenError::Misfit(_) | OpenError::Missing(_) | OpenError::Zone(_) => error.to_string(),
    }
}

/// What was said of a wait.
#[derive(Debug)]
pub(super) struct Waiting {
    since: Instant,
    reason: String,
    reminder: Reminder,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), reason: String::new(), reminder: Reminder::default() }
    }

    /// The same of a database for all its shards, each of which comes and says it, perhaps in other words. Others begin meanwhile:
    /// it is not waited for in silence.
    pub(super) fn say_together(&mut self, error: &OpenError, cure: &str) {
        let reason = error.to_string();
        if self.reason.is_empty() {
            warn!(reason, "waiting for the database");
        } else if self.since.elapsed() >= AWAY && self.reminder.is_due(tokio::time::Instant::now()) {
            error!(reason, cure, since_s = self.since.elapsed().as_secs(), "no order can be closed; waiting for the database");
        }
        self.reason = reason;
    }

    /// Says each reason once, and each minute again. A database that is merely away may be just starting, as this host is.
    fn say(&mut self, error: &OpenError, cure: &str) {
        let reason = error.to_string();
        let now = tokio::time::Instant::now();
        let is_news = self.reason != reason;
        let lasts = self.reminder.is_due(now) && !self.reason.is_empty();
        if lasts || (is_news && error.needs_a_hand()) {
            error!(reason, cure, since_s = self.since.elapsed().as_secs(), "no order can be closed; waiting for the database");
            self.reminder = Reminder::said(now);
        } else if is_news {
            warn!(reason, "waiting for the database");
        }
        self.reason = reason;
    }
}
