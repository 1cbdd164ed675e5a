//! What `check` examines of doors: whether hints can be taken from each.

use futures::future::join_all;

use crate::{
    cli::check::{Examination, Finding},
    config::{Config, Hints},
    doors::{self, Fault},
};

const NAME: &str = "hints";

/// Examines the doors whose hints are for this rule.
pub(super) async fn examine(config: &Config) -> Examination {
    let is_for = |hints: &&Hints| hints.rule.as_ref().is_none_or(|rule| *rule == config.which.name);
    let mut examination = Examination::default();
    let examined = config.hints.iter().filter(is_for).map(async |hints| (hints, doors::examine(hints, &config.redis).await));
    for (hints, examined) in join_all(examined).await {
        let place = hints.door().map(|door| door.place()).unwrap_or_default();
        let door = format!("{}: {place}", hints.name);
        match examined {
            Ok(found) if found.is_empty() => examination.add(Finding::ok(NAME, door)),
            Ok(found) => examination.add(Finding::ok(NAME, format!("{door}; {found}"))),
            Err(Fault { reason, fix, needs_a_hand: true }) => examination.add(Finding::fail(NAME, format!("{door}: {reason}"), fix)),
            Err(Fault { reason, fix, needs_a_hand: false }) => {
                examination.unavailable(Finding::fail(NAME, format!("{door} can't be reached: {reason}"), fix));
            }
        }
    }
    examination
}
