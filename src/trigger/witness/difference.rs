//! By how much rows and keys differ, and which setting would explain it.

use std::{fmt, time::Duration};

use crate::config::Span;

/// Differences that are all within this are one.
const SPREAD: i64 = 30 * SECOND;

/// How far from a whole number of quarters or minutes a difference may be: order services round, and are slow now and then.
const NEARLY: i64 = 10 * SECOND;

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const DAY: i64 = 24 * 60 * MINUTE;

/// Zones lie between twelve hours west of Greenwich and fourteen east of it.
const FURTHEST_ZONES: i64 = 26 * 60 * MINUTE;

/// Nobody lets an order wait for its payment any longer.
const LONGEST_PLUS: i64 = 31 * DAY;

/// What of the mapping may explain a difference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Whether the deadline column has no zone of its own.
    pub zone_matters: bool,
    /// `orders.deadline.plus`.
    pub plus: Option<Duration>,
}

/// By how much keys expire later than their rows' deadlines, or earlier, as most of them do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    typical: i64,
    least: i64,
    greatest: i64,
}

impl Difference {
    /// Of these microseconds, each for one order; the few that are far from the others are left out.
    #[must_use]
    pub fn of(mut micros: Vec<i64>) -> Option<Self> {
        micros.sort_unstable();
        let few = micros.len() / 20;
        let typical = *micros.get(micros.len() / 2)?;
        Some(Self { typical, least: micros[few], greatest: micros[micros.len() - 1 - few] })
    }

    /// The greatest of them.
    #[must_use]
    pub fn greatest(&self) -> i64 {
        self.greatest
    }

    /// The one that they all are, if they are.
    #[must_use]
    pub fn constant(&self) -> Option<i64> {
        (self.greatest - self.least <= SPREAD).then_some(self.typical)
    }

    /// How far west of the zone in which times are read that lies in which they seem to be written, in minutes (east, if less
    /// than none).
    #[must_use]
    pub fn zones_apart(&self) -> Option<i64> {
        let quarters = whole(self.constant()?, 15 * MINUTE)?;
        (quarters != 0 && quarters.abs() <= FURTHEST_ZONES).then_some(quarters / MINUTE)
    }

    /// What `plus` would have to be, if that is the cause.
    fn plus(&self, mapping: &Mapping) -> Option<Duration> {
        let set = mapping.plus.map_or(0, |plus| i64::try_from(plus.as_micros()).unwrap_or(i64::MAX));
        let plus = whole(set.checked_add(self.constant()?)?, MINUTE)?;
        // People count in fives.
        let plausible = plus > 0 && plus <= LONGEST_PLUS && (plus <= 10 * MINUTE || plus % (5 * MINUTE) == 0);
        plausible.then(|| Duration::from_micros(plus.unsigned_abs()))
    }

    /// Which setting would explain it.
    #[must_use]
    pub fn advice(&self, mapping: &Mapping) -> String {
        let mut causes = Vec::new();
        if let Some(minutes) = self.zones_apart().filter(|_| mapping.zone_matters) {
            let (side, apart) = if minutes > 0 { ("west", minutes) } else { ("east", -minutes) };
            causes.push(format!(
                "set database.time_zone to the zone in which the shop writes deadlines, which seems to be {} {side} of the one in which \
                 they are read",
                span(apart * MINUTE)
            ));
        }
        if let Some(plus) = self.plus(mapping) {
            let plus = Span::from(plus);
            causes.push(match mapping.plus {
                None => format!("set plus = \"{plus}\" in orders.deadline, if its column holds the time of creation"),
                Some(_) => format!("set plus = \"{plus}\" in orders.deadline"),
            });
        }
        if self.typical > 0 {
            causes.push("set orders.disputed = \"close\", if keys outlive the deadline on purpose".into());
        } else if causes.is_empty() {
            causes.push("see that the order service writes each key to expire at the deadline in the row".into());
        }
        causes.join("; or ")
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.constant() {
            Some(constant) => f.write_str(&span(constant)),
            None => write!(f, "{} to {}", span(self.least), span(self.greatest)),
        }
    }
}

/// The multiple of `unit` that this nearly is.
fn whole(micros: i64, unit: i64) -> Option<i64> {
    let nearest = (micros.checked_add(unit / 2)?).div_euclid(unit) * unit;
    ((micros - nearest).abs() <= NEARLY).then_some(nearest)
}

/// Seconds are exact enough, and whole minutes where they are nearly that.
fn span(micros: i64) -> String {
    let rounded = whole(micros, MINUTE).unwrap_or(micros / SECOND * SECOND);
    let sign = if rounded < 0 { "-" } else { "" };
    format!("{sign}{}", Span::from(Duration::from_micros(rounded.unsigned_abs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 60 * MINUTE;

    fn advice(micros: Vec<i64>, zone_matters: bool, plus: Option<u64>) -> (String, String) {
        let difference = Difference::of(micros).expect("some");
        let mapping = Mapping { zone_matters, plus: plus.map(Duration::from_mins) };
        (difference.to_string(), difference.advice(&mapping))
    }

    #[test]
    fn the_setting_that_explains_a_difference_is_named_first() {
        let eight_hours = || vec![8 * HOUR - 3 * SECOND, 8 * HOUR - SECOND, 8 * HOUR, 8 * HOUR + SECOND];
        let (by, named) = advice(eight_hours(), true, Some(30));
        assert_eq!(by, "8h");
        assert!(named.starts_with("set database.time_zone") && named.contains("8h west"), "{named}");
        let (by, named) = advice(vec![-HOUR * 11 / 2; 20], true, None);
        assert!(by == "-5h 30m" && named.contains("5h 30m east") && !named.contains("disputed"), "{by}: {named}");
        let (_, named) = advice(vec![30 * MINUTE; 20], false, None);
        assert!(named.starts_with("set plus = \"30m\"") && named.contains("time of creation"), "{named}");
        let (_, named) = advice(vec![30 * MINUTE; 20], false, Some(15));
        assert!(named.starts_with("set plus = \"45m\""), "{named}");
        let (_, named) = advice(vec![30 * MINUTE; 20], true, None);
        assert!(named.contains("time_zone") && named.contains("plus = \"30m\""), "either: {named}");
    }

    #[test]
    fn keys_that_outlive_deadlines_by_odd_or_different_lengths_do_so_on_purpose() {
        for micros in [vec![37 * MINUTE + 21 * SECOND; 20], (1..40).map(|hours| hours * HOUR / 3).collect()] {
            let (by, named) = advice(micros, true, None);
            assert!(named.starts_with("set orders.disputed = \"close\""), "{by}: {named}");
        }
    }

    #[test]
    fn a_few_orders_of_their_own_change_nothing() {
        let mut micros = vec![2 * HOUR; 60];
        micros.extend([90 * DAY, 0]);
        assert_eq!(Difference::of(micros).and_then(|difference| difference.constant()), Some(2 * HOUR));
    }
}
