-- Who was told, and how bad it was said to be: each sink is told by itself.

-- A column may join the sorting key only in the statement that adds it.
ALTER TABLE stored_notifications
    ADD COLUMN IF NOT EXISTS sink LowCardinality(String),
    ADD COLUMN IF NOT EXISTS level LowCardinality(String),
    ADD COLUMN IF NOT EXISTS alert String,
    MODIFY ORDER BY (incident, state, sink, level);

CREATE OR REPLACE VIEW notifications AS SELECT * FROM stored_notifications FINAL;
