//! The servers, the daemons, and the networks between them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex as Cell, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use tempfile::TempDir;
use tokio::{
    sync::{Mutex, MutexGuard},
    task::block_in_place,
};

use super::{
    faults::{DAEMONS, Far, SKEWED},
    plan::Options,
    shop::{self, PASSWORD, USER},
};
use crate::support::{
    Daemon, Database, Disk, Kind, Proxy, Redis, Settings, Shop,
    mariadb::MariaDb,
    order_closer,
    postgres::Postgres,
    process,
    proxy::Existing,
    receiver::{Receiver, SECRETS},
    redis::unix_millis,
    till::Till,
    wait,
};

/// What daemons say, unless `CHAOS_LOG` has it otherwise: the witness says at `debug` when rows decide alone.
const LOG: &str = "info,order_closer::trigger::witness=debug";

/// The database's server.
#[derive(Debug)]
pub enum Server {
    /// PostgreSQL, of which a standby may take the place.
    Postgres(Postgres),
    /// MariaDB.
    MariaDb(MariaDb),
}

impl Server {
    fn start(kind: Kind, disk: Option<&Disk>) -> Self {
        match (kind, disk.map(|disk| disk.folder("database"))) {
            (Kind::Postgres, Some(home)) => Self::Postgres(Postgres::options().setting("max_wal_size=128MB").start_in(home)),
            (Kind::Postgres, None) => Self::Postgres(Postgres::options().start()),
            (Kind::MariaDb | Kind::Sqlite, Some(home)) => Self::MariaDb(MariaDb::options().start_in(home)),
            (Kind::MariaDb | Kind::Sqlite, None) => Self::MariaDb(MariaDb::options().start()),
        }
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        match self {
            Self::Postgres(server) => server.is_running(),
            Self::MariaDb(server) => server.is_running(),
        }
    }

    async fn database(&self) -> Database {
        match self {
            Self::Postgres(server) => Database::on_postgres(server).await,
            Self::MariaDb(server) => Database::on_mariadb(server).await,
        }
    }

    /// `kill -9`.
    pub fn kill(&self) {
        match self {
            Self::Postgres(server) => server.kill(),
            Self::MariaDb(server) => server.kill(),
        }
    }

    /// The same port, the same data.
    pub fn start_again(&mut self) {
        match self {
            Self::Postgres(server) => server.start_again(),
            Self::MariaDb(server) => server.start_again(),
        }
    }

    /// SIGSTOP.
    pub fn freeze(&self) {
        match self {
            Self::Postgres(server) => server.freeze(),
            Self::MariaDb(server) => server.freeze(),
        }
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        match self {
            Self::Postgres(server) => server.thaw(),
            Self::MariaDb(server) => server.thaw(),
        }
    }
}

/// A daemon's place: whoever runs there, and what those before have said.
#[derive(Debug)]
pub struct Place {
    number: usize,
    daemon: Mutex<Daemon>,
    former: Cell<Vec<String>>,
    settings: Settings,
    /// Its way to Redis, and to the database.
    pub networks: [Proxy; 2],
}

impl Place {
    fn new(number: usize, settings: &Settings, redis: &str, database: &str, skew: Option<&Path>) -> Self {
        let networks = [Proxy::before(redis), Proxy::before(database)];
        let settings = settings.clone().set("redis.url", networks[0].url(redis)).set("database.url", networks[1].url(database));
        let daemon = Mutex::new(start(number, &settings, skew));
        Self { number, daemon, former: Cell::default(), settings, networks }
    }

    /// Whoever runs there.
    pub async fn daemon(&self) -> MutexGuard<'_, Daemon> {
        self.daemon.lock().await
    }

    /// Puts another in the place of one that has ended.
    pub async fn start_again(&self, skew: Option<&Path>) {
        let mut daemon = self.daemon.lock().await;
        let former = std::mem::replace(&mut *daemon, start(self.number, &self.settings, skew));
        self.former.lock().unwrap_or_else(PoisonError::into_inner).extend(former.lines());
    }

    /// All that was said there.
    pub async fn lines(&self) -> Vec<String> {
        let mut lines = self.former.lock().unwrap_or_else(PoisonError::into_inner).clone();
        lines.extend(self.daemon.lock().await.lines());
        lines
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
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
    pub redis: Mutex<Redis>,
    /// Where Redis is.
    pub redis_url: String,
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
    clocks: TempDir,
}

impl Scene {
    /// Opens a shop, and starts its daemons.
    pub async fn open(options: &Options) -> Self {
        let disks = [Disk::of_mebibytes(512), Disk::of_mebibytes(4_096)];
        let server = Server::start(options.kind, disks[1].as_ref());
        let redis = Redis::options().with_notifications().config(&format!("user {USER} on >{PASSWORD} ~* &* +@all"));
        let redis = match &disks[0] {
            // What is not written there is refused.
            Some(disk) => redis.config("appendonly yes").data(disk.folder("redis")).start(),
            None => redis.start(),
        };
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
        let (clocks, redis_url) = (process::folder(), redis.url());
        let redis_of_daemons = redis.url_as(USER, PASSWORD);
        std::fs::write(clocks.path().join("clock"), "+0\n").expect("a file can be written");
        let skew = clocks.path().join("clock");
        let place = |number: usize| Place::new(number, &owner, &redis_of_daemons, &database, Some(&skew));
        let places: Vec<Place> = (0..DAEMONS).map(place).collect();
        for place in &places {
            place.daemon().await.until_logged("listening for expired keys").await;
        }
        let nemesis = shop.database.again();
        Self {
            options: *options,
            shop,
            nemesis,
            server: Mutex::new(server),
            redis: Mutex::new(redis),
            redis_url,
            places,
            receiver,
            till,
            began: now(),
            instant: Instant::now(),
            disks,
            front,
            clocks,
        }
    }

    /// A standby takes the primary's place, which has sent it everything before it ended, and all are led there. Of PostgreSQL alone.
    pub async fn promote(&self) {
        let mut server = self.server.lock().await;
        let Server::Postgres(primary) = &mut *server else { return };
        let standby = block_in_place(|| primary.standby());
        let name = self.shop.database.url.rsplit('/').next().expect("a name");
        let streams = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'";
        wait::until("the standby follows", async || self.nemesis.try_rows(streams).await.is_ok_and(|rows| !rows.is_empty())).await;
        block_in_place(|| primary.end());
        let url = standby.url(name);
        Database::existing(&url).execute("SELECT pg_promote(true)").await;
        for proxy in self.places.iter().map(|place| &place.networks[Far::Database as usize]).chain([&self.front]) {
            proxy.lead_to(&url, Existing::Cut);
        }
        *primary = standby;
    }

    /// The file by which a daemon's clock goes.
    pub fn clock(&self) -> PathBuf {
        self.clocks.path().join("clock")
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
    pub async fn lines(&self) -> BTreeMap<usize, Vec<String>> {
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
