-- Whom events are told to, and how that goes: for all daemons, and for the time after their restarts.
CREATE TABLE IF NOT EXISTS {schema}order_closer_targets (
    orders_table    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    target          VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    state           VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,    -- ok, troubled, resting, gone
    resting_until   BIGINT,
    failing_since   BIGINT,                 -- NULL while it takes events
    last_success_at BIGINT,
    last_error      TEXT CHARACTER SET utf8mb4,
    changed_at      BIGINT NOT NULL,
    PRIMARY KEY (orders_table, target)
) ENGINE = InnoDB;

-- Rules whose orders are not closed for a while, or only so many a second.
CREATE TABLE IF NOT EXISTS {schema}order_closer_pauses (
    orders_table VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    rule         VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,       -- empty: all
    since        BIGINT NOT NULL,
    until        BIGINT,
    reason       VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL DEFAULT '',
    who          VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL DEFAULT '',
    rate         BIGINT,                    -- closures a second meanwhile; NULL for none
    PRIMARY KEY (orders_table, rule)
) ENGINE = InnoDB;

-- What is there already, and what a daemon of the version before still adds, belongs to the rule "orders".
-- These servers commit each ALTER TABLE by itself, so a migration that was cut off passes over what it has done.
SET @done = (SELECT COUNT(*) FROM information_schema.columns
              WHERE table_schema = {schema_name} AND table_name = 'order_closer_events' AND column_name = 'rule');
SET @alter = IF(@done, 'DO 0', CONCAT('ALTER TABLE ', {schema_prefix}, 'order_closer_events
    ADD COLUMN rule VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT ''orders'',
    ADD COLUMN traceparent VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin'));    -- W3C trace context that the order carried
PREPARE migration FROM @alter;
EXECUTE migration;

-- The key stays (orders_table, order_id), as on the other databases, where the version before updates by it: an order is
-- given up by one rule at a time.
SET @done = (SELECT COUNT(*) FROM information_schema.columns
              WHERE table_schema = {schema_name} AND table_name = 'order_closer_dead_letters' AND column_name = 'rule');
SET @alter = IF(@done, 'DO 0', CONCAT('ALTER TABLE ', {schema_prefix}, 'order_closer_dead_letters
    ADD COLUMN rule VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT ''orders'''));
PREPARE migration FROM @alter;
EXECUTE migration;

-- When it failed first; NULL before. What is dead is found by the index that there is, which ends in the event's id.
SET @done = (SELECT COUNT(*) FROM information_schema.columns
              WHERE table_schema = {schema_name} AND table_name = 'order_closer_deliveries' AND column_name = 'failing_since');
SET @alter = IF(@done, 'DO 0', CONCAT('ALTER TABLE ', {schema_prefix}, 'order_closer_deliveries ADD COLUMN failing_since BIGINT'));
PREPARE migration FROM @alter;
EXECUTE migration;
DEALLOCATE PREPARE migration;
