//! Failures, sorted once by what to do next. Nobody else reads what a server or the client says.

use fred::error::{Error, ErrorKind};

use super::secrets::Secrets;
use crate::{
    config::{Endpoint, Redis, RedisAddress},
    order::printable,
};

/// Why Redis did not do what was asked, as what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedisError {
    /// Nobody answers, or not in time: connect anew.
    #[error("{0}")]
    Unreachable(Said),
    /// Who answers is not the Redis for us (a replica, a sentinel, a node of a cluster, too old): look where the name leads now,
    /// and connect there.
    #[error("{0}")]
    NotOurs(Said),
    /// The server can't do it now: the same again later, on the same connection.
    #[error("{0}")]
    NotNow(Said),
    /// The login or a right is lacking: nothing helps until somebody grants it.
    #[error("{0}")]
    Denied(Said),
    /// This command is refused for what it is.
    #[error("{0}")]
    Rejected(Said),
    /// What the configuration names can't be used.
    #[error("{0}")]
    Unusable(Said),
}

/// What went wrong, without any password, and what mends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// The server's or the system's own words.
    pub reason: String,
    /// What mends it.
    pub fix: String,
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Said {
    pub(super) fn new(reason: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { reason: printable(reason.into()), fix: printable(fix.into()) }
    }
}

impl RedisError {
    /// What is said to whoever asks a Redis that there is not.
    pub(super) fn none() -> Self {
        Self::Unusable(Said::new("there is no Redis: redis.url is \"none\"", "set redis.url to the Redis that has the orders' keys"))
    }

    /// What was said.
    #[must_use]
    pub fn said(&self) -> &Said {
        match self {
            Self::Unreachable(said)
            | Self::NotOurs(said)
            | Self::NotNow(said)
            | Self::Denied(said)
            | Self::Rejected(said)
            | Self::Unusable(said) => said,
        }
    }

    /// What mends it.
    #[must_use]
    pub fn fix(&self) -> &str {
        &self.said().fix
    }

    /// The same, said of one server of several.
    pub(super) fn of_node(self, node: &Endpoint) -> Self {
        let named = |Said { reason, fix }| Said { reason: format!("{node}: {reason}"), fix };
        match self {
            Self::Unreachable(said) => Self::Unreachable(named(said)),
            Self::NotOurs(said) => Self::NotOurs(named(said)),
            Self::NotNow(said) => Self::NotNow(named(said)),
            Self::Denied(said) => Self::Denied(named(said)),
            Self::Rejected(said) => Self::Rejected(named(said)),
            Self::Unusable(said) => Self::Unusable(named(said)),
        }
    }

    /// Whether it may pass without anybody's hand in the configuration of either side.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::NotNow(_))
    }

    /// Whether nothing but a hand helps: a login, a right, a setting.
    #[must_use]
    pub fn needs_a_hand(&self) -> bool {
        matches!(self, Self::Denied(_) | Self::Unusable(_))
    }

    /// Whether the server itself refuses this.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::NotNow(_) | Self::Denied(_) | Self::Rejected(_))
    }

    pub(super) fn unreachable(reason: impl Into<String>) -> Self {
        Self::Unreachable(Said::new(reason, "start Redis, or fix redis.url"))
    }

    /// Nobody has answered within this time.
    #[must_use]
    pub fn timed_out(limit: std::time::Duration) -> Self {
        Self::unreachable(format!("no answer within {}", humantime::format_duration(limit)))
    }

    pub(super) fn too_old(what: impl Into<String>) -> Self {
        Self::NotOurs(Said::new(what, "order-closer needs Redis 6.2 or later, or Valkey: upgrade it, or let redis.url lead to one"))
    }

    pub(super) fn not_primary(what: impl Into<String>) -> Self {
        Self::NotOurs(Said::new(what, "let redis.url lead to the primary, whose keys expire and are announced"))
    }

    /// A sentinel where a Redis was meant.
    pub(super) fn sentinel(redis: &Redis) -> Self {
        let fix = match &redis.url.address {
            RedisAddress::Tcp { .. } => format!(
                "let redis.url name the sentinels and the service that they watch: {}",
                redis.url.as_other("-sentinel", "?sentinelServiceName=NAME")
            ),
            RedisAddress::Unix(_) | RedisAddress::Sentinels(_) | RedisAddress::Cluster { .. } | RedisAddress::Nowhere => {
                "let redis.url lead to the primary, whose keys expire and are announced".into()
            }
        };
        Self::NotOurs(Said::new("it is a sentinel", fix))
    }

    /// A node of a cluster where another Redis was meant.
    pub(super) fn cluster_node(redis: &Redis) -> Self {
        let url = match &redis.url.address {
            RedisAddress::Tcp { .. } => redis.url.as_other("-cluster", ""),
            RedisAddress::Unix(_) | RedisAddress::Sentinels(_) | RedisAddress::Cluster { .. } | RedisAddress::Nowhere => {
                "redis-cluster://HOST:PORT".into()
            }
        };
        let fix = format!("let redis.url name the cluster, by some of its nodes with commas between: {url}");
        Self::NotOurs(Said::new("it is a node of a cluster", fix))
    }

    /// Another Redis where a node of a cluster was meant.
    pub(super) fn no_cluster(redis: &Redis) -> Self {
        let fix = format!("let redis.url be that of one Redis: {}", redis.url.as_other("", ""));
        Self::NotOurs(Said::new("it is no node of a cluster", fix))
    }
}

/// Sorts what the client reports. `needs` are the ACL rules without which the command is denied.
pub(super) fn sort(error: &Error, secrets: &Secrets, needs: &str) -> RedisError {
    let details = secrets.hide(error.details());
    // A server's errors begin with a word in capitals, such as NOPERM or WRONGTYPE. It is compared and never shown, so it is read as it
    // is, also where a password is a part of it.
    let code = error.details().split([' ', ':']).next().unwrap_or_default();
    if code.len() > 1 && code.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return refusal(code, &details, needs);
    }
    #[expect(clippy::wildcard_enum_match_arm, reason = "whatever else the client may say is about the connection")]
    match error.kind() {
        ErrorKind::Timeout => RedisError::unreachable("no answer in time"),
        ErrorKind::Tls | ErrorKind::IO => connection(&details),
        _ => RedisError::unreachable(format!("{}: {details}", error.kind().to_str())),
    }
}

/// An answer that begins with a code.
fn refusal(code: &str, text: &str, needs: &str) -> RedisError {
    let with = |fix: &str| Said::new(text, fix);
    let lower = text.to_ascii_lowercase();
    match code {
        "READONLY" | "MASTERDOWN" => RedisError::not_primary(format!("it is a replica: {text}")),
        "MOVED" | "ASK" | "CROSSSLOT" => RedisError::NotOurs(Said::new(
            format!("it is a node of a cluster: {text}"),
            "let redis.url name the cluster: redis-cluster://HOST:PORT",
        )),
        "CLUSTERDOWN" => RedisError::NotNow(with("the cluster lacks nodes or slots: see CLUSTER INFO and CLUSTER NODES")),
        "NOPROTO" => RedisError::too_old(text),
        "NOPERM" => RedisError::Denied(with(&format!("give the ACL user these rights: {needs}"))),
        "NOAUTH" => RedisError::Denied(with(
            "put the password into redis.url, redis://:password@host or redis://user:password@host, and restart order-closer, which reads it once",
        )),
        "WRONGPASS" => RedisError::Denied(with(
            "fix the user and the password in redis.url and restart order-closer, which reads it once; or give the ACL user this password, and \
             see that the ACL user is on",
        )),
        "DENIED" => RedisError::Denied(with("set a password in Redis (protected mode), and put it into redis.url")),
        "OOM" => RedisError::NotNow(with("Redis is out of memory: raise maxmemory, or remove what is not needed")),
        "BUSY" => RedisError::NotNow(with("a script keeps Redis busy: wait for its end, or run SCRIPT KILL")),
        "LOADING" => RedisError::NotNow(with("Redis loads its data, and answers when it has")),
        "MISCONF" => RedisError::NotNow(with("Redis can't save its data: see its log, and whether its disk is full")),
        "NOREPLICAS" => {
            RedisError::NotNow(with("Redis misses replicas that it was told to have: start them, or lower min-replicas-to-write"))
        }
        "TRYAGAIN" => RedisError::NotNow(with("Redis asks to try again later")),
        "ERR" if lower.contains("max number of clients") => {
            RedisError::NotNow(with("raise maxclients in Redis, or close idle connections"))
        }
        // That is the subcommand that 6.0 lacks.
        "ERR" if lower.contains("unknown") && (lower.contains("'hello'") || lower.contains("`hello`")) => {
            RedisError::too_old(format!("it does not know HELLO ({text})"))
        }
        "ERR" if lower.contains("db index") || lower.contains("select is not allowed") => {
            RedisError::Unusable(with("name a database in redis.url that this Redis has (`databases` in its configuration)"))
        }
        "WRONGTYPE" => RedisError::Rejected(with("the key holds something else: see who writes it")),
        _ => RedisError::Rejected(with("see what the server says; a managed one may not have this command")),
    }
}

/// Trouble below the protocol; what the operating system said is in there as `Os { code: 111, …, message: "…" }`.
fn connection(details: &str) -> RedisError {
    let untrusted = "name the file of the authority that signed it in redis.ca_file";
    for (word, reason, fix) in [
        ("UnknownIssuer", "nobody who is trusted vouches for its certificate", untrusted),
        ("BadSignature", "nobody who is trusted vouches for its certificate", untrusted),
        ("CaUsedAsEndEntity", "its certificate is that of an authority", "give Redis a certificate of its own"),
        ("NotValidForName", "its certificate is for another name", "write the name in the certificate into redis.url"),
        ("Expired", "its certificate has expired", "give Redis a new certificate"),
        ("NotValidYet", "its certificate is not valid yet", "look at the clocks of this host and of the one that made it"),
    ] {
        if details.contains(word) {
            return RedisError::Unreachable(Said::new(format!("{reason} ({word})"), fix));
        }
    }
    let message = details.strip_prefix("Os {").and_then(|os| os.split_once("message: \"")?.1.split_once('"'));
    RedisError::unreachable(message.map_or(details, |(message, _)| message))
}

pub(super) type Result<T> = std::result::Result<T, RedisError>;

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(text: &'static str) -> RedisError {
        sort(&Error::new(ErrorKind::Unknown, text), &Secrets::default(), "+exists ~order_*")
    }

    #[test]
    fn each_answer_has_a_cure_of_its_own() {
        for (text, fix) in [
            ("OOM command not allowed when used memory > 'maxmemory'.", "maxmemory"),
            ("BUSY Redis is busy running a script.", "SCRIPT KILL"),
            ("LOADING Redis is loading the dataset in memory", "when it has"),
            ("MISCONF Redis is configured to save RDB snapshots", "disk"),
            ("ERR max number of clients reached", "maxclients"),
        ] {
            let error = sorted(text);
            assert!(matches!(&error, RedisError::NotNow(said) if said.fix.contains(fix) && said.reason == text), "{error:?}");
        }
        for (text, fix) in [
            ("READONLY You can't write against a read only replica.", "primary"),
            ("MOVED 1234 127.0.0.1:7001", "redis-cluster://"),
            ("ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, ", "6.2"),
            ("ERR unknown command 'HELLO'", "6.2"),
            ("NOPROTO unsupported protocol version", "6.2"),
        ] {
            let error = sorted(text);
            assert!(matches!(&error, RedisError::NotOurs(said) if said.fix.contains(fix)), "{error:?}");
        }
        for (text, fix) in [
            ("NOPERM this user has no permissions to run the 'exists' command", "+exists ~order_*"),
            ("NOAUTH HELLO must be called with the client already authenticated", "redis.url"),
            ("WRONGPASS invalid username-password pair or user is disabled.", "redis.url"),
        ] {
            let error = sorted(text);
            assert!(matches!(&error, RedisError::Denied(said) if said.fix.contains(fix)), "{error:?}");
        }
    }

    #[test]
    fn rights_are_spoken_of_only_where_one_is_lacking() {
        for text in [
            "OOM command not allowed",
            "BUSY Redis is busy",
            "READONLY no",
            "MOVED 1 a:1",
            "WRONGTYPE Operation",
            "ERR DB index is out of range",
        ] {
            let error = sorted(text);
            assert!(!error.fix().contains("ACL") && !error.fix().contains('~'), "{error:?}");
        }
    }

    #[test]
    fn what_the_system_says_is_passed_on_in_its_words() {
        let io = "Os { code: 111, kind: ConnectionRefused, message: \"Connection refused\" }";
        assert_eq!(sort(&Error::new(ErrorKind::IO, io), &Secrets::default(), "").to_string(), "Connection refused");
    }
}
