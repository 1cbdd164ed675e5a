-- Timers: what is due then is told to one target. A row is registered by whoever inserts it; times are microseconds since 1970 UTC.
CREATE TABLE {schema}order_closer_timers (
    id         TEXT    NOT NULL PRIMARY KEY DEFAULT (lower(
                   hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-8'
                   || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
    kind       TEXT    NOT NULL CHECK (length(kind) BETWEEN 1 AND 64),
    key        TEXT    NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    due_at     INTEGER NOT NULL CHECK (typeof(due_at) = 'integer'),
    target     TEXT    NOT NULL CHECK (length(target) <= 64),    -- a name in the configuration, below timers
    data       TEXT    NOT NULL DEFAULT '{}' CHECK (json_type(data) = 'object' AND length(data) <= 65536),
    generation INTEGER NOT NULL DEFAULT 0,      -- whoever registers a kind and key again does so with the same or a greater one
    state      TEXT    NOT NULL DEFAULT 'armed' CHECK (state IN ('armed', 'fired', 'cancelled')),
    fired_at   INTEGER,                         -- last; NULL before
    UNIQUE (kind, key)
) WITHOUT ROWID;
CREATE INDEX {schema}order_closer_timers_due ON order_closer_timers (due_at, id) WHERE state = 'armed';
CREATE INDEX {schema}order_closer_timers_over ON order_closer_timers (state, due_at) WHERE state <> 'armed';
