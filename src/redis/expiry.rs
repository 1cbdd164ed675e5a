//! When a key is to expire.

/// When a key is to expire: a moment, so that it can be compared with those of other clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// There is no such key.
    NoKey,
    /// The key has no TTL.
    Never,
    /// In microseconds since 1970 UTC, by the server's clock.
    At(i64),
    /// The part of the cluster that has it does not answer.
    Unknown,
}

impl Expiry {
    /// What PTTL says at the time `now`.
    pub(super) fn of(millis: i64, now: i64) -> Self {
        match millis {
            -2 => Self::NoKey,
            ..0 => Self::Never,
            _ => Self::At(now.saturating_add(millis.saturating_mul(1_000))),
        }
    }
}

/// An answer to the question when keys are to expire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiries {
    /// The server's clock when it answered, in microseconds since 1970 UTC; of several servers, one's.
    pub now: i64,
    /// Of each key, in the order in which they were asked for.
    pub keys: Vec<Expiry>,
}
