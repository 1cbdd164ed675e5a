//! Sending questions, and taking in what comes.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{
    Ask, Seen,
    answer::Answer,
    book::News,
    queue::{Next, Question},
};
use crate::{
    close::{Reminder, Throttle},
    metric,
    order::{OrderId, Trigger},
};

/// A row that was read longer ago is read again before its order is asked about.
const STALE: Duration = Duration::from_secs(2);

/// How often it is counted who waits for what.
const COUNT: Duration = Duration::from_secs(1);

/// Orders without an answer for so long need a hand.
const LONG: Duration = Duration::from_mins(1);

/// What is said of orders that were not answered.
#[derive(Debug, Default)]
struct Sayings {
    paid: Throttle,
    paid_long: Throttle,
    unanswered: Reminder,
    is_unanswered: bool,
}

/// How a request has ended.
#[derive(Debug)]
struct Ended {
    questions: Vec<Question>,
    again: bool,
    began: Instant,
    answers: Result<HashMap<String, Answer>, String>,
}

impl Ask {
    /// Asks until it is told to stop.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let asking = Arc::clone(&self);
        stop.run_until_cancelled(async { asking.ask_again_and_again().await }).await;
    }

    async fn ask_again_and_again(self: Arc<Self>) {
        let (mut sayings, mut last) = (Sayings::default(), String::new());
        let mut requests = JoinSet::new();
        let mut count = tokio::time::interval(COUNT);
        count.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let shut = self.parts.gate.is_shut();
            let next = if shut { Next::Nothing } else { self.lock().queue.next(Instant::now()) };
            let at = match next {
                Next::Ask(questions) => {
                    requests.spawn(Arc::clone(&self).request(questions));
                    continue;
                }
                Next::At(at) => Some(at),
                Next::Nothing => None,
            };
            tokio::select! {
                biased;
                _ = count.tick() => self.count(&mut sayings, &last),
                Some(ended) = requests.join_next() => match ended {
                    Ok(ended) => self.take_in(ended, &mut sayings, &mut last),
                    Err(error) => error!(%error, "a bug: a question ended badly"),
                },
                () = self.queued.notified() => {}
                _ = self.parts.gate.pass(0), if shut => {}
                () = tokio::time::sleep_until(at.unwrap_or_else(Instant::now)), if at.is_some() => {}
            }
        }
    }

    /// Asks these questions, as far as they are still to be asked.
    async fn request(self: Arc<Self>, questions: Vec<Question>) -> Ended {
        let again = questions.first().is_some_and(|first| first.again);
        let questions = self.refreshed(questions).await;
        let began = Instant::now();
        let answers = if questions.is_empty() { Ok(HashMap::new()) } else { self.respondent.ask(&questions).await };
        Ended { questions, again, began, answers }
    }

    /// The same questions as the rows are by now; those left out about which nobody has to be asked any more.
    async fn refreshed(&self, questions: Vec<Question>) -> Vec<Question> {
        let now = Instant::now();
        let (stale, mut fresh): (Vec<_>, Vec<_>) = questions.into_iter().partition(|question| now - question.read > STALE);
        if stale.is_empty() {
            return fresh;
        }
        let ids: Vec<OrderId> = stale.iter().map(|question| question.id.clone()).collect();
        let Ok(mut rows) = self.rows(&ids).await else {
            // Better asked about once more than not at all.
            fresh.extend(stale);
            return fresh;
        };
        let mut over = Vec::new();
        for question in stale {
            let seen = rows
                .remove(&question.id)
                .filter(|seen| seen.row.deadline == Some(question.deadline) && self.is_due(Trigger::Reconcile, seen, self.ahead));
            match seen {
                Some(Seen { row, order, read }) => {
                    if self.lock().book.has_waited(&question.id, now) {
                        self.lock().book.give_up(&question.id, now);
                        over.push(question.id);
                    } else {
                        fresh.push(Question { order, now: row.now, read, ..question });
                    }
                }
                None => {
                    self.lock().book.forget(&question.id);
                    over.push(question.id);
                }
            }
        }
        self.parts.inbox.answered(&over);
        fresh
    }

    /// Takes in what came of a request.
    fn take_in(&self, Ended { questions, again, began, answers }: Ended, sayings: &mut Sayings, last: &mut String) {
        let now = Instant::now();
        let mut changed: Vec<OrderId> = Vec::new();
        let mut state = self.lock();
        let super::State { book, queue } = &mut *state;
        queue.ended(again);
        let Some(first) = questions.first().map(|question| question.id.clone()) else { return };
        let of = questions.len();
        let mut answers = answers.unwrap_or_else(|reason| {
            debug!(reason, orders = of, "a question was not answered");
            *last = reason;
            HashMap::new()
        });
        let answered = questions.iter().any(|question| answers.contains_key(question.id.as_str()));
        let (ends, begins, doubtful) = if answered {
            (queue.answered(), false, false)
        } else {
            let doubtful = queue.is_doubtful();
            (false, queue.unanswered(&first, began, now), doubtful)
        };
        if answered {
            metric::ASK_SECONDS.record((now - began).as_secs_f64(), &[self.parts.rule.label()]);
        }
        let silent = queue.is_silent();
        let mut counts: HashMap<&'static str, u64> = HashMap::new();
        for question in questions {
            let Some(answer) = answers.remove(question.id.as_str()) else {
                *counts.entry("none").or_default() += 1;
                if answered {
                    *last = "the answer has nothing of some orders, or what is no answer".into();
                }
                match book.unanswered(&question.id, question.deadline, (of, !answered), (silent, doubtful), now) {
                    (Some(size), changes) => {
                        changed.extend(changes.then(|| question.id.clone()));
                        queue.push(Question { size, again: true, ..question });
                    }
                    (None, _) => changed.push(question.id),
                }
                continue;
            };
            *counts.entry(answer.name()).or_default() += 1;
            let since = i64::try_from((began - question.read).as_micros()).unwrap_or(i64::MAX);
            let asked_at = question.now.saturating_add(since);
            if book.answered(&question.id, (question.deadline, asked_at), answer, now) == News::Paid
                && let Some(withheld) = sayings.paid.withheld(now)
            {
                warn!(
                    order = %question.id, withheld,
                    "an order is paid, says whoever was asked, and its row does not say so yet; it is not closed"
                );
            }
            changed.push(question.id);
        }
        if begins {
            changed.extend(book.silence_begins(now));
        }
        if ends {
            changed.extend(book.silence_ends(now));
        }
        drop(state);
        if begins || ends {
            self.parts.inbox.set_unanswered(begins);
        }
        if begins {
            warn!(reason = last.as_str(), "nobody answers who is asked before closing, and orders wait; asking about one at a time");
        }
        if ends {
            info!("whoever is asked before closing answers again");
        }
        for (answer, orders) in counts {
            self.parts.stats.answered(answer, orders);
        }
        // The book has them in no order.
        changed.sort_unstable();
        self.parts.inbox.answered(&changed);
        self.answers.send_replace(());
    }

    /// Counts who waits, and says what needs a hand.
    fn count(&self, sayings: &mut Sayings, last: &str) {
        let now = Instant::now();
        let mut state = self.lock();
        let (counts, paid_long) = (state.book.tidy_up(now), state.book.paid_long(now));
        drop(state);
        let states = [("unanswered", counts.unanswered), ("later", counts.later), ("paid", counts.paid), ("paid_long", counts.paid_long)];
        for (state, orders) in states {
            metric::ASKED.set(orders as f64, &[self.parts.rule.label(), state]);
        }
        metric::OLDEST_UNANSWERED.set(counts.oldest_unanswered.as_secs_f64(), &[self.parts.rule.label()]);
        for id in paid_long {
            if let Some(withheld) = sayings.paid_long.withheld(now) {
                error!(
                    order = %id, withheld,
                    "an order was said to be paid a quarter of an hour ago, and its row still does not say so; its callback may be lost"
                );
            }
        }
        if counts.oldest_unanswered < LONG {
            if std::mem::take(&mut sayings.is_unanswered) {
                sayings.unanswered = Reminder::default();
                info!("no order waits for long any more because nobody has answered");
            }
        } else if sayings.unanswered.is_due(now) {
            sayings.is_unanswered = true;
            error!(
                orders = counts.unanswered,
                since_s = counts.oldest_unanswered.as_secs(),
                reason = last,
                "orders are not closed, since whoever is asked before closing has not answered"
            );
        }
    }
}
