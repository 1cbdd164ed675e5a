//! The `notify-keyspace-events` setting: which flags are needed, and adding them to what is there.
//!
//! The flags: <https://redis.io/docs/latest/develop/use/keyspace-notifications/>.

use super::server::Server;

/// What the listener needs: key-event channels (`E`) for expired keys (`x`).
pub const EXPIRED_FLAGS: &str = "Ex";

/// `A` stands for these flags.
const ALL_EVENTS: &str = "g$lshzxetd";

/// New keys. `A` does not stand for it, and yet Redis doesn't show it beside `A` (`keyspaceEventsFlagsToString` in its
/// `notify.c`, up to 8): whoever writes back what was read takes it from those who have set it.
const NEW_KEYS: char = 'n';

/// The needed flags that a setting lacks.
#[must_use]
pub fn missing_flags(setting: &str) -> String {
    let has = |flag| setting.contains(flag) || (setting.contains('A') && ALL_EVENTS.contains(flag));
    EXPIRED_FLAGS.chars().filter(|&flag| !has(flag)).collect()
}

/// The setting with the needed flags added and nothing taken away, whether `server` shows it or not.
#[must_use]
pub fn with_flags(setting: &str, server: Option<&Server>) -> String {
    let mut wanted = format!("{setting}{}", missing_flags(setting));
    let may_be_hidden = setting.contains('A') && !setting.contains(NEW_KEYS);
    if may_be_hidden && server.is_some_and(Server::announces_new_keys) {
        wanted.push(NEW_KEYS);
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::{super::server::fields, *};

    fn server(version: &str) -> Server {
        Server::new(&fields(&format!("redis_version:{version}")))
    }

    #[test]
    fn adds_what_is_missing_and_keeps_what_others_set() {
        for (setting, wanted) in [("", "Ex"), ("Kg", "KgEx"), ("AK", "AKE"), ("xE", "xE"), ("Kx", "KxE"), ("Eg", "Egx"), ("Kn", "KnEx")] {
            assert_eq!(with_flags(setting, Some(&server("6.2.14"))), wanted, "{setting:?}");
            assert_eq!(with_flags(setting, None), wanted, "{setting:?}");
        }
    }

    #[test]
    fn what_the_server_hides_behind_all_events_is_kept() {
        for version in ["7.0.15", "8.2.1"] {
            assert_eq!(with_flags("AK", Some(&server(version))), "AKEn");
            assert_eq!(with_flags("AKn", Some(&server(version))), "AKnE", "one that shows it");
            assert_eq!(with_flags("Kg", Some(&server(version))), "KgEx", "nothing is hidden");
        }
    }
}
