//! Our own tables in MySQL and MariaDB: beside the orders table, in its database.

use super::deadline::NOW;
use crate::store::{outbox::Words, statement::Parameters};

/// For tables in this database, beside this orders table.
pub(super) fn words(database: &str, orders_table: &str) -> Words {
    let literal = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
    // A lock's name is the whole server's, and no longer than that of a database.
    let lock = format!("CONCAT('order_closer_', MD5({}))", literal(database));
    Words {
        schema: format!("`{}`.", database.replace('`', "``")),
        schema_name: literal(database),
        orders_table: literal(orders_table),
        find_tables: format!(
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = {} AND table_name = 'order_closer_migrations'",
            literal(database)
        ),
        now: NOW,
        parameters: Parameters::Bare,
        new_events: "JSON_TABLE(?1, '$[*]' COLUMNS (id CHAR(36) PATH '$.id', order_id VARCHAR(700) PATH '$.order_id', \
                     deadline BIGINT PATH '$.deadline', triggered_by VARCHAR(16) PATH '$.triggered_by', data LONGTEXT PATH '$.data')) AS e",
        new_data: "e.data",
        data_text: "e.data",
        dead_id: "CONVERT(order_id USING utf8mb4)",
        // Without this, MariaDB compares by the text's collation.
        dead_key: |id| format!("CAST({id} AS BINARY)"),
        or_update: "ON DUPLICATE KEY UPDATE",
        skip_locked: " FOR UPDATE SKIP LOCKED",
        // These servers commit each CREATE TABLE by itself, so a lock of the transaction would not do.
        lock_migrations: format!("SELECT GET_LOCK({lock}, 0)"),
        unlock_migrations: Some(format!("DO RELEASE_LOCK({lock})")),
        migrations: &[include_str!("migrations/1.sql"), include_str!("migrations/2.sql")],
    }
}
