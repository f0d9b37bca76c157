-- What the agents saw. A table `stored_…` holds what was written, a view of the plain name holds each row once:
-- everything arrives at least once, and only FINAL (at read) was right for repeats that are cut differently.
-- What stands in ORDER BY is the identity of a row; PARTITION BY is determined by the row, so repeats meet.
-- Rows expire by when they were stored, not by event time: a recording from last year may be replayed today.

CREATE TABLE IF NOT EXISTS stored_calls
(
    job LowCardinality(String),
    attempt Int32,
    host LowCardinality(String),
    communicator LowCardinality(String),
    source LowCardinality(String),
    rank Int32,
    seq Int64 CODEC(Delta(8), ZSTD(1)),
    op LowCardinality(String),
    count Int64 CODEC(Delta(8), ZSTD(1)),
    dtype LowCardinality(String),
    redop LowCardinality(String),
    peer Int32,
    direction LowCardinality(String),
    algorithm LowCardinality(String),
    protocol LowCardinality(String),
    channels Int16,
    launch_ns Int64 CODEC(Delta(8), ZSTD(1)),
    start_ns Int64 CODEC(Delta(8), ZSTD(1)),
    end_ns Int64 CODEC(Delta(8), ZSTD(1)),
    send_count Int64 CODEC(Delta(8), ZSTD(1)),
    recv_count Int64 CODEC(Delta(8), ZSTD(1)),
    send_rate Float64 CODEC(ZSTD(1)),
    recv_rate Float64 CODEC(ZSTD(1)),
    stream Int64 CODEC(Delta(8), ZSTD(1)),
    `group` Int64 CODEC(Delta(8), ZSTD(1)),
    captured Bool,
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(launch_ns, 0)) CODEC(Delta(8), ZSTD(1)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta(8), ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMMDD(time)
ORDER BY (job, attempt, communicator, source, rank, seq, peer, direction)
TTL toDateTime(stored_at) + INTERVAL 30 DAY;

CREATE OR REPLACE VIEW calls AS
SELECT * FROM stored_calls FINAL SETTINGS do_not_merge_across_partitions_select_final = 1;

-- One row per CallBatch: what its source could see, and how many calls were lost before it.
CREATE TABLE IF NOT EXISTS stored_batches
(
    job LowCardinality(String),
    attempt Int32,
    host LowCardinality(String),
    communicator LowCardinality(String),
    source LowCardinality(String),
    ordinal Int64,
    sees Array(LowCardinality(String)),
    rows Int64,
    dropped Int64,
    first_seq Int64,
    last_seq Int64,
    time_ns Int64,
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (job, attempt, host, communicator, source, ordinal)
TTL toDateTime(stored_at) + INTERVAL 30 DAY;

CREATE OR REPLACE VIEW batches AS SELECT * FROM stored_batches FINAL;

CREATE TABLE IF NOT EXISTS stored_topology
(
    job LowCardinality(String),
    attempt Int32,
    communicator String,
    name String,
    host LowCardinality(String),
    host_ranks Array(Int32),
    members Array(Int32),
    is_world Bool,
    world_size Int32,
    generation Int32,
    backend LowCardinality(String),
    timeout_s Nullable(Float64),
    time_ns Int64,
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (job, attempt, communicator, host, host_ranks)
TTL toDateTime(stored_at) + INTERVAL 365 DAY;

CREATE OR REPLACE VIEW topology AS SELECT * FROM stored_topology FINAL;

-- One row per process of a sample; a sample that closes a job without naming a process has one row of rank -1.
CREATE TABLE IF NOT EXISTS stored_host_samples
(
    job LowCardinality(String),
    attempt Int32,
    host LowCardinality(String),
    rank Int32,
    pid Int64,
    state LowCardinality(String),
    since_ns Int64 CODEC(Delta(8), ZSTD(1)),
    exit_code Nullable(Int64),
    signal Nullable(Int64),
    detail String CODEC(ZSTD(1)),
    closed Bool,
    closed_why LowCardinality(String),
    time_ns Int64 CODEC(Delta(8), ZSTD(1)),
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)) CODEC(Delta(8), ZSTD(1)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMMDD(time)
ORDER BY (job, attempt, host, rank, pid, time_ns)
TTL toDateTime(stored_at) + INTERVAL 30 DAY;

CREATE OR REPLACE VIEW host_samples AS
SELECT * FROM stored_host_samples FINAL SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE TABLE IF NOT EXISTS stored_markers
(
    job LowCardinality(String),
    attempt Int32,
    host LowCardinality(String),
    communicator LowCardinality(String),
    rank Int32,
    name LowCardinality(String),
    step Int64 CODEC(Delta(8), ZSTD(1)),
    time_ns Int64 CODEC(Delta(8), ZSTD(1)),
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)) CODEC(Delta(8), ZSTD(1)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMMDD(time)
ORDER BY (job, attempt, host, rank, name, step, time_ns)
TTL toDateTime(stored_at) + INTERVAL 30 DAY;

CREATE OR REPLACE VIEW markers AS
SELECT * FROM stored_markers FINAL SETTINGS do_not_merge_across_partitions_select_final = 1;
