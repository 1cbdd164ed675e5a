//! Our own tables in PostgreSQL: beside the orders table, in its schema.

use super::statements::NOW;
use crate::store::{
    own::{Form, Words},
    statement::Parameters,
};

/// For tables in this schema, beside this orders table.
pub(super) fn words(schema: &str, orders_table: &str) -> Words {
    let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let prefix = format!("\"{}\".", schema.replace('"', "\"\""));
    Words {
        schema_prefix: literal(&prefix),
        schema: prefix,
        schema_name: literal(schema),
        orders_table: literal(orders_table),
        orders_table_name: orders_table.to_owned(),
        neighbours: None,
        find_tables: format!(
            "SELECT count(*) FROM pg_tables WHERE schemaname = {} AND tablename = 'order_closer_migrations'",
            literal(schema)
        ),
        now: NOW,
        parameters: Parameters::Dollar,
        rows: Form::Arrays,
        new_data: "CAST(e.data AS json)",
        new_timers: "json_to_recordset(CAST(?1 AS json)) AS j(place bigint, id uuid, kind text, key text, due bigint, delay bigint, target text, \
                     data text, generation bigint) \
                     CROSS JOIN LATERAL (SELECT j.place, j.id AS new_id, j.kind AS new_kind, j.key AS new_key, j.due AS new_due, j.delay, \
                     j.target AS new_target, j.data AS new_data, j.generation AS new_generation) AS e",
        new_timer_data: "CAST(e.new_data AS json)",
        key: "key",
        renew: "ON CONFLICT (kind, key) DO UPDATE SET state = 'armed', target = excluded.target, data = excluded.data, \
                due_at = excluded.due_at, generation = excluded.generation \
                WHERE excluded.generation > order_closer_timers.generation OR excluded.generation = order_closer_timers.generation \
                AND (order_closer_timers.state = 'armed' OR excluded.due_at <> order_closer_timers.due_at)",
        data_text: "CAST(e.data AS text)",
        event_id: |parameter| format!("CAST({parameter} AS uuid)"),
        dead_id: "order_id",
        dead_key: str::to_owned,
        or_update: "ON CONFLICT (orders_table, order_id) DO UPDATE SET",
        by_event: "",
        by_order: "",
        by_due: "",
        delete_by_event: |deliveries| format!("DELETE FROM {deliveries}"),
        locking: " FOR UPDATE OF e",
        skip_locked: " FOR UPDATE SKIP LOCKED",
        // The number is ours alone; the lock goes with the transaction.
        lock_migrations: "SELECT CAST(pg_try_advisory_xact_lock(7305805541961425520) AS int)::bigint".into(),
        unlock_migrations: None,
        script: ("BEGIN;\nDO $$ BEGIN PERFORM pg_advisory_xact_lock(7305805541961425520); END $$;".into(), "COMMIT;".into()),
        script_now: NOW,
        user: Some("SELECT quote_ident(current_user)"),
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
