//! Events: what is recorded of each closure, and who is told.

use std::{fmt, path::PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{
    ColumnName, Retry, Span, WebhookUrl,
    optional::{list, optional},
    schema, secret,
};

/// What is recorded and reported of each closure.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Events {
    /// Whether closures are recorded at all.
    pub enabled: bool,
    /// What every event says it comes from.
    pub source: EventSource,
    /// Columns of the order that an event carries.
    pub include: Vec<ColumnName>,
    /// The column with the trace in which the order was placed, which its event goes on with.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub traceparent: Option<ColumnName>,
    /// For how long events are kept.
    pub keep: Span,
    /// When a delivery that failed is tried again.
    pub retry: Retry,
    /// HTTP endpoints that are told.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "list")]
    #[schemars(schema_with = "schema::list::<Webhook>")]
    pub webhooks: Vec<Webhook>,
    /// A Redis Stream that is told.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub stream: Option<Stream>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            enabled: false,
            source: EventSource::default(),
            include: Vec::new(),
            traceparent: None,
            keep: Span::from_secs(30 * 86_400),
            // Doubling from five seconds to two hours, the pauses add up to 24.8 to 26.9 hours, as chance has it.
            retry: Retry { attempts: 23, initial: Span::from_secs(5), max: Span::from_secs(7_200) },
            webhooks: Vec::new(),
            stream: None,
        }
    }
}

/// The name of the stream as a target.
const STREAM: &str = "stream";

impl Events {
    /// The names of all targets.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        self.webhooks.iter().map(|webhook| webhook.name.as_str()).chain(self.stream.iter().map(|_| STREAM))
    }

    /// The same as a list.
    pub fn target_names(&self) -> Vec<String> {
        self.targets().map(str::to_owned).collect()
    }

    /// The names of the targets that hear of no closure, because none is recorded.
    pub fn untold(&self) -> impl Iterator<Item = &str> {
        self.targets().filter(|_| !self.enabled)
    }
}

/// An HTTP endpoint that is told of each closure.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = schema::url_or_file)]
pub struct Webhook {
    /// What it is called in the tables and in the log.
    pub name: TargetName,
    /// Where events are posted.
    pub url: WebhookUrl,
    /// A file with that URL.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub url_file: Option<PathBuf>,
    /// Signing secrets; with several, each request carries a signature by each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<WebhookSecret>,
    /// Files with a signing secret each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_files: Vec<PathBuf>,
    /// A PEM file of certificate authorities to trust instead of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub ca_file: Option<PathBuf>,
    /// How long one delivery may take.
    #[serde(default = "ten_seconds")]
    pub timeout: Span,
    /// The most deliveries at the same time.
    #[serde(default = "eight")]
    pub concurrency: usize,
}

fn ten_seconds() -> Span {
    Span::from_secs(10)
}

fn eight() -> usize {
    8
}

/// A Redis Stream to which each closure is appended.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Its key, in the database of `redis.url`.
    pub key: String,
    /// About how many entries it keeps.
    #[serde(default = "hundred_thousand")]
    pub max_len: u64,
}

fn hundred_thousand() -> u64 {
    100_000
}

impl Stream {
    /// Its name as a target.
    #[must_use]
    pub const fn name() -> &'static str {
        STREAM
    }
}

/// Where events come from, for receivers of several shops: a reference to a URI (RFC 3986), as CloudEvents wants it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct EventSource(String);

impl EventSource {
    /// The reference.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for EventSource {
    fn default() -> Self {
        Self("order-closer".into())
    }
}

impl TryFrom<String> for EventSource {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/#[]!$&'()*+,;=%".contains(c);
        let mut escapes = text.split('%').skip(1);
        let escapes_are_whole = escapes.all(|rest| rest.get(..2).is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit())));
        // Relative references are resolved against any base.
        let base = Url::parse("https://shop.invalid/").map_err(|error| error.to_string())?;
        if text.is_empty() || !text.chars().all(is_plain) || !escapes_are_whole || base.join(&text).is_err() {
            // Everybody is told where events come from: a login or a token has no place there.
            return Err(
                "is not a reference to a URI without login and parameters, such as \"https://shop.example/orders\" or \"shop-de\"".into()
            );
        }
        Ok(Self(text))
    }
}

impl From<EventSource> for String {
    fn from(source: EventSource) -> Self {
        source.0
    }
}

/// The name of a target: a word.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct TargetName(String);

impl TargetName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for TargetName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.is_empty() || text.len() > 64 || !text.chars().all(plain) {
            return Err("is not a name of at most 64 letters, digits, hyphens, underscores and dots".into());
        }
        if text == STREAM {
            return Err("is the name of the Redis Stream; choose another".into());
        }
        Ok(Self(text))
    }
}

impl From<TargetName> for String {
    fn from(name: TargetName) -> Self {
        name.0
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A key for signatures: `whsec_` and 24 to 64 bytes in base64, as the Standard Webhooks specification has it
/// (<https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>). Never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct WebhookSecret(Vec<u8>);

impl WebhookSecret {
    const PREFIX: &str = secret::WEBHOOK;

    /// The key's bytes.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.0
    }
}

impl std::str::FromStr for WebhookSecret {
    type Err = String;

    // No message may quote the text.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!("this secret {what}; write whsec_ and 24 to 64 random bytes in base64, such as `openssl rand -base64 32` prints")
        };
        let encoded = text.strip_prefix(Self::PREFIX).ok_or_else(|| wrong("doesn't begin with whsec_"))?;
        let key = BASE64.decode(encoded).map_err(|_| wrong("is not in base64"))?;
        if !(24..=64).contains(&key.len()) {
            return Err(wrong(&format!("has {} bytes", key.len())));
        }
        Ok(Self(key))
    }
}

impl TryFrom<String> for WebhookSecret {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<WebhookSecret> for String {
    fn from(_: WebhookSecret) -> Self {
        format!("{}***", WebhookSecret::PREFIX)
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}***", Self::PREFIX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn deliveries_are_retried_for_a_day_and_a_few_hours() {
        let Events { retry, .. } = Events::default();
        for _ in 0..1_000 {
            let pauses: Vec<Duration> = (1..).map_while(|failures| retry.pause_after(failures)).collect();
            assert!(pauses.iter().all(|pause| (retry.initial.get()..=retry.max.get()).contains(pause)), "{pauses:?}");
            let whole: Duration = pauses.iter().sum();
            assert!((Duration::from_mins(24 * 60 + 45)..Duration::from_hours(27)).contains(&whole), "{whole:?}");
            assert!((Duration::from_mins(24 * 60 + 45)..=whole).contains(&retry.length()), "{:?}", retry.length());
        }
    }
}
