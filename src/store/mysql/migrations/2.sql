-- Whose orders: several orders tables may stand in one database. What is there already, and what a daemon of the version
-- before still adds, belongs to the table for which this runs.
-- These servers commit each ALTER TABLE by itself, so a migration that was cut off passes over what it has done.
SET @orders_table = CONCAT('ADD COLUMN orders_table VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT ',
                           QUOTE({orders_table}));

SET @done = (SELECT COUNT(*) FROM information_schema.columns
              WHERE table_schema = {schema_name} AND table_name = 'order_closer_events' AND column_name = 'orders_table');
SET @alter = IF(@done, 'DO 0', CONCAT('ALTER TABLE ', {schema_prefix}, 'order_closer_events ', @orders_table));
PREPARE migration FROM @alter;
EXECUTE migration;

SET @done = (SELECT COUNT(*) FROM information_schema.columns
              WHERE table_schema = {schema_name} AND table_name = 'order_closer_deliveries' AND column_name = 'orders_table');
SET @alter = IF(@done, 'DO 0', CONCAT('ALTER TABLE ', {schema_prefix}, 'order_closer_deliveries ', @orders_table,
    ', ADD KEY order_closer_deliveries_ours (orders_table, target, due_at), DROP KEY order_closer_deliveries_due'));
PREPARE migration FROM @alter;
EXECUTE migration;

SET @done = (SELECT COUNT(*) FROM information_schema.columns
              WHERE table_schema = {schema_name} AND table_name = 'order_closer_dead_letters' AND column_name = 'orders_table');
SET @alter = IF(@done, 'DO 0', CONCAT('ALTER TABLE ', {schema_prefix}, 'order_closer_dead_letters ', @orders_table,
    ', DROP PRIMARY KEY, ADD PRIMARY KEY (orders_table, order_id)'));
PREPARE migration FROM @alter;
EXECUTE migration;
DEALLOCATE PREPARE migration;
