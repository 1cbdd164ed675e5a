//! The timing wheel: what is to be done with which order when, each order on it once.

use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map::Entry},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    close::Spare,
    order::{OrderId, Trigger},
};

/// How many orders may be on the wheel; beyond that the sweep finds them when they are overdue.
const CAPACITY: usize = 200_000;

/// How many appointments are kept at a time.
const GROUP: usize = 5_000;

/// Two estimates of one moment that differ by less are the same.
const SAME: Duration = Duration::from_millis(1);

/// What is done with an order when its time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Ask about it.
    Ask,
    /// Touch its key.
    Touch,
    /// Offer it to the inbox.
    Offer(Trigger),
}

/// When something is to be done, and for which deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Appointment {
    pub(super) at: Instant,
    /// In microseconds since 1970 UTC; `None` where it is not known.
    pub(super) deadline: Option<i64>,
    pub(super) step: Step,
}

impl Appointment {
    /// Whether this is news: the look-ahead sees the same deadline again and again, each time a little later or earlier on
    /// this host's clock.
    fn overrides(self, before: Self) -> bool {
        let is_same_step = matches!((self.step, before.step), (Step::Offer(_), Step::Offer(_))) || self.step == before.step;
        self.deadline != before.deadline || (is_same_step && self.at + SAME < before.at)
    }
}

/// The wheel.
#[derive(Debug, Default)]
pub(super) struct Wheel {
    /// Who has an appointment when; and who had, and has another one now.
    moments: BTreeMap<Instant, VecDeque<OrderId>>,
    places: HashMap<OrderId, Appointment, foldhash::quality::RandomState>,
}

impl Wheel {
    /// Returns whether the order has an appointment, this or an earlier one.
    pub(super) fn insert(&mut self, id: OrderId, appointment: Appointment) -> bool {
        if let Some(before) = self.places.get_mut(&id) {
            if !appointment.overrides(*before) {
                return true;
            }
            *before = appointment;
        } else if self.places.len() < CAPACITY {
            self.places.insert(id.clone(), appointment);
        } else {
            return false;
        }
        self.moments.entry(appointment.at).or_default().push_back(id);
        true
    }

    /// How many have an appointment.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Waits for the next appointment, and returns it with others whose time has come, at most a group.
    pub(super) async fn ready(&mut self) -> Vec<(OrderId, Appointment)> {
        let Some((next, _)) = self.moments.first_key_value() else {
            // An empty wheel waits for the other branches of the select.
            return std::future::pending().await;
        };
        tokio::time::sleep_until(*next).await;
        let (now, mut ready) = (Instant::now(), Vec::new());
        while let Some(mut moment) = self.moments.first_entry()
            && *moment.key() <= now
            && ready.len() < GROUP
        {
            let Some(id) = moment.get_mut().pop_front() else {
                moment.remove();
                continue;
            };
            if let Entry::Occupied(place) = self.places.entry(id)
                && place.get().at == *moment.key()
            {
                ready.push(place.remove_entry());
            }
        }
        self.places.spare();
        ready
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::*;

    const TOUCH: Step = Step::Touch;
    const OFFER: Step = Step::Offer(Trigger::Pacer);

    /// Orders are seen again and again, a little earlier or later each time, repeated and in any order, and some get another
    /// deadline: each has its last appointment, once, and none before its time.
    #[tokio::test(start_paused = true)]
    async fn each_order_is_ready_once_at_its_last_moment() {
        for seed in 0..300 {
            let mut random = StdRng::seed_from_u64(seed);
            let start = Instant::now();
            let mut wheel = Wheel::default();
            let mut expected = BTreeMap::new();
            for _ in 0..random.random_range(1..200) {
                let number = random.random_range(0..40_u32);
                let id = OrderId::from_database(&number.to_string());
                let deadline: i64 = match expected.get(&number) {
                    Some((deadline, _)) if random.random_bool(0.8) => *deadline,
                    _ => random.random_range(10..3_000),
                };
                let error = Duration::from_micros(random.random_range(0..900));
                let at = start + Duration::from_millis(deadline.unsigned_abs()) + error;
                wheel.insert(id, Appointment { at, deadline: Some(deadline), step: TOUCH });
                let known = expected.entry(number).or_insert((deadline, at));
                if known.0 != deadline {
                    *known = (deadline, at);
                }
            }
            while !expected.is_empty() {
                for (id, appointment) in wheel.ready().await {
                    let number: u32 = id.as_str().parse().expect("a number");
                    let (deadline, at) = expected.remove(&number).unwrap_or_else(|| panic!("seed {seed}: {id} was ready before"));
                    assert_eq!((appointment.deadline, appointment.at), (Some(deadline), at), "seed {seed}, order {id}");
                    let late = Instant::now().checked_duration_since(at).expect("not before its time");
                    assert!(late <= Duration::from_millis(1), "seed {seed}: {id} is {late:?} late");
                }
            }
            assert!(wheel.places.is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_touched_is_not_touched_again_for_the_same_deadline() {
        let now = Instant::now();
        let (id, later) = (OrderId::from_database("1"), now + Duration::from_millis(20));
        let mut wheel = Wheel::default();
        wheel.insert(id.clone(), Appointment { at: later, deadline: Some(7), step: OFFER });
        wheel.insert(id.clone(), Appointment { at: now, deadline: Some(7), step: TOUCH });
        assert_eq!(wheel.ready().await, [(id.clone(), Appointment { at: later, deadline: Some(7), step: OFFER })]);
        wheel.insert(id.clone(), Appointment { at: later, deadline: Some(7), step: OFFER });
        wheel.insert(id.clone(), Appointment { at: later + SAME, deadline: Some(8), step: TOUCH });
        // The moment that it has no more comes first, with nobody.
        assert_eq!(wheel.ready().await, []);
        assert_eq!(wheel.ready().await, [(id, Appointment { at: later + SAME, deadline: Some(8), step: TOUCH })]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_is_ready_in_groups_and_what_does_not_fit_is_left_to_the_sweep() {
        let mut wheel = Wheel::default();
        let at = Instant::now() + Duration::from_secs(1);
        for number in 0..CAPACITY + 10 {
            wheel.insert(OrderId::from_database(&number.to_string()), Appointment { at, deadline: Some(1), step: TOUCH });
        }
        let mut ready = 0;
        while ready < CAPACITY {
            let group = wheel.ready().await.len();
            assert!((1..=GROUP).contains(&group));
            ready += group;
        }
        assert!(wheel.places.is_empty());
    }
}
