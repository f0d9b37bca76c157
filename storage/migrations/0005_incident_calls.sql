-- The raw calls from a minute before an incident's onset to a minute after its detection, kept for months.

-- The writer copies them, once per version of an incident; the same call of the same incident is one row.
CREATE TABLE IF NOT EXISTS stored_incident_calls
(
    incident LowCardinality(String),
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
    ordinal Int64 CODEC(Delta(8), ZSTD(1)),
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(launch_ns, 0)) CODEC(Delta(8), ZSTD(1)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta(8), ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (incident, job, attempt, communicator, source, rank, seq, peer, direction)
TTL toDateTime(stored_at) + INTERVAL 180 DAY
SETTINGS non_replicated_deduplication_window = 10000;

CREATE OR REPLACE VIEW incident_calls AS
SELECT * FROM stored_incident_calls FINAL SETTINGS do_not_merge_across_partitions_select_final = 1;

-- Which versions have been copied.
CREATE TABLE IF NOT EXISTS stored_incident_windows
(
    incident String,
    version Int64,
    first_ns Int64,
    last_ns Int64,
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (incident, version);

CREATE OR REPLACE VIEW incident_windows AS SELECT * FROM stored_incident_windows FINAL;
