//! A queue of a broker that speaks AMQP 0-9-1, such as RabbitMQ.
//!
//! Messages are acknowledged after their looks. A message that comes before its order's deadline is acknowledged, too, when the
//! row has said so: the order waits for its deadline in the daemon and in its table, and holds up no message behind it. One that
//! names no order is rejected and not put back into the queue: the queue's dead-letter exchange has it, if there is one.
//!
//! The queue is its owner's: it is neither declared nor bound here. Whatever ends the channel, a cut connection or the broker's end, the
//! broker hands out again what was not acknowledged.

use std::{fmt, path::Path, time::Duration};

use futures::{FutureExt, StreamExt};
use lapin::{
    Channel, Connection, ConnectionProperties, Consumer, ErrorKind,
    message::Delivery,
    options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions, QueueDeclareOptions},
    tcp::OwnedTLSConfig,
    types::{AMQPValue, FieldTable},
    uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo},
};
use tokio::{sync::Mutex, time::timeout};

use super::{Door, Fault, Taken};
use crate::{
    config::{AmqpDoor, AmqpUrl, IdIn},
    order::{Printable, printable},
};

/// How long a connection attempt may take, with its login and its channel.
const PATIENCE: Duration = Duration::from_secs(5);

/// The broker is asked for a sign of life so often; without one for twice as long the connection is given up.
const HEARTBEAT_S: u16 = 5;

/// How long a take waits for a message.
const WAIT: Duration = Duration::from_secs(1);

/// A queue.
#[derive(Debug)]
pub(super) struct Queue {
    settings: AmqpDoor,
    prefetch: u16,
    session: Option<Session>,
}

/// A connection that consumes.
struct Session {
    connection: Connection,
    channel: Channel,
    consumer: Mutex<Consumer>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

/// A message that is in hand.
pub(super) struct Message {
    /// The broker's name for it on this channel.
    tag: u64,
    /// What its producer calls it, or how many came before it.
    name: String,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printable(&self.name).fmt(f)
    }
}

impl Queue {
    pub(super) fn new(settings: &AmqpDoor, prefetch: usize) -> Self {
        Self { settings: settings.clone(), prefetch: u16::try_from(prefetch).unwrap_or(u16::MAX), session: None }
    }

    /// What is in the queue, without taking any of it.
    pub(super) async fn examine(&self) -> Result<String, Fault> {
        let (connection, url) = self.connect().await?;
        let queue = &self.settings.queue;
        let declared = async {
            let channel = connection.create_channel().await?;
            let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            channel.queue_declare(queue.as_str().into(), passive, FieldTable::default()).await
        };
        let declared = timeout(PATIENCE, declared).await.map_err(|_| silent())?.map_err(|error| self.fault(&error, &url))?;
        let found = format!("{} messages are ready in it, {} consumers", declared.message_count(), declared.consumer_count());
        connection.close(200, "OK".into()).await.ok();
        Ok(found)
    }

    async fn connect(&self) -> Result<(Connection, AmqpUrl), Fault> {
        let unusable =
            |reason: String| Fault { reason: printable(reason), fix: "see the door's entry among hints".into(), needs_a_hand: true };
        let url = self.settings.broker.url().map_err(unusable)?;
        let tls =
            OwnedTLSConfig { identity: None, cert_chain: self.settings.ca_file.as_deref().map(authorities).transpose().map_err(unusable)? };
        let properties = ConnectionProperties::default().with_connection_name("order-closer".into());
        let runtime = lapin::runtime::default_runtime().map_err(|error| unusable(error.to_string()))?;
        let connecting = Connection::connect_uri_with_config(uri(&url), properties, tls, runtime);
        let connection = timeout(PATIENCE, connecting).await.map_err(|_| silent())?.map_err(|error| self.fault(&error, &url))?;
        Ok((connection, url))
    }

    async fn consume(&self) -> Result<Session, Fault> {
        let (connection, url) = self.connect().await?;
        let consuming = async {
            let channel = connection.create_channel().await?;
            channel.basic_qos(self.prefetch, BasicQosOptions::default()).await?;
            let (queue, options) = (self.settings.queue.as_str().into(), BasicConsumeOptions::default());
            let consumer = channel.basic_consume(queue, "order-closer".into(), options, FieldTable::default()).await?;
            Ok((channel, consumer))
        };
        let (channel, consumer) = timeout(PATIENCE, consuming).await.map_err(|_| silent())?.map_err(|error| self.fault(&error, &url))?;
        Ok(Session { connection, channel, consumer: Mutex::new(consumer) })
    }

    fn session(&self) -> Result<&Session, Fault> {
        self.session.as_ref().ok_or_else(|| ended("there is no connection"))
    }

    fn taken(&self, delivery: Delivery) -> Taken<Message> {
        let Delivery { delivery_tag: tag, properties, data, .. } = delivery;
        let name = properties.message_id().as_ref().map_or_else(|| format!("delivery {tag}"), |id| id.as_str().to_owned());
        let header = |name: &str| properties.headers().as_ref().and_then(|headers| headers.inner().get(name)).and_then(text);
        let id = match &self.settings.id {
            IdIn::Body => Ok(data.trim_ascii().to_vec()),
            IdIn::Header(name) => header(name).ok_or_else(|| format!("the message has no header {name} with a text or a whole number")),
            IdIn::Json(pointer) => in_json(&data, pointer),
        };
        Taken { receipt: Message { tag, name }, id }
    }

    /// What the broker or the client says, without the password.
    fn fault(&self, error: &lapin::Error, url: &AmqpUrl) -> Fault {
        let AmqpDoor { queue, .. } = &self.settings;
        let AmqpUrl { username, vhost, .. } = url;
        #[expect(clippy::wildcard_enum_match_arm, reason = "whatever else the client may say, it says best itself")]
        let said = match error.kind() {
            ErrorKind::ProtocolError(error) => error.get_message().to_string(),
            ErrorKind::IOError(error) => error.to_string(),
            _ => error.to_string(),
        };
        let password = url.password.reveal();
        let said = if password.is_empty() { said } else { said.replace(password, "***") };
        let lower = said.to_ascii_lowercase();
        let (needs_a_hand, fix) = if lower.contains("not_found") && lower.contains("queue") {
            (
                true,
                format!(
                    "declare the queue {queue} with the arguments that it is to have, a dead-letter exchange for instance; order-closer makes none"
                ),
            )
        } else if lower.contains("login was refused") {
            (true, "fix user and password in the door's url; a guest may log in from the broker's own host only".into())
        } else if lower.contains("access_refused") {
            (true, format!("let the user read the queue: rabbitmqctl set_permissions -p {vhost} {username} '^$' '^$' '^{queue}$'"))
        } else if lower.contains("not_allowed") || lower.contains("vhost") {
            (true, format!("name a virtual host in the door's url that there is and {username} may use; it is {vhost} now"))
        } else if lower.contains("certificate") || lower.contains("unknownissuer") {
            (true, "let ca_file name a PEM file with the authority that signed the broker's certificate, and url the name in it".into())
        } else {
            (false, "start the broker, or fix the door's url".into())
        };
        Fault { reason: printable(said), fix: printable(fix), needs_a_hand }
    }

    fn broken(&self, error: &lapin::Error) -> Fault {
        match self.settings.broker.url() {
            Ok(url) => self.fault(error, &url),
            Err(_) => ended("the connection has ended"),
        }
    }
}

impl Door for Queue {
    type Receipt = Message;

    async fn open(&mut self) -> Result<(), Fault> {
        // The broker puts back what the channel before had in hand.
        self.session = None;
        self.session = Some(self.consume().await?);
        Ok(())
    }

    async fn take(&self, most: usize) -> Result<Vec<Taken<Message>>, Fault> {
        let mut consumer = self.session()?.consumer.lock().await;
        let Ok(mut next) = timeout(WAIT, consumer.next()).await else { return Ok(Vec::new()) };
        let mut taken = Vec::new();
        loop {
            match next {
                None => return Err(ended("the broker has ended the consumer, as it does when its queue is deleted")),
                Some(Err(error)) => return Err(self.broken(&error)),
                Some(Ok(delivery)) => taken.push(self.taken(delivery)),
            }
            if taken.len() == most {
                return Ok(taken);
            }
            match consumer.next().now_or_never() {
                Some(more @ Some(Ok(_))) => next = more,
                // What is wrong with it shows again.
                Some(None | Some(Err(_))) | None => return Ok(taken),
            }
        }
    }

    async fn settle(&self, seen: Vec<Message>) -> Result<(), Fault> {
        let channel = &self.session()?.channel;
        for Message { tag, .. } in seen {
            channel.basic_ack(tag, BasicAckOptions::default()).await.map_err(|error| self.broken(&error))?;
        }
        Ok(())
    }

    async fn set_aside(&self, malformed: Vec<Message>) -> Result<(), Fault> {
        let channel = &self.session()?.channel;
        for Message { tag, .. } in malformed {
            channel.basic_reject(tag, BasicRejectOptions { requeue: false }).await.map_err(|error| self.broken(&error))?;
        }
        Ok(())
    }

    async fn close(&mut self) {
        if let Some(Session { connection, .. }) = self.session.take() {
            // What is in hand is put back by that.
            connection.close(200, "order-closer stops".into()).await.ok();
        }
    }
}

fn silent() -> Fault {
    ended(&format!("no answer within {}", humantime::format_duration(PATIENCE)))
}

fn ended(reason: &str) -> Fault {
    Fault { reason: reason.into(), fix: "start the broker, or fix the door's url".into(), needs_a_hand: false }
}

/// The authorities to trust besides the system's.
fn authorities(path: &Path) -> Result<String, String> {
    let unusable = |what: &dyn fmt::Display| format!("ca_file {} can't be used: {what}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| unusable(&error))?;
    if text.contains("-----BEGIN CERTIFICATE-----") { Ok(text) } else { Err(unusable(&"it has no certificate in PEM")) }
}

fn uri(url: &AmqpUrl) -> AMQPUri {
    AMQPUri {
        scheme: if url.tls { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
        authority: AMQPAuthority {
            userinfo: AMQPUserInfo { username: url.username.clone(), password: url.password.reveal().to_owned() },
            host: url.host.clone(),
            port: url.port,
        },
        vhost: url.vhost.clone(),
        query: AMQPQueryString {
            heartbeat: Some(HEARTBEAT_S),
            connection_timeout: u64::try_from(PATIENCE.as_millis()).ok(),
            ..AMQPQueryString::default()
        },
    }
}

/// A header's value, if it can be an id.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other kind of value can be an id")]
fn text(value: &AMQPValue) -> Option<Vec<u8>> {
    Some(match value {
        AMQPValue::LongString(text) => text.as_bytes().to_vec(),
        AMQPValue::ShortString(text) => text.as_str().as_bytes().to_vec(),
        AMQPValue::ByteArray(bytes) => bytes.as_slice().to_vec(),
        AMQPValue::ShortShortInt(number) => number.to_string().into(),
        AMQPValue::ShortShortUInt(number) => number.to_string().into(),
        AMQPValue::ShortInt(number) => number.to_string().into(),
        AMQPValue::ShortUInt(number) => number.to_string().into(),
        AMQPValue::LongInt(number) => number.to_string().into(),
        AMQPValue::LongUInt(number) => number.to_string().into(),
        AMQPValue::LongLongInt(number) => number.to_string().into(),
        _ => return None,
    })
}

/// The id to which a pointer leads.
fn in_json(data: &[u8], pointer: &str) -> Result<Vec<u8>, String> {
    let body: serde_json::Value = serde_json::from_slice(data).map_err(|error| format!("the message's body is no JSON: {error}"))?;
    match body.pointer(pointer) {
        Some(serde_json::Value::String(text)) => Ok(text.clone().into()),
        Some(serde_json::Value::Number(number)) if number.is_i64() || number.is_u64() => Ok(number.to_string().into()),
        Some(_) => Err(format!("what stands at {pointer} in the message's body is neither a text nor a whole number")),
        None => Err(format!("the message's body has nothing at {pointer}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_text_or_a_whole_number() {
        let body = br#"{"order": {"id": 7, "no": "A-1", "at": 1.5, "a/b": ["x", "y"]}}"#;
        for (pointer, id) in [("/order/id", "7"), ("/order/no", "A-1"), ("/order/a~1b/1", "y")] {
            assert_eq!(in_json(body, pointer), Ok(id.into()));
        }
        for (pointer, word) in [("/order/at", "neither"), ("/order", "neither"), ("/id", "nothing at /id")] {
            assert!(in_json(body, pointer).is_err_and(|what| what.contains(word)), "{pointer}");
        }
        assert!(in_json(b"7 8", "/id").is_err_and(|what| what.contains("no JSON")));
    }
}
