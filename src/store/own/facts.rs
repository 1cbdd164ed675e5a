//! What must outlast a daemon and is no event.

use super::{Outbox, Result, WITH_FACTS, finish};
use crate::store::driver::Value;

impl Outbox {
    /// What was noted under this name for our orders table; nothing where our tables can't hold it.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn fact(&self, name: &str) -> Result<Option<String>> {
        if self.version < WITH_FACTS {
            return Ok(None);
        }
        let words = &self.words;
        // In: ?1 the name. Out: its value. Locks nothing.
        let select = words.statement(&format!("SELECT value FROM {} WHERE {} AND name = ?1", words.facts(), words.ours("")));
        let found = self.backend.read().await?.fetch(&select, &[name.into()]).await?;
        found.into_iter().next().map(|mut fields| fields.text()).transpose()
    }

    /// Notes a fact, unless there is one of this name, or our tables can't hold it.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn note_fact(&self, name: &str, value: &str) -> Result<()> {
        let words = &self.words;
        // In: ?1 the name, ?2 the value. Out: the number of rows added. Locks the new row.
        let insert = format!(
            "INSERT INTO {facts} (orders_table, name, value, noted_at) SELECT {}, ?1, ?2, {} \
             WHERE NOT EXISTS (SELECT 1 FROM {facts} known WHERE {} AND known.name = ?1)",
            words.orders_table,
            words.now,
            words.ours("known."),
            facts = words.facts()
        );
        self.change_fact(&insert, &[name.into(), value.into()]).await
    }

    /// Forgets a fact.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn forget_fact(&self, name: &str) -> Result<()> {
        let words = &self.words;
        // In: ?1 the name. Out: the number of rows removed. Locks the row.
        self.change_fact(&format!("DELETE FROM {} WHERE {} AND name = ?1", words.facts(), words.ours("")), &[name.into()]).await
    }

    async fn change_fact(&self, sql: &str, values: &[Value]) -> Result<()> {
        if self.version < WITH_FACTS {
            return Ok(());
        }
        let mut work = self.backend.begin().await?;
        let changed = work.link().change(&self.words.statement(sql), values).await;
        finish(work, changed).await.map(drop)
    }
}
