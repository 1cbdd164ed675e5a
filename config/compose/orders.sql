-- An orders table, its index, and a user who may close orders and nothing else. PostgreSQL's image runs it once, in an empty volume.
CREATE TABLE orders (
    order_no   bigint PRIMARY KEY,
    status     integer NOT NULL,            -- 0 unpaid, 1 paid, 4 closed
    expires_at timestamptz NOT NULL
);
CREATE INDEX order_closer_due ON orders (expires_at, order_no) WHERE status = 0;

CREATE ROLE order_closer LOGIN PASSWORD 'only-for-trying-it-out';
GRANT SELECT, UPDATE ON orders TO order_closer;
