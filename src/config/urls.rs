//! Connection URLs. They carry passwords, so neither `Debug` nor `Display` prints one.

mod amqp;
mod database;
mod hosts;
mod redis;
mod webhook;

use url::{Position, Url};

pub use amqp::AmqpUrl;
pub use database::DatabaseUrl;
pub use redis::{Endpoint, RedisAddress, RedisUrl, Sentinels};
pub use webhook::WebhookUrl;

use super::secret::HIDDEN;

/// Parses a URL. What is wrong with it is said without quoting any of it.
fn parsed(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    // Left as they are, these characters end the host within the password, whose rest then stands where it would be shown.
    if url[Position::AfterPort..].contains(['@', '#']) {
        return Err("an @ or # follows the host; in a password @ is %40, / is %2F, ? is %3F and # is %23".into());
    }
    Ok(url)
}

/// Refuses parameters that nobody would heed. Their names are not quoted: after an & in a password, that is its rest.
fn only(known: &[&str], url: &Url) -> Result<(), String> {
    // PostgreSQL's are options[name].
    if url.query_pairs().all(|(name, _)| known.contains(&name.split('[').next().unwrap_or_default())) {
        return Ok(());
    }
    Err(match known {
        [] => "it takes no parameters".into(),
        _ => format!("it has a parameter other than {}; in a value & is %26", known.join(", ")),
    })
}

/// The parameters whose values tell no secret. A key may stand in its parameter, and `options` may hold anything.
const SHOWN: &[&str] = &[
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslca",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "application_name",
    "charset",
    "collation",
    "socket",
    "time-zone",
    "timezone",
    "statement-cache-capacity",
    "db",
    "target_session_attrs",
    "connect_timeout",
    "connectTimeout",
    "load_balance_hosts",
    "sentinelServiceName",
    "sentinelUsername",
];

/// A URL without its password and what else may be secret in it, for logs and errors.
fn redacted(url: &str, is_shown: impl Fn(&str) -> bool) -> String {
    let Ok(mut parsed) = Url::parse(url) else {
        return "(not a URL)".into();
    };
    if parsed.password().is_some() {
        // Fails only for URLs that can't have a password, and this one has.
        parsed.set_password(Some(HIDDEN)).ok();
    }
    if parsed.query_pairs().any(|(name, _)| !is_shown(&name)) {
        let kept: Vec<(String, String)> = parsed
            .query_pairs()
            .map(|(name, value)| {
                let value = if is_shown(&name) { value.into_owned() } else { HIDDEN.into() };
                (name.into_owned(), value)
            })
            .collect();
        parsed.query_pairs_mut().clear().extend_pairs(kept);
    }
    parsed.to_string()
}

/// A URL without its password and without parameters that may be secret, and whether it had any: what is left may stand in a
/// file that others read. It may name several hosts.
#[must_use]
pub fn without_password(url: &str) -> (String, bool) {
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| *scheme != "sqlite") else { return (url.into(), false) };
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (login, hosts) = authority.rsplit_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let (shown, secret): (Vec<&str>, Vec<&str>) =
        query.split('&').filter(|one| !one.is_empty()).partition(|one| is_shown(one.split('=').next().unwrap_or_default()));
    let (user, has_password) = login.map_or(("", false), |login| login.split_once(':').map_or((login, false), |(user, _)| (user, true)));
    if !has_password && secret.is_empty() {
        return (url.into(), false);
    }
    let user = if user.is_empty() { String::new() } else { format!("{user}@") };
    let query = if shown.is_empty() { String::new() } else { format!("?{}", shown.join("&")) };
    (format!("{scheme}://{user}{hosts}{path}{query}"), true)
}

/// Whether a parameter's value may be shown.
fn is_shown(name: &str) -> bool {
    SHOWN.contains(&name)
}

fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err("a % in a URL is followed by two hexadecimal digits".into());
        };
        bytes.push(u8::try_from(high * 16 + low).unwrap_or(u8::MAX));
    }
    String::from_utf8(bytes).map_err(|_| "percent-encoded text in a URL must be UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn what_is_left_of_a_url_has_no_secret() {
        for (url, left) in [
            ("postgres://shop:x%40y@db:5432/shop?sslmode=require&password=z", "postgres://shop@db:5432/shop?sslmode=require"),
            ("mysql://shop:x@db1:3306,db2:3306/shop?connect_timeout=3", "mysql://shop@db1:3306,db2:3306/shop?connect_timeout=3"),
            ("redis://:x@127.0.0.1:6379/2", "redis://127.0.0.1:6379/2"),
            ("redis+unix:///run/redis.sock?db=1&password=x", "redis+unix:///run/redis.sock?db=1"),
        ] {
            assert_eq!(without_password(url), (left.into(), true));
        }
        for url in ["postgres://shop@db/shop", "sqlite:///var/lib/shop.db?mode=rw", "redis://127.0.0.1:6379", "mysql://db1,db2/shop"] {
            assert_eq!(without_password(url), (url.into(), false));
        }
    }
}
