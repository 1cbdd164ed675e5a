//! What Redis and the rows say of each other: which prefix the orders' keys have, and in which zone their deadlines are written.

use std::time::Duration;

use crate::{
    cli::check::{is_prefix, zone_apart},
    config::{self, KeyPrefix},
    order::Row,
    redis::{Commands, Expiry, PATIENCE},
    store::Store,
    trigger::Difference,
};

/// How long Redis may take to be reached.
const REACH: Duration = Duration::from_secs(3);

/// So many keys have to agree.
const ENOUGH: usize = 3;

const MINUTE: i64 = 60_000_000;

/// Redis, if it can be reached.
pub(super) async fn connect(redis: &config::Redis) -> Option<Commands> {
    tokio::time::timeout(REACH, Commands::connect(redis)).await.ok()?.ok()
}

/// A prefix that makes keys of some of these ids, each in a list of its own: the place of the list, and the prefix.
pub(super) async fn prefix(commands: &Commands, ids: &[Vec<String>]) -> Option<(usize, String)> {
    let keys = commands.some_keys().await.ok()?;
    let of_list = |(at, ids): (usize, &Vec<String>)| {
        let of_key =
            |key: &String| ids.iter().find_map(|id| key.strip_suffix(id.as_str()).filter(|prefix| is_prefix(prefix)).map(str::to_owned));
        let found: Vec<String> = keys.iter().filter_map(of_key).collect();
        let count = |prefix: &String| found.iter().filter(|other| *other == prefix).count();
        let best = found.iter().max_by_key(|prefix| count(prefix))?;
        Some((count(best), at, best.clone()))
    };
    ids.iter().enumerate().filter_map(of_list).max_by_key(|(count, ..)| *count).map(|(_, at, prefix)| (at, prefix))
}

/// By how much the keys of these orders expire after what their rows call their deadline.
pub(super) async fn difference(commands: &Commands, prefix: &KeyPrefix, rows: &[Row]) -> Option<Difference> {
    let prefix = prefix.get()?;
    let known: Vec<&Row> = rows.iter().filter(|row| row.deadline.is_some()).collect();
    let names: Vec<String> = known.iter().map(|row| format!("{prefix}{}", row.id)).collect();
    let expiries = commands.expiries(&names, PATIENCE).await.ok()?;
    let later = |(row, expiry): (&&Row, &Expiry)| match expiry {
        Expiry::At(at) => Some(at - row.deadline?),
        Expiry::Never | Expiry::NoKey | Expiry::Unknown => None,
    };
    let found: Vec<i64> = known.iter().zip(&expiries.keys).filter_map(later).collect();
    if found.len() < ENOUGH { None } else { Difference::of(found) }
}

/// A length of time that is the same for all, in whole minutes and no longer than a day: the time limit, where the column holds
/// the time of creation.
pub(super) fn time_limit(difference: &Difference) -> Option<Duration> {
    let micros = difference.constant()?;
    let minutes = (micros + MINUTE / 2) / MINUTE;
    let is_whole = (micros - minutes * MINUTE).abs() < MINUTE / 12;
    (is_whole && (1..=24 * 60).contains(&minutes)).then(|| Duration::from_secs(minutes.unsigned_abs() * 60))
}

/// The zone in which deadlines are written, where keys differ from them by what zones differ.
pub(super) fn zone(store: &dyn Store, difference: &Difference) -> Option<String> {
    zone_apart(&store.time_zone(), difference.zones_apart().filter(|_| store.zone_matters())?)
}

/// The zone in which times of creation are written, where the newest are in the future by more than a few minutes.
pub(super) fn zone_of_newest(store: &dyn Store, rows: &[Row]) -> Option<String> {
    const HALF_AN_HOUR: i64 = 30;
    let ahead = rows.iter().filter_map(Row::remaining).max().filter(|_| store.zone_matters())? / MINUTE;
    // The newest is a few seconds or minutes old.
    let apart = (ahead + HALF_AN_HOUR - 1) / HALF_AN_HOUR * HALF_AN_HOUR;
    if ahead > 5 && apart <= 14 * 60 { zone_apart(&store.time_zone(), -apart) } else { None }
}
