-- The events of a crowd of closures, in one row: of which rows of events and deliveries are made soon after, whereupon it goes.
CREATE TABLE IF NOT EXISTS {schema}order_closer_batches (
    id           CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,   -- of its first event
    orders_table VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    rule         VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    recorded_at  BIGINT NOT NULL,
    instance     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    targets      LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,           -- a JSON array of names
    events       LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL            -- a JSON array of arrays
) ENGINE = InnoDB;
