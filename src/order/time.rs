//! Times as people and protocols write them.

use std::time::{Duration, UNIX_EPOCH};

/// The last microsecond that RFC 3339 can write.
const LAST: i64 = 253_402_300_799_999_999;

/// A time in microseconds since 1970 UTC, as `2030-01-31T12:00:00.123456Z`; what lies outside the years 1970 to
/// 9999 is cut to them.
#[must_use]
pub fn rfc3339(micros: i64) -> String {
    let since = Duration::from_micros(micros.clamp(0, LAST).unsigned_abs());
    humantime::format_rfc3339_micros(UNIX_EPOCH + since).to_string()
}
