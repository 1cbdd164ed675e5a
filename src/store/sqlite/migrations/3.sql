-- What must outlast a daemon, for each orders table: such as the time zone in which the server was last known to read it.
CREATE TABLE {schema}order_closer_facts (
    orders_table TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    value        TEXT    NOT NULL,
    noted_at     INTEGER NOT NULL,
    PRIMARY KEY (orders_table, name)
) WITHOUT ROWID;
