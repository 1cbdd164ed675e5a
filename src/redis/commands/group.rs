//! Entries of a stream that a consumer group takes, each once, and again after a while if nobody has said that it is done.

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

/// An entry: its id, and its fields and their values one after the other, as UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Milliseconds since 1970 UTC by Redis' clock, a hyphen, and a number.
    pub id: String,
    /// The fields, each with its value.
    pub fields: Vec<(String, String)>,
}

impl Entry {
    /// The value of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// When it was added, in milliseconds since 1970 UTC; nothing where whoever added it gave it an id that is no time.
    #[must_use]
    pub fn added_at(&self) -> Option<i64> {
        self.id.split('-').next()?.parse().ok()
    }
}

/// A consumer group of a stream, and who we are in it.
#[derive(Debug, Clone)]
pub struct Group {
    /// The stream.
    pub key: String,
    /// The group's name.
    pub name: String,
    /// Ours.
    pub consumer: String,
}

impl Commands {
    /// Makes a group that begins with the stream's first entry, and the stream, where they are not there.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn make_group(&self, group: &Group) -> Result<()> {
        let Group { key, name, .. } = group;
        let made = self.of_group(key, "+xgroup|create", "XGROUP", &["CREATE", key, name, "0", "MKSTREAM"]).await;
        match made {
            Err(RedisError::Rejected(said)) if said.reason.contains("BUSYGROUP") => Ok(()),
            made => made.map(drop),
        }
    }

    /// Takes entries that nobody of the group has had, and waits for one for so long.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn read_group(&self, group: &Group, count: u32, wait: Duration) -> Result<Vec<Entry>> {
        let Group { key, name, consumer } = group;
        let (count, wait) = (count.to_string(), wait.as_millis().to_string());
        let command = ["GROUP", name, consumer, "COUNT", &count, "BLOCK", &wait, "STREAMS", key, ">"];
        let answer = self.of_group(key, "+xreadgroup", "XREADGROUP", &command).await?;
        // A map of streams, of which there is one; nothing where nothing came.
        Ok(match answer.into_map() {
            Ok(streams) => streams.inner().into_values().flat_map(entries).collect(),
            Err(_) => Vec::new(),
        })
    }

    /// Takes entries that somebody of the group has had for longer than this, and has not said to be done.
    ///
    /// # Errors
    /// Says why Redis refused.
    pub async fn take_over(&self, group: &Group, count: u32, idle: Duration) -> Result<Vec<Entry>> {
        let Group { key, name, consumer } = group;
        let (count, idle) = (count.to_string(), idle.as_millis().to_string());
        let command = [key.as_str(), name, consumer, &idle, "0-0", "COUNT", &count];
        let answer = self.of_group(key, "+xautoclaim", "XAUTOCLAIM", &command).await?;
        Ok(answer.into_array().into_iter().nth(1).map(entries).unwrap_or_default())
    }

    /// Says that entries are done, and takes them out of the stream.
    ///
    /// # Errors
    /// Says why Redis refused; then they may come again.
    pub async fn take_off(&self, group: &Group, ids: &[String]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let Group { key, name, .. } = group;
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        self.of_group(key, "+xack", "XACK", &[vec![key.as_str(), name], ids.clone()].concat()).await?;
        self.of_group(key, "+xdel", "XDEL", &[vec![key.as_str()], ids].concat()).await.map(drop)
    }

    async fn of_group(&self, key: &str, right: &str, command: &'static str, arguments: &[&str]) -> Result<Value> {
        self.may_write()?;
        let send = |client: Client, asking| async move {
            let pipeline = begin(&client, asking).await?;
            let command = CustomCommand::new_static(command, None, false);
            pipeline.custom::<(), _>(command, arguments.to_vec()).await?;
            last::<Value>(pipeline).await
        };
        self.run_on(key, &format!("{right} ~{key}"), send).await
    }
}

/// The entries of a list, without those that are gone meanwhile.
fn entries(list: Value) -> Vec<Entry> {
    let text = |value: &Value| value.as_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let entry = |entry: Value| {
        let mut parts = entry.into_array().into_iter();
        let (id, fields) = (text(&parts.next()?)?, parts.next()?);
        if fields.is_null() {
            return None;
        }
        let fields: Vec<String> = fields.into_array().iter().filter_map(text).collect();
        Some(Entry { id, fields: fields.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect() })
    };
    list.into_array().into_iter().filter_map(entry).collect()
}
