//! What `check` examines in Redis.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use futures::future::join_all;
use tokio::{sync::broadcast::error::RecvError, time::sleep};

use crate::{
    cli::{
        Exit,
        check::{Examination, Finding, Mark, host_micros},
    },
    config::{Config, Redis, RedisAddress, Rule},
    redis::{Commands, EXPIRED_FLAGS, Events, Primary, RedisError, Subscriber, address, missing_flags, redis_cli, with_flags},
    trigger::{Intake, first_edition_lives},
};

/// How long the examination may take in all.
const LIMIT: Duration = Duration::from_secs(10);

/// How long the probe key lives, how often it is touched, and how long after it is gone its notification may take.
const PROBE_TTL: Duration = Duration::from_millis(50);
const TOUCH_EVERY: Duration = Duration::from_millis(20);
const NOTIFICATION_LIMIT: Duration = Duration::from_secs(3);

/// So many names of keys are tried until one is a certain node's, which may have few slots.
const PROBES: usize = 100_000;

const REDIS: &str = "redis";

pub(super) async fn examine(config: &Config) -> Examination {
    let mut examination = Examination::default();
    if config.redis.url.is_none() {
        examination.add(Finding::ok(REDIS, "none (redis.url): orders close by their rows alone, and no key is asked about a deadline"));
        return examination;
    }
    if tokio::time::timeout(LIMIT, inspect(config, &mut examination)).await.is_err() {
        examination.unavailable(Finding::fail(
            REDIS,
            format!("{} did not answer everything within {}", address(&config.redis), humantime::format_duration(LIMIT)),
            "see what keeps it busy: redis-cli --latency, SLOWLOG GET, CLIENT LIST",
        ));
    }
    examination
}

async fn inspect(config: &Config, examination: &mut Examination) {
    let redis = &config.redis;
    let commands = match Commands::connect(redis).await {
        Ok(commands) => commands,
        Err(error) => return unfit(redis, &error, examination),
    };
    let before = host_micros();
    let clock = commands.time().await;
    examination.clock = clock.as_ref().ok().map(|micros| micros - i64::midpoint(before, host_micros()));
    let server = commands.server().unwrap_or_default();
    let (primaries, _) = commands.primaries(redis).now();
    if matches!(redis.url.address, RedisAddress::Cluster { .. }) {
        examination.add(Finding::ok(REDIS, format!("{}, {} primaries, {server}", address(redis), primaries.len())));
    } else {
        examination.add(Finding::ok(REDIS, format!("{}, {server}", address(redis))));
    }
    if let Err(error) = clock {
        examination.add(Finding::warn("clocks", format!("Redis does not tell the time: {error}"), error.fix()));
    }
    let inspected = primaries.iter().map(|primary| inspect_primary(config, &commands, primary));
    let inspected: Vec<Examination> = join_all(inspected).await;
    together(&primaries, inspected, examination);
    if let Some(key) = &config.timers.intake {
        let aside = Intake::aside(key);
        // The daemon needs no right to that: who may not read it looks for himself.
        if let Ok(entries @ 1..) = commands.length(&aside).await {
            let found = format!("{entries} entries of {key} were no timers, and were moved to {aside}");
            let fix = format!("see the field rejected_for (XREVRANGE {aside} + - COUNT 10), add them anew, then DEL {aside}");
            examination.add(Finding::warn("timers", found, fix));
        }
    }
    // Who may not read it is told so among the rights.
    if first_edition_lives(&Rule::of(config), &config.database, &commands).await.unwrap_or(false) {
        examination.add(Finding::warn(
            "first edition",
            "a daemon of the first edition closes orders of this table, too: it asks nobody before that, and honours neither pause nor dispute",
            "upgrade it, or stop it",
        ));
    }
}

/// What each primary has to itself.
async fn inspect_primary(config: &Config, all: &Commands, primary: &Primary) -> Examination {
    let mut examination = Examination::default();
    let commands = &primary.commands;
    if let Err(error @ (RedisError::Unreachable(_) | RedisError::NotOurs(_))) = commands.time().await {
        unfit(&primary.redis, &error, &mut examination);
        return examination;
    }
    let redis = &commands.whereabouts(&primary.redis);
    rights(commands, config, &mut examination).await;
    let published = Published::by(commands.config("notify-keyspace-events").await);
    let probe = probe(all, primary, redis, &published).await;
    examination.add(notifications(commands, redis, &published, probe.mark == Mark::Ok));
    let (memory, persisted) = (commands.info("memory").await, commands.info("persistence").await);
    examination.add(eviction(commands, redis, memory.unwrap_or_default()).await);
    examination.add(persistence(commands, redis, &persisted.unwrap_or_default()).await);
    examination.add(probe);
    examination
}

/// Adds what was found at each primary: what is as it should be with all of them alike once, the rest with the primary's name.
fn together(primaries: &[Primary], inspected: Vec<Examination>, examination: &mut Examination) {
    let of_one = |finding: &Finding| inspected.iter().all(|other| other.findings.contains(finding));
    let mut common: Vec<Finding> = Vec::new();
    for (primary, found) in primaries.iter().zip(&inspected) {
        for finding in &found.findings {
            if primaries.len() == 1 || (finding.mark == Mark::Ok && of_one(finding)) {
                if !common.contains(finding) {
                    common.push(finding.clone());
                }
            } else {
                common.push(Finding { found: format!("{}: {}", primary.name(), finding.found), ..finding.clone() });
            }
        }
    }
    common.into_iter().for_each(|finding| examination.add(finding));
    if inspected.iter().any(|found| found.exit == Some(Exit::Unavailable)) {
        examination.exit = Some(Exit::Unavailable);
    }
}

/// There is no connection, or none to a Redis for us.
fn unfit(redis: &Redis, error: &RedisError, examination: &mut Examination) {
    let at = address(redis);
    if error.may_pass() {
        examination.unavailable(Finding::fail(
            REDIS,
            format!("{at} can't be reached: {error}"),
            format!("{}; until then orders are closed by their rows alone", error.fix()),
        ));
    } else {
        examination.add(Finding::fail(REDIS, format!("{at} can't be used: {error}"), error.fix()));
    }
}

/// All the rights that are lacking, at once.
async fn rights(commands: &Commands, config: &Config, examination: &mut Examination) {
    let stream = config.events.stream.as_ref().map(|stream| stream.key.as_str());
    let missing = match commands.missing_rights(stream, config.timers.intake.as_deref()).await {
        Ok(missing) if missing.is_empty() => return,
        Ok(missing) => missing.join(" "),
        Err(error) => return unfit(&config.redis, &error, examination),
    };
    let user = config.redis.url.username.as_deref().unwrap_or("default");
    examination.add(Finding::fail(
        "rights",
        format!("the ACL user {user} lacks {missing}"),
        format!("let an administrator of Redis run: ACL SETUSER {user} {missing}"),
    ));
}

/// Whether Redis publishes expired keys, as far as its configuration tells.
enum Published {
    Yes(String),
    No(String),
    Unknown(RedisError),
}

impl Published {
    fn by(flags: Result<String, RedisError>) -> Self {
        match flags {
            Ok(flags) if missing_flags(&flags).is_empty() => Self::Yes(flags),
            Ok(flags) => Self::No(flags),
            Err(error) => Self::Unknown(error),
        }
    }
}

fn notifications(commands: &Commands, redis: &Redis, published: &Published, came: bool) -> Finding {
    const NAME: &str = "notifications";
    match published {
        Published::Yes(flags) => Finding::ok(NAME, format!("notify-keyspace-events is {flags:?}")),
        Published::Unknown(_) if came => Finding::ok(NAME, "notify-keyspace-events is not shown to us; the probe key below was announced"),
        Published::Unknown(error) => {
            Finding::warn(NAME, format!("notify-keyspace-events can't be read: {error}"), "see the probe key below, or allow +config|get")
        }
        Published::No(flags) => {
            let found = format!("notify-keyspace-events is {flags:?}, so expired keys are not published");
            let wanted = with_flags(flags, commands.server().as_ref());
            let fix = redis_cli(redis, &["CONFIG", "SET", "notify-keyspace-events", &wanted]);
            if redis.enable_notifications {
                Finding::warn(NAME, format!("{found}; `order-closer run` fixes that itself, where it is allowed to"), fix)
            } else {
                Finding::fail(NAME, found, fix)
            }
        }
    }
}

/// `memory` is what INFO says, also where the configuration is not shown.
async fn eviction(commands: &Commands, redis: &Redis, mut memory: HashMap<String, String>) -> Finding {
    const NAME: &str = "eviction";
    let policy = match memory.remove("maxmemory_policy") {
        Some(policy) => Ok(policy),
        None => commands.config("maxmemory-policy").await,
    };
    let limit = match memory.remove("maxmemory") {
        Some(limit) => Ok(limit),
        None => commands.config("maxmemory").await,
    };
    let (policy, limit) = match (policy, limit) {
        (Ok(policy), Ok(limit)) => (policy, limit),
        (Err(error), _) | (_, Err(error)) => {
            return Finding::warn(NAME, format!("maxmemory-policy can't be read: {error}"), "make sure that it is noeviction");
        }
    };
    if policy == "noeviction" {
        return Finding::ok(NAME, "maxmemory-policy is noeviction");
    }
    if limit == "0" {
        return Finding::ok(NAME, format!("maxmemory-policy is {policy}, but memory has no limit (maxmemory 0)"));
    }
    Finding::warn(
        NAME,
        format!("maxmemory-policy is {policy}: under memory pressure order keys vanish without a notification"),
        redis_cli(redis, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]),
    )
}

/// `persisted` is what INFO says, also where the configuration is not shown.
async fn persistence(commands: &Commands, redis: &Redis, persisted: &HashMap<String, String>) -> Finding {
    const NAME: &str = "persistence";
    if persisted.get("aof_enabled").is_some_and(|enabled| enabled == "1") {
        return Finding::ok(NAME, "appendonly is yes");
    }
    match (commands.config("appendonly").await, commands.config("save").await) {
        (Ok(append), _) if append == "yes" => Finding::ok(NAME, "appendonly is yes"),
        (Ok(_), Ok(save)) if !save.is_empty() => Finding::ok(
            NAME,
            format!("snapshots ({save}); keys written since the last one are lost in a crash, and their orders closed by their rows"),
        ),
        (Ok(_), Ok(_)) => Finding::warn(
            NAME,
            "none: when Redis restarts its keys are gone, and their orders are closed by their rows alone",
            redis_cli(redis, &["CONFIG", "SET", "appendonly", "yes"]),
        ),
        (Err(error), _) | (_, Err(error)) => Finding::warn(NAME, format!("can't be read: {error}"), "make sure that appendonly is yes"),
    }
}

/// A key that really expires, and whose notification really arrives.
async fn probe(all: &Commands, primary: &Primary, redis: &Redis, published: &Published) -> Finding {
    const NAME: &str = "probe key";
    let commands = &primary.commands;
    let (subscriber, mut events) = match Subscriber::connect(redis).await {
        Ok(connected) => connected,
        Err(error) => return Finding::fail(NAME, format!("no subscription: {error}"), error.fix()),
    };
    let prefix = redis.key_prefix.get().unwrap_or_default();
    let mut keys = std::iter::repeat_with(|| format!("{prefix}order-closer-probe-{}", uuid::Uuid::new_v4())).take(PROBES);
    let Some(key) = keys.find(|key| all.has(key, primary)) else {
        return Finding::warn(NAME, "no key was found that would be this node's", "see CLUSTER SLOTS");
    };
    if let Err(error) = commands.set(&key, "probe", PROBE_TTL).await {
        return Finding::warn(NAME, format!("{key} can't be written: {error}"), error.fix());
    }
    let written = Instant::now();
    // Whatever else expires meanwhile, the key is touched: reading it makes it expire on time, as the daemon does.
    let came = tokio::select! {
        came = announced(&mut events, &key) => came,
        gone = touched_away(commands, &key) => match gone {
            Err(error) => return Finding::warn(NAME, format!("{key} can't be read: {error}"), error.fix()),
            Ok(()) => tokio::time::timeout(NOTIFICATION_LIMIT, announced(&mut events, &key)).await.unwrap_or(false),
        },
    };
    drop(subscriber);
    if came {
        let late = written.elapsed().saturating_sub(PROBE_TTL);
        return Finding::ok(NAME, format!("expired, and its notification came {} ms after its deadline", late.as_millis()));
    }
    let found = "expired, but no notification came; orders are closed by their rows alone";
    match published {
        // Said above, with the right command.
        Published::No(_) => Finding::warn(NAME, found, "fix notify-keyspace-events as said above"),
        Published::Yes(_) | Published::Unknown(_) => {
            Finding::fail(NAME, found, redis_cli(redis, &["CONFIG", "SET", "notify-keyspace-events", EXPIRED_FLAGS]))
        }
    }
}

/// Whether the key is announced, before the connection ends.
async fn announced(events: &mut Events, key: &str) -> bool {
    loop {
        match events.recv().await {
            Ok(event) if event.key.as_bytes() == key.as_bytes() => return true,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return false,
        }
    }
}

/// Touches the key until it is gone.
async fn touched_away(commands: &Commands, key: &str) -> Result<(), RedisError> {
    while commands.touch(vec![key.to_owned()], NOTIFICATION_LIMIT).await? > 0 {
        sleep(TOUCH_EVERY).await;
    }
    Ok(())
}
