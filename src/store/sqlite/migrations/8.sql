-- The events of a crowd of closures, in one row: of which rows of events and deliveries are made soon after, whereupon it goes.
CREATE TABLE {schema}order_closer_batches (
    id           TEXT    NOT NULL PRIMARY KEY,      -- of its first event
    orders_table TEXT    NOT NULL,
    rule         TEXT    NOT NULL,
    recorded_at  INTEGER NOT NULL,
    instance     TEXT    NOT NULL,
    targets      TEXT    NOT NULL,                  -- a JSON array of names
    events       TEXT    NOT NULL                   -- a JSON array of arrays
);
