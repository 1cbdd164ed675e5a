-- One row for each closure, in the transaction that closes the order: the outbox, and the audit log.
-- Times are microseconds since 1970 UTC: datetime(closed_at / 1e6, 'unixepoch').
CREATE TABLE {schema}order_closer_events (
    id           TEXT    NOT NULL PRIMARY KEY,    -- UUIDv7, in the order of time
    order_id     TEXT    NOT NULL,
    deadline     INTEGER NOT NULL,
    closed_at    INTEGER NOT NULL,
    lateness     INTEGER NOT NULL,                -- microseconds
    triggered_by TEXT    NOT NULL,
    instance     TEXT    NOT NULL,
    data         TEXT    NOT NULL                 -- JSON: the order's columns that events.include names
) WITHOUT ROWID;
CREATE INDEX {schema}order_closer_events_order ON order_closer_events (order_id, id);

-- One row for each event and target until it is delivered.
CREATE TABLE {schema}order_closer_deliveries (
    event_id   TEXT    NOT NULL,
    target     TEXT    NOT NULL,
    attempts   INTEGER NOT NULL,
    due_at     INTEGER,                           -- not before; the end of the claim while it is claimed; NULL when it is dead
    claimed_by TEXT,
    failed_at  INTEGER,
    error      TEXT,
    PRIMARY KEY (event_id, target)
) WITHOUT ROWID;
CREATE INDEX {schema}order_closer_deliveries_due ON order_closer_deliveries (target, due_at);

-- Orders that could not be closed, and are left alone.
CREATE TABLE {schema}order_closer_dead_letters (
    order_id  TEXT    NOT NULL PRIMARY KEY,
    attempts  INTEGER NOT NULL,
    failed_at INTEGER NOT NULL,
    error     TEXT    NOT NULL,
    dropped   INTEGER NOT NULL                    -- 1 when nobody wants to hear of it any more
) WITHOUT ROWID;
