//! Commands about keys, each at the server that has the key.

use std::{collections::HashMap, time::Duration};

use fred::{
    clients::{Client, Pipeline},
    error::Error,
    interfaces::{ClientLike, KeysInterface, StreamsInterface},
    types::{Expiration, FromValue, Value, config::Options},
};
use uuid::Uuid;

use super::{Commands, Servers};
use crate::{
    config::Endpoint,
    redis::{
        error::{RedisError, Result},
        expiry::{Expiries, Expiry},
        link::PATIENCE,
        server::fields,
        supervisor::Supervisor,
    },
};

/// What instances need to see each other.
const MEMBERS: &str = "+hset +hgetall +hdel +pexpire ~order-closer:*";

/// A life of the keys of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// Another after each start of the server.
    pub run: String,
    /// What a mark says that was to stay: something else after it was gone.
    pub mark: String,
}

impl Commands {
    /// Reads keys, which makes Redis expire those whose time has come and publish it. Returns how many of
    /// them are still there.
    ///
    /// # Errors
    /// Says why Redis did not answer within `limit`.
    pub async fn touch(&self, keys: Vec<String>, limit: Duration) -> Result<u64> {
        self.may_write()?;
        let needs = self.on_orders("+exists");
        let supervisor = match &*self.servers {
            Servers::One(supervisor) => supervisor,
            Servers::Cluster(cluster) => return Box::pin(cluster.touch(&keys, limit, &needs)).await,
        };
        let command = async |client: Client| {
            // The client gives it up too: otherwise it would stay queued. One command for all: a thousand commands would cost
            // the client ten times as much.
            client.with_options(&Options { timeout: Some(limit), ..Options::default() }).exists(keys).await
        };
        let answer = supervisor.run(&needs, limit, command).await;
        supervisor.note("exists", answer.as_ref().err());
        answer
    }

    /// When these keys are to expire, and the server's clock, by one pipeline.
    ///
    /// # Errors
    /// Says why Redis did not answer within `limit`, the wait for a connection included.
    pub async fn expiries(&self, keys: &[String], limit: Duration) -> Result<Expiries> {
        let needs = self.on_orders("+time +pttl");
        let supervisor = match &*self.servers {
            Servers::One(supervisor) => supervisor,
            Servers::Cluster(cluster) => return Box::pin(cluster.expiries(keys, limit, &needs)).await,
        };
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
        let answer = supervisor.run(&needs, limit, command);
        let answer = tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err(RedisError::timed_out(limit)));
        supervisor.note("pttl", answer.as_ref().err());
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
        let expiration = &expiration;
        let set = |client: Client, asking| async move {
            let pipeline = begin(&client, asking).await?;
            pipeline.set::<(), _, _>(key, value, Some(expiration.clone()), None, false).await?;
            last(pipeline).await
        };
        self.may_write()?;
        self.run_on(key, &self.on_orders("+set"), set).await
    }

    /// Sets a field of a hash, which then lives for `ttl`, and returns all its fields.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn exchange_fields(&self, key: &str, field: &str, value: &str, ttl: Duration) -> Result<HashMap<String, String>> {
        let millis = &ttl.as_millis().to_string();
        let exchange = |client: Client, asking| async move {
            let pipeline = begin(&client, asking).await?;
            pipeline.custom::<(), _>(fred::cmd!("HSET"), vec![key, field, value]).await?;
            again(&pipeline, asking).await?;
            pipeline.custom::<(), _>(fred::cmd!("PEXPIRE"), vec![key, millis]).await?;
            again(&pipeline, asking).await?;
            pipeline.custom::<(), _>(fred::cmd!("HGETALL"), vec![key]).await?;
            last(pipeline).await
        };
        self.may_write()?;
        self.run_on(key, MEMBERS, exchange).await
    }

    /// In which life the keys of each server are. Leaves a mark that lives for `ttl`: a hash of our own, of this name where there
    /// is one server.
    ///
    /// # Errors
    /// Says why one of them did not answer.
    pub async fn lives(&self, mark: &str, ttl: Duration) -> Result<Vec<Life>> {
        self.may_write()?;
        match &*self.servers {
            Servers::One(supervisor) => Ok(vec![life(supervisor, mark.to_owned(), ttl).await?]),
            Servers::Cluster(cluster) => {
                let map = cluster.map(PATIENCE).await?;
                let here = |node: &Endpoint| {
                    let marks = (0_u32..).map(|number| format!("{mark}:{number}"));
                    marks.take(1_000_000).find(|mark| map.slots.owner(mark) == Some(node)).unwrap_or_default()
                };
                let asked = map.members.iter().map(|(node, member)| life(&member.supervisor, here(node), ttl));
                Box::pin(futures::future::join_all(asked)).await.into_iter().collect()
            }
        }
    }

    /// Reads all fields of a hash; none of one that is not there.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn fields(&self, key: &str) -> Result<HashMap<String, String>> {
        let read = |client: Client, asking| async move {
            let pipeline = begin(&client, asking).await?;
            pipeline.custom::<(), _>(fred::cmd!("HGETALL"), vec![key]).await?;
            last(pipeline).await
        };
        self.run_on(key, MEMBERS, read).await
    }

    /// Removes fields of a hash.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn remove_fields(&self, key: &str, fields: Vec<String>) -> Result<()> {
        let arguments: &Vec<String> = &std::iter::once(key.to_owned()).chain(fields).collect();
        let remove = |client: Client, asking| async move {
            let pipeline = begin(&client, asking).await?;
            pipeline.custom::<(), _>(fred::cmd!("HDEL"), arguments.clone()).await?;
            last(pipeline).await
        };
        self.may_write()?;
        self.run_on(key, MEMBERS, remove).await
    }

    /// Appends an entry to a stream, and cuts it to about `max_len`.
    ///
    /// # Errors
    /// Says why Redis refused; without an answer, it may have appended it.
    pub async fn append(&self, key: &str, max_len: u64, fields: Vec<(&str, String)>) -> Result<()> {
        let longest = i64::try_from(max_len).unwrap_or(i64::MAX);
        let fields = &fields;
        let append = |client: Client, asking| async move {
            let pipeline = begin(&client, asking).await?;
            pipeline.xadd::<(), _, _, _, _>(key, false, ("MAXLEN", "~", longest, None), "*", fields.clone()).await?;
            last::<String>(pipeline).await.map(drop)
        };
        self.may_write()?;
        self.run_on(key, &format!("+xadd ~{key}"), append).await
    }

    /// How many entries a stream has; none where there is no such stream.
    ///
    /// # Errors
    /// Says why Redis did not tell.
    pub async fn length(&self, key: &str) -> Result<u64> {
        let length = |client: Client, asking| async move {
            let pipeline = begin(&client, asking).await?;
            pipeline.xlen::<(), _>(key).await?;
            last(pipeline).await
        };
        self.run_on(key, &format!("+xlen ~{key}"), length).await
    }

    fn on_orders(&self, command: &str) -> String {
        format!("{command} {}", self.orders)
    }
}

/// In which life the keys of this server are; leaves a mark there.
async fn life(supervisor: &Supervisor, mark: String, ttl: Duration) -> Result<Life> {
    let millis = ttl.as_millis().to_string();
    let command = async |client: Client| {
        let pipeline = client.pipeline();
        pipeline.custom::<(), _>(fred::cmd!("INFO"), vec!["server"]).await?;
        pipeline.custom::<(), _>(fred::cmd!("HGETALL"), vec![&mark]).await?;
        pipeline.custom::<(), _>(fred::cmd!("PEXPIRE"), vec![&mark, &millis]).await?;
        let (info, left, _): (String, HashMap<String, String>, u64) = pipeline.all().await?;
        let run = fields(&info).remove("run_id").unwrap_or_default();
        if let Some(mark) = left.into_values().next() {
            return Ok(Life { run, mark });
        }
        // Whoever finds none leaves another one, so that nobody who asks at the same time, or later, takes it for the one before.
        let new = Uuid::new_v4().to_string();
        let pipeline = client.pipeline();
        pipeline.custom::<(), _>(fred::cmd!("HSET"), vec![mark.as_str(), "life", &new]).await?;
        pipeline.custom::<(), _>(fred::cmd!("PEXPIRE"), vec![&mark, &millis]).await?;
        pipeline.all::<(u64, u64)>().await?;
        Ok(Life { run, mark: new })
    };
    supervisor.run(MEMBERS, PATIENCE, command).await
}

/// A pipeline for one command about a key, or several each of which [`again`] precedes.
pub(super) async fn begin(client: &Client, asking: bool) -> std::result::Result<Pipeline<Client>, Error> {
    let pipeline = client.pipeline();
    again(&pipeline, asking).await?;
    Ok(pipeline)
}

/// ASKING counts for one command.
async fn again(pipeline: &Pipeline<Client>, asking: bool) -> std::result::Result<(), Error> {
    if asking { pipeline.custom(fred::cmd!("ASKING"), Vec::<String>::new()).await } else { Ok(()) }
}

/// The answer to the last command of a pipeline, if none failed.
pub(super) async fn last<T: FromValue>(pipeline: Pipeline<Client>) -> std::result::Result<T, Error> {
    pipeline.all::<Vec<Value>>().await?.pop().unwrap_or(Value::Null).convert()
}
