//! One connection to Redis: resolved, encrypted, logged in, examined, and never repaired.
//!
//! Whoever finds it unfit drops it and opens another, which asks the name server, the file of authorities and the server's
//! role anew. A connection that repaired itself would do so at the address that it has.

use std::{net::IpAddr, time::Duration};

use fred::{
    interfaces::{ClientLike, ServerInterface},
    types::config::{PerformanceConfig, ServerConfig},
};

use super::{
    error::{RedisError, Result, Said},
    link::{Link, Login, PATIENCE, at},
    resolve::{Lead, resolve},
    sentinels::{Watch, Watching},
    server::{Info, Server, check_role, fields},
};
use crate::{
    config::{Listen, Redis, RedisAddress},
    stall,
};

/// How long a look at where the name leads may take, beside an audit.
const LOOK: Duration = Duration::from_millis(500);

/// Where Redis is, for logs: without the password.
#[must_use]
pub fn address(redis: &Redis) -> String {
    redis.url.to_string()
}

/// The channels of the notifications that count; an ACL rule must have it to the letter.
#[must_use]
pub fn pattern(redis: &Redis) -> String {
    match redis.listen {
        Listen::All => "__keyevent@*__:expired".to_owned(),
        Listen::Own => format!("__keyevent@{}__:expired", redis.url.database),
    }
}

/// A connection to a server that was fit when it was opened. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) link: Link,
    pub(super) server: Server,
    redis: Redis,
    /// Who led here, and where to now.
    guide: Guide,
}

/// Who has said where the server is.
#[derive(Debug)]
enum Guide {
    /// The configuration.
    None,
    /// A name.
    Name { host: String, port: u16, lead: Lead },
    /// Sentinels, who may name another.
    Sentinels(Watching),
}

impl Connection {
    /// Connects to a primary. Of several addresses of the name, to the first that is one.
    pub(super) async fn open(redis: &Redis, performance: impl Fn(&mut PerformanceConfig)) -> Result<Self> {
        match &redis.url.address {
            RedisAddress::Unix(path) => Self::open_at(redis, ServerConfig::Unix { path: path.clone() }, &performance).await,
            RedisAddress::Tcp { host, port, .. } => Self::open_named(redis, host, *port, &performance).await,
            RedisAddress::Cluster { .. } => Err(RedisError::unreachable("a cluster has a connection to each of its primaries")),
            RedisAddress::Nowhere => Err(RedisError::none()),
            RedisAddress::Sentinels(_) => {
                let Some(mut watch) = Watch::of(redis) else { return Err(RedisError::unreachable("no sentinel is named")) };
                let primary = watch.primary().await?;
                let url = redis.url.at(&primary);
                let here = Redis { url, ..redis.clone() };
                let watching = Watching::begin(watch, primary.clone());
                let connection = tokio::select! {
                    opened = Self::open_named(&here, &primary.host, primary.port, &performance) => {
                        opened.map_err(|error| error.of_node(&primary))?
                    }
                    // A primary that is stopped would be waited for.
                    error = watching.until_another() => return Err(error),
                };
                Ok(Self { server: connection.server.at(primary), guide: Guide::Sentinels(watching), ..connection })
            }
        }
    }

    async fn open_named(redis: &Redis, host: &str, port: u16, performance: &impl Fn(&mut PerformanceConfig)) -> Result<Self> {
        let mut failure = None;
        for address in resolve(host, port, PATIENCE).await? {
            match Self::open_at(redis, at(address, host), performance).await {
                Ok(connection) => {
                    let named = host.parse::<IpAddr>().is_err();
                    let name = || Guide::Name { host: host.to_owned(), port, lead: Lead::to(address.ip()) };
                    return Ok(Self { guide: if named { name() } else { Guide::None }, ..connection });
                }
                // A server's own words say more than its silence.
                Err(error) if matches!(failure, None | Some(RedisError::Unreachable(_))) => failure = Some(error),
                Err(_) => {}
            }
        }
        Err(failure.unwrap_or_else(|| RedisError::unreachable("the name has no address")))
    }

    async fn open_at(redis: &Redis, server: ServerConfig, performance: &impl Fn(&mut PerformanceConfig)) -> Result<Self> {
        let link = Link::open(redis, Login::of(redis), server, performance).await?;
        let mut connection = Self { link, server: Server::default(), redis: redis.clone(), guide: Guide::None };
        connection.examine().await?;
        // Only now: a sentinel and a node of a cluster have but one database, and would say no more than that.
        if redis.url.database > 0 {
            connection.link.ask(connection.link.client.select(i64::from(redis.url.database)), "+select").await?;
        }
        Ok(connection)
    }

    /// Sees what the server is.
    async fn examine(&mut self) -> Result<()> {
        let Some(info) = self.info("server").await? else {
            return Ok(());
        };
        self.server = Server::new(&info);
        self.server.check_age()?;
        check_role(&info, &self.redis)?;
        self.check_role().await
    }

    /// Whether it is still the Redis for us: a primary, and where its name leads.
    pub(super) async fn audit(&mut self) -> Result<()> {
        stall::ask_again(PATIENCE, || self.check_role()).await?;
        let Guide::Name { host, port, lead } = &mut self.guide else {
            return Ok(());
        };
        match resolve(host, *port, LOOK).await {
            Ok(addresses) if lead.has_moved(&addresses) => {
                let now: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
                Err(RedisError::NotOurs(Said::new(format!("the name {host} now leads to {}", now.join(", ")), "nothing: it is followed")))
            }
            // A name server that is away says nothing about Redis.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn check_role(&self) -> Result<()> {
        self.info("replication").await?.map_or(Ok(()), |info| check_role(&info, &self.redis))
    }

    /// A section of INFO; `None` where the server shows none at the moment, or not to us.
    async fn info(&self, section: &str) -> Result<Option<Info>> {
        let text = self.link.client.custom::<String, _>(fred::cmd!("INFO"), vec![section]);
        match self.link.ask(text, "+info").await {
            Ok(text) => Ok(Some(fields(&text))),
            Err(RedisError::NotNow(_) | RedisError::Denied(_) | RedisError::Rejected(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until sentinels name another primary; for ever where there are none.
    pub(super) fn until_another(&self) -> impl Future<Output = RedisError> + use<> {
        let watching = match &self.guide {
            Guide::Sentinels(watching) => Some(watching.until_another()),
            Guide::None | Guide::Name { .. } => None,
        };
        async {
            match watching {
                Some(watching) => watching.await,
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until the connection ends, or is with the wrong server, and says why.
    pub(super) async fn ended(&mut self) -> RedisError {
        let another = self.until_another();
        tokio::select! {
            error = self.link.ended() => error,
            error = another => error,
        }
    }
}
