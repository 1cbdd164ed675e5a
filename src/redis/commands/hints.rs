//! Hints that must not get lost: entries of a stream that a consumer group has, and members of a sorted set that are due.

use std::time::Duration;

use fred::{
    clients::Client,
    interfaces::ClientLike,
    types::{CustomCommand, Value},
};

use super::{
    Commands,
    keyed::{begin, last},
};
use crate::redis::error::{RedisError, Result};

/// A consumer of a stream.
#[derive(Debug, Clone)]
pub struct Group {
    /// The stream's key.
    pub key: String,
    /// The group.
    pub group: String,
    /// Who reads.
    pub consumer: String,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEntry {
    /// Its id.
    pub id: String,
    /// Its fields; nothing where it was deleted after somebody had read it.
    pub fields: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

/// Entries that somebody else had read, and has not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// From which entry on there may be more; `0-0` when all have been gone over.
    pub next: String,
    /// The entries, ours now.
    pub entries: Vec<StreamEntry>,
}

/// A sorted set whose members are due at their scores, and what belongs to it.
#[derive(Debug, Clone)]
pub struct DelayQueue {
    key: String,
    /// Members that a daemon has taken; the score is the time at which they are anybody's again, in milliseconds.
    taken: String,
    /// Members that are no ids; the score is when they were found, likewise.
    malformed: String,
    /// How many milliseconds one is in a score, as a script reads it.
    unit: String,
}

/// Members of a sorted set that were due, ours for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueMembers {
    /// The members.
    pub members: Vec<Vec<u8>>,
    /// How long until the next is due; nothing where there is none.
    pub next: Option<Duration>,
}

impl DelayQueue {
    /// The sorted set at this key, whose scores count so many microseconds.
    #[must_use]
    pub fn new(key: &str, micros: i64) -> Self {
        // All of them in one slot of a cluster: that of the part in braces, or of the whole key.
        let has_tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).is_some_and(|(tag, _)| !tag.is_empty());
        let tagged = if has_tag { key.to_owned() } else { format!("{{{key}}}") };
        Self {
            key: key.into(),
            taken: format!("{tagged}:order-closer:taken"),
            malformed: format!("{tagged}:order-closer:malformed"),
            unit: (micros as f64 / 1_000.0).to_string(),
        }
    }

    /// All its keys.
    pub(crate) fn keys(&self) -> [&str; 3] {
        [&self.key, &self.taken, &self.malformed]
    }

    fn needs(&self) -> String {
        let Self { key, taken, malformed, .. } = self;
        format!("+eval +time +zrangebyscore +zrange +zadd +zrem ~{key} ~{taken} ~{malformed}")
    }
}

/// The time in milliseconds, as a number, and how a script writes one: not as 1.7e+12.
const NOW: &str = "local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000) \
    local function text(number) return string.format('%.3f', number) end ";

/// In: the set, the taken ones; how many at the most, the lease in ms, the unit of scores in ms. What was taken for longer than its
/// lease goes back first, unless its producer has put it there again. Out: the milliseconds until the next is due, or -1; the
/// members.
const TAKE: &str = "for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', text(now), 'LIMIT', 0, ARGV[1])) do \
    redis.call('ZADD', KEYS[1], 'NX', text(now / ARGV[3]), member) redis.call('ZREM', KEYS[2], member) end \
    local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', text(now / ARGV[3]), 'LIMIT', 0, ARGV[1]) \
    for _, member in ipairs(due) do \
    redis.call('ZREM', KEYS[1], member) redis.call('ZADD', KEYS[2], text(now + ARGV[2]), member) end \
    local next = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES') \
    local wait = next[2] and math.ceil(math.max(next[2] * ARGV[3] - now, 0)) or -1 \
    return { wait, due }";

/// In: the set, the taken ones; the unit of scores in ms, members. Puts back those that are still ours, unless their producer has.
const GIVE_BACK: &str = "for at = 2, #ARGV do if redis.call('ZREM', KEYS[2], ARGV[at]) == 1 then \
    redis.call('ZADD', KEYS[1], 'NX', text(now / ARGV[1]), ARGV[at]) end end return 0";

/// In: the taken ones, the malformed ones; members. Puts these apart.
const PUT_APART: &str = "for _, member in ipairs(ARGV) do \
    redis.call('ZREM', KEYS[1], member) redis.call('ZADD', KEYS[2], text(now), member) end return 0";

impl Commands {
    /// Makes the group of a stream, where it is not there yet, from the stream's first entry on; and the stream.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn create_group(&self, Group { key, group, .. }: &Group) -> Result<()> {
        let words = words(&["CREATE", key, group, "0", "MKSTREAM"]);
        match self.about::<Value>(key, "XGROUP", words, &format!("+xgroup ~{key}")).await {
            Err(RedisError::Rejected(said)) if said.reason.starts_with("BUSYGROUP") => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Reads up to `most` entries that nobody has read; waits so long for the first.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn read_group(&self, group: &Group, most: usize, wait: Duration) -> Result<Vec<StreamEntry>> {
        let Group { key, group: name, consumer } = group;
        let (most, wait) = (most.to_string(), wait.as_millis().max(1).to_string());
        let words = words(&["GROUP", name, consumer, "COUNT", &most, "BLOCK", &wait, "STREAMS", key, ">"]);
        let answer: Value = self.about(key, "XREADGROUP", words, &format!("+xreadgroup ~{key}")).await?;
        // By the keys of the streams, of which there is one: a map, or pairs as the second version of the protocol has it.
        #[expect(clippy::wildcard_enum_match_arm, reason = "nothing, when nobody has written")]
        let streams: Vec<Value> = match answer {
            Value::Map(map) => map.inner().into_values().collect(),
            Value::Array(pairs) => pairs.into_iter().filter_map(|pair| pair.into_array().pop()).collect(),
            _ => Vec::new(),
        };
        Ok(streams.into_iter().flat_map(Value::into_array).filter_map(entry).collect())
    }

    /// Takes over up to `most` entries, from `from` on, that a consumer has read that long ago and not acknowledged.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn claim(&self, group: &Group, idle: Duration, from: &str, most: usize) -> Result<Claimed> {
        let Group { key, group: name, consumer } = group;
        let words = words(&[key, name, consumer, &idle.as_millis().to_string(), from, "COUNT", &most.to_string()]);
        let answer: Value = self.about(key, "XAUTOCLAIM", words, &format!("+xautoclaim ~{key}")).await?;
        let mut parts = answer.into_array().into_iter();
        let next = parts.next().and_then(|next| next.into_string()).unwrap_or_else(|| "0-0".into());
        let entries = parts.next().map(Value::into_array).unwrap_or_default();
        Ok(Claimed { next, entries: entries.into_iter().filter_map(entry).collect() })
    }

    /// Acknowledges entries.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn acknowledge(&self, Group { key, group, .. }: &Group, ids: &[String]) -> Result<()> {
        let words = [key, group].into_iter().chain(ids).map(|word| word.as_str().into()).collect();
        self.about::<Value>(key, "XACK", words, &format!("+xack ~{key}")).await.map(drop)
    }

    /// Acknowledges entries, and takes them out of the stream.
    ///
    /// # Errors
    /// Says why Redis refused; then they may come again.
    pub async fn take_off(&self, group: &Group, ids: &[String]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.acknowledge(group, ids).await?;
        let key = &group.key;
        let words = std::iter::once(key).chain(ids).map(|word| word.as_str().into()).collect();
        self.about::<Value>(key, "XDEL", words, &format!("+xdel ~{key}")).await.map(drop)
    }

    /// Takes up to `most` members that are due. After `lease` they are anybody's again.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn take_due(&self, queue: &DelayQueue, most: usize, lease: Duration) -> Result<DueMembers> {
        let arguments = words(&[&most.to_string(), &lease.as_millis().to_string(), &queue.unit]);
        let (wait, members): (i64, Vec<Vec<u8>>) = self.script(queue, TAKE, [&queue.key, &queue.taken], arguments).await?;
        Ok(DueMembers { members, next: u64::try_from(wait).ok().map(Duration::from_millis) })
    }

    /// These members are done with.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn forget_due(&self, queue: &DelayQueue, members: &[Vec<u8>]) -> Result<()> {
        let words = std::iter::once(queue.taken.as_str().into()).chain(members.iter().map(|member| bytes(member))).collect();
        self.about::<Value>(&queue.taken, "ZREM", words, &queue.needs()).await.map(drop)
    }

    /// Puts back members whose time is to come anew.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn give_back_due(&self, queue: &DelayQueue, members: &[Vec<u8>]) -> Result<()> {
        let arguments = std::iter::once(queue.unit.as_str().into()).chain(members.iter().map(|member| bytes(member))).collect();
        self.script::<Value>(queue, GIVE_BACK, [&queue.key, &queue.taken], arguments).await.map(drop)
    }

    /// Puts members that are no ids apart.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn put_apart_due(&self, queue: &DelayQueue, members: &[Vec<u8>]) -> Result<()> {
        let arguments = members.iter().map(|member| bytes(member)).collect();
        self.script::<Value>(queue, PUT_APART, [&queue.taken, &queue.malformed], arguments).await.map(drop)
    }

    async fn script<T: fred::types::FromValue>(
        &self,
        queue: &DelayQueue,
        script: &str,
        keys: [&String; 2],
        arguments: Vec<Value>,
    ) -> Result<T> {
        let mut all = words(&[&format!("{NOW}{script}"), "2", keys[0], keys[1]]);
        all.extend(arguments);
        self.about(&queue.key, "EVAL", all, &queue.needs()).await
    }

    /// Runs a command that changes something at this key.
    async fn about<T: fred::types::FromValue>(&self, key: &str, name: &'static str, words: Vec<Value>, needs: &str) -> Result<T> {
        self.may_write()?;
        let words = &words;
        let command = |client: Client, asking| async move {
            let pipeline = begin(&client, asking).await?;
            pipeline.custom::<(), _>(CustomCommand::new_static(name, None, false), words.clone()).await?;
            last::<T>(pipeline).await
        };
        self.run_on(key, needs, command).await
    }
}

fn words(words: &[&str]) -> Vec<Value> {
    words.iter().map(|word| (*word).into()).collect()
}

fn bytes(word: &[u8]) -> Value {
    Value::Bytes(word.to_vec().into())
}

/// An entry: its id, and its fields and their values in turn.
fn entry(value: Value) -> Option<StreamEntry> {
    let mut parts = value.into_array().into_iter();
    let id = parts.next()?.into_string()?;
    let fields = match parts.next() {
        None | Some(Value::Null) => None,
        Some(Value::Map(map)) => {
            Some(map.inner().into_iter().filter_map(|(name, value)| Some((name.as_bytes().to_vec(), owned(&value)?))).collect())
        }
        Some(list) => {
            let mut fields = Vec::new();
            let mut list = list.into_array().into_iter();
            while let (Some(name), Some(value)) = (list.next(), list.next()) {
                fields.push((owned(&name)?, owned(&value)?));
            }
            Some(fields)
        }
    };
    Some(StreamEntry { id, fields })
}

fn owned(value: &Value) -> Option<Vec<u8>> {
    value.as_bytes().map(<[u8]>::to_vec)
}
