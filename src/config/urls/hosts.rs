//! Several hosts in one URL of a database, as libpq and Connector/J have them.

use std::time::Duration;

/// A URL's text taken apart: one URL for each host, in their order, and what it says of the way to them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hosts {
    /// URLs of one host each, without what the drivers do not know.
    pub(super) each: Vec<String>,
    /// How long one host is waited for.
    pub(super) connect_timeout: Option<Duration>,
}

/// What of a URL is ours to read: the drivers would pass over it, or refuse it.
const OURS: [&str; 4] = ["target_session_attrs", "connect_timeout", "connectTimeout", "load_balance_hosts"];

/// Takes a URL apart. What is wrong with it is said without quoting any of it.
pub(super) fn split(text: &str) -> Result<Hosts, String> {
    let alone = || Hosts { each: vec![text.to_owned()], connect_timeout: None };
    let Some((scheme, rest)) = text.split_once("://") else { return Ok(alone()) };
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (login, hosts) = authority.rsplit_once('@').map_or(("", authority), |(login, hosts)| (login, hosts));
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let parameters: Vec<(&str, &str)> =
        query.split('&').filter(|one| !one.is_empty()).map(|one| one.split_once('=').unwrap_or((one, ""))).collect();
    let is_ours = |(name, value): &(&str, &str)| OURS.contains(name) || (LISTED.contains(name) && commas(value));
    let is_listed = hosts.contains(',') || hosts.contains('(');
    // After a / or a ? in a password all this is a part of it, which the one who reads the whole URL says.
    if tail.contains(['@', '#']) || (!is_listed && !parameters.iter().any(is_ours)) {
        return Ok(alone());
    }
    let mut connect_timeout = None;
    for (name, value) in &parameters {
        match *name {
            "target_session_attrs" => writable(value)?,
            "load_balance_hosts" if *value != "disable" => {
                return Err("its load_balance_hosts is not disable; orders are closed on the one host that takes writes".into());
            }
            "connect_timeout" => connect_timeout = duration(value, Duration::from_secs)?,
            "connectTimeout" => connect_timeout = duration(value, Duration::from_millis)?,
            _ => {}
        }
    }
    let is_postgres = scheme.starts_with("postgres");
    let places = match listed(&parameters)? {
        Some(places) if is_postgres => places,
        Some(_) | None => parts(hosts)?.into_iter().map(place).collect::<Result<_, _>>()?,
    };
    let is_several = places.len() > 1;
    let url = |Place { host, port, socket }: Place| {
        let mut kept: Vec<String> = parameters
            .iter()
            .filter(|one| !(OURS.contains(&one.0) || is_postgres && LISTED.contains(&one.0) && is_several))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        kept.extend(socket.map(|socket| format!("host={socket}")));
        let login = if authority.contains('@') { format!("{login}@") } else { String::new() };
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
        format!("{scheme}://{login}{host}{port}{path}{query}")
    };
    Ok(Hosts { each: places.into_iter().map(url).collect(), connect_timeout })
}

/// The parameters of PostgreSQL's URLs that may hold lists.
const LISTED: [&str; 3] = ["host", "hostaddr", "port"];

fn commas(value: &str) -> bool {
    value.contains(',') || value.to_ascii_lowercase().contains("%2c")
}

/// Refuses what would lead to a standby.
fn writable(value: &str) -> Result<(), String> {
    // A single host takes writes or nothing closes, so `any` can mean nothing else here.
    if ["any", "read-write", "primary"].contains(&value) {
        return Ok(());
    }
    Err("its target_session_attrs is none of read-write, primary and any; orders are closed on the host that takes writes".into())
}

fn duration(value: &str, unit: fn(u64) -> Duration) -> Result<Option<Duration>, String> {
    match value.parse() {
        // As libpq and Connector/J have it: no limit but our own.
        Ok(0) => Ok(None),
        Ok(number) => Ok(Some(unit(number))),
        Err(_) => Err("its connect_timeout is no whole number (of seconds; connectTimeout: of milliseconds)".into()),
    }
}

/// Where one host is.
#[derive(Debug, Default)]
struct Place {
    host: String,
    port: Option<String>,
    /// A folder with a socket, which only a parameter can name.
    socket: Option<String>,
}

/// The hosts that parameters list.
fn listed(parameters: &[(&str, &str)]) -> Result<Option<Vec<Place>>, String> {
    let list = |name: &str| -> Vec<String> {
        let value = parameters.iter().rev().find(|one| one.0 == name).map_or("", |one| one.1);
        value.replace("%2c", ",").replace("%2C", ",").split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect()
    };
    let (hosts, addresses, ports) = (list("host"), list("hostaddr"), list("port"));
    // An address is connected to, whatever the host is called.
    let hosts = if addresses.is_empty() { hosts } else { addresses };
    if hosts.len() < 2 {
        return Ok(None);
    }
    if ports.len() > 1 && ports.len() != hosts.len() {
        return Err(format!("it has {} hosts and {} ports; give each host its port, or all of them one", hosts.len(), ports.len()));
    }
    let port = |at: usize| ports.get(if ports.len() > 1 { at } else { 0 }).cloned();
    let place = |(at, host): (usize, String)| {
        if host.starts_with('/') || host.to_ascii_lowercase().starts_with("%2f") {
            return Place { socket: Some(host), port: None, host: String::new() };
        }
        let is_bare = host.contains(':') && !host.starts_with('[');
        Place { host: if is_bare { format!("[{host}]") } else { host }, port: port(at), socket: None }
    };
    Ok(Some(hosts.into_iter().enumerate().map(place).collect()))
}

/// The parts of a list of hosts, between its commas: those outside of brackets.
fn parts(hosts: &str) -> Result<Vec<&str>, String> {
    // Connector/J lets a list stand in brackets. An address of IPv6 at its beginning and one at its end are none.
    let is_whole = |inside: &&str| inside.contains(',') && inside.find(']').is_none_or(|end| inside[..end].contains('['));
    let inside = hosts.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).filter(is_whole);
    let (mut depth, mut from, mut parts) = (0_usize, 0, Vec::new());
    let hosts = inside.unwrap_or(hosts);
    for (at, letter) in hosts.char_indices() {
        match letter {
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&hosts[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&hosts[from..]);
    if parts.len() > 1 && parts.iter().any(|part| part.is_empty()) {
        return Err("one of its hosts is empty: there is a comma too many".into());
    }
    Ok(parts)
}

/// `host`, `host:port`, `[address]:port`, or Connector/J's `address=(host=h)(port=p)` and `(host=h,port=p)`.
fn place(part: &str) -> Result<Place, String> {
    if !part.contains('(') {
        let colon = part.rfind(':').filter(|colon| part.rfind(']').is_none_or(|bracket| bracket < *colon));
        let (host, port) = colon.map_or((part, None), |colon| (&part[..colon], Some(part[colon + 1..].to_owned())));
        return Ok(Place { host: host.into(), port, socket: None });
    }
    let mut place = Place::default();
    let pairs = part.strip_prefix("address=").unwrap_or(part).split(['(', ')', ',']).filter(|pair| !pair.is_empty());
    for pair in pairs {
        match pair.split_once('=').map(|(name, value)| (name.trim(), value.trim())) {
            Some(("host", host)) => place.host = host.into(),
            Some(("port", port)) => place.port = Some(port.into()),
            Some(("protocol", "tcp")) => {}
            _ => return Err("an address in it has more than host and port; all hosts share one login".into()),
        }
    }
    if place.host.is_empty() { Err("an address in it names no host".into()) } else { Ok(place) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each(text: &str) -> Vec<String> {
        split(text).unwrap_or_else(|error| panic!("{text}: {error}")).each
    }

    #[test]
    fn lists_of_hosts_as_users_paste_them() {
        for (text, hosts) in [
            ("postgres://u:p@h1,h2/db?target_session_attrs=read-write", &["postgres://u:p@h1/db", "postgres://u:p@h2/db"][..]),
            (
                "postgres://h1:5432,h2:5433/db?sslmode=require",
                &["postgres://h1:5432/db?sslmode=require", "postgres://h2:5433/db?sslmode=require"],
            ),
            ("postgres://u@[::1]:5432,[::2]/db", &["postgres://u@[::1]:5432/db", "postgres://u@[::2]/db"]),
            ("postgres:///db?host=h1,h2&port=5433&user=u", &["postgres://h1:5433/db?user=u", "postgres://h2:5433/db?user=u"]),
            ("postgres://u@/db?host=h1%2Ch2&port=1,2", &["postgres://u@h1:1/db", "postgres://u@h2:2/db"]),
            ("postgres:///db?hostaddr=10.0.0.1,::1", &["postgres://10.0.0.1/db", "postgres://[::1]/db"]),
            ("postgres:///db?host=/run/a,/run/b", &["postgres:///db?host=/run/a", "postgres:///db?host=/run/b"]),
            ("mysql://u:p,x@h1,h2:3307/db", &["mysql://u:p,x@h1/db", "mysql://u:p,x@h2:3307/db"]),
            ("mysql://u@[h1:3306,h2:3307]/db", &["mysql://u@h1:3306/db", "mysql://u@h2:3307/db"]),
            ("mysql://u@(host=h1,port=3306),(host=h2)/db", &["mysql://u@h1:3306/db", "mysql://u@h2/db"]),
            ("mysql://u@address=(host=h1)(port=3306),address=(host=h2)(protocol=tcp)/db", &["mysql://u@h1:3306/db", "mysql://u@h2/db"]),
            ("mysql://u@h/db?connect_timeout=3", &["mysql://u@h/db"]),
            ("postgres://u@h/db?host=/run/postgresql", &["postgres://u@h/db?host=/run/postgresql"]),
        ] {
            assert_eq!(each(text), hosts, "{text}");
        }
    }

    #[test]
    fn what_is_one_host_stays_as_it_is() {
        for text in ["postgres://u:a@b@h/db", "mysql://u:1/x@h1,h2/db", "postgres://u:p?connect_timeout=x@h1,h2/db", "mysql:h1,h2"] {
            assert_eq!(each(text), [text]);
        }
    }

    #[test]
    fn what_can_not_be_meant_is_said() {
        for (text, part) in [
            ("postgres://h1,h2/db?target_session_attrs=standby", "target_session_attrs"),
            ("postgres://h1,h2/db?load_balance_hosts=random", "load_balance_hosts"),
            ("postgres://h1,h2/db?connect_timeout=soon", "whole number"),
            ("postgres://h1,,h2/db", "comma"),
            ("postgres:///db?host=a,b,c&port=1,2", "3 hosts and 2 ports"),
            ("mysql://address=(host=h1)(user=x),h2/db", "share one login"),
            ("mysql://(port=3306),h2/db", "names no host"),
        ] {
            assert!(split(text).is_err_and(|error| error.contains(part)), "{text}: {:?}", split(text));
        }
        assert_eq!(split("mysql://h1,h2/db?connectTimeout=250").map(|hosts| hosts.connect_timeout), Ok(Some(Duration::from_millis(250))));
    }
}
