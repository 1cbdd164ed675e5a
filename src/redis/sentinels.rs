//! Sentinels: who of the servers that they watch is the primary.
//!
//! All are asked at once, and the first answer counts; whoever gave it is asked again as long as it answers. One that is
//! stopped or away costs nothing.

use std::time::Duration;

use fred::{interfaces::ClientLike, types::Value};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

use super::{
    error::{RedisError, Result, Said},
    link::{Link, Login, PATIENCE},
};
use crate::config::{Endpoint, Redis, RedisAddress, Sentinels};

/// How often they are asked.
const EVERY: Duration = Duration::from_secs(1);

/// How long the one may take that answered last.
const LIMIT: Duration = Duration::from_millis(500);

/// What a sentinel needs to let us do.
const NEEDS: &str = "+sentinel|get-master-addr-by-name +hello +auth +ping +client|id";

/// The way to the sentinels.
#[derive(Debug)]
pub(super) struct Watch {
    redis: Redis,
    sentinels: Sentinels,
    answering: Option<Link>,
}

impl Watch {
    /// None where no sentinels are named.
    pub(super) fn of(redis: &Redis) -> Option<Self> {
        let RedisAddress::Sentinels(sentinels) = &redis.url.address else { return None };
        Some(Self { redis: redis.clone(), sentinels: sentinels.clone(), answering: None })
    }

    /// Where the primary is.
    pub(super) async fn primary(&mut self) -> Result<Endpoint> {
        if let Some(link) = self.answering.take() {
            match tokio::time::timeout(LIMIT, ask(&link, &self.sentinels.service)).await {
                Ok(Ok(primary)) => {
                    self.answering = Some(link);
                    return Ok(primary);
                }
                Ok(Err(error)) => debug!(%error, "a sentinel does not answer any more; asking all"),
                Err(_) => debug!("a sentinel does not answer any more; asking all"),
            }
        }
        let (redis, service) = (&self.redis, &self.sentinels.service);
        let one = async |sentinel: &Endpoint| {
            let answer = async {
                let link = dial(redis, sentinel).await?;
                let primary = ask(&link, service).await?;
                Ok((link, primary))
            };
            match tokio::time::timeout(PATIENCE, answer).await {
                Ok(answer) => answer.map_err(|error: RedisError| error.of_node(sentinel)),
                Err(_) => Err(RedisError::timed_out(PATIENCE).of_node(sentinel)),
            }
        };
        let mut answers: FuturesUnordered<_> = self.sentinels.hosts.iter().map(one).collect();
        let mut failure = None;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok((link, primary)) => {
                    drop(answers);
                    self.answering = Some(link);
                    return Ok(primary);
                }
                // A server's own words say more than its silence.
                Err(error) if matches!(failure, None | Some(RedisError::Unreachable(_))) => failure = Some(error),
                Err(_) => {}
            }
        }
        Err(match failure {
            Some(RedisError::Unreachable(Said { reason, fix })) => {
                let is_silent = fix == RedisError::unreachable("").fix();
                let fix = if is_silent { "start the sentinels, or fix redis.url, which names them".into() } else { fix };
                RedisError::Unreachable(Said::new(format!("no sentinel says where the primary is: {reason}"), fix))
            }
            Some(error) => error,
            None => RedisError::unreachable("no sentinel is named"),
        })
    }

    /// Waits until they name another primary than this one, and says so.
    async fn until_another(mut self, than: Endpoint) -> RedisError {
        loop {
            tokio::time::sleep(EVERY).await;
            // Sentinels that are away say nothing about Redis.
            if let Ok(now) = self.primary().await
                && now != than
            {
                let reason = format!("the sentinels now name {now} as the primary, no longer {than}");
                return RedisError::NotOurs(Said::new(reason, "nothing: they are followed"));
            }
        }
    }
}

/// Sentinels that are asked again and again, beside whatever else is waited for. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Watching {
    another: watch::Receiver<Option<RedisError>>,
    _asking: AbortOnDropHandle<()>,
}

impl Watching {
    /// Begins to ask whether this still is the primary.
    pub(super) fn begin(watch: Watch, primary: Endpoint) -> Self {
        let (told, another) = watch::channel(None);
        let asking = tokio::spawn(async move { drop(told.send_replace(Some(watch.until_another(primary).await))) });
        Self { another, _asking: AbortOnDropHandle::new(asking) }
    }

    /// Waits until another is named.
    pub(super) fn until_another(&self) -> impl Future<Output = RedisError> + use<> {
        let mut another = self.another.clone();
        async move {
            let said = another.wait_for(Option::is_some).await.ok().and_then(|error| error.clone());
            said.unwrap_or_else(|| RedisError::unreachable("nobody asks the sentinels any more"))
        }
    }
}

async fn dial(redis: &Redis, sentinel: &Endpoint) -> Result<Link> {
    match Link::open_named(redis, Login::of_sentinels(redis), sentinel).await {
        Err(RedisError::Denied(said)) => Err(RedisError::Denied(Said::new(
            format!("the sentinel does not let us in: {said}"),
            "put the sentinels' own password into redis.url: ?sentinelServiceName=…&sentinelPassword=…, with &sentinelUsername=… if they \
             have users; that of Redis stays before the @",
        ))),
        dialled => dialled,
    }
}

async fn ask(link: &Link, service: &str) -> Result<Endpoint> {
    let answer = link.client.custom::<Value, _>(fred::cmd!("SENTINEL"), vec!["GET-MASTER-ADDR-BY-NAME", service]);
    let answer = match link.ask(answer, NEEDS).await {
        Err(RedisError::Rejected(said)) if said.reason.to_ascii_lowercase().contains("unknown command") => {
            let fix = "let redis-sentinel:// name sentinels, most often at port 26379; a Redis itself is redis://host:6379";
            return Err(RedisError::Unusable(Said::new("it is no sentinel", fix)));
        }
        answer => answer?,
    };
    let Ok(Some((host, port))) = answer.convert::<Option<(String, u16)>>() else {
        return Err(RedisError::Unusable(Said::new(
            format!("the sentinel knows no service {service:?}"),
            "let sentinelServiceName in redis.url be a name that SENTINEL MASTERS shows at the sentinel",
        )));
    };
    Ok(Endpoint { host, port })
}
