//! Which of several hosts is used, as far as their answers can tell.

use super::Standing;

/// The host to use, when this one is in use. One whose timeline is before the `latest` that was seen was left behind by a
/// failover, and is not used though nobody else takes writes: what was paid since then it does not know.
pub(super) fn choose(standings: &[Standing], in_use: usize, latest: Option<i64>) -> usize {
    let timeline = |at: usize| match standings[at] {
        Standing::Primary(timeline) if timeline >= latest => Some(timeline),
        Standing::Primary(_) | Standing::Unknown | Standing::Standby | Standing::Away(_) => None,
    };
    let first = (0..standings.len()).filter_map(|at| Some((timeline(at)?, at == in_use, std::cmp::Reverse(at)))).max();
    first.map_or(in_use, |(_, _, std::cmp::Reverse(at))| at)
}

/// The hosts that take writes.
pub(super) fn disputed(standings: &[Standing]) -> Vec<usize> {
    (0..standings.len()).filter(|at| matches!(standings[*at], Standing::Primary(_))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreError;

    fn away() -> Standing {
        Standing::Away(StoreError::Unavailable("gone".into()))
    }

    #[test]
    fn the_one_that_takes_writes() {
        use Standing::{Primary, Standby, Unknown};
        for (standings, in_use, chosen) in [
            (vec![Unknown, Unknown], 0, 0),
            (vec![Standby, Primary(None)], 0, 1),
            (vec![away(), Standby, Primary(Some(3))], 0, 2),
            // Nobody better: it may come back.
            (vec![away(), Standby], 0, 0),
            (vec![Standby, away()], 1, 1),
            // Whoever was promoted later.
            (vec![Primary(Some(1)), Primary(Some(2))], 0, 1),
            (vec![Primary(Some(2)), Primary(Some(1))], 1, 0),
            // Nobody can tell: it stays.
            (vec![Primary(None), Primary(None)], 1, 1),
            (vec![Primary(Some(2)), Primary(Some(2)), Standby], 1, 1),
            (vec![away(), Primary(None), Primary(None)], 0, 1),
        ] {
            assert_eq!(choose(&standings, in_use, None), chosen, "{standings:?}, {in_use} in use");
        }
        for (standings, in_use, chosen) in [
            // Left behind: it knows nothing of what was paid since.
            (vec![Primary(Some(1)), away()], 1, 1),
            (vec![Primary(Some(1)), Standby, Primary(Some(2))], 1, 2),
            (vec![Primary(Some(3)), away()], 1, 0),
        ] {
            assert_eq!(choose(&standings, in_use, Some(2)), chosen, "{standings:?}, {in_use} in use on timeline 2");
        }
        assert_eq!(disputed(&[Primary(None), Standby, Primary(Some(1))]), [0, 2]);
    }
}
