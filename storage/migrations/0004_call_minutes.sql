-- Exactly once without FINAL, and calls per minute.

-- An insert carries a token, and a table remembers the tokens of its last inserts: a block of messages that is written
-- again is dropped. What feeds a rollup is dropped there only where the rollup remembers too.
ALTER TABLE stored_calls MODIFY SETTING non_replicated_deduplication_window = 10000;
ALTER TABLE stored_batches MODIFY SETTING non_replicated_deduplication_window = 10000;
ALTER TABLE stored_topology MODIFY SETTING non_replicated_deduplication_window = 10000;
ALTER TABLE stored_host_samples MODIFY SETTING non_replicated_deduplication_window = 10000;
ALTER TABLE stored_markers MODIFY SETTING non_replicated_deduplication_window = 10000;
ALTER TABLE stored_iterations MODIFY SETTING non_replicated_deduplication_window = 10000;
ALTER TABLE stored_changepoints MODIFY SETTING non_replicated_deduplication_window = 10000;
ALTER TABLE stored_group_outliers MODIFY SETTING non_replicated_deduplication_window = 10000;
ALTER TABLE stored_findings MODIFY SETTING non_replicated_deduplication_window = 10000;
ALTER TABLE stored_incidents MODIFY SETTING non_replicated_deduplication_window = 10000;
ALTER TABLE stored_decisions MODIFY SETTING non_replicated_deduplication_window = 10000;
ALTER TABLE stored_notifications MODIFY SETTING non_replicated_deduplication_window = 10000;
ALTER TABLE stored_dead_letters MODIFY SETTING non_replicated_deduplication_window = 10000;
ALTER TABLE stored_host_vitals MODIFY SETTING non_replicated_deduplication_window = 10000;
ALTER TABLE stored_host_evidence MODIFY SETTING non_replicated_deduplication_window = 10000;

-- Where the log of a partition is cut into blocks. The first to write down where the block that begins at `first` ends
-- is right, and everybody keeps to it (storage/block_boundaries.py): the token of a row is its (log, topic, partition, first).
CREATE TABLE IF NOT EXISTS stored_cuts
(
    log LowCardinality(String),
    topic LowCardinality(String),
    `partition` Int32,
    first Int64 CODEC(Delta(8), ZSTD(1)),
    last Int64 CODEC(Delta(8), ZSTD(1)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta(8), ZSTD(1))
)
ENGINE = MergeTree
ORDER BY (log, topic, `partition`, first)
TTL toDateTime(stored_at) + INTERVAL 30 DAY
SETTINGS non_replicated_deduplication_window = 10000;

-- Which CallBatch a call came in: with host, communicator and source, that is the batch's identity. -1: stored before
-- this was kept.
ALTER TABLE stored_calls ADD COLUMN IF NOT EXISTS ordinal Int64 DEFAULT -1 CODEC(Delta(8), ZSTD(1));

CREATE OR REPLACE VIEW calls AS
SELECT * FROM stored_calls FINAL SETTINGS do_not_merge_across_partitions_select_final = 1;

-- Per batch, operation and minute: what a batch adds to its minutes. An agent that was killed sends the same batch
-- again, at other offsets and so with another token; then the same row is made again and takes the place of the first.
-- That holds because a batch is never split over two inserts. Sums over batches are made when somebody asks.
-- `first_seq` and `first_rank` keep apart two batches that a producer gave the same ordinal.
-- `durations` are counts per bucket (buckets of 1 %), so that their sum does not depend on the order of adding.
CREATE TABLE IF NOT EXISTS stored_call_minutes
(
    job LowCardinality(String),
    attempt Int32,
    minute DateTime64(0, 'UTC') CODEC(Delta(8), ZSTD(1)),
    communicator LowCardinality(String),
    op LowCardinality(String),
    source LowCardinality(String),
    host LowCardinality(String),
    ordinal Int64 CODEC(Delta(8), ZSTD(1)),
    first_seq Int64 CODEC(Delta(8), ZSTD(1)),
    first_rank Int32,
    calls Int64 CODEC(ZSTD(1)),
    bytes Int64 CODEC(ZSTD(1)),
    timed Int64 CODEC(ZSTD(1)),
    busy_ns Int64 CODEC(ZSTD(1)),
    longest_ns Int64 CODEC(ZSTD(1)),
    durations AggregateFunction(quantilesDDIf(0.01, 0.5, 0.99), Int64, UInt8) CODEC(ZSTD(1)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta(8), ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(minute)
ORDER BY (job, attempt, minute, communicator, op, source, host, ordinal, first_seq, first_rank)
TTL toDateTime(stored_at) + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 10000;

-- The time a call took: on the device where its source sees that, else from launch to end; -1 where it is unknown.
-- The sizes are those of pacehound/model/codes.py.
CREATE MATERIALIZED VIEW IF NOT EXISTS call_minutes_of_calls TO stored_call_minutes AS
WITH
    if(end_ns > 0 AND greatest(start_ns, launch_ns) > 0, end_ns - if(start_ns > 0, start_ns, launch_ns), -1) AS took_ns,
    transform(
        toString(dtype),
        ['int8', 'uint8', 'int16', 'int32', 'uint32', 'int64', 'uint64', 'float16', 'bfloat16', 'float32', 'float64', 'float8_e4m3', 'float8_e5m2', 'bool', 'complex64', 'complex128'],
        [1, 1, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1, 8, 16],
        0
    ) AS width
SELECT
    job,
    attempt,
    fromUnixTimestamp64Second(intDiv(greatest(launch_ns, 0), 60000000000) * 60, 'UTC') AS minute,
    communicator,
    op,
    source,
    host,
    ordinal,
    min(seq) AS first_seq,
    min(rank) AS first_rank,
    toInt64(count()) AS calls,
    toInt64(sum(greatest(`count`, 0) * width)) AS bytes,
    toInt64(countIf(took_ns >= 0)) AS timed,
    toInt64(sumIf(took_ns, took_ns >= 0)) AS busy_ns,
    max(took_ns) AS longest_ns,
    quantilesDDIfState(0.01, 0.5, 0.99)(took_ns, took_ns >= 0) AS durations
FROM stored_calls
GROUP BY job, attempt, minute, communicator, op, source, host, ordinal;

-- Times in seconds; NaN where no call of that minute has one.
CREATE OR REPLACE VIEW call_minutes AS
SELECT
    job,
    attempt,
    minute,
    communicator,
    op,
    source,
    sum(calls) AS calls,
    sum(bytes) AS bytes,
    sum(timed) AS timed,
    sum(busy_ns) / 1e9 AS busy_s,
    if(max(longest_ns) < 0, nan, max(longest_ns) / 1e9) AS longest_s,
    if(timed = 0, nan, (quantilesDDIfMerge(0.01, 0.5, 0.99)(durations) AS levels)[1] / 1e9) AS median_s,
    if(timed = 0, nan, levels[2] / 1e9) AS p99_s
FROM stored_call_minutes FINAL
GROUP BY job, attempt, minute, communicator, op, source
SETTINGS do_not_merge_across_partitions_select_final = 1;
