-- Timers: what is due then is told to one target. A row is registered by whoever inserts it; times are microseconds since 1970 UTC.
CREATE TABLE IF NOT EXISTS {schema}order_closer_timers (
    id         CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT (UUID()) PRIMARY KEY,
    kind       VARCHAR(64)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL CHECK (kind <> ''),
    `key`      VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL CHECK (`key` <> ''),
    due_at     BIGINT NOT NULL,
    target     VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,        -- a name in the configuration, below timers
    data       JSON NOT NULL DEFAULT ('{}'),
    generation BIGINT NOT NULL DEFAULT 0,       -- whoever registers a kind and key again does so with the same or a greater one
    state      VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'armed' CHECK (state IN ('armed', 'fired', 'cancelled')),
    fired_at   BIGINT,                          -- last; NULL before
    CHECK (JSON_TYPE(data) = 'OBJECT' AND LENGTH(data) <= 65536),
    UNIQUE KEY order_closer_timers_key (kind, `key`),
    KEY order_closer_timers_due (state, due_at)
) ENGINE = InnoDB;
