//! A time limit for statements that write, for a server that has none: another connection ends what takes too long.
//!
//! A statement that can't be ended goes on until its wait for a lock does. A session is used for nothing more until KILL
//! was answered, which would end the next one otherwise.

use std::{pin::pin, time::Duration};

use sqlx::{Pool, SqlStr};
use tokio::time::timeout;

use crate::store::{dialect::Dialect, driver::Driver};

/// How long KILL may take.
const LIMIT: Duration = Duration::from_secs(1);

/// How a statement has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    ByItself,
    CutOff,
    /// What was to end it may come yet.
    Unsure,
}

/// Ends the statements of one session.
pub(super) struct CutOff<D: Dialect> {
    after: Duration,
    /// Connections to the same database.
    pool: Pool<D::Driver>,
    kill: SqlStr,
}

impl<D: Dialect> Clone for CutOff<D> {
    fn clone(&self) -> Self {
        Self { after: self.after, pool: self.pool.clone(), kill: self.kill.clone() }
    }
}

impl<D: Dialect> CutOff<D> {
    pub(super) fn new(after: Duration, pool: Pool<D::Driver>, kill: SqlStr) -> Self {
        Self { after, pool, kill }
    }

    /// When statements are ended.
    pub(super) fn after(&self) -> Duration {
        self.after
    }

    /// Waits for the answer to a statement.
    pub(super) async fn watch<T>(&self, answer: impl Future<Output = T>) -> (T, End) {
        let mut answer = pin!(answer);
        if let Ok(answer) = timeout(self.after, &mut answer).await {
            return (answer, End::ByItself);
        }
        let connection = tokio::select! {
            biased;
            answer = &mut answer => return (answer, End::ByItself),
            connection = self.pool.acquire() => connection,
        };
        let Ok(mut connection) = connection else { return (answer.await, End::ByItself) };
        let kill = timeout(LIMIT, D::Driver::script(&mut connection, self.kill.clone()));
        let (answer, killed) = tokio::join!(answer, kill);
        (answer, if matches!(killed, Ok(Ok(_))) { End::CutOff } else { End::Unsure })
    }
}
