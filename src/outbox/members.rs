//! The heartbeats of daemons that share the work without a Redis.

use std::collections::HashMap;

use super::Result;
use crate::store::{Outbox, finish};

impl Outbox {
    /// Writes a daemon's heartbeat, and reads those of its group by their daemons' names.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn exchange_heartbeats(&self, group: &str, name: &str, said: &str) -> Result<HashMap<String, String>> {
        let (members, now) = (self.words.members(), self.words.now);
        // In: ?1 the text, ?2 the group, ?3 the name. Out: the number of rows. Locks the daemon's own row.
        let update = self.words.statement(&format!("UPDATE {members} SET said = ?1, seen_at = {now} WHERE group_key = ?2 AND name = ?3"));
        // In: as above. Locks the new row.
        let insert = self.words.statement(&format!("INSERT INTO {members} (said, group_key, name, seen_at) SELECT ?1, ?2, ?3, {now}"));
        // Rows of groups that are no more. Locks them.
        let tidy = self.words.statement(&format!("DELETE FROM {members} WHERE seen_at < {now} - {LEFT_BEHIND_MICROS}"));
        // In: ?1 the group. Out: names and texts. Locks nothing.
        let select = self.words.statement(&format!("SELECT name, said FROM {members} WHERE group_key = ?1"));
        let mut work = self.backend.begin().await?;
        let exchanged = async {
            let values = [said.into(), group.into(), name.into()];
            let link = work.link();
            if link.change(&update, &values).await? == 0 {
                link.change(&tidy, &[]).await?;
                link.change(&insert, &values).await?;
            }
            let rows = link.fetch(&select, &[group.into()]).await?;
            rows.into_iter().map(|mut fields| Ok((fields.text()?, fields.text()?))).collect()
        };
        let exchanged = exchanged.await;
        finish(work, exchanged).await
    }

    /// Removes the heartbeats of these daemons.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn remove_heartbeats(&self, group: &str, names: &[String]) -> Result<()> {
        // In: ?1 the group, ?2 the name. Out: the number of rows. Locks them.
        let delete = self.words.statement(&format!("DELETE FROM {} WHERE group_key = ?1 AND name = ?2", self.words.members()));
        let mut work = self.backend.begin().await?;
        let removed = async {
            for name in names {
                work.link().change(&delete, &[group.into(), name.as_str().into()]).await?;
            }
            Ok(())
        };
        let removed = removed.await;
        finish(work, removed).await
    }
}

/// After how long without a change a heartbeat was left behind by a group that has another name now: an hour.
const LEFT_BEHIND_MICROS: i64 = 3_600_000_000;
