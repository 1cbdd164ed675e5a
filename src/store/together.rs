//! Reading what falls due in all shards of a database by one statement.
//!
//! Every shard looks for itself, and by the same clock. What is asked at the same time for the same window goes to the
//! database as one `UNION ALL` with a limit in each branch, and each shard has the rows of its own branch. Guarantees:
//!
//! - One shard in trouble, whose table is locked, missing or without an index, makes the statement fail or take long once. Each
//!   shard reads for itself then, which shows whose fault it was: that one reads alone for a while, the others together.
//! - Those that read alone share a few connections, so that the others always have some.
//! - Where the database is away all are told so by one attempt.

use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sqlx::Database;
use tokio::{
    sync::{Semaphore, oneshot},
    time::Instant,
};
use tracing::debug;

use super::{
    StoreError,
    connections::Connections,
    dialect::{Dialect, sorted},
    driver::{Driver, Value},
    statement::Statement,
};

/// How long the first waits for others that ask at the same time.
const GATHERING: Duration = Duration::from_millis(3);

/// The most branches of one statement.
const BRANCHES: usize = 32;

/// How long a statement with several branches may take: half of the time by which each look reaches further than the next.
const LIMIT: Duration = Duration::from_millis(500);

/// For how long a shard reads alone that has kept others waiting.
const ALONE: Duration = Duration::from_secs(30);

/// How many of those read at the same time.
const READING_ALONE: usize = 3;

/// Where a branch's number stands, after the columns of an order and of its place.
const NUMBER: usize = 5;

/// The last and the first deadline that are asked for.
type Window = (i64, i64);

type Row<D> = <<D as Dialect>::Driver as Database>::Row;
type Result<T, E = StoreError> = std::result::Result<T, E>;

/// The shards of one database.
pub(super) struct Together<D: Dialect> {
    connections: Arc<Connections<D>>,
    /// What is asked for just now, by its window.
    asked: Mutex<BTreeMap<Window, Vec<Request<D>>>>,
    alone: Semaphore,
    shards: AtomicUsize,
}

/// One shard, as it reads.
pub(super) struct Reader<D: Dialect> {
    together: Arc<Together<D>>,
    /// The number of its shard.
    number: usize,
    alone_until: Mutex<Option<Instant>>,
}

/// Rows, and when the database was asked for them.
pub(super) struct Rows<D: Dialect> {
    pub(super) rows: Vec<Row<D>>,
    pub(super) asked: Instant,
}

struct Request<D: Dialect> {
    shard: usize,
    statement: Statement,
    selected: usize,
    limit: i64,
    answer: oneshot::Sender<Answer<D>>,
}

/// What becomes of a request.
enum Answer<D: Dialect> {
    Rows(Rows<D>),
    /// The database is away.
    Failed(StoreError),
    /// Nobody else asked.
    Single,
    /// The statement failed; whoever takes longer than so by itself, or fails, keeps the others waiting.
    Apart(Duration),
}

impl<D: Dialect> std::fmt::Debug for Reader<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("number", &self.number).field("alone_until", &self.alone_until).finish_non_exhaustive()
    }
}

impl<D: Dialect> Reader<D> {
    /// One more shard.
    pub(super) fn of(together: &Arc<Together<D>>) -> Self {
        let number = together.shards.fetch_add(1, Ordering::Relaxed);
        Self { together: Arc::clone(together), number, alone_until: Mutex::default() }
    }

    /// Reads by a statement whose parameters are these; it can select one more column after `selected` bytes.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub(super) async fn read(&self, statement: &Statement, selected: usize, [until, from, limit]: [i64; 3]) -> Result<Rows<D>> {
        if self.is_alone() {
            // Never closed.
            let _place = self.together.alone.acquire().await;
            return self.read_alone(statement, [until, from, limit]).await;
        }
        let (answer, answered) = oneshot::channel();
        self.together.ask((until, from), Request { shard: self.number, statement: statement.clone(), selected, limit, answer });
        match answered.await {
            Ok(Answer::Rows(rows)) => Ok(rows),
            Ok(Answer::Failed(error)) => Err(error),
            Ok(Answer::Single) | Err(_) => self.read_alone(statement, [until, from, limit]).await,
            Ok(Answer::Apart(share)) => {
                let began = Instant::now();
                let read = self.read_alone(statement, [until, from, limit]).await;
                let took = read.as_ref().map_or(Duration::MAX, |read| read.asked.elapsed());
                if took > share {
                    *self.alone_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(began + ALONE);
                }
                read
            }
        }
    }

    fn is_alone(&self) -> bool {
        self.alone_until.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| until > Instant::now())
    }

    async fn read_alone(&self, statement: &Statement, values: [i64; 3]) -> Result<Rows<D>> {
        let mut session = self.together.connections.read().await?;
        let asked = Instant::now();
        Ok(Rows { rows: session.read(statement, &values.map(Value::from)).await?, asked })
    }
}

impl<D: Dialect> Together<D> {
    /// No shard yet.
    pub(super) fn over(connections: Arc<Connections<D>>) -> Self {
        Self { connections, asked: Mutex::default(), alone: Semaphore::new(READING_ALONE), shards: AtomicUsize::new(0) }
    }

    /// Adds a request to those of the same window; the first one waits for the others.
    fn ask(self: &Arc<Self>, window: Window, request: Request<D>) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = asked.entry(window).or_default();
        requests.push(request);
        if requests.len() == 1 {
            let together = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(GATHERING).await;
                let requests = together.asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&window).unwrap_or_default();
                together.answer(window, requests).await;
            });
        }
    }

    async fn answer(&self, window: Window, mut requests: Vec<Request<D>>) {
        // The same shards make the same statement, which the driver has prepared.
        requests.sort_by_key(|request| request.shard);
        while !requests.is_empty() {
            let rest = requests.split_off(requests.len().min(BRANCHES));
            let group = mem::replace(&mut requests, rest);
            if let [_] = group.as_slice() {
                for request in group {
                    // Fails only where nobody waits any more.
                    request.answer.send(Answer::Single).ok();
                }
                continue;
            }
            self.answer_group(window, group).await;
        }
    }

    async fn answer_group(&self, window: Window, group: Vec<Request<D>>) {
        let asked = Instant::now();
        let branches = u32::try_from(group.len()).unwrap_or(u32::MAX);
        let read = self.read(window, &group).await;
        let apart = |reason: &dyn std::fmt::Display| {
            debug!(%reason, branches, "shards are read one by one");
            Answer::Apart(LIMIT / branches)
        };
        match read {
            Ok(Ok(branches)) => {
                for (request, mut rows) in group.into_iter().zip(branches) {
                    rows.truncate(usize::try_from(request.limit).unwrap_or(usize::MAX));
                    request.answer.send(Answer::Rows(Rows { rows, asked })).ok();
                }
            }
            Ok(Err(error @ (StoreError::Unavailable(_) | StoreError::Refused { .. }))) => {
                group.into_iter().for_each(|request| drop(request.answer.send(Answer::Failed(error.clone()))));
            }
            Ok(Err(error)) => group.into_iter().for_each(|request| drop(request.answer.send(apart(&error)))),
            Err(_) => group.into_iter().for_each(|request| drop(request.answer.send(apart(&"it took too long")))),
        }
    }

    /// The rows of each branch; the outer error is that they took too long.
    async fn read(&self, (until, from): Window, group: &[Request<D>]) -> Result<Result<Vec<Vec<Row<D>>>>, tokio::time::error::Elapsed> {
        let mut session = match self.connections.read().await {
            Ok(session) => session,
            Err(error) => return Ok(Err(error)),
        };
        let limit = group.iter().map(|request| request.limit).max().unwrap_or_default();
        let branches: Vec<(&Statement, usize)> = group.iter().map(|request| (&request.statement, request.selected)).collect();
        // In: ?1 and ?2 the last and the first deadline, ?3 page size. Out: each branch's rows in the order of deadlines, with the
        // branch's number. Locks nothing.
        let union = Statement::union(&branches, D::BRACKETS);
        let values = [until, from, limit].map(Value::from);
        let rows = match tokio::time::timeout(LIMIT, session.read(&union, &values)).await? {
            Ok(rows) => rows,
            Err(error) => return Ok(Err(error)),
        };
        let mut sorted_rows: Vec<Vec<Row<D>>> = group.iter().map(|_| Vec::new()).collect();
        for row in rows {
            let number = D::Driver::text(&row, NUMBER).map(|text| text.and_then(|text| text.parse::<usize>().ok()));
            match number.map(|number| number.and_then(|number| sorted_rows.get_mut(number))) {
                Ok(Some(branch)) => branch.push(row),
                Ok(None) => return Ok(Err(StoreError::Rejected("a branch has no number".into()))),
                Err(error) => return Ok(Err(sorted::<D>(error))),
            }
        }
        Ok(Ok(sorted_rows))
    }
}
