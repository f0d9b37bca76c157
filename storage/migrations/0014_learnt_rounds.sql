-- What rounds of each kind took in the first two minutes of a run, over all jobs: what is usual (CCL-D's T_base).
-- `n_ranks` and `n_hosts` are of the communicator, `host_kind` says what its hosts are.
CREATE TABLE IF NOT EXISTS stored_learnt_rounds
(
    job LowCardinality(String),
    attempt Int32,
    op LowCardinality(String),
    size_bytes Int64,
    source LowCardinality(String),
    n_ranks Int32,
    n_hosts Int32,
    host_kind LowCardinality(String),
    longest_s Float64,
    time_ns Int64,
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (job, attempt, op, size_bytes, source, n_ranks, n_hosts)
TTL toDateTime(stored_at) + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 10000, old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW learnt_rounds AS SELECT * FROM stored_learnt_rounds FINAL;
