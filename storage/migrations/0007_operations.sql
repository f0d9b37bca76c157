-- Operations of sampled training steps, for the what-if analysis of a job that runs or has run.

-- One row per operation; `optype` and the columns are those of the topic `ops`. The end of a send is when somebody had
-- waited for it. `pacehound whatif --job` reads them together with the calls of the same time, so both are kept as long.
CREATE TABLE IF NOT EXISTS stored_operations
(
    job LowCardinality(String),
    attempt Int32,
    host LowCardinality(String),
    rank Int32,
    step Int64 CODEC(Delta(8), ZSTD(1)),
    optype LowCardinality(String),
    stage Int32,
    chunk Int32,
    micro_batch Int32,
    pipeline Int32,
    seq Int32,
    start_ns Int64 CODEC(Delta(8), ZSTD(1)),
    end_ns Int64 CODEC(Delta(8), ZSTD(1)),
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(end_ns, 0)) CODEC(Delta(8), ZSTD(1)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta(8), ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMMDD(time)
ORDER BY (job, attempt, step, rank, optype, seq)
TTL toDateTime(stored_at) + INTERVAL 48 HOUR
SETTINGS non_replicated_deduplication_window = 10000;

CREATE OR REPLACE VIEW operations AS
SELECT * FROM stored_operations FINAL SETTINGS do_not_merge_across_partitions_select_final = 1;
