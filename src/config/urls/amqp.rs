//! The URL of an AMQP broker.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{decoded, only, parsed, redacted};
use crate::config::Secret;

/// The URL of a broker that speaks AMQP 0-9-1.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct AmqpUrl {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether TLS is spoken.
    pub tls: bool,
    /// Who logs in.
    pub username: String,
    /// With which password.
    pub(crate) password: Secret,
    /// The virtual host.
    pub vhost: String,
    redacted: String,
}

impl TryFrom<String> for AmqpUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = |what: String| {
            format!(
                "this broker's URL can't be read: {what}; write amqp://user:password@host:5672/vhost or amqps://, with special characters \
                 percent-encoded"
            )
        };
        let url = parsed(&text).map_err(wrong)?;
        let tls = match url.scheme() {
            "amqp" => false,
            "amqps" => true,
            _ => return Err("a broker's URL begins with amqp:// or amqps://".into()),
        };
        only(&[], &url).map_err(wrong)?;
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else { return Err(wrong("it names no host".into())) };
        // RabbitMQ's own reading: without a path the virtual host is /, and after the path's slash it stands percent-encoded.
        let vhost = match url.path() {
            "" => "/".to_owned(),
            path => decoded(path.trim_start_matches('/'))?,
        };
        if url.path().matches('/').count() > 1 {
            return Err(wrong("a / in the virtual host is %2F".into()));
        }
        let username = if url.username().is_empty() { "guest".to_owned() } else { decoded(url.username())? };
        let password = url.password().map_or_else(|| Ok("guest".to_owned()), decoded)?;
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port().unwrap_or(if tls { 5671 } else { 5672 }),
            tls,
            username,
            password: password.into(),
            vhost,
            redacted: redacted(&text, |_| true),
        })
    }
}

impl From<AmqpUrl> for String {
    fn from(url: AmqpUrl) -> Self {
        url.redacted
    }
}

impl fmt::Display for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.redacted)
    }
}

impl fmt::Debug for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
