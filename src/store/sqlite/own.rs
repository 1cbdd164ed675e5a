//! Our own tables in SQLite: in the file of the orders table.

use super::deadline::NOW;
use crate::store::{
    own::{Form, Words},
    statement::Parameters,
};

/// For tables in this schema, beside this orders table.
pub(in crate::store) fn words(schema: &str, orders_table: &str) -> Words {
    let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let prefix = format!("\"{schema}\".");
    Words {
        schema_prefix: literal(&prefix),
        schema: prefix,
        schema_name: literal(schema),
        // SQLite tells no names apart by case.
        orders_table: literal(&orders_table.to_ascii_lowercase()),
        orders_table_name: orders_table.to_ascii_lowercase(),
        neighbours: None,
        find_tables: format!("SELECT count(*) FROM \"{schema}\".sqlite_schema WHERE name = 'order_closer_migrations'"),
        now: NOW,
        parameters: Parameters::Numbered,
        rows: Form::JsonEach,
        new_data: "e.data",
        new_timers: "(SELECT value ->> 'place' AS place, value ->> 'id' AS new_id, value ->> 'kind' AS new_kind, value ->> 'key' AS new_key, \
                     value ->> 'due' AS new_due, value ->> 'delay' AS delay, value ->> 'target' AS new_target, \
                     value ->> 'data' AS new_data, value ->> 'generation' AS new_generation FROM json_each(?1)) AS e",
        new_timer_data: "e.new_data",
        key: "key",
        renew: "ON CONFLICT (kind, key) DO UPDATE SET state = 'armed', target = excluded.target, data = excluded.data, \
                due_at = excluded.due_at, generation = excluded.generation \
                WHERE excluded.generation > order_closer_timers.generation OR excluded.generation = order_closer_timers.generation \
                AND (order_closer_timers.state = 'armed' OR excluded.due_at <> order_closer_timers.due_at)",
        data_text: "e.data",
        event_id: str::to_owned,
        dead_id: "order_id",
        dead_key: str::to_owned,
        or_update: "ON CONFLICT (orders_table, order_id) DO UPDATE SET",
        by_event: "",
        by_order: "",
        by_due: "",
        delete_by_event: |deliveries| format!("DELETE FROM {deliveries}"),
        // The transaction has locked everything.
        locking: "",
        skip_locked: "",
        lock_migrations: "SELECT 1".into(),
        unlock_migrations: None,
        // After an error sqlite3 would go on with the next statement, and commit.
        script: (".bail on\nBEGIN IMMEDIATE;".into(), "COMMIT;".into()),
        script_now: "CAST(strftime('%s', 'now') AS INTEGER) * 1000000",
        user: None,
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
