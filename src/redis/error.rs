//! Why Redis did not do what was asked.

use crate::redis::PATIENCE;

/// Why Redis did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RedisError(pub String);

impl From<fred::error::Error> for RedisError {
    fn from(error: fred::error::Error) -> Self {
        // The client passes on what the operating system said as `Os { code: 111, …, message: "…" }`.
        let details = error.details();
        let message = details.strip_prefix("Os {").and_then(|os| os.split_once("message: \"")?.1.split_once('"'));
        Self(format!("{}: {}", error.kind().to_str(), message.map_or(details, |(message, _)| message)))
    }
}

impl RedisError {
    /// Whether the server itself said so; its errors begin with a word in capitals, such as NOPERM or WRONGTYPE.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        let answer = self.0.split_once(": ").and_then(|(_, answer)| answer.split(' ').next());
        answer.is_some_and(|code| code.len() > 1 && code.bytes().all(|byte| byte.is_ascii_uppercase()))
    }

    pub(super) fn timed_out() -> Self {
        Self(format!("no answer within {}", humantime::format_duration(PATIENCE)))
    }
}

pub(super) type Result<T> = std::result::Result<T, RedisError>;
