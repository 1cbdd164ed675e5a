-- The heartbeats of daemons that share the work without a Redis. Each changes its own row twice a second.
CREATE TABLE {schema}order_closer_members (
    group_key text   NOT NULL,              -- of those that close the same orders
    name      text   NOT NULL,
    said      text   NOT NULL,
    seen_at   bigint NOT NULL,
    PRIMARY KEY (group_key, name)
) WITH (fillfactor = 50);
