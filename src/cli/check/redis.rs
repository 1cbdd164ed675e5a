//! What `check` examines in Redis.

use std::time::{Duration, Instant};

use crate::{
    cli::check::{Examination, Finding, host_micros},
    config::Redis,
    redis::{Commands, EXPIRED_FLAGS, RedisError, Subscriber, address, missing_flags, pattern, redis_cli, with_flags},
};

/// How long the probe key lives, and how long its notification may take.
const PROBE_TTL: Duration = Duration::from_millis(50);
const PROBE_LIMIT: Duration = Duration::from_secs(3);

pub(super) async fn examine(redis: &Redis) -> Examination {
    let mut examination = Examination::default();
    let commands = match Commands::connect(redis).await {
        Ok(commands) => commands,
        Err(error) => {
            examination.unavailable(Finding::fail(
                "redis",
                format!("{} can't be reached: {error}", address(redis)),
                "start Redis, or fix redis.url; until then orders are closed by the sweep alone",
            ));
            return examination;
        }
    };
    examination.add(match commands.info("server").await {
        Ok(info) => Finding::ok("redis", format!("{}, version {}", address(redis), info.get("redis_version").map_or("?", String::as_str))),
        Err(error) => Finding::warn("redis", format!("{}, but INFO is refused: {error}", address(redis)), "let the ACL user run +info"),
    });
    let before = host_micros();
    match commands.time().await {
        Ok(micros) => examination.clock = Some(micros - i64::midpoint(before, host_micros())),
        Err(error) => {
            examination.add(Finding::warn("clocks", format!("Redis does not tell the time: {error}"), "let the ACL user run +time"));
        }
    }
    let published = notifications(&commands, redis, &mut examination).await;
    examination.add(eviction(&commands, redis).await);
    examination.add(persistence(&commands, redis).await);
    probe(&commands, redis, published, &mut examination).await;
    examination
}

/// Whether Redis publishes expired keys, as far as its configuration tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Published {
    Yes,
    No,
    Unknown,
}

async fn notifications(commands: &Commands, redis: &Redis, examination: &mut Examination) -> Published {
    const NAME: &str = "notifications";
    let flags = match commands.config("notify-keyspace-events").await {
        Ok(flags) => flags,
        Err(error) => {
            examination.add(Finding::warn(
                NAME,
                format!("notify-keyspace-events can't be read: {error}"),
                "see the probe key below, or allow +config|get",
            ));
            return Published::Unknown;
        }
    };
    if missing_flags(&flags).is_empty() {
        examination.add(Finding::ok(NAME, format!("notify-keyspace-events is {flags:?}")));
        return Published::Yes;
    }
    let found = format!("notify-keyspace-events is {flags:?}, so expired keys are not published");
    let fix = redis_cli(redis, &["CONFIG", "SET", "notify-keyspace-events", &with_flags(&flags)]);
    examination.add(if redis.enable_notifications {
        Finding::warn(NAME, format!("{found}; `order-closer run` fixes that itself, where it is allowed to"), fix)
    } else {
        Finding::fail(NAME, found, fix)
    });
    Published::No
}

async fn eviction(commands: &Commands, redis: &Redis) -> Finding {
    const NAME: &str = "eviction";
    let (policy, limit) = match (commands.config("maxmemory-policy").await, commands.config("maxmemory").await) {
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

async fn persistence(commands: &Commands, redis: &Redis) -> Finding {
    const NAME: &str = "persistence";
    let (append, save) = match (commands.config("appendonly").await, commands.config("save").await) {
        (Ok(append), Ok(save)) => (append, save),
        (Err(error), _) | (_, Err(error)) => {
            return Finding::warn(NAME, format!("can't be read: {error}"), "make sure that appendonly is yes");
        }
    };
    match (append.as_str(), save.is_empty()) {
        ("yes", _) => Finding::ok(NAME, "appendonly is yes"),
        (_, false) => Finding::ok(
            NAME,
            format!("snapshots ({save}); keys written since the last one are lost in a crash, and their orders closed by the sweep"),
        ),
        (_, true) => Finding::warn(
            NAME,
            "none: a restart loses every key, and orders are closed by the sweep alone",
            redis_cli(redis, &["CONFIG", "SET", "appendonly", "yes"]),
        ),
    }
}

/// A key that really expires, and whose notification really arrives.
async fn probe(commands: &Commands, redis: &Redis, published: Published, examination: &mut Examination) {
    const NAME: &str = "probe key";
    let (subscriber, mut events) = match Subscriber::connect(redis).await {
        Ok(connected) => connected,
        Err(RedisError(reason)) => {
            examination.add(Finding::fail(
                NAME,
                format!("no subscription: {reason}"),
                format!("let the ACL user subscribe: &{} +psubscribe +client", pattern(redis)),
            ));
            return;
        }
    };
    let key = format!("{}order-closer-probe-{}", redis.key_prefix, uuid::Uuid::new_v4());
    if let Err(error) = commands.set(&key, "probe", PROBE_TTL).await {
        examination.add(Finding::warn(
            NAME,
            format!("{key} can't be written: {error}"),
            format!("let the ACL user write ~{}* with +set", redis.key_prefix),
        ));
        return;
    }
    let written = Instant::now();
    while written.elapsed() < PROBE_LIMIT {
        // Reading the key makes it expire on time, as the daemon does.
        if let Err(error) = commands.touch(vec![key.clone()], PROBE_LIMIT).await {
            examination.add(Finding::warn(
                NAME,
                format!("{key} can't be read: {error}"),
                format!("let the ACL user read ~{}* with +exists", redis.key_prefix),
            ));
            return;
        }
        while let Ok(Ok(event)) = tokio::time::timeout(Duration::from_millis(20), events.recv()).await {
            if event.key.as_bytes() == key.as_bytes() {
                let late = written.elapsed().saturating_sub(PROBE_TTL);
                examination
                    .add(Finding::ok(NAME, format!("expired, and its notification came {} ms after its deadline", late.as_millis())));
                return;
            }
        }
    }
    drop(subscriber);
    let found = "expired, but no notification came; orders are closed by the pacer and the sweep";
    let fix = format!(
        "{}, and see that redis.url names the primary",
        redis_cli(redis, &["CONFIG", "SET", "notify-keyspace-events", EXPIRED_FLAGS])
    );
    examination.add(match published {
        // Said above, with the right command.
        Published::No => Finding::warn(NAME, found, "fix notify-keyspace-events as said above"),
        Published::Yes | Published::Unknown => Finding::fail(NAME, found, fix),
    });
}
