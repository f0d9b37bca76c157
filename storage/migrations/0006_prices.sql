-- What the stragglers of a job cost it, by window of recorded steps.

-- One row per thing that could be put right: a worker, a stage or a type of operation. `gain` is the share of the job's
-- GPU-hours that this would give back, `waste` the share that all stragglers together take.
CREATE TABLE IF NOT EXISTS stored_prices
(
    job LowCardinality(String),
    attempt Int32,
    first_step Int64,
    last_step Int64,
    n_steps Int32,
    what LowCardinality(String),
    name LowCardinality(String),
    ranks Array(Int32),
    step_time_s Float64,
    gain Float64,
    recorded_s Float64,
    original_s Float64,
    ideal_s Float64,
    slowdown Float64,
    waste Float64,
    discrepancy Float64,
    world_size Int32,
    patterns Array(LowCardinality(String)),
    time_ns Int64,
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (job, attempt, first_step, last_step, what, name)
TTL toDateTime(stored_at) + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 10000;

CREATE OR REPLACE VIEW prices AS
SELECT * FROM stored_prices FINAL SETTINGS do_not_merge_across_partitions_select_final = 1;
