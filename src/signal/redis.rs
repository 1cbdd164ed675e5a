//! Everything that this daemon says to Redis, and the only place that knows its client.
//!
//! Two kinds of connection: a [`Subscriber`] lives for one session and is thrown away when anything is
//! wrong with it; [`Commands`] reconnects by itself, and each command has a time limit.

use std::{collections::HashMap, fmt, time::Duration};

use fred::{
    clients::Client,
    interfaces::{ClientInterface, ClientLike, ConfigInterface, EventInterface, KeysInterface, PubsubInterface, StreamsInterface},
    rustls::{
        self,
        pki_types::{CertificateDer, pem::PemObject},
    },
    types::{
        Builder, ConnectHandle, Expiration, KeyspaceEvent, RespVersion,
        config::{Config as ClientConfig, Options, ReconnectPolicy, Server, ServerConfig, TlsConnector, UnresponsiveConfig},
    },
};
use tokio::sync::broadcast;

use crate::config::{Listen, Redis, RedisAddress};

/// Events that may wait between the client's task and the listener's, on the same thread; the client's default of
/// 32 loses them in any burst.
const EVENT_BUFFER: usize = 16_384;

/// How long a connection attempt or an answer may take.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// Why Redis did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RedisError(pub String);

impl From<fred::error::Error> for RedisError {
    fn from(error: fred::error::Error) -> Self {
        // The client passes on what the operating system said as `Os { code: 111, …, message: "…" }`.
        let details = error.details();
        let message = details.strip_prefix("Os {").and_then(|os| os.split_once("message: \"")?.1.split_once('"'));
        Self(format!("{}: {}", error.kind().to_str(), message.map_or(details, |(message, _)| message)))
    }
}

impl RedisError {
    /// Whether the server itself said so; its errors begin with a word in capitals, such as NOPERM or WRONGTYPE.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        let answer = self.0.split_once(": ").and_then(|(_, answer)| answer.split(' ').next());
        answer.is_some_and(|code| code.len() > 1 && code.bytes().all(|byte| byte.is_ascii_uppercase()))
    }

    fn timed_out() -> Self {
        Self(format!("no answer within {}", humantime::format_duration(PATIENCE)))
    }
}

type Result<T> = std::result::Result<T, RedisError>;

/// Where Redis is, for logs: without the password.
#[must_use]
pub fn address(redis: &Redis) -> String {
    redis.url.to_string()
}

fn client_config(redis: &Redis) -> Result<ClientConfig> {
    let (server, tls) = match &redis.url.address {
        RedisAddress::Tcp { host, port, tls } => (ServerConfig::Centralized { server: Server::new(host.as_str(), *port) }, *tls),
        RedisAddress::Unix(path) => (ServerConfig::Unix { path: path.clone() }, false),
    };
    Ok(ClientConfig {
        server,
        username: redis.url.username.as_deref().map(inline),
        password: redis.url.password.as_deref().map(inline),
        database: (redis.url.database > 0).then_some(redis.url.database),
        tls: if tls { Some(tls_connector(redis)?.into()) } else { None },
        // A subscribed connection still answers commands only in RESP3.
        version: RespVersion::RESP3,
        ..ClientConfig::default()
    })
}

/// A word of the login. The client sends it in an inline command (HELLO), where a blank ends a word and quotes hold it
/// together.
fn inline(word: &str) -> String {
    if word.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'')) {
        return word.to_owned();
    }
    let escaped: String = word.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("\"{escaped}\"")
}

fn tls_connector(redis: &Redis) -> Result<TlsConnector> {
    let Some(path) = &redis.ca_file else {
        return Ok(TlsConnector::default_rustls()?);
    };
    let unusable = |error: &dyn fmt::Display| RedisError(format!("redis.ca_file {} can't be used: {error}", path.display()));
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unusable(&error))? {
        roots.add(certificate.map_err(|error| unusable(&error))?).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() {
        return Err(unusable(&"it has no certificate"));
    }
    Ok(TlsConnector::from(rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}

fn builder(config: ClientConfig) -> Builder {
    let mut builder = Builder::from_config(config);
    builder.with_connection_config(|connection| {
        connection.connection_timeout = PATIENCE;
        connection.internal_command_timeout = PATIENCE;
        connection.max_command_attempts = 1;
    });
    builder
}

/// The channels of the notifications that count; an ACL rule must have it to the letter.
#[must_use]
pub fn pattern(redis: &Redis) -> String {
    match redis.listen {
        Listen::All => "__keyevent@*__:expired".to_owned(),
        Listen::Own => format!("__keyevent@{}__:expired", redis.url.database),
    }
}

async fn in_time<T>(answer: impl Future<Output = std::result::Result<T, fred::error::Error>>) -> Result<T> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(RedisError::timed_out()),
    }
}

/// A connection that hears expired keys, for one session.
pub struct Subscriber {
    client: Client,
    driving: ConnectHandle,
    pattern: String,
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").field("pattern", &self.pattern).finish_non_exhaustive()
    }
}

/// The stream of expired keys.
pub type Events = broadcast::Receiver<KeyspaceEvent>;

impl Subscriber {
    /// Connects and subscribes. Returns only when Redis has confirmed the subscription.
    ///
    /// # Errors
    /// Says why there is no subscription.
    pub async fn connect(redis: &Redis) -> Result<(Self, Events)> {
        let pattern = pattern(redis);
        let mut builder = builder(client_config(redis)?);
        builder.with_performance_config(|performance| performance.broadcast_channel_capacity = EVENT_BUFFER);
        let client = builder.build()?;
        // The receiver must exist before the first event can arrive.
        let events = client.keyspace_event_rx();
        let driving = in_time(client.init()).await?;
        let subscriber = Self { client, driving, pattern };
        in_time(subscriber.client.client_setname("order-closer")).await?;
        in_time(subscriber.client.psubscribe(subscriber.pattern.as_str())).await?;
        subscriber.confirm().await?;
        Ok((subscriber, events))
    }

    /// Asks Redis whether this connection is still subscribed; that is the heartbeat too.
    ///
    /// # Errors
    /// Says why it is not.
    pub async fn confirm(&self) -> Result<()> {
        // The client reports a subscription as soon as it is written. A refusal shows only here: as this
        // command's error, or as no subscription.
        let refused = || RedisError(format!("Redis refused the subscription to {}; {}", self.pattern, self.acl_advice()));
        let info: String = match in_time(self.client.client_info()).await {
            Err(RedisError(reason)) if reason.contains("NOPERM") && reason.contains("channel") => return Err(refused()),
            Err(error) if error.0.contains("NOPERM") => return Err(RedisError(format!("{error}; {}", self.acl_advice()))),
            answer => answer?,
        };
        let subscribed = info.split_whitespace().find_map(|field| field.strip_prefix("psub="));
        if subscribed.is_some_and(|count| count != "0") { Ok(()) } else { Err(refused()) }
    }

    fn acl_advice(&self) -> String {
        format!("the ACL user needs the channel &{} and the commands +psubscribe +client", self.pattern)
    }

    /// Waits until the connection ends, and says why.
    pub async fn ended(&mut self) -> RedisError {
        match (&mut self.driving).await {
            Ok(Ok(())) => RedisError("the connection was closed".into()),
            Ok(Err(error)) => error.into(),
            Err(error) => RedisError(error.to_string()),
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.driving.abort();
    }
}

/// A connection for commands, which comes back by itself when it is lost.
#[derive(Clone)]
pub struct Commands {
    client: Client,
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commands").finish_non_exhaustive()
    }
}

impl Commands {
    /// Begins to connect, and does not wait for it.
    ///
    /// # Errors
    /// Says what is wrong with the configuration.
    pub fn new(redis: &Redis) -> Result<Self> {
        let config = ClientConfig { fail_fast: false, ..client_config(redis)? };
        let mut builder = Self::builder(config);
        builder.set_policy(ReconnectPolicy::new_constant(0, 250)).with_connection_config(|connection| {
            connection.unresponsive = UnresponsiveConfig { max_timeout: Some(Duration::from_secs(5)), interval: Duration::from_secs(1) };
        });
        let client = builder.build()?;
        client.connect();
        Ok(Self { client })
    }

    /// Connects, and waits for it.
    ///
    /// # Errors
    /// Says why Redis can't be reached.
    pub async fn connect(redis: &Redis) -> Result<Self> {
        let client = Self::builder(client_config(redis)?).build()?;
        in_time(client.init()).await?;
        Ok(Self { client })
    }

    /// The client itself gives a command up: one that its caller merely no longer waits for stays queued, and is sent when
    /// Redis is back.
    fn builder(config: ClientConfig) -> Builder {
        let mut builder = builder(config);
        builder.with_performance_config(|performance| performance.default_command_timeout = PATIENCE);
        builder
    }

    /// Reads keys, which makes Redis expire those whose time has come and publish it. Returns how many of
    /// them are still there.
    ///
    /// # Errors
    /// Says why Redis did not answer within `limit`.
    pub async fn touch(&self, keys: Vec<String>, limit: Duration) -> Result<u64> {
        // One command for all: a thousand commands would cost the client ten times as much.
        let client = self.client.with_options(&Options { timeout: Some(limit), ..Options::default() });
        Ok(client.exists(keys).await?)
    }

    /// Writes a key that expires.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn set(&self, key: &str, value: &str, ttl: Duration) -> Result<()> {
        let millis = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        Ok(self.client.set(key, value, Some(Expiration::PX(millis)), None, false).await?)
    }

    /// Writes a key that expires at a time, in milliseconds since 1970 UTC.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn set_until(&self, key: &str, value: &str, millis: i64) -> Result<()> {
        Ok(self.client.set(key, value, Some(Expiration::PXAT(millis)), None, false).await?)
    }

    /// Sets a field of a hash, which then lives for `ttl`, and returns all its fields.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn exchange_fields(&self, key: &str, field: &str, value: &str, ttl: Duration) -> Result<HashMap<String, String>> {
        let millis = ttl.as_millis().to_string();
        // The client keeps a pipeline until it can be sent, whatever its time limit.
        in_time(self.client.wait_for_connect()).await?;
        let pipeline = self.client.pipeline();
        pipeline.custom::<(), _>(fred::cmd!("HSET"), vec![key, field, value]).await?;
        pipeline.custom::<(), _>(fred::cmd!("PEXPIRE"), vec![key, &millis]).await?;
        pipeline.custom::<(), _>(fred::cmd!("HGETALL"), vec![key]).await?;
        let (_, _, fields): (u64, u64, _) = pipeline.all().await?;
        Ok(fields)
    }

    /// Removes fields of a hash.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn remove_fields(&self, key: &str, fields: Vec<String>) -> Result<()> {
        let arguments: Vec<String> = std::iter::once(key.to_owned()).chain(fields).collect();
        Ok(self.client.custom(fred::cmd!("HDEL"), arguments).await?)
    }

    /// Appends an entry to a stream, and cuts it to about `max_len`.
    ///
    /// # Errors
    /// Says why Redis refused; without an answer, it may have appended it.
    pub async fn append(&self, key: &str, max_len: u64, fields: Vec<(&str, String)>) -> Result<()> {
        let longest = i64::try_from(max_len).unwrap_or(i64::MAX);
        let _entry: String = self.client.xadd(key, false, ("MAXLEN", "~", longest, None), "*", fields).await?;
        Ok(())
    }

    /// Cuts every subscriber's connection; returns how many there were.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn kill_subscribers(&self) -> Result<u64> {
        Ok(self.client.custom(fred::cmd!("CLIENT"), vec!["KILL", "TYPE", "pubsub"]).await?)
    }

    /// Reads a configuration parameter of the server.
    ///
    /// # Errors
    /// Says why Redis refused; a managed one may not let anybody read its configuration.
    pub async fn config(&self, name: &str) -> Result<String> {
        let mut values: HashMap<String, String> = self.client.config_get(name).await?;
        values.remove(name).ok_or_else(|| RedisError(format!("Redis has no parameter {name}")))
    }

    /// Sets a configuration parameter of the server.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn set_config(&self, name: &str, value: &str) -> Result<()> {
        Ok(self.client.config_set(name, value).await?)
    }

    /// The server's clock, in microseconds since 1970 UTC.
    ///
    /// # Errors
    /// Says why Redis did not answer.
    pub async fn time(&self) -> Result<i64> {
        let (seconds, micros): (i64, i64) = self.client.custom(fred::cmd!("TIME"), Vec::<String>::new()).await?;
        Ok(seconds * 1_000_000 + micros)
    }

    /// A section of INFO, as its fields.
    ///
    /// # Errors
    /// Says why Redis did not answer.
    pub async fn info(&self, section: &str) -> Result<HashMap<String, String>> {
        let text: String = self.client.custom(fred::cmd!("INFO"), vec![section]).await?;
        Ok(text.lines().filter_map(|line| line.trim().split_once(':')).map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}
