//! Whether rows and keys differ as a whole: judged by the last orders of which both were known.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use crate::trigger::witness::{Difference, TOLERANCE};

/// How many comparisons count, how many differences are needed, and for how long either does.
const SIZE: usize = 100;
const ENOUGH: usize = 10;
const LASTS: Duration = Duration::from_hours(24);

/// The last comparisons, and what follows from them.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// By how many microseconds the key was to expire after the row's deadline, where that was too much.
    compared: VecDeque<(Instant, Option<i64>)>,
    whole: Option<Whole>,
}

/// Rows and keys differ as a whole.
#[derive(Debug)]
struct Whole {
    /// By so many microseconds, save for a few.
    difference: i64,
    /// In which life of the keys, as far as that is known.
    life: Option<String>,
    /// Keys may have been lost since.
    lost: bool,
    /// Redis did not say, the last time, whether they were.
    doubted: bool,
}

/// What follows from the last comparisons.
#[derive(Debug, PartialEq)]
pub(super) enum News {
    /// Nothing new.
    Nothing,
    /// Rows and keys differ as a whole.
    Differ(Difference),
    /// They no longer do.
    Agree,
}

impl Sample {
    /// Adds a comparison: by how much the key was to expire later than its row's deadline, `None` if there was none to expire.
    pub(super) fn add(&mut self, later: Option<i64>, now: Instant) {
        // A key that is not there when its order is due agrees; unless it was lost.
        if later.is_none() && self.is_whole() {
            return;
        }
        let tolerated = i64::try_from(TOLERANCE.as_micros()).unwrap_or(i64::MAX);
        if self.compared.len() == SIZE {
            self.compared.pop_front();
        }
        self.compared.push_back((now, later.filter(|later| *later > tolerated)));
    }

    /// Judges by the comparisons so far.
    pub(super) fn judge(&mut self, now: Instant) -> News {
        while self.compared.pop_front_if(|(at, _)| now - *at > LASTS).is_some() {}
        let differing: Vec<i64> = self.compared.iter().filter_map(|(_, later)| *later).collect();
        let (count, all) = (differing.len(), self.compared.len());
        match &mut self.whole {
            None if count >= ENOUGH && count * 5 >= all * 4 => {
                let Some(difference) = Difference::of(differing) else { return News::Nothing };
                self.whole = Some(Whole { difference: difference.greatest(), life: None, lost: false, doubted: false });
                News::Differ(difference)
            }
            Some(_) if all == 0 || (all >= ENOUGH && count * 2 < all) => {
                self.whole = None;
                News::Agree
            }
            Some(whole) => {
                whole.difference = Difference::of(differing).map_or(whole.difference, |difference| difference.greatest());
                News::Nothing
            }
            None => News::Nothing,
        }
    }

    /// Whether rows and keys differ as a whole.
    pub(super) fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// By how many microseconds they do.
    pub(super) fn whole(&self) -> Option<i64> {
        self.whole.as_ref().map(|whole| whole.difference)
    }

    /// Whether they do, and keys may have been lost since that is known.
    pub(super) fn keys_were_lost(&self) -> bool {
        self.whole.as_ref().is_some_and(|whole| whole.lost || whole.doubted)
    }

    /// Redis answers, and the life of its keys has this name, if that can be known.
    pub(super) fn lives(&mut self, life: Option<String>) {
        let Some(whole) = &mut self.whole else { return };
        whole.doubted = life.is_none() && whole.life.is_some();
        if let Some(life) = life {
            whole.lost |= *whole.life.get_or_insert_with(|| life.clone()) != life;
        }
    }

    /// Redis did not answer. Whether its keys are still the same when it comes back shows only where that can be known.
    pub(super) fn away(&mut self) {
        if let Some(whole) = &mut self.whole {
            whole.lost |= whole.life.is_none();
        }
    }
}
