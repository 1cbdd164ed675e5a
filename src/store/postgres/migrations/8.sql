-- The events of a crowd of closures, in one row: of which rows of events and deliveries are made soon after, whereupon it goes.
CREATE TABLE {schema}order_closer_batches (
    id           uuid   PRIMARY KEY,        -- of its first event
    orders_table text   NOT NULL,
    rule         text   NOT NULL,
    recorded_at  bigint NOT NULL,
    instance     text   NOT NULL,
    targets      text   NOT NULL,           -- a JSON array of names
    events       text   NOT NULL            -- a JSON array of arrays
);
-- What lives for a moment is not worth compressing.
ALTER TABLE {schema}order_closer_batches ALTER COLUMN events SET STORAGE EXTERNAL;
