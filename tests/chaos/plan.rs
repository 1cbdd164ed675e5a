//! What the order service does, and what goes wrong meanwhile: a pure function of the seed.
//!
//! The service and the faults have random numbers of their own, so that a change of the one leaves the other as it is. Which kinds
//! of fault a run has is drawn first: a run with a few kinds, often, finds what a run with all of them, seldom, does not.

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::faults::{Fault, Layout, What};
use crate::support::Kind;

/// What a run is made of.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// From which all else follows.
    pub seed: u64,
    /// How long the service works.
    pub seconds: u64,
    /// About how much it does a second.
    pub rate: u32,
    /// Where orders are.
    pub kind: Kind,
    /// Where keys are.
    pub layout: Layout,
    /// Whether the daemons are told to break their promises, so that it is seen whether that is noticed.
    pub harmful: bool,
}

/// The end of a run has no faults: so long, in milliseconds, or a quarter of a short run.
const CALM: i64 = 10_000;

/// An hour, in milliseconds.
const A_LONG_TIME: i64 = 3_600_000;

/// By which of the two rules an order closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Paid at a payment provider, who is asked before closing.
    Card,
    /// Paid to the shop itself.
    Transfer,
}

/// The key of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// It expires at the deadline.
    AtDeadline,
    /// None was ever written.
    Missing,
    /// It expires so many milliseconds after the deadline, and is written before the row.
    Outlives(i64),
}

/// When the shop hears of a payment at the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callback {
    /// So many milliseconds later.
    After(u64),
    /// Never.
    Lost,
}

/// Something that the service does. Deadlines are in milliseconds since the beginning of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Writes an order.
    Create {
        /// For which rule.
        rule: Rule,
        /// Until when it can be paid.
        deadline: i64,
        /// What Redis is told.
        key: Key,
    },
    /// Gives it more time.
    Extend {
        /// Until then.
        deadline: i64,
    },
    /// Opens it again, if it was closed.
    Reopen {
        /// Until then.
        deadline: i64,
    },
    /// The customer pays.
    Pay(Rule, Callback),
    /// The customer cancels.
    Cancel,
}

/// An action with its moment, in milliseconds since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub at: i64,
    /// With which order.
    pub order: i64,
    /// What.
    pub action: Action,
}

/// All of it, in the order of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What the service does.
    pub steps: Vec<Step>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
}

/// How many things are done with one order, on average.
const STEPS_OF_AN_ORDER: f64 = 1.76;

impl Plan {
    /// The plan of this run.
    pub fn new(options: &Options) -> Self {
        Self { steps: steps(options), faults: faults(options) }
    }

    /// The last deadline of all, in milliseconds since the beginning.
    pub fn last_deadline(&self) -> i64 {
        let deadline = |step: &Step| match step.action {
            Action::Create { deadline, .. } | Action::Extend { deadline } | Action::Reopen { deadline } => Some(deadline),
            Action::Pay(..) | Action::Cancel => None,
        };
        self.steps.iter().filter_map(deadline).max().unwrap_or_default()
    }
}

fn steps(options: &Options) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(options.seed);
    let end = millis(options.seconds);
    let mut steps = Vec::new();
    let (mut at, mut order) = (0.0, 0);
    while at < end as f64 {
        order += 1;
        life(&mut random, at as i64, order, end, &mut steps);
        // Between nothing and twice the mean.
        at += random.random_range(0.0..2_000.0) * STEPS_OF_AN_ORDER / f64::from(options.rate.max(1));
    }
    steps.sort_by_key(|step| step.at);
    steps
}

/// All that is done with one order of a run that ends then.
fn life(random: &mut StdRng, at: i64, order: i64, end: i64, steps: &mut Vec<Step>) {
    let rule = if random.random_range(0..3) == 0 { Rule::Transfer } else { Rule::Card };
    let deadline = at + random.random_range(300..6_000);
    let key = match random.random_range(0..100) {
        // Its order closes during the run, or long after it: nobody waits for that in the end.
        0..3 => Key::Outlives(Some(random.random_range(62_000..75_000)).filter(|by| deadline + by < end).unwrap_or(A_LONG_TIME)),
        3..15 => Key::Missing,
        _ => Key::AtDeadline,
    };
    let mut then = |at: i64, action: Action| steps.push(Step { at, order, action });
    then(at, Action::Create { rule, deadline, key });
    let near = |random: &mut StdRng, deadline: i64| deadline + random.random_range(-20..=20);
    let pay = |random: &mut StdRng| {
        let callback = match random.random_range(0..20) {
            0..3 => Callback::Lost,
            3..6 => Callback::After(random.random_range(200..3_000)),
            _ => Callback::After(0),
        };
        Action::Pay(rule, callback)
    };
    // A key that outlives one deadline would contradict the next one, too.
    let fates = if matches!(key, Key::Outlives(_)) { 0..65 } else { 0..100 };
    match random.random_range(fates) {
        0..35 => {}
        35..58 => then(near(random, deadline), pay(random)),
        58..65 => then(random.random_range(at + 100..deadline), pay(random)),
        65..73 => then(random.random_range(at + 100..deadline + 50), Action::Cancel),
        73..87 => {
            // Aimed at the deadline as often as not.
            let when = if random.random() { near(random, deadline) } else { random.random_range(at + 100..deadline) };
            let later = deadline.max(when) + random.random_range(500..4_000);
            then(when, Action::Extend { deadline: later });
            if random.random() {
                then(near(random, later), pay(random));
            }
        }
        _ => {
            let when = deadline + random.random_range(200..3_000);
            let later = when + random.random_range(300..4_000);
            then(when, Action::Reopen { deadline: later });
            if random.random() {
                then(near(random, later), pay(random));
            }
        }
    }
}

fn faults(options: &Options) -> Vec<Fault> {
    let mut random = StdRng::seed_from_u64(options.seed ^ 0xFA17);
    let end = millis(options.seconds);
    let calm_from = end - CALM.min(end / 4);
    let mut kinds: Vec<What> = What::ALL.into_iter().filter(|_| random.random_range(0..100) < 55).collect();
    kinds.retain(|what| what.happens_to(options.layout));
    let (mut faults, mut at) = (Vec::<Fault>::new(), random.random_range(1_000..3_000));
    while at < calm_from - 1_500 && !kinds.is_empty() {
        let what = kinds[random.random_range(0..kinds.len())];
        let lasts = random.random_range(500..what.longest()).min(calm_from - at);
        let fault = Fault { at, lasts, what: what.drawn(&mut random) };
        // Two things may go wrong at once, but not twice with the same.
        let free = faults.iter().all(|before| before.what.subject() != fault.what.subject() || before.at + before.lasts + 500 < at);
        if free {
            faults.push(fault);
        }
        let overlaps = random.random_range(0..100) < 30;
        at += if overlaps { lasts / 3 } else { lasts + random.random_range(500..3_500) };
    }
    faults
}

/// Seconds in milliseconds.
pub fn millis(seconds: u64) -> i64 {
    i64::try_from(seconds * 1_000).expect("a run ends")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: Options = Options { seed: 7, seconds: 600, rate: 300, kind: Kind::Postgres, layout: Layout::Alone, harmful: false };

    #[test]
    fn the_same_seed_makes_the_same_plan() {
        let plan = Plan::new(&OPTIONS);
        assert_eq!(plan, Plan::new(&OPTIONS));
        assert_ne!(plan, Plan::new(&Options { seed: 8, ..OPTIONS }));
        assert_eq!(plan, Plan::new(&Options { kind: Kind::MariaDb, ..OPTIONS }));
        assert_eq!(plan.steps, Plan::new(&Options { layout: Layout::Cluster, ..OPTIONS }).steps);
        assert!(plan.steps.is_sorted_by_key(|step| step.at) && plan.faults.is_sorted_by_key(|fault| fault.at));
    }

    #[test]
    fn a_plan_has_about_as_much_as_was_asked_for() {
        for seed in 0..3 {
            let plan = Plan::new(&Options { seed, ..OPTIONS });
            assert!((162_000..198_000).contains(&plan.steps.len()), "{}", plan.steps.len());
            assert!((40..400).contains(&plan.faults.len()), "{}", plan.faults.len());
            let last = plan.faults.iter().map(|fault| fault.at + fault.lasts).max();
            assert!(last.is_some_and(|last| last <= 590_000), "the end is calm: {last:?}");
        }
    }

    #[test]
    fn each_fault_comes_with_some_seed() {
        for layout in [Layout::Alone, Layout::Cluster] {
            let of = |seed: u64| Plan::new(&Options { seed, rate: 1, layout, ..OPTIONS }).faults;
            let mut names: Vec<&str> = (0..30).flat_map(of).map(|fault| fault.what.name()).collect();
            names.sort_unstable();
            names.dedup();
            let mut all: Vec<&str> = What::ALL.iter().filter(|what| what.happens_to(layout)).map(What::name).collect();
            all.sort_unstable();
            assert_eq!(names, all);
        }
    }
}
