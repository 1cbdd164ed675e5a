-- One row for each closure, in the transaction that closes the order: the outbox, and the audit log.
-- Times are microseconds since 1970 UTC: to_timestamp(closed_at / 1e6).
CREATE TABLE {schema}order_closer_events (
    id           uuid   PRIMARY KEY,    -- UUIDv7, in the order of time
    order_id     text   NOT NULL,
    deadline     bigint NOT NULL,
    closed_at    bigint NOT NULL,
    lateness     bigint NOT NULL,       -- microseconds
    triggered_by text   NOT NULL,
    instance     text   NOT NULL,
    data         json   NOT NULL        -- the order's columns that events.include names
);
CREATE INDEX order_closer_events_order ON {schema}order_closer_events (order_id, id);

-- One row for each event and target until it is delivered.
CREATE TABLE {schema}order_closer_deliveries (
    event_id   uuid   NOT NULL,
    target     text   NOT NULL,
    attempts   bigint NOT NULL,
    due_at     bigint,                  -- not before; the end of the claim while it is claimed; NULL when it is dead
    claimed_by text,
    failed_at  bigint,
    error      text,
    PRIMARY KEY (event_id, target)
);
CREATE INDEX order_closer_deliveries_due ON {schema}order_closer_deliveries (target, due_at);

-- Orders that could not be closed, and are left alone.
CREATE TABLE {schema}order_closer_dead_letters (
    order_id  text    PRIMARY KEY,
    attempts  bigint  NOT NULL,
    failed_at bigint  NOT NULL,
    error     text    NOT NULL,
    dropped   bigint  NOT NULL          -- 1 when nobody wants to hear of it any more
);
