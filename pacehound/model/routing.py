"""Which topic and key an event travels on."""

from __future__ import annotations

from pacehound.model import topics
from pacehound.model.calls import CallBatch
from pacehound.model.conclusions import Conclusions
from pacehound.model.events import (
    Asked,
    Changepoint,
    Command,
    CommandResult,
    DeadLetter,
    Decision,
    Finding,
    GroupOutlier,
    HostEvidence,
    HostSample,
    HostVitals,
    Incident,
    IterationSample,
    JobHistory,
    LearntRounds,
    Markers,
    Notification,
    Progress,
    SignatureMismatch,
    Tick,
    Topology,
    Watermark,
    WhatIfPrice,
)
from pacehound.model.flushes import Flush
from pacehound.model.operations import Operations
from pacehound.model.relayed import Relayed
from pacehound.model.rounds import Rounds
from pacehound.model.shards import RELAYED_KEY

Event = (
    CallBatch
    | Flush
    | Relayed
    | Topology
    | Progress
    | Markers
    | Tick
    | HostSample
    | HostVitals
    | HostEvidence
    | JobHistory
    | Operations
    | Rounds
    | Conclusions
    | SignatureMismatch
    | Watermark
    | IterationSample
    | Changepoint
    | GroupOutlier
    | LearntRounds
    | Finding
    | WhatIfPrice
    | Incident
    | Decision
    | Notification
    | Asked
    | Command
    | CommandResult
    | DeadLetter
)

HOST_STREAM = "host:"
"""Prefix of the stream name of a host's samples; any other stream is a communicator."""


def host_stream(job: str, host: str) -> str:
    """The name of the stream of one host's samples."""
    return f"{HOST_STREAM}{job}/{host}"


def route(event: Event) -> tuple[topics.Topic, str]:
    """The topic of an event and the key it has there.

    A `Topology` goes to `calls`, in order with the calls it explains.
    """
    match event:
        case CallBatch() | Topology() | Progress() | Markers():
            return topics.CALLS, event.communicator
        case Flush():
            return topics.CALLS, event.key
        case Relayed():
            return topics.ROUNDS, event.key
        case Tick():
            is_relayed, is_host = event.stream.startswith(RELAYED_KEY), event.stream.startswith(HOST_STREAM)
            return (topics.ROUNDS if is_relayed else topics.HOSTS if is_host else topics.CALLS), event.stream
        case HostSample() | HostVitals() | HostEvidence():
            return topics.HOSTS, host_stream(event.job, event.host)
        case Operations():
            return topics.OPS, host_stream(event.job, event.host)
        case JobHistory():
            return topics.HOSTS, event.job
        case Rounds() | Conclusions() | SignatureMismatch() | Watermark():
            return topics.ROUNDS, event.job
        case IterationSample():
            return topics.ITERATIONS, event.job
        case Changepoint() | GroupOutlier() | LearntRounds() | Finding() | WhatIfPrice():
            return topics.FINDINGS, event.job
        case Incident():
            return topics.INCIDENTS, event.job
        case Decision():
            return topics.DECISIONS, event.job
        case Notification() | Asked():
            return topics.NOTIFICATIONS, event.job
        case Command():
            return topics.COMMANDS, event.job
        case CommandResult():
            return topics.RESULTS, event.job
        case DeadLetter():
            return topics.DEAD_LETTERS, event.source_topic
