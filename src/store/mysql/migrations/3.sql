-- What must outlast a daemon, for each orders table: such as the time zone in which the server was last known to read it.
CREATE TABLE IF NOT EXISTS {schema}order_closer_facts (
    orders_table VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    name         VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    value        TEXT CHARACTER SET utf8mb4 NOT NULL,
    noted_at     BIGINT NOT NULL,
    PRIMARY KEY (orders_table, name)
) ENGINE = InnoDB;
