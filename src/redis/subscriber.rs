//! The connection that hears expired keys.

use std::fmt;

use fred::{
    clients::Client,
    interfaces::{ClientInterface, ClientLike, EventInterface, PubsubInterface},
    types::{ConnectHandle, KeyspaceEvent},
};
use tokio::sync::broadcast;

use crate::{
    config::Redis,
    redis::{
        client::{builder, client_config, in_time, pattern},
        error::{RedisError, Result},
    },
};

/// Events that may wait between the client's task and the listener's, on the same thread; the client's default of
/// 32 loses them in any burst.
const EVENT_BUFFER: usize = 16_384;

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
