//! Which question goes out next, and when. Pure: it is told the time, and what came of each request.
//!
//! - First questions go before repeated ones, which have half of the requests at the most, and one in ten.
//! - Orders whose request was not answered go out again in halves of it, down to single orders: one that upsets the receiver
//!   holds no other.
//! - When nothing is answered at all, one order at a time is asked about, every 0.2 to 5 s, each in its turn; the first answer
//!   ends that for all.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use crate::order::OrderId;

/// Requests about so many different orders without one answer between them are a silence.
const SILENCE: usize = 3;

/// How long after one question of a silence the next goes out.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// So often a repeated question goes before first ones.
const TURN: u32 = 10;

/// A request is hardly longer than this.
const LONGEST: usize = 1 << 20;

/// A question.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) id: OrderId,
    /// In microseconds since 1970 UTC.
    pub(crate) deadline: i64,
    /// The order's columns that it carries, as a JSON object.
    pub(super) order: String,
    /// What the database's clock showed when the row was read, likewise, and when that was.
    pub(super) now: i64,
    pub(super) read: Instant,
    /// With how many others it may go out.
    pub(super) size: usize,
    /// It was asked before.
    pub(super) again: bool,
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Next {
    /// Ask these.
    Ask(Vec<Question>),
    /// Nothing until then.
    At(Instant),
    /// Nothing until something happens.
    Nothing,
}

/// How nothing is answered.
#[derive(Debug, Clone, Copy)]
struct Silence {
    pause: Duration,
    began: Instant,
    ended: Instant,
}

/// The questions that wait to go out.
#[derive(Debug)]
pub(super) struct Queue {
    first: VecDeque<Question>,
    again: VecDeque<Question>,
    batch: usize,
    concurrency: usize,
    turn: u32,
    under_way: usize,
    repeated_under_way: usize,
    /// The first orders of the requests that had no answer since the last answer.
    unanswered: HashSet<OrderId>,
    silence: Option<Silence>,
}

impl Queue {
    pub(super) fn new(batch: usize, concurrency: usize) -> Self {
        Self {
            first: VecDeque::new(),
            again: VecDeque::new(),
            batch,
            concurrency,
            turn: 0,
            under_way: 0,
            repeated_under_way: 0,
            unanswered: HashSet::new(),
            silence: None,
        }
    }

    /// Whether nothing is answered at all.
    pub(super) fn is_silent(&self) -> bool {
        self.silence.is_some()
    }

    /// Whether something was not answered, and nothing was since.
    pub(super) fn is_doubtful(&self) -> bool {
        !self.unanswered.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.first.len() + self.again.len()
    }

    /// Takes in a question.
    pub(super) fn push(&mut self, question: Question) {
        if question.again { &mut self.again } else { &mut self.first }.push_back(question);
    }

    /// The next request; whoever is given one says how it has ended.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        if self.len() == 0 || self.under_way >= self.concurrency {
            return Next::Nothing;
        }
        if let Some(silence) = self.silence {
            if self.under_way > 0 {
                return Next::Nothing;
            }
            let soonest = silence.ended + SHORTEST_PAUSE;
            let at = if self.first.is_empty() { soonest.max(silence.began + silence.pause) } else { soonest };
            if at > now {
                return Next::At(at);
            }
            let question = self.first.pop_front().or_else(|| self.again.pop_front());
            return self.begin(question.into_iter().collect());
        }
        self.turn = self.turn.wrapping_add(1);
        let may_repeat = self.repeated_under_way < (self.concurrency / 2).max(1);
        let repeats = may_repeat && (self.first.is_empty() || self.turn.is_multiple_of(TURN));
        let batch = match (repeats, self.again.is_empty()) {
            (true, false) => take(&mut self.again, self.batch),
            (true, true) | (false, _) => take(&mut self.first, self.batch),
        };
        self.begin(batch)
    }

    fn begin(&mut self, batch: Vec<Question>) -> Next {
        let Some(first) = batch.first() else { return Next::Nothing };
        self.under_way += 1;
        self.repeated_under_way += usize::from(first.again);
        Next::Ask(batch)
    }

    /// A request has ended that began with such a question.
    pub(super) fn ended(&mut self, again: bool) {
        self.under_way = self.under_way.saturating_sub(1);
        self.repeated_under_way = self.repeated_under_way.saturating_sub(usize::from(again));
    }

    /// Something was answered; whether that ends a silence.
    pub(super) fn answered(&mut self) -> bool {
        self.unanswered.clear();
        self.silence.take().is_some()
    }

    /// A request that began with this order was not answered; whether a silence begins.
    pub(super) fn unanswered(&mut self, first: &OrderId, began: Instant, now: Instant) -> bool {
        if let Some(silence) = &mut self.silence {
            *silence = Silence { pause: (silence.pause * 2).min(LONGEST_PAUSE), began, ended: now };
            return false;
        }
        if self.unanswered.len() < SILENCE {
            self.unanswered.insert(first.clone());
        }
        let is_silence = self.unanswered.len() >= SILENCE;
        if is_silence {
            self.silence = Some(Silence { pause: SHORTEST_PAUSE, began, ended: now });
        }
        is_silence
    }
}

/// As many as may go out together.
fn take(queue: &mut VecDeque<Question>, batch: usize) -> Vec<Question> {
    let (mut taken, mut most, mut length) = (Vec::new(), batch, 0);
    while let Some(next) = queue.front() {
        most = most.min(next.size);
        length += next.order.len();
        if !taken.is_empty() && (taken.len() >= most || length > LONGEST) {
            break;
        }
        taken.extend(queue.pop_front());
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(number: usize, again: bool, size: usize) -> Question {
        let id = OrderId::from_database(&number.to_string());
        Question { id, deadline: 0, order: "{}".into(), now: 0, read: Instant::now(), size, again }
    }

    fn asked(queue: &mut Queue) -> Vec<usize> {
        match queue.next(Instant::now()) {
            Next::Ask(batch) => batch.iter().map(|one| one.id.as_str().parse().expect("a number")).collect(),
            Next::At(_) | Next::Nothing => Vec::new(),
        }
    }

    fn queue(numbers: impl IntoIterator<Item = usize>) -> Queue {
        let mut queue = Queue::new(100, 4);
        numbers.into_iter().for_each(|number| queue.push(question(number, false, 100)));
        queue
    }

    #[tokio::test(start_paused = true)]
    async fn first_questions_go_before_repeated_ones() {
        let mut queue = queue(1..=150);
        (201..=202).for_each(|number| queue.push(question(number, true, 100)));
        assert_eq!(asked(&mut queue), (1..=100).collect::<Vec<_>>());
        assert_eq!(asked(&mut queue), (101..=150).collect::<Vec<_>>());
        assert_eq!(asked(&mut queue), [201, 202]);
        (203..=204).for_each(|number| queue.push(question(number, true, 1)));
        assert_eq!(asked(&mut queue), [203]);
        assert_eq!(asked(&mut queue), [0; 0], "four are under way");
        queue.ended(false);
        assert_eq!(asked(&mut queue), [0; 0], "two are for first questions");
        queue.push(question(5, false, 100));
        assert_eq!(asked(&mut queue), [5]);
    }

    #[tokio::test(start_paused = true)]
    async fn halves_stay_halves() {
        let mut queue = queue([]);
        (1..=3).for_each(|number| queue.push(question(number, true, 2)));
        (4..=9).for_each(|number| queue.push(question(number, true, 100)));
        assert_eq!((asked(&mut queue), asked(&mut queue)), (vec![1, 2], vec![3, 4]));
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_silence_one_question_at_a_time_goes_out_and_the_first_answer_ends_it() {
        let mut queue = queue(1..=10);
        let id = |number: usize| OrderId::from_database(&number.to_string());
        let now = Instant::now();
        assert!(!queue.unanswered(&id(100), now, now) && !queue.unanswered(&id(100), now, now), "one order is no silence");
        assert!(!queue.unanswered(&id(101), now, now));
        assert!(queue.unanswered(&id(102), now, now));
        let mut pauses = Vec::new();
        for number in 1..=10 {
            let Next::At(at) = queue.next(Instant::now()) else { panic!("it waits") };
            tokio::time::sleep_until(at).await;
            let began = Instant::now();
            assert_eq!(asked(&mut queue), [number]);
            assert!(matches!(queue.next(Instant::now()), Next::Nothing), "one at a time");
            queue.push(question(number, true, 100));
            queue.ended(false);
            queue.unanswered(&id(number), began, Instant::now());
        }
        for _ in 0..8 {
            let before = Instant::now();
            let Next::At(at) = queue.next(before) else { panic!("it waits") };
            tokio::time::sleep_until(at).await;
            pauses.push((at - before).as_millis());
            let began = Instant::now();
            let Next::Ask(batch) = queue.next(began) else { panic!("one goes out") };
            assert_eq!(batch.len(), 1);
            batch.into_iter().for_each(|one| queue.push(one));
            queue.ended(true);
            queue.unanswered(&id(1), began, Instant::now());
        }
        assert!(pauses.iter().all(|pause| *pause == 5_000), "{pauses:?}");
        assert!(queue.answered() && !queue.is_silent());
        assert_eq!(asked(&mut queue).len(), 10);
    }
}
