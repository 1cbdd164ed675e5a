//! What is known of each order about which somebody is asked. Pure: it is told the time.
//!
//! Each memory has an end by the clock, save of what waits to be asked, which the inbox bounds.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use crate::{
    ask::answer::Answer,
    close::{Leave, Permit, Why},
    order::OrderId,
};

/// An order that was said to be paid is asked about again after so long, doubling, and its row is looked at so often meanwhile.
const PAID: Duration = Duration::from_mins(5);
const LONGEST_PAID: Duration = Duration::from_hours(6);
const PAID_LOOK: Duration = Duration::from_mins(1);

/// For longer no callback is on its way.
const PAID_LONG: Duration = Duration::from_mins(15);

/// A single order without an answer is asked about again after so long, doubling; and where nothing else is answered either.
const AGAIN: Duration = Duration::from_secs(1);
const LONGEST_AGAIN: Duration = Duration::from_mins(1);
const LONGEST_IN_DOUBT: Duration = Duration::from_secs(5);

/// How long an order waits for what is under way before it looks again.
const LOOK: Duration = Duration::from_mins(1);

/// What nobody has asked for is forgotten so long after its time.
const FORGOTTEN: Duration = Duration::from_mins(2);

/// Where an order is.
#[derive(Debug, Clone, Copy)]
enum State {
    /// Its question waits to go out, or is out.
    Asked,
    /// It may be closed.
    May(Permit),
    /// It waits for its next question.
    Rests { until: Instant, why: Why },
}

/// An order that was said to be paid.
#[derive(Debug, Clone, Copy)]
struct Paid {
    since: Instant,
    /// How often that was said.
    times: u32,
    /// When it is asked about again.
    next: Instant,
    said: bool,
}

#[derive(Debug, Clone)]
struct Entry {
    deadline: i64,
    state: State,
    /// How often it was asked about alone, or left out, since the last answer.
    tries: u32,
    /// With how many others it may be asked about.
    size: usize,
    unanswered_since: Option<Instant>,
    paid: Option<Paid>,
}

/// How many orders wait for what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) unanswered: usize,
    pub(super) later: usize,
    pub(super) paid: usize,
    pub(super) paid_long: usize,
    /// For how long the oldest of those without an answer has been waiting.
    pub(super) oldest_unanswered: Duration,
}

/// What an answer changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// Nothing to be said.
    Nothing,
    /// The order was not said to be paid before.
    Paid,
}

/// What is known.
#[derive(Debug)]
pub(super) struct Book {
    entries: HashMap<OrderId, Entry, foldhash::quality::RandomState>,
    batch: usize,
    /// For how long an answer is good.
    good_for: Duration,
    /// After how long without an answer an order closes, if it does.
    max_wait: Option<Duration>,
}

impl Book {
    pub(super) fn new(batch: usize, good_for: Duration, max_wait: Option<Duration>) -> Self {
        Self { entries: HashMap::default(), batch, good_for, max_wait }
    }

    /// What becomes of an order, whose row has this deadline where that is known; nothing if it is to be asked about.
    pub(super) fn known(&self, id: &OrderId, deadline: Option<i64>, silent: bool, now: Instant) -> Option<Leave> {
        let entry = self.entries.get(id).filter(|entry| deadline.is_none_or(|deadline| deadline == entry.deadline))?;
        if let State::May(permit) = entry.state {
            return (now < permit.until).then_some(Leave::GoFor(permit));
        }
        let end = self.end_of(entry);
        if end.is_some_and(|end| end <= now) {
            let permit = Permit { deadline: entry.deadline, until: now + self.good_for, asked_at: None, answer: "unanswered" };
            return Some(Leave::GoFor(permit));
        }
        let (until, why) = match entry.state {
            State::Asked => (now + LOOK, if silent || entry.tries > 0 { Why::Unanswered } else { Why::Asked }),
            State::Rests { until, why } => (until, why),
            State::May(_) => return None,
        };
        let until = end.map_or(until, |end| end.min(until));
        (now < until).then_some(Leave::Wait { until, why })
    }

    /// When an order closes without an answer. One that was said to be paid never does.
    fn end_of(&self, entry: &Entry) -> Option<Instant> {
        let since = entry.unanswered_since.filter(|_| entry.paid.is_none())?;
        since.checked_add(self.max_wait?)
    }

    /// Whether an order that was closed without an answer is still asked about.
    pub(super) fn has_waited(&self, id: &OrderId, now: Instant) -> bool {
        self.entries.get(id).is_some_and(|entry| self.end_of(entry).is_some_and(|end| end <= now))
    }

    /// The row of an order was read: it is unpaid and has this deadline. Returns in how large a batch it is to be asked about,
    /// and whether that was tried before; or what it waits for instead.
    pub(super) fn ask(&mut self, id: &OrderId, deadline: i64, silent: bool, now: Instant) -> Result<(usize, bool), Leave> {
        let new = Entry {
            deadline,
            state: State::Rests { until: now, why: Why::Asked },
            tries: 0,
            size: self.batch,
            unanswered_since: None,
            paid: None,
        };
        let entry = self.entries.entry(id.clone()).or_insert_with(|| new.clone());
        if entry.deadline != deadline {
            *entry = new;
        }
        match (entry.state, entry.paid) {
            (State::Asked, _) => return Err(Leave::Wait { until: now + LOOK, why: Why::Asked }),
            (State::Rests { .. }, Some(paid)) if now < paid.next => {
                let until = paid.next.min(now + PAID_LOOK);
                entry.state = State::Rests { until, why: Why::Paid };
                return Err(Leave::Wait { until, why: Why::Paid });
            }
            (State::Rests { until, why }, _) if now < until => return Err(Leave::Wait { until, why }),
            (State::May(permit), _) if now < permit.until => return Err(Leave::GoFor(permit)),
            (State::Rests { .. } | State::May(_), _) => {}
        }
        let again = entry.tries > 0 || entry.paid.is_some() || !matches!(entry.state, State::Rests { why: Why::Asked, .. });
        entry.state = State::Asked;
        if silent {
            entry.unanswered_since.get_or_insert(now);
        }
        Ok((entry.size, again))
    }

    /// An order is asked about no longer, and what is known of it stays.
    pub(super) fn give_up(&mut self, id: &OrderId, now: Instant) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.state = State::Rests { until: now, why: Why::Unanswered };
        }
    }

    /// The row of an order says that there is nothing to ask about.
    pub(super) fn forget(&mut self, id: &OrderId) {
        self.entries.remove(id);
    }

    /// Takes in an answer about this deadline.
    pub(super) fn answered(&mut self, id: &OrderId, (deadline, asked_at): (i64, i64), answer: Answer, now: Instant) -> News {
        let (batch, good_for) = (self.batch, self.good_for);
        let Some(entry) = self.entries.get_mut(id).filter(|entry| entry.deadline == deadline) else { return News::Nothing };
        (entry.tries, entry.size, entry.unanswered_since) = (0, batch, None);
        match answer {
            Answer::Close => {
                entry.paid = None;
                entry.state = State::May(Permit { deadline, until: now + good_for, asked_at: Some(asked_at), answer: answer.name() });
                News::Nothing
            }
            Answer::Later(pause) => {
                entry.state = State::Rests { until: now + pause, why: Why::Later };
                News::Nothing
            }
            Answer::Paid => {
                let before = entry.paid;
                let times = before.map_or(0, |paid| paid.times) + 1;
                let pause = PAID.saturating_mul(1 << (times - 1).min(16)).min(LONGEST_PAID);
                let since = before.map_or(now, |paid| paid.since);
                entry.paid = Some(Paid { since, times, next: now + pause, said: before.is_some_and(|paid| paid.said) });
                entry.state = State::Rests { until: now + pause.min(PAID_LOOK), why: Why::Paid };
                if before.is_none() { News::Paid } else { News::Nothing }
            }
        }
    }

    /// A question about this deadline, one of so many in its request, was not answered, and `whole` says whether none of them
    /// was. Returns in how large a batch it goes out again at once, if it does (halves of what was not answered do, and all
    /// in a silence), and whether that changes until when it waits.
    pub(super) fn unanswered(
        &mut self,
        id: &OrderId,
        deadline: i64,
        (of, whole): (usize, bool),
        (silent, doubtful): (bool, bool),
        now: Instant,
    ) -> (Option<usize>, bool) {
        let Some(entry) = self.entries.get_mut(id).filter(|entry| entry.deadline == deadline) else { return (None, true) };
        let begins_to_wait = entry.unanswered_since.is_none() && self.max_wait.is_some();
        entry.unanswered_since.get_or_insert(now);
        if silent {
            return (Some(entry.size), begins_to_wait);
        }
        entry.size = entry.size.min(of.div_ceil(2)).max(1);
        if whole && of > 1 {
            return (Some(entry.size), begins_to_wait);
        }
        let longest = if doubtful { LONGEST_IN_DOUBT } else { LONGEST_AGAIN };
        let pause = AGAIN.saturating_mul(1 << entry.tries.min(16)).min(longest);
        entry.tries = entry.tries.saturating_add(1);
        entry.state = State::Rests { until: now + pause, why: Why::Unanswered };
        (None, true)
    }

    /// Nothing is answered any more, from now on. Returns who waits for that.
    pub(super) fn silence_begins(&mut self, now: Instant) -> Vec<OrderId> {
        let asked = self.entries.iter_mut().filter(|(_, entry)| matches!(entry.state, State::Asked));
        asked
            .map(|(id, entry)| {
                entry.unanswered_since.get_or_insert(now);
                id.clone()
            })
            .collect()
    }

    /// Something is answered again. Returns who need not wait any longer to be asked about.
    pub(super) fn silence_ends(&mut self, now: Instant) -> Vec<OrderId> {
        let rest = self.entries.iter_mut().filter(|(_, entry)| matches!(entry.state, State::Rests { why: Why::Unanswered, .. }));
        rest.map(|(id, entry)| {
            entry.state = State::Rests { until: now, why: Why::Unanswered };
            id.clone()
        })
        .collect()
    }

    /// Orders that were said to be paid a quarter of an hour ago, each once.
    pub(super) fn paid_long(&mut self, now: Instant) -> Vec<OrderId> {
        let mut found = Vec::new();
        for (id, entry) in &mut self.entries {
            if let Some(paid) = entry.paid.as_mut().filter(|paid| !paid.said && now - paid.since >= PAID_LONG) {
                paid.said = true;
                found.push(id.clone());
            }
        }
        found
    }

    /// Counts, and forgets what nobody has asked for.
    pub(super) fn tidy_up(&mut self, now: Instant) -> Counts {
        let mut counts = Counts::default();
        self.entries.retain(|_, entry| {
            let until = match entry.state {
                State::Asked => None,
                State::May(permit) => Some(permit.until),
                State::Rests { until, .. } => Some(until),
            };
            let keep = until.is_none_or(|until| now < until + FORGOTTEN);
            if keep {
                if let Some(paid) = entry.paid {
                    counts.paid += 1;
                    counts.paid_long += usize::from(now - paid.since >= PAID_LONG);
                } else if matches!(entry.state, State::Rests { why: Why::Later, .. }) {
                    counts.later += 1;
                }
                if let Some(since) = entry.unanswered_since {
                    counts.unanswered += 1;
                    counts.oldest_unanswered = counts.oldest_unanswered.max(now - since);
                }
            }
            keep
        });
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> OrderId {
        OrderId::from_database("1")
    }

    fn book(max_wait: Option<Duration>) -> Book {
        Book::new(100, Duration::from_secs(5), max_wait)
    }

    fn waits(book: &Book, now: Instant) -> Option<(Duration, Why)> {
        match book.known(&id(), None, false, now) {
            Some(Leave::Wait { until, why }) => Some((until - now, why)),
            Some(Leave::Go | Leave::GoFor(_) | Leave::GoUnasked | Leave::Look) | None => None,
        }
    }

    #[test]
    fn an_answer_is_good_for_its_deadline_and_for_a_while() {
        let (mut book, now) = (book(None), Instant::now());
        assert_eq!(book.ask(&id(), 7, false, now), Ok((100, false)));
        assert_eq!(waits(&book, now).map(|(_, why)| why), Some(Why::Asked));
        book.answered(&id(), (7, 3), Answer::Close, now);
        let permit = Permit { deadline: 7, until: now + Duration::from_secs(5), asked_at: Some(3), answer: "close" };
        assert_eq!(book.known(&id(), Some(7), false, now), Some(Leave::GoFor(permit)));
        assert_eq!(book.known(&id(), Some(8), false, now), None, "another deadline");
        assert_eq!(book.known(&id(), None, false, now + Duration::from_secs(5)), None, "it is no longer good");
        assert_eq!(book.ask(&id(), 8, false, now), Ok((100, false)));
        assert_eq!(book.answered(&id(), (7, 3), Answer::Close, now), News::Nothing, "an answer about another deadline");
        assert_eq!(waits(&book, now).map(|(_, why)| why), Some(Why::Asked));
    }

    #[test]
    fn a_paid_order_is_asked_about_ever_more_seldom_and_looked_at_meanwhile() {
        let (mut book, mut now) = (book(Some(Duration::from_secs(1))), Instant::now());
        let (begin, mut asked) = (now, Vec::new());
        assert!(book.ask(&id(), 7, false, now).is_ok());
        for round in 0..9 {
            assert_eq!(book.answered(&id(), (7, 0), Answer::Paid, now) == News::Paid, round == 0);
            loop {
                let (pause, why) = waits(&book, now).expect("it waits");
                assert_eq!(why, Why::Paid);
                assert!(pause <= PAID_LOOK, "its row is looked at");
                now += pause;
                assert_eq!(book.paid_long(now).len(), usize::from(now - begin == PAID_LONG), "said once, after {:?}", now - begin);
                match book.ask(&id(), 7, false, now) {
                    Ok(_) => break asked.push((now - begin).as_secs() / 60),
                    Err(_) => continue,
                }
            }
        }
        assert_eq!(asked, [5, 15, 35, 75, 155, 315, 635, 995, 1355]);
        assert_eq!(book.unanswered(&id(), 7, (1, true), (false, false), now), (None, true));
        assert!(waits(&book, now + Duration::from_millis(10)).is_some());
        assert_eq!(book.known(&id(), None, false, now + Duration::from_hours(1)), None, "and it never closes without an answer");
    }

    #[test]
    fn a_batch_is_halved_and_a_single_order_backs_off() {
        let (mut book, mut now) = (book(None), Instant::now());
        assert!(book.ask(&id(), 7, false, now).is_ok());
        let sizes: Vec<usize> =
            [100, 50, 25, 13, 7, 4, 2].map(|of| book.unanswered(&id(), 7, (of, true), (false, false), now).0.expect("at once")).into();
        assert_eq!(sizes, [50, 25, 13, 7, 4, 2, 1]);
        let mut pauses = Vec::new();
        for doubtful in [false, false, false, true, false, false, false, false] {
            assert_eq!(book.unanswered(&id(), 7, (1, true), (false, doubtful), now), (None, true));
            let (pause, why) = waits(&book, now).expect("it waits");
            assert_eq!(why, Why::Unanswered);
            pauses.push(pause.as_secs());
            now += pause;
            assert_eq!(book.ask(&id(), 7, false, now), Ok((1, true)));
        }
        assert_eq!(pauses, [1, 2, 4, 5, 16, 32, 60, 60]);
        assert_eq!(book.unanswered(&id(), 7, (1, true), (true, true), now), (Some(1), false), "nobody is answered: it stays in the queue");
        book.answered(&id(), (7, 0), Answer::Later(Duration::from_secs(9)), now);
        assert_eq!(waits(&book, now), Some((Duration::from_secs(9), Why::Later)));
        assert_eq!(book.ask(&id(), 7, false, now + Duration::from_secs(9)).map(|(size, _)| size), Ok(100), "it was answered");
    }

    #[test]
    fn an_order_without_an_answer_closes_after_a_while_if_that_is_wanted() {
        let (mut book, now) = (book(Some(Duration::from_secs(60))), Instant::now());
        assert!(book.ask(&id(), 7, false, now).is_ok());
        assert_eq!(book.unanswered(&id(), 7, (1, true), (false, false), now), (None, true));
        assert!(book.ask(&id(), 7, false, now + Duration::from_secs(1)).is_ok());
        let later = now + Duration::from_secs(59);
        assert_eq!(waits(&book, later), Some((Duration::from_secs(1), Why::Unanswered)), "and no longer than that");
        let end = now + Duration::from_secs(60);
        assert!(matches!(book.known(&id(), None, false, end), Some(Leave::GoFor(Permit { deadline: 7, answer: "unanswered", .. }))));
        assert!(book.has_waited(&id(), end));
        book.answered(&id(), (7, 0), Answer::Later(Duration::from_secs(30)), end);
        assert!(!book.has_waited(&id(), end), "it was answered after all");
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let (mut book, now) = (book(None), Instant::now());
        assert!(book.ask(&id(), 7, false, now).is_ok());
        assert_eq!(book.tidy_up(now + Duration::from_hours(9)), Counts::default());
        assert_eq!(book.entries.len(), 1, "its question is out");
        book.answered(&id(), (7, 0), Answer::Close, now);
        book.tidy_up(now + Duration::from_secs(6));
        assert_eq!(book.entries.len(), 1);
        book.tidy_up(now + Duration::from_mins(3));
        assert_eq!(book.entries.len(), 0);
    }
}
