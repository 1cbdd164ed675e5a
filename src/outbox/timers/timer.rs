//! What a timer is, how one is asked for, and what comes of that.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::config::Span;

/// When a timer is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// In microseconds since 1970 UTC.
    At(i64),
    /// So long after the database's clock when it is written.
    In(Duration),
}

impl Due {
    /// What these two members of a JSON object say together, of which there must be one; a text is quoted nowhere, since it may be
    /// anything.
    ///
    /// # Errors
    /// Says what would be right.
    pub fn read(due: Option<&str>, after: Option<&str>) -> Result<Self, String> {
        match (due, after) {
            (Some(due), None) => {
                let micros = humantime::parse_rfc3339(due).ok().and_then(micros_of);
                micros.map(Self::At).ok_or_else(|| "due is no time in UTC from 1970 on, such as \"2030-01-31T12:00:00Z\"".into())
            }
            (None, Some(after)) => after.parse::<Span>().map(|span| Self::In(span.get())).map_err(|error| format!("in {error}")),
            (Some(_), Some(_)) => Err("due and in can't be given together".into()),
            (None, None) => Err("due is missing, such as \"2030-01-31T12:00:00Z\"; or in, such as \"30m\"".into()),
        }
    }

    /// When whoever has taken a timer wants to be told again, by the body of his answer; most say nothing of it. A time that has
    /// passed is now.
    ///
    /// # Errors
    /// Says what would be right.
    pub fn answered(body: &[u8]) -> Result<Option<Self>, String> {
        #[derive(Deserialize)]
        struct Wish {
            due: Option<String>,
            r#in: Option<String>,
        }
        match serde_json::from_slice::<serde_json::Value>(body) {
            Ok(serde_json::Value::Object(wish)) if wish.contains_key("due") || wish.contains_key("in") => {
                let wish = serde_json::from_value::<Wish>(wish.into()).map_err(|_| "due and in take texts")?;
                Ok(Some(match Self::read(wish.due.as_deref(), wish.r#in.as_deref())? {
                    Self::At(due) if Some(due) < micros_of(SystemTime::now()) => Self::In(Duration::ZERO),
                    due @ (Self::At(_) | Self::In(_)) => due,
                }))
            }
            Ok(_) | Err(_) => Ok(None),
        }
    }
}

/// A timer that is to be registered.
#[derive(Debug, Clone)]
pub struct NewTimer {
    /// What it is about.
    pub kind: String,
    /// Which one of that kind.
    pub key: String,
    /// When it is due.
    pub due: Due,
    /// Who is told then.
    pub target: String,
    /// What is given along: a JSON object.
    pub data: Box<RawValue>,
    /// Which registration of this timer it is.
    pub generation: i64,
}

/// Since 1970 UTC.
fn micros_of(time: SystemTime) -> Option<i64> {
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()
}

/// What is before 1971 is taken for no time, as of orders.
const EARLIEST: i64 = 31_536_000_000_000;

/// As the table has it: the longest kind, key and target, in characters, and data, in bytes.
const LONGEST: [(&str, usize); 3] = [("kind", 64), ("key", 255), ("target", 64)];
const LONGEST_DATA: usize = 65_536;

impl NewTimer {
    /// The same, if one of these targets is to be told, if the table takes it, and if it fires: what has been due for longer than
    /// `oldest` does not.
    ///
    /// # Errors
    /// Says what would be right.
    pub fn checked(self, targets: &[String], oldest: Option<Duration>) -> Result<Self, String> {
        if !targets.contains(&self.target) {
            return Err(format!("target {:?} is not in the configuration, which has {}", self.target, targets.join(", ")));
        }
        if let Due::At(due) = self.due {
            let long_ago = SystemTime::now().checked_sub(oldest.unwrap_or(Duration::MAX)).unwrap_or(UNIX_EPOCH);
            let long_ago = micros_of(long_ago).unwrap_or_default().max(EARLIEST);
            if due < long_ago {
                let setting = oldest.map_or_else(String::new, |oldest| format!(" (sweep.oldest is {})", Span::from(oldest)));
                return Err(format!("due is so long ago that nothing of that age fires{setting}"));
            }
        }
        for ((name, longest), text) in LONGEST.into_iter().zip([&self.kind, &self.key, &self.target]) {
            if text.is_empty() || text.chars().count() > longest || text.contains(char::is_control) {
                return Err(format!("{name} is no text of 1 to {longest} characters without control characters"));
            }
        }
        if !self.data.get().starts_with('{') || self.data.get().len() > LONGEST_DATA {
            return Err(format!("data is no JSON object of {LONGEST_DATA} bytes at the most"));
        }
        // As deep as it lies in what is told of it: a reader of JSON gives up at some depth, at some numbers, at half a character.
        serde_json::from_str::<serde_json::Value>(&format!("[[[{}]]]", self.data.get())).map_err(|error| format!("data: {error}"))?;
        Ok(self)
    }
}

/// Which timer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimerName {
    /// What it is about.
    pub kind: String,
    /// Which one of that kind.
    pub key: String,
}

/// What a timer waits for, or has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimerState {
    /// It fires when it is due.
    Armed,
    /// It has fired; its target is told, or will be.
    Fired,
    /// It does not fire.
    Cancelled,
}

impl TimerState {
    /// As the table has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Armed => "armed",
            Self::Fired => "fired",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A timer. Times are in microseconds since 1970 UTC.
#[derive(Debug, Clone)]
pub struct Timer {
    /// The id of its row.
    pub id: String,
    /// What it is about.
    pub kind: String,
    /// Which one of that kind.
    pub key: String,
    /// What has become of it.
    pub state: TimerState,
    /// When it is due, or was.
    pub due: i64,
    /// When it fired last.
    pub fired_at: Option<i64>,
    /// Who is told.
    pub target: String,
    /// What is given along.
    pub data: Box<RawValue>,
    /// Which registration of it this is.
    pub generation: i64,
    /// The database's clock when it was read.
    pub now: i64,
}

/// What came of a registration.
#[derive(Debug, Clone)]
pub struct Registered {
    /// The timer as it is now.
    pub timer: Timer,
    /// Whether there was none of this kind and key before.
    pub is_new: bool,
    /// Whether a later generation was registered before, and nothing has changed.
    pub is_older: bool,
}

/// What came of a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It will not fire.
    Yes,
    /// It has fired, at this time in microseconds since 1970 UTC.
    Fired(i64),
    /// There is no such timer.
    Unknown,
}

/// A timer that has fired and is to be armed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rearmed {
    /// Its id.
    pub timer: String,
    /// The time for which it has fired: if it is another by now, it was registered anew, and stays as that says.
    pub fired_for: i64,
    /// When it is due now.
    pub due: Due,
}
