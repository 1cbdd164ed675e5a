//! `order-closer arm`: a key, as an order service would write it.

use crate::{
    cli::{CommandResult, Exit, Failure, print},
    config::{Config, Span},
    order::Printable,
    redis::{Commands, RedisError, address},
};

pub(super) async fn run(config: &Config, id: &str, ttl: Span) -> CommandResult {
    if ttl.get().as_millis() == 0 {
        return Err(Failure::new(Exit::Usage, format!("--ttl is {ttl}; a key lives for a millisecond at least")));
    }
    if id.is_empty() {
        return Err(Failure::new(Exit::Usage, "the id is empty"));
    }
    let Some(key) = config.redis.key_prefix.key(id) else {
        return Err(Failure::new(Exit::Configuration, "orders of this rule have no keys: its key_prefix is \"none\""));
    };
    let failed = |error: RedisError| {
        let Failure { exit, message } = error.into();
        Failure::new(exit, format!("{}: {message}", address(&config.redis)))
    };
    let redis = Commands::connect(&config.redis).await.map_err(failed)?;
    redis.set(&key, id, ttl.get()).await.map_err(failed)?;
    print(&format!("{} expires in {ttl}", Printable(&key)));
    Ok(Exit::Done)
}
