//! `order-closer arm`: a key, as an order service would write it.

use std::time::Duration;

use crate::{
    cli::{CommandResult, Exit, Failure, print},
    config::{Config, Span},
    redis::{Commands, RedisError, address},
};

/// The longest that a key lives: Redis counts its end in milliseconds since 1970, in 63 bits.
const LONGEST: Duration = Duration::from_hours(24 * 365 * 290_000_000);

pub(super) async fn run(config: &Config, id: &str, ttl: Span) -> CommandResult {
    if ttl.get().as_millis() == 0 {
        return Err(Failure::new(Exit::Usage, format!("--ttl is {ttl}; a key lives for a millisecond at least")));
    }
    if ttl.get() > LONGEST {
        return Err(Failure::new(Exit::Usage, format!("--ttl is {ttl}; Redis keeps no key longer than 290 million years")));
    }
    if id.is_empty() {
        return Err(Failure::new(Exit::Usage, "the id is empty"));
    }
    let key = format!("{}{id}", config.redis.key_prefix);
    let failed = |error: RedisError| {
        let Failure { exit, message } = error.into();
        Failure::new(exit, format!("{}: {message}", address(&config.redis)))
    };
    let redis = Commands::connect(&config.redis).await.map_err(failed)?;
    redis.set(&key, id, ttl.get()).await.map_err(failed)?;
    print(&format!("{key} expires in {ttl}"));
    Ok(Exit::Done)
}
