//! Which servers are new enough.

use crate::store::Misfit;

/// Refuses a server that is older than the statements with which its catalogue is read; one that does not tell its version
/// has to show itself. In: as `server_version_num` has it, 90624 for 9.6.24 and 110022 for 11.22.
pub(super) fn refuse_old(version: Option<u32>) -> Result<(), Misfit> {
    const OLDEST: u32 = 12;
    match version {
        Some(version) if version < OLDEST * 10_000 => {
            let (major, minor, patch) = (version / 10_000, version / 100 % 100, version % 100);
            let shown = if major < 10 { format!("{major}.{minor}.{patch}") } else { format!("{major}.{patch}") };
            Err(Misfit(format!("database.url leads to PostgreSQL {shown}, which is too old; PostgreSQL {OLDEST} or later is needed")))
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_refused_by_the_version_that_people_know() {
        for (version, shown) in [(90_624, "9.6.24"), (100_023, "10.23"), (110_022, "11.22")] {
            let refused = refuse_old(Some(version)).expect_err("too old").to_string();
            assert!(refused.contains(&format!("PostgreSQL {shown},")) && refused.contains("PostgreSQL 12 or later"), "{refused}");
        }
        for version in [Some(120_000), Some(120_022), Some(150_018), Some(180_001), None] {
            assert_eq!(refuse_old(version), Ok(()));
        }
    }
}
