//! Our own tables in MySQL and MariaDB: beside the orders table, in its database.

use sha2::{Digest, Sha256};

use super::deadline::NOW;
use crate::store::{
    own::{Form, Words},
    statement::Parameters,
};

/// The name of the lock that whoever migrates holds. It is the whole server's, and no longer than 64 characters, as a
/// database's name may be by itself. MySQL has no MD5() any more, so it is hashed here.
fn lock_name(database: &str) -> String {
    let hash = Sha256::digest(database);
    hash[..16].iter().fold("order_closer_".into(), |name, byte| format!("{name}{byte:02x}"))
}

/// The new value of a timer's column, where the registration holds, or else the old one.
macro_rules! renewed {
    ($new:literal, $old:literal) => {
        concat!(
            "IF(VALUES(generation) > order_closer_timers.generation OR VALUES(generation) = order_closer_timers.generation \
             AND (order_closer_timers.state = 'armed' OR VALUES(due_at) <> order_closer_timers.due_at), ",
            $new,
            ", order_closer_timers.",
            $old,
            ")"
        )
    };
}

/// For tables in this database, beside this orders table.
pub(super) fn words(database: &str, orders_table: &str) -> Words {
    let literal = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
    let lock = literal(&lock_name(database));
    let prefix = format!("`{}`.", database.replace('`', "``"));
    Words {
        schema_prefix: literal(&prefix),
        schema: prefix,
        schema_name: literal(database),
        orders_table: literal(orders_table),
        orders_table_name: orders_table.to_owned(),
        neighbours: None,
        find_tables: format!(
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = {} AND table_name = 'order_closer_migrations'",
            literal(database)
        ),
        now: NOW,
        parameters: Parameters::Bare,
        rows: Form::JsonTable,
        new_data: "e.data",
        // With the columns' own collation, so that their index serves.
        new_timers: "(SELECT j.place, j.new_id, CONVERT(j.new_kind USING utf8mb4) COLLATE utf8mb4_bin AS new_kind, \
                     CONVERT(j.new_key USING utf8mb4) COLLATE utf8mb4_bin AS new_key, j.new_due, j.delay, j.new_target, j.new_data, \
                     j.new_generation FROM JSON_TABLE(?1, '$[*]' COLUMNS (place BIGINT PATH '$.place', new_id CHAR(36) PATH '$.id', new_kind VARCHAR(64) PATH '$.kind', \
                     new_key VARCHAR(255) PATH '$.key', new_due BIGINT PATH '$.due', delay BIGINT PATH '$.delay', \
                     new_target VARCHAR(64) PATH '$.target', new_data LONGTEXT PATH '$.data', \
                     new_generation BIGINT PATH '$.generation')) AS j) AS e",
        new_timer_data: "e.new_data",
        key: "`key`",
        // Assigned from left to right, each seeing those before: what is armed by the first passes the others' conditions, too.
        renew: concat!(
            "ON DUPLICATE KEY UPDATE state = ",
            renewed!("'armed'", "state"),
            ", target = ",
            renewed!("VALUES(target)", "target"),
            ", data = ",
            renewed!("VALUES(data)", "data"),
            ", due_at = ",
            renewed!("VALUES(due_at)", "due_at"),
            ", generation = ",
            renewed!("VALUES(generation)", "generation")
        ),
        data_text: "e.data",
        event_id: str::to_owned,
        dead_id: "CONVERT(order_id USING utf8mb4)",
        // Without this, MariaDB compares by the text's collation.
        dead_key: |id| format!("CAST({id} AS BINARY)"),
        or_update: "ON DUPLICATE KEY UPDATE",
        // Of more than 200 events (eq_range_index_dive_limit) it is the statistics that say how many rows they have.
        by_event: " FORCE INDEX (PRIMARY)",
        by_order: " FORCE INDEX (order_closer_events_order)",
        by_due: " FORCE INDEX (order_closer_deliveries_ours)",
        // A DELETE from one table takes no such hint.
        delete_by_event: |deliveries| format!("DELETE d FROM {deliveries} AS d FORCE INDEX (PRIMARY)"),
        locking: " FOR UPDATE",
        skip_locked: " FOR UPDATE SKIP LOCKED",
        // These servers commit each CREATE TABLE by itself, so a lock of the transaction would not do.
        lock_migrations: format!("SELECT GET_LOCK({lock}, 0)"),
        unlock_migrations: Some(format!("DO RELEASE_LOCK({lock})")),
        script: (format!("SET NAMES utf8mb4;\nDO GET_LOCK({lock}, 10);"), format!("DO RELEASE_LOCK({lock});")),
        script_now: NOW,
        user: Some(
            "SELECT CONCAT(QUOTE(LEFT(CURRENT_USER(), CHAR_LENGTH(CURRENT_USER()) - CHAR_LENGTH(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)) - 1)), \
             '@', QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)))",
        ),
        migrations: &[
            include_str!("migrations/1.sql"),
            include_str!("migrations/2.sql"),
            include_str!("migrations/3.sql"),
            include_str!("migrations/4.sql"),
            include_str!("migrations/5.sql"),
            include_str!("migrations/6.sql"),
            include_str!("migrations/7.sql"),
            include_str!("migrations/8.sql"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `SELECT LEFT(SHA2('shop', 256), 32)`
    #[test]
    fn the_name_of_a_lock_is_hashed_here_and_short_enough() {
        assert_eq!(lock_name("shop"), "order_closer_8d9001d32c6a703d95921a77115050f3");
        assert!(lock_name(&"界".repeat(64)).len() <= 64);
        let words = words("shop", "orders");
        let sql = words.lock_migrations + &words.unlock_migrations.unwrap_or_default();
        assert!(["MD5(", "SHA1(", "SHA("].iter().all(|function| !sql.contains(function)), "MySQL 9.6 has none of these: {sql}");
    }
}
