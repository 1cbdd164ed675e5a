//! `order-closer arm`: a key, as an order service would write it.

use crate::{
    cli::{Exit, Failure, Outcome, print},
    config::{Config, Span},
    signal::{Commands, address},
};

pub(super) async fn run(config: &Config, id: &str, ttl: Span) -> Outcome {
    if ttl.get().as_millis() == 0 {
        return Err(Failure::new(Exit::Usage, format!("--ttl is {ttl}; a key lives for a millisecond at least")));
    }
    if id.is_empty() {
        return Err(Failure::new(Exit::Usage, "the id is empty"));
    }
    let key = format!("{}{id}", config.redis.key_prefix);
    let unavailable = |error| Failure::new(Exit::Unavailable, format!("Redis unavailable: {}: {error}", address(&config.redis)));
    let redis = Commands::connect(&config.redis).await.map_err(unavailable)?;
    redis.set(&key, id, ttl.get()).await.map_err(unavailable)?;
    print(&format!("{key} expires in {ttl}"));
    Ok(Exit::Done)
}
