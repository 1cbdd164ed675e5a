-- Whom events are told to, and how that goes: for all daemons, and for the time after their restarts.
CREATE TABLE {schema}order_closer_targets (
    orders_table    TEXT    NOT NULL,
    target          TEXT    NOT NULL,
    state           TEXT    NOT NULL,       -- ok, troubled, resting, gone
    resting_until   INTEGER,
    failing_since   INTEGER,                -- NULL while it takes events
    last_success_at INTEGER,
    last_error      TEXT,
    changed_at      INTEGER NOT NULL,
    PRIMARY KEY (orders_table, target)
) WITHOUT ROWID;

-- Rules whose orders are not closed for a while, or only so many a second.
CREATE TABLE {schema}order_closer_pauses (
    orders_table TEXT    NOT NULL,
    rule         TEXT    NOT NULL,          -- empty: all
    since        INTEGER NOT NULL,
    until        INTEGER,
    reason       TEXT    NOT NULL DEFAULT '',
    who          TEXT    NOT NULL DEFAULT '',
    rate         INTEGER,                   -- closures a second meanwhile; NULL for none
    PRIMARY KEY (orders_table, rule)
) WITHOUT ROWID;

-- What is there already, and what a daemon of the version before still adds, belongs to the rule "orders".
ALTER TABLE {schema}order_closer_events ADD COLUMN rule TEXT NOT NULL DEFAULT 'orders';
ALTER TABLE {schema}order_closer_events ADD COLUMN traceparent TEXT;    -- W3C trace context that the order carried

-- The key stays (orders_table, order_id): the version before updates by it (ON CONFLICT), so an order is given up by one
-- rule at a time.
ALTER TABLE {schema}order_closer_dead_letters ADD COLUMN rule TEXT NOT NULL DEFAULT 'orders';

ALTER TABLE {schema}order_closer_deliveries ADD COLUMN failing_since INTEGER;    -- its first failure; NULL before
CREATE INDEX {schema}order_closer_deliveries_dead ON order_closer_deliveries (orders_table, target, event_id) WHERE due_at IS NULL;
