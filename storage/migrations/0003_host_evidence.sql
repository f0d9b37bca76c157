-- What the agents saw besides calls.

-- One row per thing read: kind `gpu` (name: its UUID), `nic` (its name), `socket` (`local > remote`) or `host`.
-- `numbers` has what was read, by name with its unit; bytes since a connection was opened, errors of
-- interfaces since the agent began to look.
CREATE TABLE IF NOT EXISTS stored_host_vitals
(
    job LowCardinality(String),
    attempt Int32,
    host LowCardinality(String),
    kind LowCardinality(String),
    name String CODEC(ZSTD(1)),
    ranks Array(Int32),
    state LowCardinality(String),
    numbers Map(LowCardinality(String), Float64) CODEC(ZSTD(1)),
    time_ns Int64 CODEC(Delta(8), ZSTD(1)),
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)) CODEC(Delta(8), ZSTD(1)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta(8), ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMMDD(time)
ORDER BY (job, attempt, host, kind, name, ranks, time_ns)
TTL toDateTime(stored_at) + INTERVAL 30 DAY;

CREATE OR REPLACE VIEW host_vitals AS
SELECT * FROM stored_host_vitals FINAL SETTINGS do_not_merge_across_partitions_select_final = 1;

-- One row per stack; evidence without any has one row of rank -1.
CREATE TABLE IF NOT EXISTS stored_host_evidence
(
    job LowCardinality(String),
    attempt Int32,
    host LowCardinality(String),
    reason String CODEC(ZSTD(1)),
    rank Int32,
    pid Int64,
    doing LowCardinality(String),
    taken_by LowCardinality(String),
    frames Array(String) CODEC(ZSTD(1)),
    libraries Array(LowCardinality(String)),
    kernel_log Array(String) CODEC(ZSTD(1)),
    time_ns Int64 CODEC(Delta(8), ZSTD(1)),
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)) CODEC(Delta(8), ZSTD(1)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta(8), ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMMDD(time)
ORDER BY (job, attempt, host, rank, pid, time_ns)
TTL toDateTime(stored_at) + INTERVAL 30 DAY;

CREATE OR REPLACE VIEW host_evidence AS
SELECT * FROM stored_host_evidence FINAL SETTINGS do_not_merge_across_partitions_select_final = 1;
