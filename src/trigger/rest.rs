//! How long a reader of the table rests after a pass.
//!
//! One slow pass is a hiccup of the database, and no reason to be late for what comes after it: what counts is the lesser of
//! the last pass and the median of the last five. While pages are quick, the sweep rests for `sweep.every`, or nine times
//! as long as it took, but five seconds at the most. Where pages take a second and longer, nine times as long without that limit, so
//! that it takes a tenth of the database's time; a minute at the most.

use std::{collections::VecDeque, time::Duration};

/// How many passes are remembered.
const PASSES: usize = 5;

/// A page that takes longer, its way and its rows apart, is slow.
pub(super) const SLOW: Duration = Duration::from_secs(1);

/// A rest is so many times as long as what the pass cost.
const FACTOR: u32 = 9;

/// The longest rest while pages are quick, unless `sweep.every` is longer; and while they are slow.
const LONGEST: Duration = Duration::from_secs(5);
const LONGEST_WHEN_SLOW: Duration = Duration::from_mins(1);

/// How long a statement of such a reader may take: after a rest of [`LONGEST_WHEN_SLOW`] one of this length has taken less than a
/// tenth of the time. What takes longer is ended, and wants an index.
pub const LONGEST_READ: Duration = Duration::from_secs(6);
const _: () = assert!(LONGEST_READ.as_secs() * FACTOR as u64 <= LONGEST_WHEN_SLOW.as_secs(), "no more than a tenth");

/// What the pages of a pass cost, beyond their way and what their rows are worth.
#[derive(Debug, Clone, Default)]
pub(super) struct Cost {
    pages: Vec<Duration>,
    timed_out: bool,
}

impl Cost {
    /// Adds a page.
    pub(super) fn page(&mut self, excess: Duration) {
        self.pages.push(excess);
    }

    /// Adds a page that could not be read in time, which is slow however short that is.
    pub(super) fn timed_out(&mut self, took: Duration) {
        self.pages.push(took);
        self.timed_out = true;
    }

    fn total(&self) -> Duration {
        self.pages.iter().sum()
    }

    fn median_page(&self) -> Duration {
        let median = median(self.pages.iter().copied());
        if self.timed_out { median.max(SLOW) } else { median }
    }
}

/// The upper median; zero of nothing.
fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The last passes of one reader.
#[derive(Debug)]
pub(super) struct Rest {
    every: Duration,
    /// Of each what a page cost, and all of them; newest last. Those that have not been were quick.
    passes: VecDeque<(Duration, Duration)>,
}

impl Default for Rest {
    fn default() -> Self {
        Self { every: Duration::ZERO, passes: VecDeque::from([(Duration::ZERO, Duration::ZERO); PASSES]) }
    }
}

impl Rest {
    /// How long it rests when nothing is slow.
    pub(super) fn rests(&mut self, every: Duration) {
        self.every = every;
    }

    /// How long to rest after a pass of this cost.
    pub(super) fn after(&mut self, cost: &Cost) -> Duration {
        self.passes.pop_front();
        self.passes.push_back((cost.median_page(), cost.total()));
        let longest = if self.is_slow() { LONGEST_WHEN_SLOW } else { LONGEST };
        (self.lasting(|pass| pass.1) * FACTOR).min(longest).max(self.every)
    }

    /// Whether pages are slow, and have been for a while.
    pub(super) fn is_slow(&self) -> bool {
        self.lasting(|pass| pass.0) >= SLOW
    }

    fn lasting(&self, of: impl Fn(&(Duration, Duration)) -> Duration) -> Duration {
        let last = self.passes.back().map(&of).unwrap_or_default();
        last.min(median(self.passes.iter().map(of)))
    }
}
