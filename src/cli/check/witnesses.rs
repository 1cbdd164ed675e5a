//! Whether rows and keys agree on when orders are due.

use std::time::Duration;

use crate::{
    app::settings_of,
    cli::check::{Examination, Finding, Mark},
    config::{Config, Disputed, Span},
    order::Row,
    redis::{Commands, Expiries, Expiry, PATIENCE},
    store::{self, DueQuery, Store, StoreError, Window},
    trigger::{Difference, Mapping, TOLERANCE},
};

const NAME: &str = "rows and keys";

/// How many orders are read that are due next, and of those that have been due for no longer than zones are apart; and how
/// many of them are compared.
const READ: u32 = 500;
const AGO: Duration = Duration::from_hours(26);
const COMPARED: usize = 100;

/// So few orders show nothing as a whole, and so few without keys nothing about keys.
const ENOUGH: usize = 5;
const ENOUGH_WITHOUT: usize = 10;

/// The examination; nothing where Redis or the database can't be asked, as others say.
pub(super) async fn examine(config: &Config) -> Examination {
    let mut examination = Examination::default();
    let Some(prefix) = config.redis.key_prefix.get() else { return examination };
    let (Ok(store), Ok(commands)) = tokio::join!(store::open(settings_of(config)), Commands::connect(&config.redis)) else {
        return examination;
    };
    if let Ok(rows) = pending(store.as_ref()).await {
        let names: Vec<String> = rows.iter().map(|row| format!("{prefix}{}", row.id)).collect();
        match commands.expiries(&names, PATIENCE).await {
            Ok(expiries) => {
                let found = Found::new(&rows, &names, &expiries);
                for finding in found.findings(config, store.as_ref(), &commands, &rows).await {
                    examination.add(finding);
                }
            }
            Err(error) => examination.add(Finding::warn(
                NAME,
                format!("Redis does not say when keys expire: {error}"),
                "let the ACL user run +pttl and +time; until then an order closes whose key contradicts its row",
            )),
        }
    }
    store.close().await;
    examination
}

/// Orders that are due next, and others that have been due for a while by their rows.
async fn pending(store: &dyn Store) -> Result<Vec<Row>, StoreError> {
    let read = async |window| store.due(&DueQuery::of(window, READ)).await.map(|page| page.rows);
    let mut rows = read(Window::ahead(Duration::MAX)).await?;
    rows.extend(read(Window::overdue(Some(AGO))).await?);
    Ok(rows)
}

/// What Redis said of the keys of pending orders.
#[derive(Debug, Default)]
struct Found<'r> {
    /// By how many microseconds a key expires after its row's deadline.
    later: Vec<(&'r Row, i64)>,
    /// Keys without TTL.
    forever: Vec<&'r str>,
    /// Keys that are not there, of orders that are not due.
    missing: Vec<&'r str>,
}

impl<'r> Found<'r> {
    fn new(rows: &'r [Row], names: &'r [String], expiries: &Expiries) -> Self {
        let mut found = Self::default();
        for ((row, name), expiry) in rows.iter().zip(names).zip(&expiries.keys) {
            match (expiry, row.deadline) {
                (Expiry::At(at), Some(deadline)) if found.later.len() < COMPARED => found.later.push((row, at - deadline)),
                (Expiry::At(_), _) => {}
                (Expiry::Never, _) => found.forever.push(name),
                (Expiry::NoKey, _) if !row.is_overdue() => found.missing.push(name),
                (Expiry::NoKey | Expiry::Unknown, _) => {}
            }
        }
        found
    }

    async fn findings(&self, config: &Config, store: &dyn Store, commands: &Commands, rows: &[Row]) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let [example, ..] = self.forever.as_slice() {
            findings.push(Finding::warn(
                NAME,
                format!("{} keys have no TTL, such as {example}: they never expire, and say nothing of a deadline", self.forever.len()),
                "write each key with PXAT, at the deadline that is in the row; look at the client's spelling of it",
            ));
        }
        if !self.later.is_empty() {
            findings.push(self.compared(config, store).await);
        } else if self.missing.len() >= ENOUGH_WITHOUT && self.forever.is_empty() {
            let found = format!("none of {} pending orders has a key, such as {}", self.missing.len(), self.missing[0]);
            findings.push(Finding::warn(NAME, found, elsewhere(config, commands, rows).await));
        }
        findings
    }

    async fn compared(&self, config: &Config, store: &dyn Store) -> Finding {
        let tolerated = i64::try_from(TOLERANCE.as_micros()).unwrap_or(i64::MAX);
        let differing: Vec<&(&Row, i64)> = self.later.iter().filter(|(_, later)| later.abs() > tolerated).collect();
        let (all, count) = (self.later.len(), differing.len());
        let Some((example, _)) = differing.first() else {
            return Finding::ok(NAME, format!("{all} pending orders have keys that expire at their rows' deadlines"));
        };
        let Some(difference) = Difference::of(differing.iter().map(|(_, later)| *later).collect()) else {
            return Finding::ok(NAME, "nothing to compare");
        };
        let is_whole = all >= ENOUGH && count * 5 >= all * 4;
        if !is_whole {
            return Finding::warn(
                NAME,
                format!(
                    "{count} of {all} pending orders have keys that expire {difference} after their rows' deadlines, such as order {}",
                    example.id
                ),
                "such an order waits for its key if that expires later; whoever changes an order's deadline rewrites its key, too",
            );
        }
        let mapping = Mapping { zone_matters: store.zone_matters(), plus: config.orders.deadline.plus.map(Span::get) };
        let mut fix = difference.advice(&mapping);
        if let Some(zone) = written_in(config, store, &difference).await {
            fix = format!("database.time_zone = \"{zone}\"; that is: {fix}");
        }
        let found = format!("{count} of {all} pending orders have keys that expire {difference} after their rows' deadlines");
        let closes = config.orders.disputed == Disputed::Close;
        Finding { mark: if closes { Mark::Warn } else { Mark::Fail }, ..Finding::fail(NAME, found, fix) }
    }
}

/// The zone in which deadlines seem to be written, where they are read at a fixed offset.
async fn written_in(config: &Config, store: &dyn Store, difference: &Difference) -> Option<String> {
    let apart = difference.zones_apart().filter(|_| store.zone_matters())?;
    let read_in = match &config.database.time_zone {
        Some(zone) => zone.to_string(),
        None => store.catalogue().await.ok()?.time_zone,
    };
    zone_apart(&read_in, apart)
}

/// The offset that lies so many minutes west of the zone in which times are read, by its name.
pub(in crate::cli) fn zone_apart(read_in: &str, apart: i64) -> Option<String> {
    let minutes = offset(read_in)? - apart;
    let sign = if minutes < 0 { '-' } else { '+' };
    Some(format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60))
}

/// The minutes east of UTC that a zone has all year, by its name: `+08:00`, `UTC`, `SYSTEM (UTC)`, with words behind it.
fn offset(zone: &str) -> Option<i64> {
    let zone = zone.strip_prefix("SYSTEM (").unwrap_or(zone);
    let name = zone.split([' ', ')']).next().unwrap_or_default();
    if matches!(name, "UTC" | "Etc/UTC" | "GMT") {
        return Some(0);
    }
    let (hours, minutes) = name.strip_prefix(['+', '-'])?.split_once(':')?;
    let minutes = hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?;
    Some(if name.starts_with('-') { -minutes } else { minutes })
}

/// Where keys may be that are not where they are looked for, as far as our rights go: by a few keys of this database, and by
/// how many each other has.
async fn elsewhere(config: &Config, commands: &Commands, rows: &[Row]) -> String {
    for key in commands.some_keys().await.unwrap_or_default() {
        let prefix = rows.iter().filter_map(|row| key.strip_suffix(row.id.as_str())).find(|prefix| is_prefix(prefix));
        if let Some(prefix) = prefix {
            return format!("redis.key_prefix = \"{prefix}\", if {key} is the key of an order");
        }
    }
    let own = config.redis.url.database;
    let others: Vec<String> = commands
        .info("keyspace")
        .await
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(name, keys)| Some((name.strip_prefix("db")?.parse::<u8>().ok()?, keys)))
        .filter(|(number, keys)| *number != own && !keys.contains("expires=0,"))
        .map(|(number, keys)| format!("{number} ({})", keys.split(',').take(2).collect::<Vec<_>>().join(", ")))
        .collect();
    let write = "let the order service write a key for each order, to expire at its deadline: they are the second witness of it, and \
                 close orders on time if the table has no index";
    if others.is_empty() {
        return write.into();
    }
    format!(
        "name the database with the keys at the end of redis.url; there are keys with a TTL in {}. If nobody writes any: {write}",
        others.join(" and ")
    )
}

/// A number's own digits are no prefix of it.
pub(in crate::cli) fn is_prefix(text: &str) -> bool {
    text.ends_with(|last: char| !last.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::offset;

    #[test]
    fn an_offset_is_read_from_what_names_a_zone() {
        for (zone, minutes) in [
            ("+08:00 (the server's own)", Some(480)),
            ("-03:30 (database.time_zone)", Some(-210)),
            ("SYSTEM (UTC) (the server's own)", Some(0)),
            ("UTC", Some(0)),
            ("Asia/Shanghai (the server's own)", None),
            ("SYSTEM (CET) (the server's own)", None),
        ] {
            assert_eq!(offset(zone), minutes, "{zone}");
        }
    }
}
