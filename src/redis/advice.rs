//! What a person is to say to Redis, where this daemon may not.

use crate::config::{Redis, RedisAddress};

/// The `redis-cli` command that runs this at our Redis, for a shell. It asks for the password if there is one.
#[must_use]
pub fn redis_cli(redis: &Redis, command: &[&str]) -> String {
    let mut words = vec!["redis-cli".to_owned()];
    let mut option = |name: &str, value: Option<String>| words.extend(std::iter::once(name.to_owned()).chain(value));
    match &redis.url.address {
        RedisAddress::Nowhere => {}
        RedisAddress::Unix(path) => option("-s", Some(path.display().to_string())),
        RedisAddress::Tcp { host, port, tls, .. } => {
            // What goes without saying is not said.
            if host != "127.0.0.1" {
                option("-h", Some(host.clone()));
            }
            if *port != 6379 {
                option("-p", Some(port.to_string()));
            }
            if *tls {
                option("--tls", None);
            }
            if let Some(path) = redis.ca_file.as_ref().filter(|_| *tls) {
                option("--cacert", Some(path.display().to_string()));
            }
        }
        // Whoever knows which server it is names that.
        RedisAddress::Sentinels(_) | RedisAddress::Cluster { .. } => option("-h", Some("PRIMARY".into())),
    }
    if let Some(user) = &redis.url.username {
        option("--user", Some(user.clone()));
    }
    if redis.url.password.is_some() {
        option("--askpass", None);
    }
    words.extend(command.iter().map(|word| (*word).to_owned()));
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}
