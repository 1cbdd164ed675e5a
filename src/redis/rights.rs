//! Which rights our ACL user lacks: every command that the daemon sends is rehearsed, in a form that changes nothing.

use std::{collections::BTreeSet, sync::Arc};

use fred::{
    interfaces::ClientLike,
    types::{CustomCommand, Value},
};

use super::{
    commands::{Commands, DelayQueue, Group},
    error::{RedisError, Result},
    link::PATIENCE,
    supervisor::Supervisor,
};

/// A command in a form that changes nothing, and the ACL rule for its key.
type Rehearsal<'r> = (&'static str, Vec<&'r str>, String);

impl Commands {
    /// The ACL rules that our user lacks for closing orders on time, beside instances of its kind, for telling `stream`, and for taking
    /// timers from `intake`.
    /// What the subscription needs is not among them.
    ///
    /// # Errors
    /// Says why Redis did not answer.
    pub async fn missing_rights(&self, stream: Option<&str>, intake: Option<&str>) -> Result<Vec<String>> {
        let order = self.order_key("order-closer-rehearsal");
        let members = "order-closer:rehearsal".to_owned();
        let (of_order, of_members) = (|| self.orders().to_owned(), || "~order-closer:*".to_owned());
        // Redis looks at the rights first, at the number of arguments before them, and at what they mean afterwards.
        let mut commands: Vec<Rehearsal> = vec![
            ("EXISTS", vec![&order], of_order()),
            ("PTTL", vec![&order], of_order()),
            ("HSET", vec![&members, "field", "value", "a field without a value"], of_members()),
            ("HGETALL", vec![&members], of_members()),
            ("HDEL", vec![&members, "field"], of_members()),
            ("PEXPIRE", vec![&members, "not a number"], of_members()),
            ("INFO", vec!["replication"], String::new()),
            ("TIME", vec![], String::new()),
        ];
        if let Some(key) = stream {
            commands.push(("XADD", vec![key, "NOMKSTREAM", "not an id", "field", "value"], format!("~{key}")));
        }
        let aside = intake.map(|key| format!("{key}:rejected")).unwrap_or_default();
        if let Some(key) = intake {
            let rule = format!("~{key}");
            commands.extend([
                ("XGROUP", vec!["CREATE", key, "order-closer", "not an id"], rule.clone()),
                ("XREADGROUP", vec!["GROUP", "order-closer", "rehearsal", "STREAMS", key, "not an id"], rule.clone()),
                ("XAUTOCLAIM", vec![key, "order-closer", "rehearsal", "not a number", "0-0"], rule.clone()),
                ("XACK", vec![key, "order-closer", "not an id"], rule.clone()),
                ("XDEL", vec![key, "not an id"], rule),
                ("XADD", vec![&aside, "NOMKSTREAM", "not an id", "field", "value"], format!("~{aside}")),
            ]);
        }
        Ok(self.rehearse(self.any().await?, &commands).await?.0)
    }

    /// The same for reading a stream as this group's consumer. Whether there is a stream; not where the group would make one.
    ///
    /// # Errors
    /// Says why Redis did not answer, or that the key holds something else.
    pub async fn missing_rights_of_group(&self, Group { key, group, consumer }: &Group) -> Result<(Vec<String>, bool)> {
        let rule = format!("~{key}");
        let commands: [Rehearsal; 4] = [
            ("XGROUP", vec!["CREATE", key, group, "not an id"], rule.clone()),
            ("XREADGROUP", vec!["GROUP", group, consumer, "STREAMS", key, "not an id"], rule.clone()),
            ("XAUTOCLAIM", vec![key, group, consumer, "not a number", "0"], rule.clone()),
            ("XACK", vec![key, group, "not an id"], rule),
        ];
        let (missing, rejected) = self.rehearse(self.at_key(key).await?, &commands).await?;
        let says = |word: &str| rejected.iter().find(|error| error.to_string().contains(word));
        match says("WRONGTYPE") {
            Some(error) => Err(error.clone()),
            None => Ok((missing, says("requires the key to exist").is_none())),
        }
    }

    /// The same for taking members of a sorted set that are due.
    ///
    /// # Errors
    /// Says why Redis did not answer, or that a key holds something else.
    pub async fn missing_rights_of_set(&self, queue: &DelayQueue) -> Result<Vec<String>> {
        let keys = queue.keys();
        let mut commands: Vec<Rehearsal> = vec![("TIME", vec![], String::new())];
        let mut at_each = |command: fn(&str) -> (&'static str, Vec<&str>)| {
            commands.extend(keys.into_iter().map(|key| (command(key).0, command(key).1, format!("~{key}"))));
        };
        at_each(|key| ("EVAL", vec!["return 0", "1", key]));
        at_each(|key| ("ZRANGEBYSCORE", vec![key, "+inf", "-inf"]));
        at_each(|key| ("ZRANGE", vec![key, "1", "0"]));
        at_each(|key| ("ZADD", vec![key, "not a number", "member"]));
        // Nobody's id has a line end.
        at_each(|key| ("ZREM", vec![key, "order-closer-rehearsal\n"]));
        let (missing, rejected) = self.rehearse(self.at_key(keys[0]).await?, &commands).await?;
        match rejected.into_iter().find(|error| error.to_string().contains("WRONGTYPE")) {
            Some(error) => Err(error),
            None => Ok(missing),
        }
    }

    /// The rules that are lacking, and how other commands failed.
    async fn rehearse(&self, supervisor: Arc<Supervisor>, commands: &[Rehearsal<'_>]) -> Result<(Vec<String>, Vec<RedisError>)> {
        let answers = supervisor
            .run("", PATIENCE, async |client| {
                let pipeline = client.pipeline();
                for (name, arguments, _) in commands {
                    pipeline.custom::<(), _>(CustomCommand::new_static(name, None, false), arguments.clone()).await?;
                }
                Ok(pipeline.try_all::<Value>().await)
            })
            .await?;
        let (mut rights, mut keys, mut others): (Vec<String>, BTreeSet<String>, Vec<RedisError>) = Default::default();
        for ((name, _, rule), answer) in commands.iter().zip(answers) {
            let Err(error) = answer else { continue };
            match supervisor.sort(&error, "") {
                // Versions differ in how they speak of a key, and agree in how they speak of a command.
                RedisError::Denied(said) if !said.reason.contains("run the '") => drop(keys.replace(rule.clone())),
                RedisError::Denied(_) => rights.push(format!("+{}", name.to_ascii_lowercase())),
                RedisError::Unreachable(said) => return Err(RedisError::Unreachable(said)),
                // Past the rights, and that is all that counts.
                error @ (RedisError::NotOurs(_) | RedisError::NotNow(_) | RedisError::Rejected(_) | RedisError::Unusable(_)) => {
                    others.push(error);
                }
            }
        }
        // The same command at another key.
        rights.dedup();
        rights.extend(keys);
        Ok((rights, others))
    }
}
