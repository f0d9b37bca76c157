-- Who was asked for a yes, and who has answered: a row for each sink that was told of a decision that waits (`told`, or
-- `refused` by it), and one for what became of it (`answered` by somebody, or `over` without). Of alerts.
CREATE TABLE IF NOT EXISTS stored_asked
(
    job LowCardinality(String),
    attempt Int32,
    incident String,
    decision String,
    sink LowCardinality(String),
    outcome LowCardinality(String),
    by String,
    time_ns Int64,
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (incident, decision, sink, outcome)
SETTINGS non_replicated_deduplication_window = 10000, old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW asked AS SELECT * FROM stored_asked FINAL;
