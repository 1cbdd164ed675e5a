//! Secrets, and what tells one that stands where it should not.

use std::fmt;

use serde::{Serialize, Serializer};

use super::url_files::FILE;

/// What stands where a secret was.
pub(super) const HIDDEN: &str = "***";

/// What a webhook's secret begins with.
pub(super) const WEBHOOK: &str = "whsec_";

/// A text that no output has: whoever needs it says so.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

const URL: &str = "a URL";

/// What a text must be called that may hold a secret, wherever it stands.
pub(super) fn is_a(text: &str) -> Option<&'static str> {
    if webhook_secret(text).is_some() {
        return Some("a webhook's secret");
    }
    if text.contains("://") {
        return Some(URL);
    }
    text.contains("PRIVATE KEY").then_some("a private key")
}

/// What a text is that stands at this setting and must not, because it would be shown there.
pub(super) fn misplaced(path: &[String], text: &str) -> Option<&'static str> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let path = if let ["rules", _, rest @ ..] = path.as_slice() { rest } else { &path };
    let what = is_a(text)?;
    match path {
        ["databases", name] if !name.ends_with(FILE) && webhook_secret(text).is_none() => None,
        ["events" | "timers", "webhooks", _, "secrets", _] | ["close", "ask", "secrets", _] => None,
        ["redis" | "database", "url"] | ["hints", _, "url"] | ["events" | "timers", "webhooks", _, "url"] | ["close", "ask", "url"]
            if webhook_secret(text).is_none() =>
        {
            None
        }
        ["events", "source"] if what == URL && (text.starts_with("https://") || text.starts_with("http://")) => None,
        ["orders", "filter"] | ["orders", "set", _] | ["close", "sql", ..] if what == URL && is_harmless_in_sql(text) => None,
        _ => Some(what),
    }
}

/// SQL may well have a URL in it, but is none, nor a list or a table, and has no login to a server.
fn is_harmless_in_sql(text: &str) -> bool {
    let before = text.split("://").next().unwrap_or_default().trim_start();
    let is_sql = before.contains(|c: char| c.is_whitespace() || c == '\'') && !before.starts_with(['[', '{']);
    let mut urls = text.match_indices("://").map(|(at, _)| (&text[..at], &text[at..]));
    is_sql
        && urls.all(|(before, url)| {
            let has_login = url.split(|c: char| c.is_whitespace()).next().is_some_and(|url| url.contains('@'));
            let of_server = [
                "postgres",
                "postgresql",
                "mysql",
                "mariadb",
                "sqlite",
                "redis",
                "rediss",
                "redis+unix",
                "unix",
                "valkey",
                "valkeys",
                "amqp",
                "amqps",
            ];
            !has_login && !of_server.iter().any(|scheme| before.to_ascii_lowercase().ends_with(scheme))
        })
}

/// Where a webhook's secret begins, and where it ends.
fn webhook_secret(text: &str) -> Option<(usize, usize)> {
    let lower = text.to_ascii_lowercase();
    lower.match_indices(WEBHOOK).find_map(|(at, prefix)| {
        let rest = &text[at + prefix.len()..];
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+/=-_%".contains(c)).unwrap_or(rest.len());
        (length > 0).then_some((at + prefix.len(), at + prefix.len() + length))
    })
}

/// A message in which no webhook's secret is left, wherever it came from.
pub(super) fn without_webhook_secrets(mut message: String) -> String {
    while let Some((from, to)) = webhook_secret(&message) {
        message.replace_range(from..to, HIDDEN);
    }
    message
}
