-- Whose orders: several orders tables may stand in one file. What is there already, and what a daemon of the version
-- before still adds, belongs to the table for which this runs.
ALTER TABLE {schema}order_closer_events ADD COLUMN orders_table TEXT NOT NULL DEFAULT {orders_table};

ALTER TABLE {schema}order_closer_deliveries ADD COLUMN orders_table TEXT NOT NULL DEFAULT {orders_table};
CREATE INDEX {schema}order_closer_deliveries_ours ON order_closer_deliveries (orders_table, target, due_at);
DROP INDEX {schema}order_closer_deliveries_due;

-- A primary key can't be changed.
CREATE TABLE {schema}order_closer_dead_letters_2 (
    orders_table TEXT    NOT NULL DEFAULT {orders_table},
    order_id     TEXT    NOT NULL,
    attempts     INTEGER NOT NULL,
    failed_at    INTEGER NOT NULL,
    error        TEXT    NOT NULL,
    dropped      INTEGER NOT NULL,                -- 1 when nobody wants to hear of it any more
    PRIMARY KEY (orders_table, order_id)
) WITHOUT ROWID;
INSERT INTO {schema}order_closer_dead_letters_2 (order_id, attempts, failed_at, error, dropped)
    SELECT order_id, attempts, failed_at, error, dropped FROM {schema}order_closer_dead_letters;
DROP TABLE {schema}order_closer_dead_letters;
ALTER TABLE {schema}order_closer_dead_letters_2 RENAME TO order_closer_dead_letters;
