//! The zone in which a server reads times that have none, and whether it still is what it was when the store was opened.

use std::fmt;

/// Two fixed moments, noon UTC of 15 January and 15 July 2026, in seconds since 1970: between them clocks are put forward
/// wherever they are.
pub(super) const JANUARY: i64 = 1_768_478_400;
pub(super) const JULY: i64 = 1_784_116_800;

/// A server's own zone. Its name says little: one zone has several, and `SYSTEM` may come to be another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServersZone {
    /// As the server calls it.
    pub(super) name: String,
    /// Seconds east of UTC in [`JANUARY`].
    pub(super) january: i64,
    /// And in [`JULY`].
    pub(super) july: i64,
}

impl ServersZone {
    /// What has changed, if times without a zone no longer mean what they did.
    pub(super) fn change_to(&self, now: &Self) -> Option<String> {
        let changed = (self.january, self.july) != (now.january, now.july);
        changed.then(|| format!("the database server's time zone was {self}, and is {now} now"))
    }
}

impl ServersZone {
    /// As a text for [`Self::parse`].
    pub(super) fn to_text(&self) -> String {
        format!("{} {} {}", self.january, self.july, self.name)
    }

    /// Reads such a text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let (january, july) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { january, july, name: parts.next()?.to_owned() })
    }
}

impl fmt::Display for ServersZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = |east: i64| {
            let (sign, minutes) = (if east < 0 { '-' } else { '+' }, east.abs() / 60);
            format!("UTC{sign}{:02}:{:02}", minutes / 60, minutes % 60)
        };
        if self.january == self.july {
            write!(f, "{} ({})", self.name, offset(self.january))
        } else {
            write!(f, "{} ({} in January, {} in July)", self.name, offset(self.january), offset(self.july))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str, january: i64, july: i64) -> ServersZone {
        ServersZone { name: name.into(), january: january * 60, july: july * 60 }
    }

    #[test]
    fn a_zone_is_noted_and_read() {
        let shanghai = zone("Asia/Shang hai", 480, -480);
        assert_eq!(ServersZone::parse(&shanghai.to_text()), Some(shanghai));
        assert_eq!(ServersZone::parse("+08:00"), None);
    }

    #[test]
    fn a_zone_is_what_it_means_and_not_what_it_is_called() {
        let shanghai = zone("Asia/Shanghai", 480, 480);
        assert_eq!(shanghai.change_to(&zone("PRC", 480, 480)), None);
        assert_eq!(
            shanghai.change_to(&zone("SYSTEM", -210, -150)).as_deref(),
            Some(
                "the database server's time zone was Asia/Shanghai (UTC+08:00), \
                 and is SYSTEM (UTC-03:30 in January, UTC-02:30 in July) now"
            )
        );
        // Half the year it is the same.
        assert!(zone("Europe/London", 0, 60).change_to(&zone("UTC", 0, 0)).is_some());
        assert!(zone("Europe/London", 0, 60).change_to(&zone("Africa/Lagos", 60, 60)).is_some());
    }
}
