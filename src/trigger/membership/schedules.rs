//! Instances that join, leave, freeze, thaw, lose their database and get it back, by seeded schedules; each has a clock of
//! its own, which goes faster or slower than the others'. A moment after the last of these events every order has exactly
//! one instance that tries it first, and that one lives and is fit.

use std::{collections::HashMap, ops::Range, time::Duration};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::time::Instant;

use super::{
    heartbeat::{Group, Heartbeat},
    peers::{Known, Peers},
};
use crate::{
    config::{Config, Rule},
    order::{OrderId, Shares},
};

/// How long the examination of a database takes that does not answer.
const EXAMINATION: u64 = 500;

/// Two seconds, by the slowest clock of all.
const SETTLED: u64 = 2_000 * 10 / 9;

/// An instance, with times in milliseconds since the beginning of the schedule.
struct Member {
    name: String,
    peers: Peers,
    /// What its clock showed at the beginning, and how fast it goes, in percent.
    clock: (Instant, u32),
    next_beat: u64,
    beat: u64,
    frozen: bool,
    unfit_since: Option<u64>,
}

impl Member {
    fn new(name: String, now: u64, random: &mut StdRng) -> Self {
        let began = Instant::now() + Duration::from_millis(random.random_range(0..86_400_000));
        Self {
            peers: Peers::new(&name),
            name,
            clock: (began, random.random_range(90..=110)),
            next_beat: now,
            beat: 0,
            frozen: false,
            unfit_since: None,
        }
    }

    fn clock(&self, now: u64) -> Instant {
        let (began, percent) = self.clock;
        began + Duration::from_millis(now) * percent / 100
    }

    fn beats(&mut self, hash: &mut HashMap<String, String>, group: &Group, now: u64) {
        if self.frozen || now < self.next_beat {
            return;
        }
        self.next_beat = now + 500 * 100 / u64::from(self.clock.1);
        self.beat += 1;
        let fit = self.unfit_since.is_none_or(|since| now < since + EXAMINATION);
        hash.insert(self.name.clone(), Heartbeat { beat: self.beat, fit, busy: now.is_multiple_of(3) }.written(&self.name, group));
        let at = self.clock(now);
        for forgotten in self.peers.learn(hash.clone(), fit, group, at) {
            hash.remove(&forgotten);
        }
    }

    fn claims(&self, id: &OrderId, now: u64) -> bool {
        self.peers.patience(id, self.clock(now)).is_zero()
    }
}

struct Schedule {
    random: StdRng,
    group: Group,
    hash: HashMap<String, String>,
    members: Vec<Member>,
    born: u32,
}

impl Schedule {
    fn new(seed: u64) -> Self {
        let group = Group::of(&Rule::of(&Config::default()), None, "a database");
        Self { random: StdRng::seed_from_u64(seed), group, hash: HashMap::new(), members: Vec::new(), born: 0 }
    }

    fn join(&mut self, now: u64) {
        self.born += 1;
        let name = format!("{:08x}-{}", self.random.random::<u32>(), self.born);
        self.members.push(Member::new(name, now, &mut self.random));
    }

    fn event(&mut self, now: u64) {
        if self.members.is_empty() || (self.members.len() < 7 && self.random.random_bool(0.3)) {
            return self.join(now);
        }
        let chosen = self.random.random_range(0..self.members.len());
        let member = &mut self.members[chosen];
        match self.random.random_range(0..6) {
            0 => {
                let gone = self.members.swap_remove(chosen);
                // Most say goodbye.
                if self.random.random_bool(0.7) {
                    self.hash.remove(&gone.name);
                }
            }
            1 | 2 => member.frozen = !member.frozen,
            _ => member.unfit_since = if member.unfit_since.is_some() { None } else { Some(now) },
        }
    }

    /// Nothing happens but heartbeats.
    fn pass(&mut self, time: Range<u64>) {
        let Self { members, hash, group, .. } = self;
        time.step_by(10).for_each(|now| members.iter_mut().for_each(|member| member.beats(hash, group, now)));
    }

    /// What those write who do not know the group.
    fn forge(&mut self) {
        let other = Group::of(&Rule::of(&Config::default()), None, "another database");
        let (name, beat) = (format!("{:08x}", self.random.random_range(0..20)), self.random.random());
        let text = Heartbeat { beat, fit: true, busy: true }.written(&name, &other);
        self.hash.insert(name, if beat % 2 == 0 { text } else { format!("{beat} busy") });
    }

    fn assert_settled(&self, ids: &[OrderId], seed: u64, now: u64) {
        let live: Vec<&Member> = self.members.iter().filter(|member| !member.frozen).collect();
        let fit: Vec<&Member> = live.iter().copied().filter(|member| member.unfit_since.is_none()).collect();
        let responsible = if fit.is_empty() { &live } else { &fit };
        if responsible.is_empty() {
            return;
        }
        for id in ids {
            let claiming: Vec<&str> = responsible.iter().filter(|one| one.claims(id, now)).map(|one| one.name.as_str()).collect();
            assert_eq!(claiming.len(), 1, "seed {seed} at {now} ms: order {id} belongs to {claiming:?} of {}", responsible.len());
        }
        for one in &live {
            let Known { living, unfit } = one.peers.known(one.clock(now));
            assert_eq!(living, live.len() - 1, "seed {seed} at {now} ms");
            assert_eq!(
                unfit,
                live.iter().filter(|peer| peer.unfit_since.is_some() && peer.name != one.name).count(),
                "seed {seed} at {now} ms"
            );
        }
    }
}

/// One of each share, and more.
fn ids() -> Vec<OrderId> {
    (1..=70).map(|number| OrderId::from_database(&(number * 32).to_string())).collect()
}

#[test]
fn each_order_has_one_that_lives_and_is_fit() {
    let ids = ids();
    for seed in 0..200 {
        let mut schedule = Schedule::new(seed);
        let (mut next_event, mut last_event) = (0, 0);
        for now in (0..30_000).step_by(10) {
            if now >= next_event {
                schedule.event(now);
                last_event = now;
                next_event = now + schedule.random.random_range(10..6_000);
            }
            if now % 300 == 0 {
                schedule.forge();
            }
            let Schedule { members, hash, group, .. } = &mut schedule;
            members.iter_mut().for_each(|member| member.beats(hash, group, now));
            if now % 100 == 0 && now > last_event + SETTLED {
                schedule.assert_settled(&ids, seed, now);
            }
        }
    }
}

/// So many instances that know each other.
fn acquainted(seed: u64, members: u32) -> Schedule {
    let mut schedule = Schedule::new(seed);
    (0..members).for_each(|_| schedule.join(0));
    schedule.pass(0..3_000);
    schedule
}

/// Each has its part, and whoever leaves has it taken over by all; few other orders change hands.
#[test]
fn the_shares_are_divided_evenly() {
    for seed in 0..50 {
        for count in 1..=8_u32 {
            let mut schedule = acquainted(seed, count);
            let owner = |schedule: &Schedule, share: u32, now| {
                let has = |member: &&Member| member.peers.shares(member.clock(now)).has(share);
                schedule.members.iter().find(has).map(|member| member.name.clone()).expect("each share has one")
            };
            let owners = |schedule: &Schedule, now| (0..Shares::COUNT).map(|share| owner(schedule, share, now)).collect::<Vec<_>>();
            let before = owners(&schedule, 3_000);
            let part = Shares::COUNT.div_ceil(count);
            for member in &schedule.members {
                let own = u32::try_from(before.iter().filter(|name| **name == member.name).count()).expect("few");
                assert!(own <= part && own + count > part, "seed {seed}: {own} of {} shares, of {count} instances", Shares::COUNT);
            }
            if count == 1 {
                continue;
            }
            let gone = schedule.members.remove(0).name;
            schedule.hash.remove(&gone);
            schedule.pass(3_000..6_000);
            let after = owners(&schedule, 6_000);
            let moved = before.iter().zip(&after).filter(|(before, after)| **before != gone && before != after).count();
            assert!(moved <= Shares::COUNT as usize / 3, "seed {seed}: {moved} of others' shares moved, of {count} instances");
        }
    }
}

/// Whatever a crowd claims, some orders are left to each, and all agree whom they believe.
#[test]
fn a_crowd_is_believed_up_to_a_limit() {
    let schedule = acquainted(1, 100);
    for id in ids() {
        let claiming = schedule.members.iter().filter(|one| one.claims(&id, 3_000)).count();
        assert!(claiming > 0, "nobody tries {id}");
    }
    assert!(schedule.members.iter().all(|one| one.peers.known(one.clock(3_000)).living == 32));
}

/// Whoever fills the hash with fields of his own costs nobody time: they are removed, and not kept in mind.
#[test]
fn what_strangers_write_is_removed() {
    let mut schedule = Schedule::new(2);
    (0..3).for_each(|_| schedule.join(0));
    for now in (0..5_000).step_by(10) {
        let Schedule { members, hash, group, .. } = &mut schedule;
        if now == 3_000 {
            hash.extend((0..100_000).map(|number| (format!("{number}"), "beat=1 fit=yes busy=yes sign=0".to_owned())));
        }
        members.iter_mut().for_each(|member| member.beats(hash, group, now));
    }
    assert_eq!(schedule.hash.len(), 3);
    schedule.assert_settled(&ids(), 2, 5_000);
}
