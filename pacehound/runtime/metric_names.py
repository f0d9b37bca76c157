"""Every metric of Pacehound: its name, its kind and what it means; base units, `_total` for counters.

A metric that is not listed here cannot be made (`pacehound.runtime.telemetry`), so this table is the documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric as Prometheus sees it; each is there once, in the table below."""

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str
    labels: tuple[str, ...] = ()


OTLP_REQUESTS = Metric(
    "pacehound_otlp_requests_total", "counter", "OTLP requests answered, by path and HTTP status", ("path", "status")
)
OTLP_BYTES = Metric("pacehound_otlp_bytes_total", "counter", "Bytes of OTLP bodies taken in, after decompression")
RECORDS_ACCEPTED = Metric("pacehound_records_accepted_total", "counter", "Log records and spans put on the bus")
RECORDS_REJECTED = Metric(
    "pacehound_records_rejected_total", "counter", "Records that went to the dead letters, by error", ("error",)
)
BUS_FULL = Metric("pacehound_bus_full_total", "counter", "Requests told to come back later because the bus was full")
BUS_BYTES = Metric("pacehound_bus_held_bytes", "gauge", "Payload bytes held on the memory bus")
EVENTS_IN = Metric("pacehound_pipeline_events_total", "counter", "Events taken in by the pipeline, by kind", ("kind",))
EVENTS_OUT = Metric("pacehound_pipeline_results_total", "counter", "Events the pipeline concluded, by kind", ("kind",))
PIPELINE_LAG = Metric("pacehound_pipeline_waiting_messages", "gauge", "Messages published and not yet processed")
PIPELINE_FAILURES = Metric(
    "pacehound_pipeline_failures_total", "counter", "Events on which the pipeline itself failed; a fault of ours"
)
WORKER_FAILURES = Metric(
    "pacehound_worker_failures_total", "counter", "Batches on which a thread of the head failed", ("worker",)
)
TICKS = Metric("pacehound_ticks_total", "counter", "Ticks put into streams that had fallen silent")
STORE_MESSAGES = Metric("pacehound_store_messages_total", "counter", "Messages written to the store")
RECORDING_DROPPED = Metric(
    "pacehound_recording_dropped_messages_total", "counter", "Messages missing from the recording (disk full)"
)
LEASES = Metric("pacehound_leases", "gauge", "Runs that hold this head open")
INCIDENTS_INTERRUPTED = Metric(
    "pacehound_incidents_interrupted_total", "counter", "Incidents closed because watching was interrupted"
)
PROCESS = Metric("pacehound_process_info", "gauge", "1, with what this process is", ("process", "version"))
MESSAGES = Metric("pacehound_messages_total", "counter", "Messages dealt with, by topic", ("topic",))
LAG = Metric("pacehound_lag_messages", "gauge", "Messages of this process's partitions that it has not read yet")
SKIPPED = Metric(
    "pacehound_skipped_messages_total",
    "counter",
    "Messages that the streams did not take in again, or that lie behind one that will be sent again, by topic",
    ("topic",),
)
MISSING = Metric(
    "pacehound_missing_offsets_total",
    "counter",
    "Offsets at which the streams found no message: it has expired, or marks the end of a transaction; by topic",
    ("topic",),
)
DEAD_LETTERED = Metric(
    "pacehound_dead_letters_total",
    "counter",
    "Messages set aside, by topic and error",
    ("topic", "error"),
)
RETRIES = Metric("pacehound_retries_total", "counter", "Messages that will be tried again because something is away")
AWAY = Metric(
    "pacehound_away", "gauge", "1 while something that a worker needs does not answer and messages wait", ("worker",)
)
SPANS = Metric("pacehound_spans_total", "counter", "Spans of rounds, incidents and decisions handed to the exporter")
COMMIT_FAILURES = Metric("pacehound_commit_failures_total", "counter", "Commits that Kafka did not take")
STAGE_SECONDS = Metric(
    "pacehound_stage_seconds_total", "counter", "Time spent in a stage of the loop (poll, work, publish …)", ("stage",)
)
STAGE_RUNS = Metric("pacehound_stage_runs_total", "counter", "How often a stage of the loop has run", ("stage",))
EVENT_AGE_SECONDS = Metric(
    "pacehound_event_age_seconds_total", "counter", "Time from each event's own time to when it was dealt with"
)
EVENT_AGES = Metric("pacehound_event_ages_total", "counter", "Events that went into pacehound_event_age_seconds_total")
LAST_BATCH = Metric("pacehound_last_batch_timestamp_seconds", "gauge", "Unix time at which the last batch was done")
NOTICES = Metric("pacehound_notices_total", "counter", "Notices by what became of them", ("outcome",))
HEARTBEATS = Metric("pacehound_heartbeats_total", "counter", "Signs of life by what became of them", ("outcome",))

WRITER_LAG = Metric("pacehound_writer_lag_messages", "gauge", "Messages on the bus that are not in the store")
WRITER_HELD_BYTES = Metric("pacehound_writer_held_bytes", "gauge", "Message bytes read and not yet in the store")
WRITER_BLOCKS = Metric("pacehound_writer_blocks_total", "counter", "Blocks of messages written to the store")
WRITER_REPEATS = Metric(
    "pacehound_writer_repeated_blocks_total", "counter", "Blocks written again after a failure or by another writer"
)
WRITER_ROWS = Metric("pacehound_writer_rows_total", "counter", "Rows written to the store, by table", ("table",))
WRITER_INSERT_SECONDS = Metric(
    "pacehound_writer_insert_seconds_total", "counter", "Time spent on writing blocks; divide by the blocks"
)
WRITER_DEAD_LETTERS = Metric(
    "pacehound_writer_dead_letters_total", "counter", "Records that the store cannot take, by error", ("error",)
)
WRITER_FAILURES = Metric(
    "pacehound_writer_failures_total", "counter", "Tries at writing or committing that failed; tried again"
)
WRITER_WINDOWS = Metric("pacehound_writer_windows_total", "counter", "Windows of calls around incidents that were kept")

METRICS = tuple(metric for metric in tuple(vars().values()) if isinstance(metric, Metric))
"""All of them, in the order in which they stand here."""
