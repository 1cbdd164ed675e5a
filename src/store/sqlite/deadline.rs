//! How the deadline column holds a point in time, and how it is compared with the clock.
//!
//! SQLite has no type for times. Text is taken for one only if it begins with a date: SQLite itself would
//! take `12:00` for a time in the year 2000, and close at once. It also reads a text no further than to a NUL.

use crate::{
    config::{EpochUnit, Rule, TimeZone},
    store::{
        Misfit,
        mapping::{EARLIEST_DEADLINE_SECS, EARLIEST_DEADLINE_TEXT, LATEST_DEADLINE_MICROS},
    },
};

/// The statement's beginning in microseconds since 1970; SQLite's clock counts milliseconds.
pub(in crate::store) const NOW: &str = "(CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000)";

/// The most seconds by which two zones differ, from -12:00 to +14:00.
const WIDEST: i64 = 26 * 3_600;

/// What SQLite passes over at the end of a time.
const BLANKS: &str = "char(9, 10, 11, 12, 13, 32)";

/// How the deadline column holds a point in time; `column` is its quoted name.
#[derive(Debug)]
pub(super) enum DeadlineColumn {
    /// As text, in a zone so many seconds east of UTC unless the text has its own.
    Text { column: String, east: i64 },
    /// As a number since 1970.
    Epoch { column: String, unit: EpochUnit },
}

impl DeadlineColumn {
    /// `declared` is the column's type, `name` its quoted name.
    pub(super) fn new(declared: &str, name: &str, rule: &Rule, time_zone: Option<&TimeZone>) -> Result<Self, Misfit> {
        let deadline = &rule.deadline;
        let misfit = |what: &str| Err(Misfit(format!("orders.deadline: the column {} is {declared}: {what}", deadline.column)));
        let (upper, column) = (declared.to_ascii_uppercase(), name.to_owned());
        let is_text = ["CHAR", "CLOB", "TEXT"].iter().any(|part| upper.contains(part));
        match deadline.unit {
            Some(_) if is_text && !upper.contains("INT") => misfit("it holds text and no number, so unit must be left out"),
            Some(unit) => Ok(Self::Epoch { column, unit }),
            None if upper.contains("INT") => {
                misfit("say what it counts since 1970, unit = \"s\" for seconds or unit = \"ms\" for milliseconds")
            }
            None => Ok(Self::Text { column, east: east_of_utc(time_zone)? }),
        }
    }

    /// The deadline in microseconds since 1970, or NULL if the row has none.
    pub(super) fn micros(&self, plus: i64) -> String {
        let (condition, micros) = match self {
            Self::Text { column, east } => {
                let own_zone = own_zone(column);
                let zone = if *east == 0 { String::new() } else { format!(" - CASE WHEN {own_zone} THEN 0 ELSE {east} * 1000000 END") };
                (
                    format!(
                        "typeof({column}) = 'text' AND {column} >= '{EARLIEST_DEADLINE_TEXT}' \
                         AND substr({column}, 8, 1) = '-' AND (substr({column}, 14, 1) = ':' OR length({column}) = 10) \
                         AND octet_length({column}) = length({column})"
                    ),
                    format!(
                        // SQLite rounds to milliseconds; what has a finer fraction counts as the next one.
                        "CAST(round(unixepoch({column}, 'subsec') * 1000) AS INTEGER) * 1000 \
                         + CASE WHEN length({column}) > 23 AND substr({column}, 24, 1) BETWEEN '0' AND '9' AND substr({column}, 20, 1) = '.' \
                         THEN 1000 ELSE 0 END{zone}"
                    ),
                )
            }
            Self::Epoch { column, unit } => {
                let scaled = format!("{column} * {}", unit.micros());
                (
                    format!("typeof({column}) IN ('integer', 'real') AND {column} >= {}", earliest(*unit)),
                    // Rounded up; what exceeds an integer is a real to SQLite, and no error.
                    format!("CAST({scaled} AS INTEGER) + ({scaled} > CAST({scaled} AS INTEGER))"),
                )
            }
        };
        format!("CASE WHEN {condition} THEN CAST(min({micros} + {plus}, {LATEST_DEADLINE_MICROS}) AS INTEGER) END")
    }

    /// Conditions that together find the rows whose deadline is real and from ?2 to ?1 microseconds away, none of them
    /// twice. The column stands bare, so that an index on it serves, from `last` on if that is given.
    pub(super) fn within(&self, plus: i64, last: Option<&str>) -> Vec<String> {
        // Of several lower bounds SQLite would take any for the index.
        let from = |otherwise: String| last.map_or(otherwise, ToOwned::to_owned);
        match self {
            Self::Text { column, east } => {
                let bound = |format: &str, away: &str, less: i64| {
                    format!("strftime('{format}', ({NOW} + {away} - {plus}) / 1000000 + {east} - {less}, 'unixepoch')")
                };
                let (blank, tee, end) = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "Z");
                let exactly = format!("{} BETWEEN {NOW} + ?2 AND {NOW} + ?1", self.micros(plus));
                // What has a zone of its own may read as up to so much earlier; what has none is not worth a second look.
                // A mere date comes before its own midnight.
                let earlier = |format: &str| format!("max('{EARLIEST_DEADLINE_TEXT}', {})", bound(format, "?2", WIDEST));
                let worth = |format: &str| format!("({column} >= {} OR {})", bound(format, "?2", 1), own_zone(column));
                vec![
                    // 'T' comes after ' ', so this reads what was written with a T on the days before, too. 'Z'
                    // comes after whatever may follow the seconds.
                    format!(
                        "{column} >= {} AND {column} <= {} || '{end}' AND {} AND {exactly}",
                        from(earlier(blank)),
                        bound(blank, "?1", 0),
                        worth(blank)
                    ),
                    // With a T, on the bound's own day.
                    format!(
                        "{column} >= {} AND {column} <= {} || '{end}' AND {} AND {exactly}",
                        from(format!("max({}, {})", earlier(tee), bound("%Y-%m-%dT", "?1", 0))),
                        bound(tee, "?1", 0),
                        worth(tee)
                    ),
                ]
            }
            Self::Epoch { column, unit } => {
                let bound = |away: &str| format!("({NOW} + {away} - {plus}) / {}.0", unit.micros());
                let from = from(format!("max({}, {})", earliest(*unit), bound("?2")));
                vec![format!("{column} >= {from} AND {column} <= {}", bound("?1"))]
            }
        }
    }

    /// The condition that the column's text has a zone of its own further east than ours: [`Self::within`] goes by the
    /// text, and finds it as much later.
    pub(super) fn east_of_sweep(&self) -> Option<String> {
        match self {
            Self::Text { column, east } => {
                Some(format!("{} AND unixepoch(substr({column}, 1, 16)) - unixepoch({column}) > {east}", own_zone(column)))
            }
            Self::Epoch { .. } => None,
        }
    }

    /// The condition that the column holds a text that means no time, and does not say "none" as an empty one and a zero
    /// date do.
    pub(super) fn unreadable(&self) -> Option<String> {
        let Self::Text { column, .. } = self else { return None };
        let none = format!("trim({column}, {BLANKS}) = '' OR substr({column}, 5, 1) = '-' AND {column} < '{EARLIEST_DEADLINE_TEXT}'");
        Some(format!("typeof({column}) = 'text' AND {} IS NULL AND NOT ({none})", self.micros(0)))
    }

    /// The condition that white space stands after the column's text, and the assignment that takes it away.
    pub(super) fn untrimmed(&self) -> Option<(String, String)> {
        let Self::Text { column, .. } = self else { return None };
        let trimmed = format!("rtrim({column}, {BLANKS})");
        Some((format!("{} IS NOT NULL AND {column} <> {trimmed}", self.micros(0)), format!("{column} = {trimmed}")))
    }

    /// ?4, the column's text from a [`crate::store::Cursor`], as a value to compare the column with.
    pub(super) fn cursor(&self) -> &'static str {
        match self {
            Self::Text { .. } => "?4",
            Self::Epoch { .. } => "CAST(?4 AS NUMERIC)",
        }
    }

    /// The column's text for a cursor, from which the same value can be had again.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Text { column, .. } => format!("CAST({column} AS TEXT)"),
            Self::Epoch { column, .. } => {
                format!("CASE typeof({column}) WHEN 'real' THEN printf('%!.17g', {column}) ELSE CAST({column} AS TEXT) END")
            }
        }
    }

    /// Whether the column's text has no zone of its own.
    pub(super) fn is_local(&self) -> bool {
        matches!(self, Self::Text { .. })
    }
}

/// The condition that a text which SQLite reads has a zone of its own. It is asked for by giving it one more, which SQLite
/// takes only after a time that has none: what stands at the end of the text would have to be guessed, for SQLite passes
/// over white space there. (A date takes no zone.)
fn own_zone(column: &str) -> String {
    format!("length({column}) > 10 AND unixepoch({column} || 'Z') IS NULL")
}

fn earliest(unit: EpochUnit) -> i64 {
    EARLIEST_DEADLINE_SECS * 1_000_000 / unit.micros()
}

/// Seconds east of UTC of the zone in which times are written.
fn east_of_utc(zone: Option<&TimeZone>) -> Result<i64, Misfit> {
    match zone {
        // SQLite's own CURRENT_TIMESTAMP is UTC.
        None => Ok(0),
        Some(TimeZone::Offset(minutes)) => Ok(i64::from(*minutes) * 60),
        Some(TimeZone::Named(name)) if ["UTC", "Etc/UTC", "GMT"].iter().any(|utc| utc.eq_ignore_ascii_case(name)) => Ok(0),
        Some(zone) => Err(Misfit(format!(
            "database.time_zone is {zone}, but SQLite knows no zones by name; write an offset such as \"+08:00\", or \"UTC\""
        ))),
    }
}
