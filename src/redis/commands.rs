//! The connection for commands.

use std::{collections::HashMap, fmt, time::Duration};

use fred::{
    clients::Client,
    interfaces::{ClientLike, ConfigInterface, KeysInterface, StreamsInterface},
    types::{
        Builder, Expiration, Value,
        config::{Config as ClientConfig, Options, ReconnectPolicy, UnresponsiveConfig},
    },
};

use crate::{
    config::Redis,
    redis::{
        client::{PATIENCE, builder, client_config, in_time},
        error::{RedisError, Result},
        expiry::{Expiries, Expiry},
    },
};

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

    /// When these keys are to expire, and the server's clock, by one pipeline.
    ///
    /// # Errors
    /// Says why Redis did not answer within `limit`, the wait for a connection included.
    pub async fn expiries(&self, keys: &[String], limit: Duration) -> Result<Expiries> {
        let asked = async {
            self.client.wait_for_connect().await?;
            // What can't be sent at once is not to be sent later, when nobody waits for it any more.
            let options = Options { timeout: Some(limit), fail_fast: true, max_attempts: Some(1), ..Options::default() };
            let pipeline = self.client.pipeline().with_options(&options);
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
        match tokio::time::timeout(limit, asked).await {
            Ok(answer) => answer.map_err(|error: fred::error::Error| error.into()),
            Err(_) => Err(RedisError(format!("no answer within {}", humantime::format_duration(limit)))),
        }
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

    /// A few hundred keys, whichever come first.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn some_keys(&self) -> Result<Vec<String>> {
        let (_, keys): (String, Vec<String>) = self.client.custom(fred::cmd!("SCAN"), vec!["0", "COUNT", "500"]).await?;
        Ok(keys)
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
