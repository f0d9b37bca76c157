"""The columns that the writer fills, per table; those with a DEFAULT in the migrations are not among them."""

from __future__ import annotations

import pyarrow as pa

from pacehound.model.calls import CALL_SCHEMA
from pacehound.model.operations import OPERATION_SCHEMA

CALLS, BATCHES = "stored_calls", "stored_batches"
TOPOLOGY, HOST_SAMPLES, MARKERS = "stored_topology", "stored_host_samples", "stored_markers"
HOST_VITALS, HOST_EVIDENCE = "stored_host_vitals", "stored_host_evidence"
ITERATIONS, CHANGEPOINTS, GROUP_OUTLIERS = "stored_iterations", "stored_changepoints", "stored_group_outliers"
FINDINGS, INCIDENTS, DECISIONS = "stored_findings", "stored_incidents", "stored_decisions"
PRICES, OPERATIONS = "stored_prices", "stored_operations"
LEARNT_ROUNDS = "stored_learnt_rounds"
NOTIFICATIONS, DEAD_LETTERS = "stored_notifications", "stored_dead_letters"
ASKED = "stored_asked"
COMMANDS, COMMAND_RESULTS = "stored_commands", "stored_command_results"
VALIDATIONS = "stored_validations"

CUTS, CALL_MINUTES = "stored_cuts", "stored_call_minutes"
INCIDENT_CALLS, INCIDENT_WINDOWS = "stored_incident_calls", "stored_incident_windows"

_TEXT, _INT, _RANK, _REAL, _BOOL = pa.string(), pa.int64(), pa.int32(), pa.float64(), pa.bool_()
_RANKS, _TEXTS = pa.list_(pa.int32()), pa.list_(pa.string())
_LINKS = pa.list_(pa.struct([("1", pa.int32()), ("2", pa.int32())]))
_JOB = [("job", _TEXT), ("attempt", _RANK)]

# A dictionary with 8-bit codes cannot hold the communicators of a large block together.
_NAME = pa.dictionary(pa.int32(), pa.string())
CALL_TABLE = pa.schema(
    [pa.field(f.name, _NAME if pa.types.is_dictionary(f.type) else f.type) for f in CALL_SCHEMA]
    + [pa.field("host", _NAME), pa.field("ordinal", _INT)]
)

ROW_TABLES: dict[str, pa.Schema] = {
    BATCHES: pa.schema(
        [
            *_JOB,
            ("host", _TEXT),
            ("communicator", _TEXT),
            ("source", _TEXT),
            ("ordinal", _INT),
            ("sees", _TEXTS),
            ("rows", _INT),
            ("dropped", _INT),
            ("first_seq", _INT),
            ("last_seq", _INT),
            ("time_ns", _INT),
            ("within_ns", _INT),
        ]
    ),
    TOPOLOGY: pa.schema(
        [
            *_JOB,
            ("communicator", _TEXT),
            ("name", _TEXT),
            ("host", _TEXT),
            ("host_ranks", _RANKS),
            ("members", _RANKS),
            ("is_world", _BOOL),
            ("world_size", _RANK),
            ("generation", _RANK),
            ("backend", _TEXT),
            ("timeout_s", _REAL),
            ("time_ns", _INT),
        ]
    ),
    HOST_SAMPLES: pa.schema(
        [
            *_JOB,
            ("host", _TEXT),
            ("rank", _RANK),
            ("pid", _INT),
            ("state", _TEXT),
            ("since_ns", _INT),
            ("exit_code", _INT),
            ("signal", _INT),
            ("detail", _TEXT),
            ("closed", _BOOL),
            ("closed_why", _TEXT),
            ("time_ns", _INT),
        ]
    ),
    HOST_VITALS: pa.schema(
        [
            *_JOB,
            ("host", _TEXT),
            ("kind", _TEXT),
            ("name", _TEXT),
            ("ranks", _RANKS),
            ("state", _TEXT),
            ("numbers", pa.map_(_TEXT, _REAL)),
            ("time_ns", _INT),
        ]
    ),
    HOST_EVIDENCE: pa.schema(
        [
            *_JOB,
            ("host", _TEXT),
            ("reason", _TEXT),
            ("rank", _RANK),
            ("pid", _INT),
            ("doing", _TEXT),
            ("taken_by", _TEXT),
            ("frames", _TEXTS),
            ("libraries", _TEXTS),
            ("kernel_log", _TEXTS),
            ("time_ns", _INT),
        ]
    ),
    MARKERS: pa.schema(
        [
            *_JOB,
            ("host", _TEXT),
            ("communicator", _TEXT),
            ("rank", _RANK),
            ("name", _TEXT),
            ("step", _INT),
            ("time_ns", _INT),
        ]
    ),
    ITERATIONS: pa.schema(
        [
            *_JOB,
            ("communicator", _TEXT),
            ("step", _INT),
            ("step_time_s", _REAL),
            ("ranks", _RANKS),
            ("ends_ns", pa.list_(pa.int64())),
            ("boundary", _TEXT),
            ("planned", _TEXT),
            ("time_ns", _INT),
        ]
    ),
    CHANGEPOINTS: pa.schema(
        [
            ("event_id", _TEXT),
            *_JOB,
            ("series", _TEXT),
            ("at_step", _INT),
            ("at_ns", _INT),
            ("detected_step", _INT),
            ("before_s", _REAL),
            ("after_s", _REAL),
            ("magnitude", _REAL),
            ("probability", _REAL),
            ("time_ns", _INT),
            ("event", _TEXT),
        ]
    ),
    GROUP_OUTLIERS: pa.schema(
        [
            ("event_id", _TEXT),
            *_JOB,
            ("communicator", _TEXT),
            ("peers", _RANK),
            ("transfer_s", _REAL),
            ("median_s", _REAL),
            ("time_ns", _INT),
            ("event", _TEXT),
        ]
    ),
    LEARNT_ROUNDS: pa.schema(
        [
            *_JOB,
            ("op", _TEXT),
            ("size_bytes", _INT),
            ("source", _TEXT),
            ("n_ranks", _RANK),
            ("n_hosts", _RANK),
            ("host_kind", _TEXT),
            ("longest_s", _REAL),
            ("time_ns", _INT),
        ]
    ),
    PRICES: pa.schema(
        [
            *_JOB,
            ("first_step", _INT),
            ("last_step", _INT),
            ("n_steps", _RANK),
            ("what", _TEXT),
            ("name", _TEXT),
            ("ranks", _RANKS),
            ("step_time_s", _REAL),
            ("gain", _REAL),
            ("recorded_s", _REAL),
            ("original_s", _REAL),
            ("ideal_s", _REAL),
            ("slowdown", _REAL),
            ("waste", _REAL),
            ("discrepancy", _REAL),
            ("world_size", _RANK),
            ("patterns", _TEXTS),
            ("time_ns", _INT),
        ]
    ),
    OPERATIONS: pa.schema(
        [
            *_JOB,
            ("host", _TEXT),
            *((field.name, _TEXT if field.name == "optype" else field.type) for field in OPERATION_SCHEMA),
        ]
    ),
    FINDINGS: pa.schema(
        [
            ("id", _TEXT),
            ("version", _INT),
            *_JOB,
            ("kind", _TEXT),
            ("verdict", _TEXT),
            ("cause", _TEXT),
            ("culprits", _RANKS),
            ("candidates", _RANKS),
            ("victims", _RANKS),
            ("links", _LINKS),
            ("onset_step", _INT),
            ("onset_ns", _INT),
            ("detected_step", _INT),
            ("detected_ns", _INT),
            ("relief_step", _INT),
            ("relief_ns", _INT),
            ("magnitude", _REAL),
            ("lasting", _BOOL),
            ("pages", _BOOL),
            ("evidence", _TEXTS),
            ("unseen", _TEXTS),
            ("source", _TEXT),
            ("time_ns", _INT),
            ("event", _TEXT),
        ]
    ),
    INCIDENTS: pa.schema(
        [
            ("id", _TEXT),
            ("version", _INT),
            *_JOB,
            ("state", _TEXT),
            ("opened_ns", _INT),
            ("closed_ns", _INT),
            ("closed_why", _TEXT),
            ("kinds", _TEXTS),
            ("culprits", _RANKS),
            ("excess_s", _REAL),
            ("ranks", _INT),
            ("gpu_hours", _REAL),
            ("time_ns", _INT),
            ("event", _TEXT),
        ]
    ),
    DECISIONS: pa.schema(
        [
            ("event_id", _TEXT),
            *_JOB,
            ("incident", _TEXT),
            ("incident_version", _INT),
            ("mode", _TEXT),
            ("action", _TEXT),
            ("reason", _TEXT),
            ("price_s", _REAL),
            ("loss_s", _REAL),
            ("taken", _BOOL),
            ("time_ns", _INT),
            ("event", _TEXT),
        ]
    ),
    COMMANDS: pa.schema(
        [
            ("event_id", _TEXT),
            *_JOB,
            ("command", _TEXT),
            ("what", _TEXT),
            ("incident", _TEXT),
            ("why", _TEXT),
            ("signed_by", _TEXT),
            ("expires_ns", _INT),
            ("time_ns", _INT),
        ]
    ),
    COMMAND_RESULTS: pa.schema(
        [
            ("event_id", _TEXT),
            *_JOB,
            ("host", _TEXT),
            ("command", _TEXT),
            ("what", _TEXT),
            ("incident", _TEXT),
            ("refused", _TEXT),
            ("reason", _TEXT),
            ("ranks", _RANKS),
            ("states", _TEXTS),
            ("rounds", pa.list_(pa.int64())),
            ("time_ns", _INT),
        ]
    ),
    VALIDATIONS: pa.schema(
        [
            ("event_id", _TEXT),
            *_JOB,
            ("incident", _TEXT),
            ("ranks", _RANKS),
            ("hosts", _TEXTS),
            ("verdict", _TEXT),
            ("measured", _TEXT),
            ("ratio", _REAL),
            ("reason", _TEXT),
            ("time_ns", _INT),
        ]
    ),
    NOTIFICATIONS: pa.schema(
        [
            ("incident", _TEXT),
            ("state", _TEXT),
            ("idempotency_key", _TEXT),
            ("sink", _TEXT),
            ("level", _TEXT),
            ("alert", _TEXT),
            ("sent_ns", _INT),
        ]
    ),
    ASKED: pa.schema(
        [
            *_JOB,
            ("incident", _TEXT),
            ("decision", _TEXT),
            ("sink", _TEXT),
            ("outcome", _TEXT),
            ("by", _TEXT),
            ("time_ns", _INT),
        ]
    ),
    DEAD_LETTERS: pa.schema(
        [
            ("event_id", _TEXT),
            ("payload_hash", _TEXT),
            ("source_topic", _TEXT),
            ("partition", _INT),
            ("offset", _INT),
            ("job", _TEXT),
            ("error", _TEXT),
            ("reason", _TEXT),
            ("payload", pa.binary()),
            ("time_ns", _INT),
        ]
    ),
}

CUT_TABLE = pa.schema([("log", _TEXT), ("topic", _TEXT), ("partition", _RANK), ("first", _INT), ("last", _INT)])
WINDOW_TABLE = pa.schema([("incident", _TEXT), ("version", _INT), ("first_ns", _INT), ("last_ns", _INT)])

IDENTITY: dict[str, tuple[str, ...]] = {
    CALLS: ("job", "attempt", "communicator", "source", "rank", "seq", "peer", "direction"),
    BATCHES: ("job", "attempt", "host", "communicator", "source", "ordinal"),
    TOPOLOGY: ("job", "attempt", "communicator", "host", "host_ranks"),
    HOST_SAMPLES: ("job", "attempt", "host", "rank", "pid", "time_ns"),
    HOST_VITALS: ("job", "attempt", "host", "kind", "name", "ranks", "time_ns"),
    HOST_EVIDENCE: ("job", "attempt", "host", "rank", "pid", "time_ns"),
    MARKERS: ("job", "attempt", "host", "rank", "name", "step", "time_ns"),
    ITERATIONS: ("job", "attempt", "communicator", "step"),
    CHANGEPOINTS: ("job", "attempt", "series", "event_id"),
    GROUP_OUTLIERS: ("job", "attempt", "communicator", "event_id"),
    LEARNT_ROUNDS: ("job", "attempt", "op", "size_bytes", "source", "n_ranks", "n_hosts"),
    FINDINGS: ("job", "attempt", "id", "version"),
    INCIDENTS: ("job", "attempt", "id", "version"),
    DECISIONS: ("job", "attempt", "incident", "event_id"),
    PRICES: ("job", "attempt", "first_step", "last_step", "what", "name"),
    OPERATIONS: ("job", "attempt", "step", "rank", "optype", "seq"),
    NOTIFICATIONS: ("incident", "state", "sink", "level"),
    ASKED: ("incident", "decision", "sink", "outcome"),
    COMMANDS: ("job", "attempt", "event_id"),
    COMMAND_RESULTS: ("job", "attempt", "event_id"),
    VALIDATIONS: ("job", "attempt", "event_id", "ranks"),
    DEAD_LETTERS: ("source_topic", "partition", "offset", "event_id", "payload_hash"),
}
"""What makes a row the same row: the ORDER BY of its table."""
