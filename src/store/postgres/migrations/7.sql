-- Timers: what is due then is told to one target. A row is registered by whoever inserts it; times are microseconds since 1970 UTC.
CREATE TABLE {schema}order_closer_timers (
    id         uuid   PRIMARY KEY DEFAULT CAST(md5(random()::text || random()::text || clock_timestamp()::text) AS uuid),
    kind       varchar(64)  NOT NULL CHECK (kind <> ''),
    key        varchar(255) NOT NULL CHECK (key <> ''),
    due_at     bigint NOT NULL,
    target     varchar(64)  NOT NULL,           -- a name in the configuration, below timers
    data       json   NOT NULL DEFAULT '{}' CHECK (json_typeof(data) = 'object' AND octet_length(CAST(data AS text)) <= 65536),
    generation bigint NOT NULL DEFAULT 0,       -- whoever registers a kind and key again does so with the same or a greater one
    state      text   NOT NULL DEFAULT 'armed' CHECK (state IN ('armed', 'fired', 'cancelled')),
    fired_at   bigint,                          -- last; NULL before
    UNIQUE (kind, key)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX order_closer_timers_due ON {schema}order_closer_timers (due_at, id) WHERE state = 'armed';
CREATE INDEX order_closer_timers_over ON {schema}order_closer_timers (state, due_at) WHERE state <> 'armed';

-- From version 13 on; without it, a server that must not use MD5 would take no timer.
DO $$ BEGIN
    IF CAST(current_setting('server_version_num') AS int) >= 130000 THEN
        ALTER TABLE {schema}order_closer_timers ALTER COLUMN id SET DEFAULT gen_random_uuid();
    END IF;
END $$;
