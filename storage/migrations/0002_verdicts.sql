-- What the streams concluded, what would be done about it, and who was told. Where a row has `event`, that is the
-- event's own JSON: the columns are for SQL, the event is what is read back.

CREATE TABLE IF NOT EXISTS stored_iterations
(
    job LowCardinality(String),
    attempt Int32,
    communicator LowCardinality(String),
    step Int64 CODEC(Delta(8), ZSTD(1)),
    step_time_s Float64,
    ranks Array(Int32) CODEC(ZSTD(1)),
    ends_ns Array(Int64) CODEC(ZSTD(1)),
    boundary LowCardinality(String),
    planned LowCardinality(String),
    time_ns Int64 CODEC(Delta(8), ZSTD(1)),
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)) CODEC(Delta(8), ZSTD(1)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (job, attempt, communicator, step)
TTL toDateTime(stored_at) + INTERVAL 365 DAY;

CREATE OR REPLACE VIEW iterations AS SELECT * FROM stored_iterations FINAL;

CREATE TABLE IF NOT EXISTS stored_changepoints
(
    event_id String,
    job LowCardinality(String),
    attempt Int32,
    series String,
    at_step Nullable(Int64),
    at_ns Int64,
    detected_step Nullable(Int64),
    before_s Float64,
    after_s Float64,
    magnitude Float64,
    probability Float64,
    time_ns Int64,
    event String CODEC(ZSTD(3)),
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (job, attempt, series, event_id)
TTL toDateTime(stored_at) + INTERVAL 365 DAY;

CREATE OR REPLACE VIEW changepoints AS SELECT * FROM stored_changepoints FINAL;

CREATE TABLE IF NOT EXISTS stored_group_outliers
(
    event_id String,
    job LowCardinality(String),
    attempt Int32,
    communicator LowCardinality(String),
    peers Int32,
    transfer_s Float64,
    median_s Float64,
    time_ns Int64,
    event String CODEC(ZSTD(3)),
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (job, attempt, communicator, event_id)
TTL toDateTime(stored_at) + INTERVAL 365 DAY;

CREATE OR REPLACE VIEW group_outliers AS SELECT * FROM stored_group_outliers FINAL;

-- Every version of every finding.
CREATE TABLE IF NOT EXISTS stored_findings
(
    id String,
    version Int64,
    job LowCardinality(String),
    attempt Int32,
    kind LowCardinality(String),
    verdict LowCardinality(String),
    cause LowCardinality(String),
    culprits Array(Int32),
    candidates Array(Int32),
    victims Array(Int32),
    links Array(Tuple(Int32, Int32)),
    onset_step Nullable(Int64),
    onset_ns Nullable(Int64),
    detected_step Nullable(Int64),
    detected_ns Nullable(Int64),
    relief_step Nullable(Int64),
    relief_ns Nullable(Int64),
    magnitude Nullable(Float64),
    lasting Bool,
    pages Bool,
    evidence Array(String) CODEC(ZSTD(3)),
    unseen Array(String) CODEC(ZSTD(3)),
    source String,
    time_ns Int64,
    event String CODEC(ZSTD(3)),
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (job, attempt, id, version);

CREATE OR REPLACE VIEW findings AS SELECT * FROM stored_findings FINAL;

CREATE OR REPLACE VIEW latest_findings AS
SELECT * FROM stored_findings FINAL ORDER BY version DESC LIMIT 1 BY job, attempt, id;

-- Every version of every incident.
CREATE TABLE IF NOT EXISTS stored_incidents
(
    id String,
    version Int64,
    job LowCardinality(String),
    attempt Int32,
    state LowCardinality(String),
    opened_ns Int64,
    closed_ns Nullable(Int64),
    closed_why Nullable(String),
    kinds Array(LowCardinality(String)),
    culprits Array(Int32),
    excess_s Float64,
    ranks Int64,
    gpu_hours Float64,
    time_ns Int64,
    event String CODEC(ZSTD(3)),
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (job, attempt, id, version);

CREATE OR REPLACE VIEW incidents AS SELECT * FROM stored_incidents FINAL;

CREATE OR REPLACE VIEW latest_incidents AS
SELECT * FROM stored_incidents FINAL ORDER BY version DESC LIMIT 1 BY job, attempt, id;

CREATE TABLE IF NOT EXISTS stored_decisions
(
    event_id String,
    job LowCardinality(String),
    attempt Int32,
    incident String,
    incident_version Int64,
    mode LowCardinality(String),
    action LowCardinality(String),
    reason String,
    price_s Float64,
    loss_s Float64,
    taken Bool,
    time_ns Int64,
    event String CODEC(ZSTD(3)),
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (job, attempt, incident, event_id);

CREATE OR REPLACE VIEW decisions AS SELECT * FROM stored_decisions FINAL;

-- Who was told of which state of which incident; what alerts reads when it starts again.
CREATE TABLE IF NOT EXISTS stored_notifications
(
    incident String,
    state LowCardinality(String),
    idempotency_key String,
    sent_ns Int64,
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(sent_ns, 0)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (incident, state);

CREATE OR REPLACE VIEW notifications AS SELECT * FROM stored_notifications FINAL;

-- Offsets start again with the process on an embedded bus, so the content takes part in the identity.
CREATE TABLE IF NOT EXISTS stored_dead_letters
(
    event_id String,
    payload_hash String,
    source_topic LowCardinality(String),
    `partition` Int64,
    `offset` Int64,
    job String,
    error LowCardinality(String),
    reason String,
    payload String CODEC(ZSTD(3)),
    time_ns Int64,
    time DateTime64(9, 'UTC') DEFAULT fromUnixTimestamp64Nano(greatest(time_ns, 0)),
    stored_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (source_topic, `partition`, `offset`, event_id, payload_hash)
TTL toDateTime(stored_at) + INTERVAL 30 DAY;

-- The payload is bytes, not text: in hexadecimal it survives every client.
CREATE OR REPLACE VIEW dead_letters AS
SELECT * EXCEPT (payload), hex(payload) AS payload_hex FROM stored_dead_letters FINAL;
