//! Who else closes these orders, as far as heartbeats tell, and whose each share of them is.
//!
//! Everything here is a function of the heartbeats and of this host's steady clock; no clocks are compared.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tokio::time::Instant;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::heartbeat::{Group, Heartbeat};
use crate::order::{OrderId, Shares};

/// An instance whose heartbeat has not changed for so long is gone.
const GONE: Duration = Duration::from_millis(1_500);

/// A field that nobody has changed for so long is swept out; the whole hash lives as long after the last heartbeat.
pub(super) const FORGOTTEN: Duration = Duration::from_mins(1);

/// How long after its deadline an order of another instance may still be open.
pub(super) const PATIENCE: Duration = Duration::from_millis(700);

/// The same, if that instance has more to do than one batch and gets on with it.
const PATIENCE_WITH_A_BUSY_ONE: Duration = Duration::from_secs(3);

/// To whom crowds of notifications belong is decided as with a share, of this number.
const CROWDS: u32 = Shares::COUNT;

/// So many others are believed at the most: the first by their names, so that all believe the same.
const BELIEVED: usize = 32;

/// An instance, and its claims.
#[derive(Debug, Clone)]
struct Instance {
    name: String,
    /// To each share.
    shares: [u64; Shares::COUNT as usize],
    crowds: u64,
}

impl Instance {
    fn new(name: &str) -> Self {
        let seed = xxh3_64(name.as_bytes());
        let claim = |share: u32| xxh3_64_with_seed(&share.to_le_bytes(), seed);
        let mut shares = [0; Shares::COUNT as usize];
        (0..).zip(&mut shares).for_each(|(share, claimed)| *claimed = claim(share));
        Self { name: name.to_owned(), shares, crowds: claim(CROWDS) }
    }
}

/// Another instance's field.
#[derive(Debug)]
struct Peer {
    instance: Instance,
    text: String,
    /// What its instance has said last, whatever others have written there since.
    heartbeat: Heartbeat,
    /// When we last saw its count go up. A field that was there before us may be a dead one's.
    beaten: Option<Instant>,
    /// When its text last changed.
    seen: Instant,
}

impl Peer {
    /// Takes in what its field has now.
    fn hear(&mut self, text: String, group: &Group, now: Instant) {
        if self.text == text {
            return;
        }
        // Whoever repeats what was said before says nothing.
        let heard = Heartbeat::read(&text, &self.instance.name, group).filter(|heard| heard.beat > self.heartbeat.beat);
        if let Some(heartbeat) = heard {
            (self.heartbeat, self.beaten) = (heartbeat, Some(now));
        }
        (self.text, self.seen) = (text, now);
    }

    /// Until when it is believed to live; nothing where no beat of it was seen.
    fn lives_until(&self) -> Option<Instant> {
        self.beaten.map(|at| at + GONE)
    }

    fn lives(&self, now: Instant) -> bool {
        self.lives_until().is_some_and(|until| now < until)
    }

    fn is_fit(&self) -> bool {
        self.heartbeat.fit
    }

    fn patience(&self) -> Duration {
        if self.heartbeat.busy { PATIENCE_WITH_A_BUSY_ONE } else { PATIENCE }
    }
}

/// How many other instances there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// Those that live.
    pub(super) living: usize,
    /// Those among them that can't close what is their own.
    pub(super) unfit: usize,
}

/// How the shares are divided.
#[derive(Debug, Clone)]
pub(super) struct Division {
    /// How long after their deadlines it is for this instance to try the orders of each share: zero where it is the first.
    patience: [Duration; Shares::COUNT as usize],
    /// Those of which it is the first.
    pub(super) ours: Shares,
    /// When another instance is given up, if its heart beats no more.
    pub(super) until: Option<Instant>,
}

impl Division {
    /// Nobody else is known.
    const ALONE: Self = Self { patience: [Duration::ZERO; Shares::COUNT as usize], ours: Shares::ALL, until: None };

    fn is_current(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// The instances that close the same orders.
#[derive(Debug)]
pub(super) struct Peers {
    own: Instance,
    /// Whether this instance closes what is its own.
    fit: bool,
    others: BTreeMap<String, Peer>,
    /// What follows from these, for as long as nobody is given up.
    division: Division,
}

impl Peers {
    /// Nobody else is known yet.
    pub(super) fn new(own: &str) -> Self {
        Self { own: Instance::new(own), fit: true, others: BTreeMap::new(), division: Division::ALONE }
    }

    /// This instance's name.
    pub(super) fn own(&self) -> &str {
        &self.own.name
    }

    /// Whether this instance closes what is its own.
    pub(super) fn is_fit(&self) -> bool {
        self.fit
    }

    /// How long after its deadline it is for this instance to try an order: zero if it is the first.
    pub(super) fn patience(&self, id: &OrderId, now: Instant) -> Duration {
        let patience = |division: &Division| division.patience[Shares::of(id) as usize];
        if self.division.is_current(now) { patience(&self.division) } else { patience(&self.divided(now)) }
    }

    /// The shares of which this instance is the first.
    pub(super) fn shares(&self, now: Instant) -> Shares {
        if self.division.is_current(now) { self.division.ours } else { self.divided(now).ours }
    }

    /// Whether another instance is the one that hears crowds.
    pub(super) fn other_hears(&self, now: Instant) -> bool {
        self.believed(now).any(|peer| peer.is_fit() && peer.instance.crowds > self.own.crowds)
    }

    /// Divides the shares anew.
    pub(super) fn divide(&mut self, now: Instant) -> &Division {
        self.division = self.divided(now);
        &self.division
    }

    /// How many instances have shares, this one among them.
    pub(super) fn instances(&self, now: Instant) -> u32 {
        let others = self.sharers(now).count();
        1 + u32::try_from(others).unwrap_or(u32::MAX - 1)
    }

    /// The others who have shares. Where all are unfit, their database is: they go on sharing the work.
    fn sharers(&self, now: Instant) -> impl Iterator<Item = &Peer> {
        self.believed(now).filter(|peer| peer.is_fit() || !self.fit)
    }

    /// Each share belongs to the one whose claim to it is the highest, of those who have not their part already.
    fn divided(&self, now: Instant) -> Division {
        let mut members: Vec<(&Instance, Duration, u32)> = self.sharers(now).map(|peer| (&peer.instance, peer.patience(), 0)).collect();
        members.push((&self.own, Duration::ZERO, 0));
        let part = Shares::COUNT.div_ceil(u32::try_from(members.len()).unwrap_or(u32::MAX));
        let mut division =
            Division { ours: Shares::NONE, until: self.believed(now).filter_map(Peer::lives_until).min(), ..Division::ALONE };
        for (share, patience) in (0..).zip(&mut division.patience) {
            let open = members.iter_mut().filter(|(.., shares)| *shares < part);
            let Some((_, its_patience, shares)) = open.max_by_key(|(instance, ..)| instance.shares[share as usize]) else { continue };
            *shares += 1;
            *patience = *its_patience;
            if patience.is_zero() {
                division.ours = division.ours.and(share);
            }
        }
        division
    }

    /// How many others there are.
    pub(super) fn known(&self, now: Instant) -> Known {
        let (living, unfit) = (self.believed(now).count(), self.believed(now).filter(|peer| !peer.is_fit()).count());
        Known { living, unfit }
    }

    fn believed(&self, now: Instant) -> impl Iterator<Item = &Peer> {
        self.others.values().filter(move |peer| peer.lives(now)).take(BELIEVED)
    }

    /// Takes in what the hash has, and whether this instance is fit; returns the fields that nobody has changed for long, and those
    /// that are no heartbeats: nobody of the group has written them, and however many there are, none is looked at again.
    pub(super) fn learn(&mut self, fields: HashMap<String, String>, fit: bool, group: &Group, now: Instant) -> Vec<String> {
        self.fit = fit;
        self.others.retain(|name, _| fields.contains_key(name));
        let mut foreign = Vec::new();
        for (name, text) in fields {
            if name == self.own.name {
                continue;
            }
            if let Some(peer) = self.others.get_mut(&name) {
                peer.hear(text, group, now);
            } else if let Some(heartbeat) = Heartbeat::read(&text, &name, group) {
                let peer = Peer { instance: Instance::new(&name), text, heartbeat, beaten: None, seen: now };
                self.others.insert(name, peer);
            } else {
                foreign.push(name);
            }
        }
        let forgotten = self.others.iter().filter(|(_, peer)| now.saturating_duration_since(peer.seen) > FORGOTTEN);
        foreign.extend(forgotten.map(|(name, _)| name.clone()));
        self.divide(now);
        foreign
    }

    /// Forgets all others.
    pub(super) fn forget(&mut self) {
        self.others.clear();
        self.division = Division::ALONE;
    }
}
