-- One row for each closure, in the transaction that closes the order: the outbox, and the audit log.
-- Times are microseconds since 1970 UTC: FROM_UNIXTIME(closed_at / 1000000).
CREATE TABLE IF NOT EXISTS {schema}order_closer_events (
    id           CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,    -- UUIDv7, in the order of time
    order_id     VARCHAR(700) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    deadline     BIGINT NOT NULL,
    closed_at    BIGINT NOT NULL,
    lateness     BIGINT NOT NULL,       -- microseconds
    triggered_by VARCHAR(16) CHARACTER SET ascii NOT NULL,
    instance     VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
    data         LONGTEXT CHARACTER SET utf8mb4 NOT NULL,    -- JSON: the order's columns that events.include names
    KEY order_closer_events_order (order_id, id)
) ENGINE = InnoDB;

-- One row for each event and target until it is delivered.
CREATE TABLE IF NOT EXISTS {schema}order_closer_deliveries (
    event_id   CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    target     VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    attempts   BIGINT NOT NULL,
    due_at     BIGINT,                  -- not before; the end of the claim while it is claimed; NULL when it is dead
    claimed_by VARCHAR(255) CHARACTER SET utf8mb4,
    failed_at  BIGINT,
    error      TEXT CHARACTER SET utf8mb4,
    PRIMARY KEY (event_id, target),
    KEY order_closer_deliveries_due (target, due_at)
) ENGINE = InnoDB;

-- Orders that could not be closed, and are left alone. Ids as UTF-8 bytes: collations take different ones for equal.
CREATE TABLE IF NOT EXISTS {schema}order_closer_dead_letters (
    order_id  VARBINARY(2800) NOT NULL PRIMARY KEY,
    attempts  BIGINT NOT NULL,
    failed_at BIGINT NOT NULL,
    error     TEXT CHARACTER SET utf8mb4 NOT NULL,
    dropped   BIGINT NOT NULL           -- 1 when nobody wants to hear of it any more
) ENGINE = InnoDB;
