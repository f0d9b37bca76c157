-- What a controller told the agents of a job, and what each of them said of it: who did what to a job, and why.

CREATE TABLE IF NOT EXISTS stored_commands
(
    event_id String,
    job LowCardinality(String),
    attempt Int32,
    command String,
    what LowCardinality(String),
    incident String,
    why String,
    signed_by LowCardinality(String),
    expires_ns Int64,
    time_ns Int64,
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (job, attempt, event_id)
SETTINGS non_replicated_deduplication_window = 10000, old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW commands AS SELECT * FROM stored_commands FINAL;

-- `refused` is empty where the order was carried out. Ranks, states and rounds belong together, place by place.
CREATE TABLE IF NOT EXISTS stored_command_results
(
    event_id String,
    job LowCardinality(String),
    attempt Int32,
    host LowCardinality(String),
    command String,
    what LowCardinality(String),
    incident String,
    refused LowCardinality(String),
    reason String,
    ranks Array(Int32),
    states Array(LowCardinality(String)),
    rounds Array(Int64),
    time_ns Int64,
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (job, attempt, event_id)
SETTINGS non_replicated_deduplication_window = 10000, old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW command_results AS SELECT * FROM stored_command_results FINAL;

-- What a validation said of each rank, or of the link from one to another (`ranks` has two then). `ratio` is of its time
-- to its peers', and 0 where it was not measured.
CREATE TABLE IF NOT EXISTS stored_validations
(
    event_id String,
    job LowCardinality(String),
    attempt Int32,
    incident String,
    ranks Array(Int32),
    hosts Array(LowCardinality(String)),
    verdict LowCardinality(String),
    measured LowCardinality(String),
    ratio Float64,
    reason String,
    time_ns Int64,
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (job, attempt, event_id, ranks)
SETTINGS non_replicated_deduplication_window = 10000, old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW validations AS SELECT * FROM stored_validations FINAL;
