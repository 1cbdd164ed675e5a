//! How many questions are answered in a second. Probes and metrics are not counted: whoever watches must see, most of all while
//! others ask too much.
//!
//! Callers with the token and those without take nothing from each other, so that whoever tries tokens keeps nobody from
//! asking who has it.

use std::num::NonZeroU32;

use axum::http::StatusCode;
use governor::{
    DefaultDirectRateLimiter, Quota,
    clock::{Clock, DefaultClock},
};

use super::Refusal;

/// Questions a second with the token, and so many at once after a silence.
const CALLERS: (NonZeroU32, NonZeroU32) = (NonZeroU32::new(100).unwrap(), NonZeroU32::new(200).unwrap());

/// The same of those who have no token, or another one.
const STRANGERS: (NonZeroU32, NonZeroU32) = (NonZeroU32::new(5).unwrap(), NonZeroU32::new(20).unwrap());

/// The limits, for all connections together.
#[derive(Debug)]
pub(super) struct Limits {
    callers: DefaultDirectRateLimiter,
    strangers: DefaultDirectRateLimiter,
}

impl Default for Limits {
    fn default() -> Self {
        let limiter = |(rate, burst)| DefaultDirectRateLimiter::direct(Quota::per_second(rate).allow_burst(burst));
        Self { callers: limiter(CALLERS), strangers: limiter(STRANGERS) }
    }
}

impl Limits {
    /// Counts a question of somebody who has the token.
    pub(super) fn admit(&self) -> Result<(), Refusal> {
        count(&self.callers, "so many questions a second are not answered; ask again later")
    }

    /// Counts a question of somebody who has not.
    pub(super) fn admit_stranger(&self) -> Result<(), Refusal> {
        count(&self.strangers, "too many questions without the right token")
    }
}

fn count(limiter: &DefaultDirectRateLimiter, reason: &str) -> Result<(), Refusal> {
    limiter.check().map_err(|until| {
        let after = Some(until.wait_time_from(DefaultClock::default().now()));
        Refusal { after, ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, reason) }
    })
}
