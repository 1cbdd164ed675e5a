//! The URL of a webhook.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::parsed;

/// The URL of a webhook. Whatever may be a secret in it is hidden: all but scheme, host and port.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct WebhookUrl(Url);

impl WebhookUrl {
    /// The whole URL.
    #[must_use]
    pub fn secret(&self) -> &Url {
        &self.0
    }

    /// Whether what is sent can be read on its way: neither TLS, nor this host alone.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let local = match self.0.host() {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        self.0.scheme() == "http" && !local
    }
}

impl TryFrom<String> for WebhookUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let url = parsed(&text).map_err(|what| format!("this webhook URL can't be read: {what}; write https://host/path"))?;
        match url.scheme() {
            "http" | "https" => Ok(Self(url)),
            _ => Err("a webhook URL begins with https:// or http://".into()),
        }
    }
}

impl From<WebhookUrl> for String {
    fn from(url: WebhookUrl) -> Self {
        url.to_string()
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(url) = self;
        write!(f, "{}://{}", url.scheme(), url.host_str().unwrap_or_default())?;
        if let Some(port) = url.port() {
            write!(f, ":{port}")?;
        }
        f.write_str(if url.path() == "/" && url.query().is_none() { "/" } else { "/***" })
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
