//! What happened to each order, and what must not have.

use std::{collections::BTreeMap, fmt, fmt::Write, time::Duration};

use super::{
    outbox::first_told,
    plan::Kind,
    world::{CLOSED, State, UNPAID, World, micros},
};
use crate::trigger::TOLERANCE;

/// Something that happened to an order; all times in microseconds since 1970 UTC by the database's clock, as it is where nobody
/// has set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) at: i64,
    pub(super) order: u32,
    pub(super) what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Created {
        deadline: i64,
    },
    /// Its key was written: by the row's clock it expires then.
    Key {
        expires: i64,
    },
    Extended {
        deadline: i64,
    },
    Reopened {
        deadline: i64,
    },
    /// The shop has changed its status.
    Status(&'static str),
    /// The provider took a payment.
    PaidAtProvider,
    /// A daemon was answered.
    Answered {
        by: u32,
        deadline: i64,
        answer: &'static str,
    },
    /// A daemon has closed it, and what its status was.
    Closed {
        by: u32,
        deadline: i64,
        before: &'static str,
        trigger: &'static str,
    },
    /// Something else that helps to understand.
    Note(&'static str),
}

/// What must not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wrong {
    EarlyByItsRow,
    EarlyByItsKey,
    ClosedThoughSettled,
    ClosedThoughPaidAtProvider,
    ClosedUnasked,
    Twice,
    /// The user's statements ran more often than the order was closed, or less often.
    NotWhole,
    /// A second and longer after somebody had paused closing.
    ClosedThoughPaused,
    /// Not one event for each closure.
    Miscounted,
    /// An event that the receiver never took.
    Untold,
    /// One that it took for the first time after a later one of the same order.
    ToldOutOfOrder,
    /// One that it took late, though it would have taken it at once.
    ToldLate,
    Lost,
    Late,
    /// Later than others may be when a daemon is gone.
    LateThoughOthersLive,
    /// A part of a daemon panicked.
    Panicked,
}

/// A violation, with all that is known of the order.
#[derive(Debug)]
pub(super) struct Violation {
    pub(super) wrong: Wrong,
    pub(super) story: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.wrong, self.story)
    }
}

/// For how long an answer is good, besides the time that somebody is asked ahead; and what a transaction may take.
const GOOD_FOR: Duration = Duration::from_secs(5);
const TRANSACTION: Duration = Duration::from_secs(3);

/// An order that was there so long before its deadline is known to all that look ahead, and its key, too.
const IN_TIME: i64 = 3_000_000;

/// So far the database's clock and Redis' are apart at the most.
const APART: i64 = 3_500_000;

/// Two clocks of which one goes faster differ by so much when a key that outlives its deadline expires.
const CLOCKS: i64 = 50_000;

/// How late it may be then, where nothing went wrong that it needs.
const LATE: i64 = 60_000;

/// After which time a pause holds for every daemon.
const PAUSED: i64 = 1_000_000;

/// How long after its closure an event may be told, where only those of other orders were refused.
const TOLD_LATE: i64 = 2_000_000;

/// How late it may be then where daemons come and go: they are given up after two seconds, and none may be there for a moment.
const LATE_AFTER_A_DEATH: i64 = 2_500_000;

/// Judges all orders.
pub(super) fn judge(world: &World) -> Vec<Violation> {
    let state = world.state();
    let taken = first_told(&state.told);
    let mut stories: BTreeMap<u32, Vec<&Entry>> = BTreeMap::new();
    state.history.iter().for_each(|entry| stories.entry(entry.order).or_default().push(entry));
    let mut found = Vec::new();
    for (order, story) in &stories {
        let story_of_one = Story { order: *order, story, world, state: &state, told: &taken };
        for wrong in story_of_one.wrong() {
            found.push(Violation { wrong, story: told(world, *order, story) });
        }
    }
    found
}

fn told(world: &World, order: u32, story: &[&Entry]) -> String {
    let mut text = format!("order {order}, times in ms by the database's clock\n");
    let start = world.now() - micros(world.began.elapsed());
    let ms = |at: i64| format!("{:.1}", (at - start) as f64 / 1_000.0);
    for Entry { at, what, .. } in story {
        let what = match what {
            What::Created { deadline } => format!("created, due at {}", ms(*deadline)),
            What::Key { expires } => format!("its key is written, and expires at {}", ms(*expires)),
            What::Extended { deadline } => format!("now due at {}", ms(*deadline)),
            What::Reopened { deadline } => format!("opened again, due at {}", ms(*deadline)),
            What::Status(status) => format!("{status} by the shop"),
            What::PaidAtProvider => "paid at the provider".into(),
            What::Answered { by, deadline, answer } => format!("daemon {by} is told {answer:?} for {}", ms(*deadline)),
            What::Closed { by, deadline, before, trigger } => {
                format!("closed by daemon {by} for {}, was {before} ({trigger})", ms(*deadline))
            }
            What::Note(note) => (*note).into(),
        };
        writeln!(text, "    {:>10}  {what}", ms(*at)).unwrap_or_default();
    }
    text
}

/// What happened to one order.
struct Story<'a> {
    order: u32,
    story: &'a [&'a Entry],
    world: &'a World,
    state: &'a State,
    /// When each event was taken first.
    told: &'a BTreeMap<usize, i64>,
}

impl Story<'_> {
    fn wrong(&self) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        let mut closed = 0;
        for (at, entry) in self.story.iter().enumerate() {
            if let What::Closed { by, deadline, before, .. } = entry.what {
                closed += 1;
                self.closure(&self.story[..at], entry.at, (by, deadline, before), &mut wrong);
            }
        }
        let restored = self.state.restored.iter().filter(|order| **order == self.order).count();
        let events = self.told(&mut wrong);
        if restored != closed {
            wrong.push(Wrong::NotWhole);
        }
        if events != closed {
            wrong.push(Wrong::Miscounted);
        }
        let row = &self.state.orders[&self.order];
        if row.status == UNPAID && !row.poison && !self.state.paid.contains(&self.order) {
            wrong.push(Wrong::Lost);
        }
        wrong
    }

    /// Judges what was told of its events; how many there are.
    fn told(&self, wrong: &mut Vec<Wrong>) -> usize {
        let (mut last, mut count) = (i64::MIN, 0);
        for (place, event) in self.state.events.iter().enumerate().filter(|(_, event)| event.order == self.order) {
            count += 1;
            let Some(at) = self.told.get(&place) else {
                wrong.push(Wrong::Untold);
                continue;
            };
            if *at < last {
                wrong.push(Wrong::ToldOutOfOrder);
            }
            last = *at;
            if self.world.plan.tells_at_once() && !self.world.refuses_events_of(self.order) && at - event.at > TOLD_LATE {
                wrong.push(Wrong::ToldLate);
            }
        }
        count
    }

    fn closure(&self, before: &[&Entry], at: i64, (by, deadline, status): (u32, i64, &str), wrong: &mut Vec<Wrong>) {
        let plan = &self.world.plan;
        if at < deadline {
            wrong.push(Wrong::EarlyByItsRow);
        }
        match status {
            UNPAID => {}
            CLOSED => wrong.push(Wrong::Twice),
            _ => wrong.push(Wrong::ClosedThoughSettled),
        }
        let was_paused = |(since, until): &(i64, i64)| (since + PAUSED..*until).contains(&at);
        if plan.pauses_at_once() && self.state.paused.iter().any(was_paused) {
            wrong.push(Wrong::ClosedThoughPaused);
        }
        let since = before.iter().rev().find_map(|entry| match entry.what {
            What::Created { deadline: given } | What::Extended { deadline: given } | What::Reopened { deadline: given } => {
                Some((entry.at, given))
            }
            What::Key { .. } | What::Status(_) | What::PaidAtProvider | What::Answered { .. } | What::Closed { .. } | What::Note(_) => None,
        });
        let in_time = since.is_some_and(|(since, given)| given == deadline && deadline - since > IN_TIME);
        let mut keys =
            before.iter().filter_map(|entry| if let What::Key { expires } = entry.what { Some((entry.at, expires)) } else { None });
        // A key that came later than the look at it need not be known.
        let disputed =
            keys.next_back().filter(|(written, expires)| expires - deadline > micros(TOLERANCE) + APART && deadline - written > IN_TIME);
        // A daemon that stands still takes Redis for silent: its clock goes on here.
        let hears_redis = !plan.has(Kind::Redis) && !plan.has(Kind::Frozen);
        if hears_redis && in_time && disputed.is_some_and(|(_, expires)| at < expires - CLOCKS) {
            wrong.push(Wrong::EarlyByItsKey);
        }
        if let Some(ahead) = plan.ask {
            if before.iter().any(|entry| entry.what == What::PaidAtProvider) {
                wrong.push(Wrong::ClosedThoughPaidAtProvider);
            }
            let good = micros(ahead + GOOD_FOR + TRANSACTION);
            let is_good = |entry: &Entry| plan.has(Kind::Frozen) || at - entry.at <= good;
            let answer = What::Answered { by, deadline, answer: "close" };
            if !before.iter().any(|entry| entry.what == answer && is_good(entry)) {
                wrong.push(Wrong::ClosedUnasked);
            }
        }
        let starts = deadline - self.world.began_at() > IN_TIME + 1_000_000;
        let outlives = before.iter().any(|entry| matches!(entry.what, What::Key { expires } if expires - deadline > LATE));
        if plan.is_punctual() && in_time && starts && !outlives && at - deadline > LATE && !self.was_held(before, deadline) {
            wrong.push(Wrong::Late);
        }
        if plan.is_punctual_but_for_deaths()
            && in_time
            && starts
            && !outlives
            && at - deadline > LATE_AFTER_A_DEATH
            && !self.was_held(before, deadline)
        {
            wrong.push(Wrong::LateThoughOthersLive);
        }
    }

    /// Whether a payment held it at its deadline.
    fn was_held(&self, before: &[&Entry], deadline: i64) -> bool {
        before.iter().any(|entry| matches!(entry.what, What::Note(_)) && entry.at > deadline - 300_000)
    }
}
