-- Whom events are told to, and how that goes: for all daemons, and for the time after their restarts.
CREATE TABLE {schema}order_closer_targets (
    orders_table    text   NOT NULL,
    target          text   NOT NULL,
    state           text   NOT NULL,        -- ok, troubled, resting, gone
    resting_until   bigint,
    failing_since   bigint,                 -- NULL while it takes events
    last_success_at bigint,
    last_error      text,
    changed_at      bigint NOT NULL,
    PRIMARY KEY (orders_table, target)
);

-- Rules whose orders are not closed for a while, or only so many a second.
CREATE TABLE {schema}order_closer_pauses (
    orders_table text   NOT NULL,
    rule         text   NOT NULL,           -- empty: all
    since        bigint NOT NULL,
    until        bigint,
    reason       text   NOT NULL DEFAULT '',
    who          text   NOT NULL DEFAULT '',
    rate         bigint,                    -- closures a second meanwhile; NULL for none
    PRIMARY KEY (orders_table, rule)
);

-- What is there already, and what a daemon of the version before still adds, belongs to the rule "orders".
ALTER TABLE {schema}order_closer_events
    ADD COLUMN rule text NOT NULL DEFAULT 'orders',
    ADD COLUMN traceparent text;            -- W3C trace context that the order carried

-- The key stays (orders_table, order_id): the version before updates by it (ON CONFLICT), so an order is given up by one
-- rule at a time.
ALTER TABLE {schema}order_closer_dead_letters ADD COLUMN rule text NOT NULL DEFAULT 'orders';

ALTER TABLE {schema}order_closer_deliveries ADD COLUMN failing_since bigint;    -- its first failure; NULL before
CREATE INDEX order_closer_deliveries_dead ON {schema}order_closer_deliveries (orders_table, target, event_id) WHERE due_at IS NULL;
