-- What somebody answered who was asked before the closure, and when that was; NULL where nobody was.
SET @done = (SELECT COUNT(*) FROM information_schema.columns
              WHERE table_schema = {schema_name} AND table_name = 'order_closer_events' AND column_name = 'answer');
SET @alter = IF(@done, 'DO 0', CONCAT('ALTER TABLE ', {schema_prefix}, 'order_closer_events
    ADD COLUMN asked_at BIGINT,
    ADD COLUMN answer VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin'));
PREPARE migration FROM @alter;
EXECUTE migration;
DEALLOCATE PREPARE migration;
