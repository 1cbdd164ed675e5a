//! Lengths of time with their units, parsed as they are read. Their errors are sentences without a
//! subject, as those of `values`.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// The longest length of time that is taken, 100 years: with it every clock and every database can still reckon.
const LONGEST: Duration = Duration::from_hours(100 * 8_766);

/// A length of time with its unit: `"30s"`, `"5m"`, `"1500ms"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub struct Span(Duration);

impl Span {
    /// A span of whole seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// The span as a [`Duration`].
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

/// In nanoseconds.
const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl From<Duration> for Span {
    fn from(time: Duration) -> Self {
        Self(time)
    }
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let span = humantime::parse_duration(text).map_err(|_| "is not a length of time such as \"30s\", \"5m\" or \"500ms\"")?;
        if span > LONGEST {
            return Err("is longer than 100 years".into());
        }
        Ok(Self(span))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl serde::de::Visitor<'_> for Visitor {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length of time with its unit, such as \"5s\", \"30m\" or \"500ms\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Visitor)
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        span.to_string()
    }
}

/// As it is written in settings: "90d", "1h 30m". humantime counts months of 30.44 days.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_nanos();
        if rest == 0 {
            return f.write_str("0s");
        }
        let mut gap = "";
        for (unit, length) in UNITS {
            if rest >= length {
                write!(f, "{gap}{}{unit}", rest / length)?;
                gap = " ";
            }
            rest %= length;
        }
        Ok(())
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// For how long an order may have been overdue, or `none`: for however long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Oldest(Option<Span>);

impl Oldest {
    /// The longest, if there is one.
    #[must_use]
    pub fn get(self) -> Option<Duration> {
        self.0.map(Span::get)
    }
}

impl Default for Oldest {
    fn default() -> Self {
        Self(Some(Span::from_secs(30 * 86_400)))
    }
}

impl std::str::FromStr for Oldest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        text.parse().map(|span| Self(Some(span))).map_err(|error: String| format!("{error}; \"none\" sets no limit"))
    }
}

impl<'de> Deserialize<'de> for Oldest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl serde::de::Visitor<'_> for Visitor {
            type Value = Oldest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length of time with its unit, such as \"30d\", or \"none\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Oldest, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Visitor)
    }
}

impl From<Oldest> for String {
    fn from(oldest: Oldest) -> Self {
        oldest.to_string()
    }
}

impl fmt::Display for Oldest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(span) => span.fmt(f),
            None => f.write_str("none"),
        }
    }
}
