//! The connection that hears expired keys.

use fred::{
    interfaces::{ClientInterface, EventInterface, PubsubInterface},
    types::KeyspaceEvent,
};
use tokio::sync::broadcast;

use super::{
    connection::{Connection, pattern},
    error::{RedisError, Result, Said},
};
use crate::config::{Redis, RedisAddress};

/// Events that may wait between the client's task and the listener's, on the same thread; the client's default of
/// 32 loses them in any burst. Room is taken for all of them from the beginning, 0.7 KiB for each.
const EVENT_BUFFER: usize = 8_192;

/// The same where each of several nodes announces its part.
const EVENT_BUFFER_OF_A_NODE: usize = 4_096;

/// A connection that hears expired keys, for one session.
#[derive(Debug)]
pub struct Subscriber {
    connection: Connection,
    pattern: String,
}

/// The stream of expired keys.
pub type Events = broadcast::Receiver<KeyspaceEvent>;

impl Subscriber {
    /// Connects and subscribes. Returns only when Redis has confirmed the subscription.
    ///
    /// # Errors
    /// Says why there is no subscription.
    pub async fn connect(redis: &Redis) -> Result<(Self, Events)> {
        let is_node = matches!(redis.url.address, RedisAddress::Tcp { in_cluster: true, .. });
        let buffer = if is_node { EVENT_BUFFER_OF_A_NODE } else { EVENT_BUFFER };
        let connection = Connection::open(redis, |performance| performance.broadcast_channel_capacity = buffer).await?;
        // Nothing arrives before there is a subscription.
        let events = connection.link.client.keyspace_event_rx();
        let subscriber = Self { connection, pattern: pattern(redis) };
        let Self { connection, pattern } = &subscriber;
        connection.link.ask(connection.link.client.client_setname("order-closer"), "+client|setname").await?;
        connection.link.ask(connection.link.client.psubscribe(pattern.as_str()), &subscriber.needs()).await?;
        subscriber.confirm().await?;
        Ok((subscriber, events))
    }

    /// Asks Redis whether this connection is still subscribed, and to the Redis for us; that is the heartbeat too.
    ///
    /// # Errors
    /// Says why it is not.
    pub async fn audit(&mut self) -> Result<()> {
        let another = self.connection.until_another();
        let confirmed = async {
            match self.confirm().await {
                // It is subscribed still.
                Ok(()) | Err(RedisError::NotNow(_)) => self.connection.audit().await,
                Err(error) => Err(error),
            }
        };
        tokio::select! {
            answer = confirmed => answer,
            // A server that is stopped would be waited for.
            error = another => Err(error),
        }
    }

    async fn confirm(&self) -> Result<()> {
        // The client reports a subscription as soon as it is written. A refusal shows only here: as this
        // command's error, or as no subscription.
        let refused = || {
            let fix = format!("give the ACL user these rights, the channel to the letter: {}", self.needs());
            RedisError::Denied(Said::new(format!("Redis refused the subscription to {}", self.pattern), fix))
        };
        let info: String = match self.connection.link.ask(self.connection.link.client.client_info(), &self.needs()).await {
            Err(RedisError::Denied(said)) if said.reason.contains("channel") => return Err(refused()),
            Err(RedisError::Rejected(said)) if said.reason.to_ascii_lowercase().contains("unknown subcommand") => {
                return Err(RedisError::too_old(format!("it has no CLIENT INFO ({said})")));
            }
            answer => answer?,
        };
        let subscribed = info.split_whitespace().find_map(|field| field.strip_prefix("psub="));
        if subscribed.is_some_and(|count| count != "0") { Ok(()) } else { Err(refused()) }
    }

    /// The ACL rules without which there is no subscription.
    fn needs(&self) -> String {
        format!("&{} +psubscribe +client", self.pattern)
    }

    /// Waits until the connection ends, and says why.
    pub async fn ended(&mut self) -> RedisError {
        self.connection.ended().await
    }
}
