-- What must outlast a daemon, for each orders table: such as the time zone in which the server was last known to read it.
CREATE TABLE {schema}order_closer_facts (
    orders_table text   NOT NULL,
    name         text   NOT NULL,
    value        text   NOT NULL,
    noted_at     bigint NOT NULL,
    PRIMARY KEY (orders_table, name)
);
