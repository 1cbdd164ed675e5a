//! What `check` says of deadlines: how they are understood, and what is overdue.

use std::time::{Duration, UNIX_EPOCH};

use crate::{
    cli::check::Finding,
    config::{Config, EpochUnit},
    order::{Row, rfc3339},
    store::{Catalogue, DueQuery, OddDeadlines, Oddity, SampleDeadline, Store, StoreError, Window},
};

/// So many overdue orders are counted at the most: without an index each costs as much as the whole table.
const COUNTED: usize = 10_000;

/// What has been overdue for longer than this no daemon has closed.
const LONG: Duration = Duration::from_hours(1);

pub(super) async fn examine(config: &Config, store: &dyn Store, catalogue: &Catalogue) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(unit(config, catalogue).or_else(|| sample(config, catalogue)));
    findings.extend(catalogue.swept_late.as_ref().map(|late| swept_late(config, late)));
    findings.extend(catalogue.odd_deadlines.iter().map(|odd| odd_deadlines(config, odd)));
    // A table that is too large to be read in time has no index, and that is said elsewhere.
    findings.extend(overdue(config, store).await.unwrap_or_default());
    findings
}

/// What a daemon closes when it starts, and what it leaves alone.
async fn overdue(config: &Config, store: &dyn Store) -> Result<Vec<Finding>, StoreError> {
    const NAME: &str = "overdue orders";
    let limit = u32::try_from(COUNTED + 1).unwrap_or(u32::MAX);
    let read = async |window| Ok(Overdue::of(&store.due(&DueQuery::of(window, limit)).await?.rows));
    let mut findings = Vec::new();
    let oldest = config.sweep.oldest;
    if let Some(Overdue { count, since, lasts }) = read(Window::overdue(oldest.get())).await? {
        let found = format!("{count} since {since}; a daemon closes them as soon as it starts");
        findings.push(if lasts < LONG {
            Finding::ok(NAME, found)
        } else {
            let fix =
                "start it, or run: order-closer reconcile; if they are not to be closed, set sweep.oldest or orders.filter before that";
            Finding::warn(NAME, found, fix)
        });
    }
    if let Some(longest) = oldest.get()
        && let Some(Overdue { count, since, .. }) = read(Window::older(longest)).await?
    {
        let found = format!("{count} since {since}; overdue for more than {oldest} (sweep.oldest), and left alone");
        findings.push(Finding::warn(NAME, found, "order-closer reconcile --oldest none"));
    }
    Ok(findings)
}

/// Orders that are overdue.
struct Overdue {
    /// How many, in words.
    count: String,
    /// The first of their deadlines.
    since: String,
    /// For how long that is past.
    lasts: Duration,
}

impl Overdue {
    /// Nothing of none.
    fn of(rows: &[Row]) -> Option<Self> {
        let first = rows.iter().filter(|row| row.deadline.is_some()).min_by_key(|row| row.deadline)?;
        let micros = first.remaining().unwrap_or_default().min(0).unsigned_abs();
        let count = if rows.len() > COUNTED { "more than 10,000".into() } else { rows.len().to_string() };
        Some(Self { count, since: rfc3339(first.deadline.unwrap_or_default()), lasts: Duration::from_micros(micros) })
    }
}

/// A whole number that counts something else than it is taken for, by most of the samples.
fn unit(config: &Config, catalogue: &Catalogue) -> Option<Finding> {
    let configured = config.orders.deadline.unit?;
    // 0 is mostly none.
    let number = |sample: &SampleDeadline| sample.stored.parse().ok().filter(|number: &i64| *number > 0);
    let numbers: Vec<(&str, i64)> = catalogue.samples.iter().filter_map(|sample| Some((sample.id.as_str(), number(sample)?))).collect();
    let looks_like = |unit: EpochUnit| numbers.iter().filter(move |(_, number)| LIKELY.contains(&(number / (1_000_000 / unit.micros()))));
    let other = match configured {
        EpochUnit::Seconds => EpochUnit::Milliseconds,
        EpochUnit::Milliseconds => EpochUnit::Seconds,
        // Only our own tables have them.
        EpochUnit::Microseconds => return None,
    };
    let (id, number) = looks_like(other).next().filter(|_| looks_like(other).count() * 2 > numbers.len())?;
    let [(taken_for, _), (meant, unit)] = [configured, other].map(|unit| match unit {
        EpochUnit::Seconds => ("seconds", "s"),
        EpochUnit::Milliseconds => ("milliseconds", "ms"),
        EpochUnit::Microseconds => ("microseconds", "us"),
    });
    let year = 1970 + number / (1_000_000 / configured.micros()) / SECONDS_OF_A_YEAR;
    let column = &config.orders.deadline.column;
    Some(Finding::warn(
        "unit",
        format!("the values of {column} look like {meant}: order {id} has {number}, which as {taken_for} is in the year {year}"),
        format!("orders.deadline.unit = \"{unit}\""),
    ))
}

/// Deadlines of shops that are in use, in seconds since 1970: the years 2001 to 2100.
const LIKELY: std::ops::Range<i64> = 1_000_000_000..4_102_444_800;

const SECONDS_OF_A_YEAR: i64 = 31_556_952;

/// A deadline both ways: as it stands in the table, and as it is understood.
fn sample(config: &Config, catalogue: &Catalogue) -> Option<Finding> {
    const NAME: &str = "sample deadline";
    let sample = catalogue.samples.first()?;
    let (column, id, stored) = (&config.orders.deadline.column, &sample.id, &sample.stored);
    let Some(deadline) = sample.deadline else {
        return Some(Finding::warn(
            NAME,
            format!("order {id}: {column} is {stored}, which is no deadline: it is never due"),
            "if that is meant as one, see orders.deadline (unit, column) in the configuration",
        ));
    };
    let away = Duration::from_secs(deadline.abs_diff(catalogue.clock.micros) / 1_000_000);
    let when = if deadline <= catalogue.clock.micros { "ago" } else { "from now" };
    let plus = config.orders.deadline.plus.map_or_else(String::new, |plus| format!(" plus {plus}"));
    let utc = u64::try_from(deadline).ok().and_then(|micros| UNIX_EPOCH.checked_add(Duration::from_micros(micros)));
    let utc = utc
        .filter(|_| deadline < YEAR_10000_MICROS)
        .map_or_else(|| "far in the future".into(), |time| humantime::format_rfc3339_millis(time).to_string());
    Some(Finding::ok(
        NAME,
        format!("order {id}: {column} is {stored}{plus}, understood as {utc} (UTC), {} {when}", humantime::format_duration(away)),
    ))
}

/// The first moment that RFC 3339 can't write.
const YEAR_10000_MICROS: i64 = 253_402_300_800_000_000;

/// A text with a zone of its own is judged rightly, but not found in time.
fn swept_late(config: &Config, late: &SampleDeadline) -> Finding {
    let SampleDeadline { id, stored, .. } = late;
    let column = &config.orders.deadline.column;
    let zone = config.database.time_zone.as_ref().map_or_else(|| "UTC".into(), ToString::to_string);
    Finding::fail(
        "sample deadline",
        format!("order {id}: {column} is {stored}, which the sweep, going by {zone}, finds hours after it is due"),
        format!("set database.time_zone to the easternmost offset in {column}; what has an offset of its own is read by that all the same"),
    )
}

/// Texts that are no times, and times with something after them.
fn odd_deadlines(config: &Config, odd: &OddDeadlines) -> Finding {
    let OddDeadlines { oddity, count, id, stored } = odd;
    let (column, plural) = (&config.orders.deadline.column, if *count == 1 { "" } else { "s" });
    let (what, fix) = match oddity {
        Oddity::Unreadable => (
            "is a text that means no time, and is never due,",
            format!(
                "write {column} as YYYY-MM-DD HH:MM:SS, with an offset such as +08:00 or Z where it is in another zone than database.time_zone"
            ),
        ),
        Oddity::Untrimmed { trim } => ("has white space after it, which is passed over,", trim.clone()),
    };
    Finding::warn("deadline texts", format!("{column} {what} in {count} unpaid order{plural}, such as order {id}: {stored:?}"), fix)
}
