//! `order-closer arm`: a key, as an order service would write it.

use std::time::Duration;

use crate::{
    app::settings_of,
    cli::{CommandResult, Exit, Failure, one_rule, output::complain, print, some_rules},
    config::{Config, Rule, Span},
    explain::read_id,
    order::Printable,
    redis::{Commands, RedisError, address},
    store,
};

/// How long the database is waited for, of which `arm` would know whether the id fits.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) async fn run(config: &Config, rule: Option<&str>, id: &str, ttl: Span) -> CommandResult {
    let config = &rule_of_key(config, rule)?;
    if ttl.get().as_millis() == 0 {
        return Err(Failure::new(Exit::Usage, format!("--ttl is {ttl}; a key lives for a millisecond at least")));
    }
    if id.is_empty() {
        return Err(Failure::new(Exit::Usage, "the id is empty"));
    }
    let Some(key) = config.redis.key_prefix.key(id) else {
        return Err(Failure::new(Exit::Configuration, "orders of this rule have no keys: its key_prefix is \"none\""));
    };
    if config.redis.url.is_none() {
        return Err(Failure::new(Exit::Configuration, "there is no Redis to write a key to: redis.url is \"none\""));
    }
    let failed = |error: RedisError| {
        let Failure { exit, message, .. } = error.into();
        Failure::new(exit, format!("{}: {message}", address(&config.redis)))
    };
    let redis = Commands::connect(&config.redis).await.map_err(failed)?;
    redis.set(&key, id, ttl.get()).await.map_err(failed)?;
    print(&format!("{} expires in {ttl}", Printable(&key)));
    if let Ok(Some(doubt)) = tokio::time::timeout(PATIENCE, doubt(config, id)).await {
        complain(&format!("{doubt}; no order will be closed by this key"));
    }
    Ok(Exit::Done)
}

/// Why the key can be no order's. Without the database, which `arm` does not need, there is nothing to say.
async fn doubt(config: &Config, id: &str) -> Option<String> {
    let store = store::open(settings_of(config)).await.ok()?;
    let doubt = read_id(store.as_ref(), &Rule::of(config), id).err();
    store.close().await;
    doubt
}

/// The rule that was named, or any where all have keys alike.
fn rule_of_key(config: &Config, rule: Option<&str>) -> Result<Config, Failure> {
    let mut rules = some_rules(config, rule)?;
    rules.dedup_by(|one, other| one.redis.key_prefix == other.redis.key_prefix);
    match (rules.pop(), rules.is_empty()) {
        (Some(only), true) => Ok(only),
        _ => one_rule(config, rule),
    }
}
