//! Shares: the parts into which all orders fall by their ids, so that several instances divide them.
//!
//! Of ids that count up, [`RUN`] in a row are of one share: they mostly fall due one after the other, and whoever has them closes
//! several in one transaction, where single orders here and there would each be one. A database finds the share of a whole number by
//! itself, so that an instance reads its own orders alone.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use super::OrderId;

/// How many whole numbers in a row are of one share, as a power of two.
const RUN: u32 = 5;

/// Some of the shares.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shares(u64);

impl Shares {
    /// How many there are. A prime: ids that end in the number of a machine, or in a counter that mostly stands at zero, fall into
    /// all of them nevertheless.
    pub const COUNT: u32 = 61;

    /// None of them.
    pub const NONE: Self = Self(0);

    /// All of them.
    pub const ALL: Self = Self((1 << Self::COUNT) - 1);

    /// Which one an order is of.
    #[must_use]
    pub fn of(id: &OrderId) -> u32 {
        let count = u64::from(Self::COUNT);
        let run = id.as_str().parse::<u64>().map_or_else(|_| xxh3_64(id.as_str().as_bytes()), |number| number >> RUN);
        // Less than the count.
        u32::try_from(run % count).unwrap_or_default()
    }

    /// These and one more.
    #[must_use]
    pub const fn and(self, share: u32) -> Self {
        Self(self.0 | (1 << share))
    }

    /// Whether this is one of them.
    #[must_use]
    pub const fn has(self, share: u32) -> bool {
        self.0 & (1 << share) != 0
    }

    /// Whether an order is of one of them.
    #[must_use]
    pub fn have(self, id: &OrderId) -> bool {
        self.has(Self::of(id))
    }

    /// Whether there are no others.
    #[must_use]
    pub fn are_all(self) -> bool {
        self == Self::ALL
    }

    /// The SQL condition that an order is of one of them, where `id` is a column of whole numbers of at most 64 bits; `number` and
    /// `shift` write a constant and what another number is shifted by. Of negative ids it is always true.
    #[must_use]
    pub fn condition(self, id: &str, number: impl Fn(u64) -> String, shift: impl Fn(String) -> String) -> String {
        let share = shift(format!("({id} >> {RUN}) % {}", Self::COUNT));
        // Not `= 1`, which a planner takes for rare.
        format!("({id} < 0 OR (({} >> {share}) & 1) <> 0)", number(self.0))
    }
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shares({} of {})", self.0.count_ones(), Self::COUNT)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn shares(ids: impl Iterator<Item = String>) -> BTreeMap<u32, usize> {
        let mut shares = BTreeMap::new();
        ids.for_each(|id| *shares.entry(Shares::of(&OrderId::from_database(&id))).or_default() += 1);
        shares
    }

    #[test]
    fn neighbours_are_of_one_share_and_whatever_ids_are_made_of_all_shares_are_alike() {
        assert_eq!(shares((64..96).map(|number| number.to_string())).into_iter().collect::<Vec<_>>(), [(2, 32)]);
        let snowflake = |at: u64| ((1_700_000_000_000 + at * 7) << 22 | 5 << 12).to_string();
        let uuid = |at: u64| format!("{:032x}", u128::from(xxh3_64(&at.to_le_bytes())));
        let of = 61_000;
        let counted = [shares((1..=of * 32).map(|id| id.to_string())), shares((0..of).map(snowflake)), shares((0..of).map(uuid))];
        for (kind, shares) in counted.iter().enumerate() {
            let fair = shares.values().sum::<usize>() / 61;
            assert!(
                shares.len() == 61 && shares.values().all(|orders| (fair * 4 / 5..=fair * 6 / 5).contains(orders)),
                "{kind}: {shares:?}"
            );
        }
    }

    #[test]
    fn all_have_every_order() {
        let all = (0..Shares::COUNT).fold(Shares::NONE, Shares::and);
        assert!(all.are_all() && !Shares::NONE.and(3).are_all());
        for id in ["0", "-7", "18446744073709551615", "99999999999999999999", "ORD-7", ""] {
            let id = OrderId::from_database(id);
            assert!(all.have(&id) && Shares::NONE.and(Shares::of(&id)).have(&id) && !Shares::NONE.have(&id), "{id}");
        }
    }
}
