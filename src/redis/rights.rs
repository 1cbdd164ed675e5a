//! Which rights our ACL user lacks: every command that the daemon sends is rehearsed, in a form that changes nothing.

use std::collections::BTreeSet;

use fred::{
    interfaces::ClientLike,
    types::{CustomCommand, Value},
};

use super::{
    commands::Commands,
    error::{RedisError, Result},
    link::PATIENCE,
};

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
        // Redis looks at the rights first, at the number of arguments before them, and at what they mean afterwards.
        let mut commands: Vec<(&'static str, Vec<&str>)> = vec![
            ("EXISTS", vec![&order]),
            ("PTTL", vec![&order]),
            ("HSET", vec![&members, "field", "value", "a field without a value"]),
            ("HGETALL", vec![&members]),
            ("HDEL", vec![&members, "field"]),
            ("PEXPIRE", vec![&members, "not a number"]),
            ("INFO", vec!["replication"]),
            ("TIME", vec![]),
        ];
        if let Some(key) = stream {
            commands.push(("XADD", vec![key, "NOMKSTREAM", "not an id", "field", "value"]));
        }
        let aside = intake.map(|key| format!("{key}:rejected")).unwrap_or_default();
        if let Some(key) = intake {
            commands.extend([
                ("XGROUP", vec!["CREATE", key, "order-closer", "not an id"]),
                ("XREADGROUP", vec!["GROUP", "order-closer", "rehearsal", "COUNT", "not a number", "STREAMS", key, ">"]),
                ("XAUTOCLAIM", vec![key, "order-closer", "rehearsal", "not a number", "0-0"]),
                ("XACK", vec![key, "order-closer", "not an id"]),
                ("XDEL", vec![key, "not an id"]),
                ("XADD", vec![&aside, "NOMKSTREAM", "not an id", "field", "value"]),
            ]);
        }
        let supervisor = self.any().await?;
        let answers = supervisor
            .run("", PATIENCE, async |client| {
                let pipeline = client.pipeline();
                for (name, arguments) in &commands {
                    pipeline.custom::<(), _>(CustomCommand::new_static(name, None, false), arguments.clone()).await?;
                }
                Ok(pipeline.try_all::<Value>().await)
            })
            .await?;
        let (mut rights, mut keys) = (Vec::new(), BTreeSet::new());
        for ((name, arguments), answer) in commands.iter().zip(answers) {
            let Err(error) = answer else { continue };
            match supervisor.sort(&error, "") {
                // Versions differ in how they speak of a key, and agree in how they speak of a command.
                RedisError::Denied(said) if !said.reason.contains("run the '") => {
                    let key = intake.filter(|key| arguments.contains(key)).or(arguments.first().copied()).unwrap_or_default();
                    keys.insert(if key == order {
                        self.orders().to_owned()
                    } else if key == members {
                        "~order-closer:*".to_owned()
                    } else {
                        format!("~{key}")
                    });
                }
                RedisError::Denied(_) => rights.push(format!("+{}", name.to_ascii_lowercase())),
                RedisError::Unreachable(said) => return Err(RedisError::Unreachable(said)),
                // Past the rights, and that is all that counts.
                RedisError::NotOurs(_) | RedisError::NotNow(_) | RedisError::Rejected(_) | RedisError::Unusable(_) => {}
            }
        }
        rights.extend(keys);
        Ok(rights)
    }
}
