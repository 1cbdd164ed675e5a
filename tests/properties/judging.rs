//! The judge: no row but an unpaid, due and locked one closes.

use std::time::Duration;

use order_closer::order::{OrderId, Row, Verdict, judge};
use proptest::prelude::*;

fn statuses() -> impl Strategy<Value = String> {
    prop_oneof![Just("0".to_owned()), Just("1".to_owned()), Just("pending".to_owned()), Just("Pending".to_owned()), Just(String::new())]
}

/// Moments that lie close together, and moments at the ends of what a number holds.
fn moments() -> impl Strategy<Value = i64> {
    prop_oneof![any::<i64>(), -3_i64..3, Just(i64::MIN), Just(i64::MAX), 1_900_000_000_000_000_i64..1_900_000_000_000_010]
}

prop_compose! {
    fn rows()(
        status in proptest::option::of(statuses()),
        deadline in proptest::option::of(moments()),
        now in moments(),
        locked in any::<bool>(),
    ) -> Row {
        Row { id: OrderId::from_database("7"), status, deadline, now, locked }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_verdict_follows_from_the_row(unpaid in proptest::collection::vec(statuses(), 0..3), row in rows()) {
        let is_unpaid = row.status.as_ref().is_some_and(|status| unpaid.contains(status));
        let verdict = judge(&unpaid, Some(&row));
        let expected = match (is_unpaid, row.deadline) {
            (false, _) => Verdict::Settled { status: row.status.clone() },
            (true, None) => Verdict::NotDue { remaining: None },
            (true, Some(deadline)) => {
                let micros = deadline.saturating_sub(row.now);
                let distance = Duration::from_micros(micros.unsigned_abs());
                match (deadline <= row.now, row.locked) {
                    (false, _) => Verdict::NotDue { remaining: Some(distance) },
                    (true, false) => Verdict::Locked,
                    (true, true) => Verdict::Close { overdue: distance },
                }
            }
        };
        prop_assert_eq!(&verdict, &expected);
        if let Verdict::NotDue { remaining: Some(remaining) } = verdict {
            prop_assert!(remaining > Duration::ZERO, "it would be looked at again at once, for ever");
        }
    }

    #[test]
    fn nothing_is_due_a_microsecond_early(deadline in -1_000_000_000_000_i64..1_000_000_000_000) {
        let unpaid = ["0".to_owned()];
        let at = |now| {
            let row = Row { id: OrderId::from_database("7"), status: Some("0".into()), deadline: Some(deadline), now, locked: true };
            judge(&unpaid, Some(&row))
        };
        prop_assert_eq!(at(deadline - 1), Verdict::NotDue { remaining: Some(Duration::from_micros(1)) });
        prop_assert_eq!(at(deadline), Verdict::Close { overdue: Duration::ZERO });
        prop_assert_eq!(at(deadline + 1), Verdict::Close { overdue: Duration::from_micros(1) });
    }
}

#[test]
fn no_row_is_no_order() {
    assert_eq!(judge(&["0".into()], None), Verdict::NotFound);
}
