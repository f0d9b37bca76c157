"""Every metric of Pacehound: its name, its kind and what it means; base units, `_total` for counters.

A metric that is not listed here cannot be made (`pacehound.telemetry`), so this table is the documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as Prometheus sees it."""

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str
    labels: tuple[str, ...] = ()


DOOR_REQUESTS = Metric(
    "pacehound_door_requests_total", "counter", "OTLP requests answered, by path and HTTP status", ("path", "status")
)
DOOR_BYTES = Metric("pacehound_door_bytes_total", "counter", "Bytes of OTLP bodies taken in, after decompression")
RECORDS_ACCEPTED = Metric("pacehound_records_accepted_total", "counter", "Log records and spans put on the bus")
RECORDS_REJECTED = Metric(
    "pacehound_records_rejected_total", "counter", "Records that went to the dead letters, by error", ("error",)
)
BUS_FULL = Metric("pacehound_bus_full_total", "counter", "Requests told to come back later because the bus was full")
BUS_BYTES = Metric("pacehound_bus_held_bytes", "gauge", "Payload bytes held on the memory bus")
EVENTS_IN = Metric("pacehound_pipeline_events_total", "counter", "Events taken in by the pipeline, by kind", ("kind",))
EVENTS_OUT = Metric("pacehound_pipeline_results_total", "counter", "Events the pipeline concluded, by kind", ("kind",))
PIPELINE_LAG = Metric("pacehound_pipeline_waiting_messages", "gauge", "Messages published and not yet processed")
PIPELINE_REJECTED = Metric(
    "pacehound_pipeline_rejected_total", "counter", "Events the pipeline refused, by error", ("error",)
)
PIPELINE_FAILURES = Metric(
    "pacehound_pipeline_failures_total", "counter", "Events on which the pipeline itself failed; a fault of ours"
)
WORKER_FAILURES = Metric(
    "pacehound_worker_failures_total", "counter", "Batches on which a thread of the head failed", ("worker",)
)
TICKS = Metric("pacehound_ticks_total", "counter", "Ticks put into streams that had fallen silent")
STORE_MESSAGES = Metric("pacehound_store_messages_total", "counter", "Messages written to the store")
STORE_DROPPED = Metric(
    "pacehound_store_dropped_messages_total", "counter", "Messages dropped because the store did not take them"
)
STORE_FAILURES = Metric("pacehound_store_failures_total", "counter", "Writes to the store that failed")
RECORDING_DROPPED = Metric(
    "pacehound_recording_dropped_messages_total", "counter", "Messages missing from the recording (disk full)"
)
ALERT_FAILURES = Metric("pacehound_alert_failures_total", "counter", "Incidents that could not be handed to the alerts")
LEASES = Metric("pacehound_leases", "gauge", "Runs that hold this head open")
INCIDENTS_INTERRUPTED = Metric(
    "pacehound_incidents_interrupted_total", "counter", "Incidents closed because watching was interrupted"
)

METRICS = (
    DOOR_REQUESTS,
    DOOR_BYTES,
    RECORDS_ACCEPTED,
    RECORDS_REJECTED,
    BUS_FULL,
    BUS_BYTES,
    EVENTS_IN,
    EVENTS_OUT,
    PIPELINE_LAG,
    PIPELINE_REJECTED,
    PIPELINE_FAILURES,
    WORKER_FAILURES,
    TICKS,
    STORE_MESSAGES,
    STORE_DROPPED,
    STORE_FAILURES,
    RECORDING_DROPPED,
    ALERT_FAILURES,
    LEASES,
    INCIDENTS_INTERRUPTED,
)
