//! Runs of consecutive orders whose deadlines are spread evenly: the same in every table and in Redis.

use std::{
    ops::Range,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Milliseconds since 1970.
pub type Millis = i64;

/// Now.
pub fn now() -> Millis {
    millis(SystemTime::now())
}

/// A point in time as milliseconds since 1970.
pub fn millis(time: SystemTime) -> Millis {
    let since = time.duration_since(UNIX_EPOCH).expect("after 1970");
    Millis::try_from(since.as_millis()).expect("before the year 292 million")
}

/// Waits until the clock shows this.
pub async fn sleep_until(moment: Millis) {
    tokio::time::sleep(Duration::from_millis(moment.saturating_sub(now()).max(0).unsigned_abs())).await;
}

/// Consecutive orders.
#[derive(Debug, Clone)]
pub struct Orders {
    /// Their numbers.
    pub numbers: Range<i64>,
    /// The deadline of the first.
    pub due_from: Millis,
    /// Over how many milliseconds their deadlines are spread, evenly.
    pub over: Millis,
}

impl Orders {
    /// How many.
    pub fn count(&self) -> i64 {
        self.numbers.end - self.numbers.start
    }

    /// The deadline of one.
    pub fn deadline(&self, number: i64) -> Millis {
        self.due_from + (number - self.numbers.start) * self.over / self.count()
    }

    /// The same in SQL, where `number` is the order's number and `div` the division that cuts off.
    pub fn deadline_sql(&self, number: &str, div: &str) -> String {
        format!("({} + ({number} - {}) * {} {div} {})", self.due_from, self.numbers.start, self.over, self.count())
    }

    /// Each with its deadline, in parts that fit into memory.
    pub fn parts(&self) -> impl Iterator<Item = Vec<(i64, Millis)>> + '_ {
        const PART: usize = 50_000;
        self.numbers.clone().step_by(PART).map(|from| {
            let until = self.numbers.end.min(from + PART as i64);
            (from..until).map(|number| (number, self.deadline(number))).collect()
        })
    }
}
