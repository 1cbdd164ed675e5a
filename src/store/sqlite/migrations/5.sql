-- What somebody answered who was asked before the closure, and when that was; NULL where nobody was.
ALTER TABLE {schema}order_closer_events ADD COLUMN asked_at INTEGER;
ALTER TABLE {schema}order_closer_events ADD COLUMN answer TEXT;
