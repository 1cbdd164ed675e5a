-- The heartbeats of daemons that share the work without a Redis. Each changes its own row twice a second.
CREATE TABLE {schema}order_closer_members (
    group_key TEXT    NOT NULL,             -- of those that close the same orders
    name      TEXT    NOT NULL,
    said      TEXT    NOT NULL,
    seen_at   INTEGER NOT NULL,
    PRIMARY KEY (group_key, name)
);
