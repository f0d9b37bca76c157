-- Batches of an agent above its budget.

-- Above 0: one rank told of these calls for all of its host that made them alike, and an instant of another rank may be off
-- by so much. `calls` has a row for each rank even so; `rows` counts them all.
ALTER TABLE stored_batches ADD COLUMN IF NOT EXISTS within_ns Int64 DEFAULT 0;

CREATE OR REPLACE VIEW batches AS SELECT * FROM stored_batches FINAL;
