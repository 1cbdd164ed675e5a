//! The servers, the daemons, and the networks between them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex as Cell, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

use super::{
    database::Server,
    faults::{DAEMONS, Far, Layout, SKEWED},
    keys::Keys,
    plan::Options,
    redis::Servers,
    shop::{self, USER},
};
use crate::support::{
    Daemon, Database, Disk, Kind, Proxy, Settings, Shop, order_closer, process,
    proxy::Existing,
    receiver::{Receiver, SECRETS},
    redis::unix_millis,
    till::Till,
};

/// What daemons say, unless `CHAOS_LOG` has it otherwise: the witness says at `debug` when rows decide alone.
const LOG: &str = "info,order_closer::trigger::witness=debug";

/// A daemon's place: whoever runs there, and what those before have said.
#[derive(Debug)]
pub struct Place {
    number: usize,
    daemon: Mutex<Daemon>,
    former: Cell<Vec<(i64, String)>>,
    settings: Settings,
    to_redis: Option<Proxy>,
    to_database: Proxy,
}

impl Place {
    fn new(number: usize, settings: &Settings, redis: &str, database: &str, layout: Layout, skew: Option<&Path>) -> Self {
        let to_redis = (layout == Layout::Alone).then(|| Proxy::before(redis));
        let to_database = Proxy::before(database);
        let redis = to_redis.as_ref().map_or_else(|| redis.to_owned(), |proxy| proxy.url(redis));
        let settings = settings.clone().set("redis.url", redis).set("database.url", to_database.url(database));
        let daemon = Mutex::new(start(number, &settings, skew));
        Self { number, daemon, former: Cell::default(), settings, to_redis, to_database }
    }

    /// Its way to these servers, where it has one of its own.
    pub fn network(&self, far: Far) -> Option<&Proxy> {
        match far {
            Far::Redis => self.to_redis.as_ref(),
            Far::Database => Some(&self.to_database),
        }
    }

    /// Whoever runs there.
    pub async fn daemon(&self) -> MutexGuard<'_, Daemon> {
        self.daemon.lock().await
    }

    /// Puts another in the place of one that has ended.
    pub async fn start_again(&self, skew: Option<&Path>) {
        let mut daemon = self.daemon.lock().await;
        let former = std::mem::replace(&mut *daemon, start(self.number, &self.settings, skew));
        // A signal ends a process that does not listen to it yet.
        daemon.until_logged("order-closer starts").await;
        self.former.lock().unwrap_or_else(PoisonError::into_inner).extend(heard(&former));
    }

    /// All that was said there, with the moments by this process's clock, in milliseconds since 1970.
    pub async fn lines(&self) -> Vec<(i64, String)> {
        let mut lines = self.former.lock().unwrap_or_else(PoisonError::into_inner).clone();
        lines.extend(heard(&*self.daemon.lock().await));
        lines
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

fn heard(daemon: &Daemon) -> impl Iterator<Item = (i64, String)> {
    daemon.heard().into_iter().map(|(at, line)| (unix_millis(at), line))
}

/// One daemon's clock goes by a file, where the library for that is installed.
fn start(number: usize, settings: &Settings, skew: Option<&Path>) -> Daemon {
    Daemon::started(settings, |command| {
        if let (SKEWED, Some(file), Some(library)) = (number, skew, faketime()) {
            command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", file).env("FAKETIME_CACHE_DURATION", "1");
            // Timers go by the monotonic clock, which no administrator sets.
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1").env("FAKETIME_DISABLE_SHM", "1");
        }
    })
}

/// Debian's package `faketime`.
pub fn faketime() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    folders.map(|folder| folder.join("faketime/libfaketime.so.1")).find(|library| library.is_file())
}

/// What daemons have said, by their place, each line with its moment.
pub type Lines = BTreeMap<usize, Vec<(i64, String)>>;

/// All of it.
#[derive(Debug)]
pub struct Scene {
    /// What was asked for.
    pub options: Options,
    /// The shop, by its own way to the database.
    pub shop: Shop,
    /// The same database for whoever harms it.
    pub nemesis: Database,
    /// The database's server.
    pub server: Mutex<Server>,
    /// Redis.
    pub redis: Mutex<Servers>,
    /// The service's way to the keys.
    pub keys: Keys,
    redis_url: String,
    /// The daemons.
    pub places: Vec<Place>,
    /// Who is told of closures.
    pub receiver: Receiver,
    /// Who is asked before closures, and has the payment provider.
    pub till: Till,
    /// When it began, in milliseconds since 1970.
    pub began: i64,
    /// The same moment.
    pub instant: Instant,
    /// The disks of Redis and of the database, where there may be some.
    pub disks: [Option<Disk>; 2],
    /// The way of the shop to the database, wherever that is.
    front: Proxy,
    folder: TempDir,
}

impl Scene {
    /// Opens a shop, and starts its daemons.
    pub async fn open(options: &Options) -> Self {
        let disks = [Disk::of_mebibytes(512), Disk::of_mebibytes(4_096)];
        let server = Server::start(options.kind, disks[1].as_ref());
        let redis = Servers::start(options.layout, disks[0].as_ref()).await;
        let direct = server.database().await.url.clone();
        let front = Proxy::before(&direct);
        let shop = shop::open(Database::existing(&front.url(&direct))).await;
        let (receiver, till) = (Receiver::start().await, Till::start().await);
        till.provide();
        let rules = shop::rules(options.kind, &till.url(), SECRETS[0]);
        let owner = Settings::new()
            .set("log.format", "json")
            .set("log.level", super::setting::<String>("CHAOS_LOG").unwrap_or_else(|| LOG.into()))
            .add(&if options.harmful { shop::harmful(&rules) } else { rules })
            .add(&receiver.webhook("receiver", "timeout = '2s'"))
            // Never given up in a run.
            .add("[events]\nretry = { attempts = 1000, initial = '50ms', max = '200ms' }")
            .add("[http]\nlisten = 'none'");
        let root = owner.clone().set("redis.url", redis.url()).set("database.url", shop.database.url.as_str());
        order_closer(&root, &["migrate"]).await.expect_code(0);
        shop::grant(&shop.database).await;
        let login = if options.kind == Kind::Postgres { "postgres@" } else { "root@" };
        let database = direct.replacen(login, &format!("{USER}@"), 1);
        let folder = process::folder();
        let (clock, authority) = (folder.path().join("clock"), folder.path().join("authority.pem"));
        std::fs::write(&clock, "+0\n").expect("a file can be written");
        let owner = match redis.ca_file() {
            Some(file) => {
                std::fs::copy(file, &authority).expect("a file can be copied");
                owner.set("redis.ca_file", authority.to_str().expect("UTF-8"))
            }
            None => owner,
        };
        let redis_of_daemons = redis.url_of_daemons();
        let place = |number: usize| Place::new(number, &owner, &redis_of_daemons, &database, options.layout, Some(&clock));
        let places: Vec<Place> = (0..DAEMONS).map(place).collect();
        for place in &places {
            place.daemon().await.until_logged("listening for expired keys").await;
        }
        let nemesis = shop.database.again();
        let (keys, redis_url) = (Keys::new(redis.urls()), redis.url());
        Self {
            options: *options,
            shop,
            nemesis,
            server: Mutex::new(server),
            redis: Mutex::new(redis),
            keys,
            redis_url,
            places,
            receiver,
            till,
            began: now(),
            instant: Instant::now(),
            disks,
            front,
            folder,
        }
    }

    /// A standby takes the primary's place, and all are led there.
    pub async fn promote(&self) {
        let url = self.server.lock().await.fail_over(&self.nemesis).await;
        for proxy in self.places.iter().filter_map(|place| place.network(Far::Database)).chain([&self.front]) {
            proxy.lead_to(&url, Existing::Cut);
        }
    }

    /// The file by which a daemon's clock goes.
    pub fn clock(&self) -> PathBuf {
        self.folder.path().join("clock")
    }

    /// The file with the authority that daemons trust about Redis.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// The settings of one that reaches the servers itself.
    pub fn settings(&self) -> Settings {
        let settings = self.places[0].settings().clone();
        settings.set("redis.url", self.redis_url.as_str()).set("database.url", self.shop.database.url.as_str())
    }

    /// Waits until so many milliseconds after the beginning.
    pub async fn until(&self, at: i64) {
        let moment = self.instant + Duration::from_millis(u64::try_from(at).unwrap_or_default());
        tokio::time::sleep_until(moment.into()).await;
    }

    /// Milliseconds since the beginning.
    pub fn elapsed(&self) -> i64 {
        now() - self.began
    }

    /// A moment of this process's clock, in milliseconds since 1970.
    pub fn unix(&self, moment: Instant) -> i64 {
        let since = moment.saturating_duration_since(self.instant).as_millis();
        self.began + i64::try_from(since).expect("a run ends")
    }

    /// What all daemons have said, by their place.
    pub async fn lines(&self) -> Lines {
        let mut lines = BTreeMap::new();
        for place in &self.places {
            lines.insert(place.number, place.lines().await);
        }
        lines
    }
}

/// Milliseconds since 1970.
pub fn now() -> i64 {
    unix_millis(SystemTime::now())
}
