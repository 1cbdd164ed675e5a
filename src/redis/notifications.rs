//! The `notify-keyspace-events` setting: which flags are needed, and adding them to what is there.
//!
//! The flags: <https://redis.io/docs/latest/develop/use/keyspace-notifications/>.

/// What the listener needs: key-event channels (`E`) for expired keys (`x`).
pub const EXPIRED_FLAGS: &str = "Ex";

/// `A` stands for these flags.
const ALL_EVENTS: &str = "g$lshzxetd";

/// The needed flags that a setting lacks.
#[must_use]
pub fn missing_flags(setting: &str) -> String {
    let has = |flag| setting.contains(flag) || (setting.contains('A') && ALL_EVENTS.contains(flag));
    EXPIRED_FLAGS.chars().filter(|&flag| !has(flag)).collect()
}

/// The setting with the needed flags added and nothing taken away.
#[must_use]
pub fn with_flags(setting: &str) -> String {
    format!("{setting}{}", missing_flags(setting))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_what_is_missing_and_keeps_what_others_set() {
        for (setting, wanted) in [("", "Ex"), ("Kg", "KgEx"), ("AK", "AKE"), ("AKE", "AKE"), ("xE", "xE"), ("Kx", "KxE"), ("Eg", "Egx")] {
            assert_eq!(with_flags(setting), wanted, "{setting:?}");
        }
    }
}
