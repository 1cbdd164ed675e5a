-- Whose orders: several orders tables may stand in one schema. What is there already, and what a daemon of the version
-- before still adds, belongs to the table for which this runs.
ALTER TABLE {schema}order_closer_events ADD COLUMN orders_table text NOT NULL DEFAULT {orders_table};

ALTER TABLE {schema}order_closer_deliveries ADD COLUMN orders_table text NOT NULL DEFAULT {orders_table};
CREATE INDEX order_closer_deliveries_ours ON {schema}order_closer_deliveries (orders_table, target, due_at);
DROP INDEX {schema}order_closer_deliveries_due;

ALTER TABLE {schema}order_closer_dead_letters
    ADD COLUMN orders_table text NOT NULL DEFAULT {orders_table},
    DROP CONSTRAINT order_closer_dead_letters_pkey,
    ADD PRIMARY KEY (orders_table, order_id);
