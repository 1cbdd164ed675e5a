//! Room that a crowd has taken, given back: collections keep theirs for ever.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::{BuildHasher, Hash},
};

/// Room for so many is kept.
const KEPT: usize = 4_096;

/// What has more room than it needs is made to have twice what it needs, when it has this many times as much.
const TOO_MUCH: usize = 8;

/// A collection whose room can be given back.
pub(crate) trait Spare {
    /// Gives back what a crowd has taken, if the crowd is gone. Costs nothing where there is nothing to give back.
    fn spare(&mut self);
}

/// To how much room one is shrunk that has so many and so much room, if it is to be.
fn shrunk(len: usize, capacity: usize) -> Option<usize> {
    (capacity > KEPT && len < capacity / TOO_MUCH).then(|| (2 * len).max(KEPT / 2))
}

impl<K: Eq + Hash, V, S: BuildHasher> Spare for HashMap<K, V, S> {
    fn spare(&mut self) {
        shrunk(self.len(), self.capacity()).into_iter().for_each(|room| self.shrink_to(room));
    }
}

impl<T: Eq + Hash, S: BuildHasher> Spare for HashSet<T, S> {
    fn spare(&mut self) {
        shrunk(self.len(), self.capacity()).into_iter().for_each(|room| self.shrink_to(room));
    }
}

impl<T> Spare for VecDeque<T> {
    fn spare(&mut self) {
        shrunk(self.len(), self.capacity()).into_iter().for_each(|room| self.shrink_to(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowds_room_is_given_back_when_it_is_gone() {
        let mut map: HashMap<u32, u32> = (0..100_000).map(|number| (number, number)).collect();
        let (full, mut shrunk) = (map.capacity(), 0);
        for number in 0..100_000 {
            map.remove(&number);
            let before = map.capacity();
            map.spare();
            shrunk += u32::from(map.capacity() < before);
            assert!(map.capacity() >= map.len() && (map.len() * 9 > full || map.capacity() < full), "{} of {full}", map.len());
        }
        assert!(map.capacity() <= KEPT && (1..20).contains(&shrunk), "{} in {shrunk} steps", map.capacity());
        let mut few: VecDeque<u32> = VecDeque::with_capacity(KEPT);
        few.spare();
        assert_eq!(few.capacity(), KEPT);
    }
}
