-- The heartbeats of daemons that share the work without a Redis. Each changes its own row twice a second.
CREATE TABLE IF NOT EXISTS {schema}order_closer_members (
    group_key VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,    -- of those that close the same orders
    name      VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    said      VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    seen_at   BIGINT NOT NULL,
    PRIMARY KEY (group_key, name)
) ENGINE = InnoDB;
