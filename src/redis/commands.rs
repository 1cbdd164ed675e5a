//! The commands that we send.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use fred::{
    clients::Client,
    error::Error,
    interfaces::{ClientLike, ConfigInterface, KeysInterface, StreamsInterface},
    types::{Expiration, Value, config::Options},
};

use super::{
    error::{RedisError, Result, Said},
    expiry::{Expiries, Expiry},
    link::PATIENCE,
    server::{Server, fields},
    supervisor::Supervisor,
};
use crate::config::{KeyPrefix, Redis};

/// A supervised connection for commands; its copies share it.
#[derive(Debug, Clone)]
pub struct Commands {
    supervisor: Arc<Supervisor>,
    /// The ACL rule for the keys of orders.
    orders: Arc<str>,
    prefix: Arc<str>,
    writes: bool,
}

/// The ACL rule for keys with this prefix, and what stands before their ids.
fn of_orders(prefix: &KeyPrefix) -> (Arc<str>, Arc<str>) {
    let prefix = prefix.get().unwrap_or_default();
    (format!("~{prefix}*").into(), prefix.into())
}

impl Commands {
    /// Begins to connect, and does not wait for it.
    ///
    /// # Errors
    /// Says what is wrong with the configuration.
    pub fn new(redis: &Redis) -> Result<Self> {
        Ok(Self::through(Supervisor::start(redis)?, redis))
    }

    /// Connects, and waits for it.
    ///
    /// # Errors
    /// Says why Redis can't be reached, or is none for us.
    pub async fn connect(redis: &Redis) -> Result<Self> {
        Ok(Self::through(Supervisor::connect(redis).await?, redis))
    }

    fn through(supervisor: Supervisor, redis: &Redis) -> Self {
        let (orders, prefix) = of_orders(&redis.key_prefix);
        Self { supervisor: Arc::new(supervisor), orders, prefix, writes: true }
    }

    /// The same connection, for orders whose keys have this prefix.
    #[must_use]
    pub fn of(&self, prefix: &KeyPrefix) -> Self {
        let (orders, prefix) = of_orders(prefix);
        Self { supervisor: Arc::clone(&self.supervisor), orders, prefix, writes: self.writes }
    }

    /// The same, of which whatever would change something in Redis fails: also the touch of a key whose time is over, which
    /// would have Redis delete it and say so.
    #[must_use]
    pub fn reading_only(self) -> Self {
        Self { writes: false, ..self }
    }

    /// What is wrong with this connection: that there is none (`connect`), or that Redis refuses a command of ours for want of
    /// a right, memory or time, by its name (`exists`).
    #[must_use]
    pub fn troubles(&self) -> BTreeMap<&'static str, RedisError> {
        self.supervisor.troubles()
    }

    /// Whether there is no Redis (`redis.url` is none): every command fails, and says so.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.supervisor.is_absent()
    }

    /// The server that is connected, as far as it tells what it is.
    #[must_use]
    pub fn server(&self) -> Option<Server> {
        self.supervisor.server()
    }

    /// These settings with the address at which the server is, where sentinels have named that.
    #[must_use]
    pub fn whereabouts(&self, redis: &Redis) -> Redis {
        let url = self.server().and_then(|server| server.endpoint().map(|at| redis.url.at(at)));
        Redis { url: url.unwrap_or_else(|| redis.url.clone()), ..redis.clone() }
    }

    /// Reads keys, which makes Redis expire those whose time has come and publish it. Returns how many of
    /// them are still there.
    ///
    /// # Errors
    /// Says why Redis did not answer within `limit`.
    pub async fn touch(&self, keys: Vec<String>, limit: Duration) -> Result<u64> {
        let command = async |client: Client| {
            // The client gives it up too: otherwise it would stay queued. One command for all: a thousand commands would cost
            // the client ten times as much.
            client.with_options(&Options { timeout: Some(limit), ..Options::default() }).exists(keys).await
        };
        self.may_write()?;
        let answer = self.supervisor.run(&self.on_orders("+exists"), limit, command).await;
        self.supervisor.note("exists", answer.as_ref().err());
        answer
    }

    /// When these keys are to expire, and the server's clock, by one pipeline.
    ///
    /// # Errors
    /// Says why Redis did not answer within `limit`, the wait for a connection included.
    pub async fn expiries(&self, keys: &[String], limit: Duration) -> Result<Expiries> {
        let command = async |client: Client| {
            let options = Options { timeout: Some(limit), ..Options::default() };
            let pipeline = client.pipeline().with_options(&options);
            pipeline.custom::<(), _>(fred::cmd!("TIME"), Vec::<String>::new()).await?;
            for key in keys {
                pipeline.pttl::<(), _>(key).await?;
            }
            let mut answers = pipeline.all::<Vec<Value>>().await?.into_iter();
            let (seconds, micros): (i64, i64) = answers.next().unwrap_or(Value::Null).convert()?;
            let now = seconds * 1_000_000 + micros;
            let keys: fred::prelude::FredResult<Vec<Expiry>> = answers.map(|ttl| Ok(Expiry::of(ttl.convert()?, now))).collect();
            Ok(Expiries { now, keys: keys? })
        };
        let needs = self.on_orders("+time +pttl");
        let answer = self.supervisor.run(&needs, limit, command);
        let answer = tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err(RedisError::timed_out(limit)));
        self.supervisor.note("pttl", answer.as_ref().err());
        answer
    }

    /// Writes a key that expires.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn set(&self, key: &str, value: &str, ttl: Duration) -> Result<()> {
        let millis = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        self.set_with(key, value, Expiration::PX(millis)).await
    }

    /// Writes a key that expires at a time, in milliseconds since 1970 UTC.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn set_until(&self, key: &str, value: &str, millis: i64) -> Result<()> {
        self.set_with(key, value, Expiration::PXAT(millis)).await
    }

    async fn set_with(&self, key: &str, value: &str, expiration: Expiration) -> Result<()> {
        self.write(&self.on_orders("+set"), async |client| client.set(key, value, Some(expiration), None, false).await).await
    }

    /// Sets a field of a hash, which then lives for `ttl`, and returns all its fields.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn exchange_fields(&self, key: &str, field: &str, value: &str, ttl: Duration) -> Result<HashMap<String, String>> {
        let millis = ttl.as_millis().to_string();
        self.write(MEMBERS, async |client| {
            let pipeline = client.pipeline();
            pipeline.custom::<(), _>(fred::cmd!("HSET"), vec![key, field, value]).await?;
            pipeline.custom::<(), _>(fred::cmd!("PEXPIRE"), vec![key, &millis]).await?;
            pipeline.custom::<(), _>(fred::cmd!("HGETALL"), vec![key]).await?;
            let (_, _, fields): (u64, u64, _) = pipeline.all().await?;
            Ok(fields)
        })
        .await
    }

    /// Makes a hash of our own live for `ttl`; returns whether it was not there.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn mark(&self, key: &str, ttl: Duration) -> Result<bool> {
        let millis = ttl.as_millis().to_string();
        self.write(MEMBERS, async |client| {
            let pipeline = client.pipeline();
            pipeline.custom::<(), _>(fred::cmd!("HSET"), vec![key, "marked", "yes"]).await?;
            pipeline.custom::<(), _>(fred::cmd!("PEXPIRE"), vec![key, &millis]).await?;
            let (added, _): (u64, u64) = pipeline.all().await?;
            Ok(added > 0)
        })
        .await
    }

    /// Reads all fields of a hash; none of one that is not there.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn fields(&self, key: &str) -> Result<HashMap<String, String>> {
        self.run(MEMBERS, async |client| client.custom(fred::cmd!("HGETALL"), vec![key]).await).await
    }

    /// Removes fields of a hash.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn remove_fields(&self, key: &str, fields: Vec<String>) -> Result<()> {
        let arguments: Vec<String> = std::iter::once(key.to_owned()).chain(fields).collect();
        self.write(MEMBERS, async |client| client.custom(fred::cmd!("HDEL"), arguments).await).await
    }

    /// Appends an entry to a stream, and cuts it to about `max_len`.
    ///
    /// # Errors
    /// Says why Redis refused; without an answer, it may have appended it.
    pub async fn append(&self, key: &str, max_len: u64, fields: Vec<(&str, String)>) -> Result<()> {
        let longest = i64::try_from(max_len).unwrap_or(i64::MAX);
        self.write(&format!("+xadd ~{key}"), async |client| {
            let _entry: String = client.xadd(key, false, ("MAXLEN", "~", longest, None), "*", fields).await?;
            Ok(())
        })
        .await
    }

    /// Cuts every subscriber's connection; returns how many there were.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn kill_subscribers(&self) -> Result<u64> {
        self.write("+client|kill", async |client| client.custom(fred::cmd!("CLIENT"), vec!["KILL", "TYPE", "pubsub"]).await).await
    }

    /// Reads a configuration parameter of the server.
    ///
    /// # Errors
    /// Says why Redis refused; a managed one may not let anybody read its configuration.
    pub async fn config(&self, name: &str) -> Result<String> {
        let mut values: HashMap<String, String> = self.run("+config|get", async |client| client.config_get(name).await).await?;
        values.remove(name).ok_or_else(|| RedisError::Rejected(Said::new(format!("Redis has no parameter {name}"), "nothing")))
    }

    /// Sets a configuration parameter of the server.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn set_config(&self, name: &str, value: &str) -> Result<()> {
        self.write("+config|set", async |client| client.config_set(name, value).await).await
    }

    /// The server's clock, in microseconds since 1970 UTC.
    ///
    /// # Errors
    /// Says why Redis did not answer.
    pub async fn time(&self) -> Result<i64> {
        let (seconds, micros): (i64, i64) =
            self.run("+time", async |client| client.custom(fred::cmd!("TIME"), Vec::<String>::new()).await).await?;
        Ok(seconds * 1_000_000 + micros)
    }

    /// A few hundred keys, whichever come first.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn some_keys(&self) -> Result<Vec<String>> {
        let scan = async |client: Client| client.custom(fred::cmd!("SCAN"), vec!["0", "COUNT", "500"]).await;
        let (_, keys): (String, Vec<String>) = self.run("+scan", scan).await?;
        Ok(keys)
    }

    /// A section of INFO, as its fields.
    ///
    /// # Errors
    /// Says why Redis did not answer.
    pub async fn info(&self, section: &str) -> Result<HashMap<String, String>> {
        let text: String = self.run("+info", async |client| client.custom(fred::cmd!("INFO"), vec![section]).await).await?;
        Ok(fields(&text))
    }

    /// The same of a command that changes something.
    async fn write<T>(&self, needs: &str, command: impl AsyncFnOnce(Client) -> std::result::Result<T, Error>) -> Result<T> {
        self.may_write()?;
        self.run(needs, command).await
    }

    fn may_write(&self) -> Result<()> {
        if self.writes { Ok(()) } else { Err(RedisError::NotNow(Said::new("a shadow changes nothing in Redis".to_owned(), "nothing"))) }
    }

    async fn run<T>(&self, needs: &str, command: impl AsyncFnOnce(Client) -> std::result::Result<T, Error>) -> Result<T> {
        self.supervisor.run(needs, PATIENCE, command).await
    }

    pub(super) fn supervised(&self) -> &Supervisor {
        &self.supervisor
    }

    /// The ACL rule for the keys of orders.
    pub(super) fn orders(&self) -> &str {
        &self.orders
    }

    pub(super) fn order_key(&self, id: &str) -> String {
        format!("{}{id}", self.prefix)
    }

    fn on_orders(&self, command: &str) -> String {
        format!("{command} {}", self.orders)
    }
}

/// What instances need to see each other.
const MEMBERS: &str = "+hset +hgetall +hdel +pexpire ~order-closer:*";
