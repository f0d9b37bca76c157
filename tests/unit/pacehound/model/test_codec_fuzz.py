"""Hostile bytes become a clear rejection, never a crash and never another exception."""

import random

import numpy as np
import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from pacehound.errors import RejectedMessage
from pacehound.model.calls import CallBatch, Sees
from pacehound.model.codec import decode, encode
from pacehound.model.events import Finding, HostSample, Instant, Markers, ProcessState, Tick
from pacehound.model.rounds import Rounds
from streams.rounds.call_rows import rows_of_batch

N_MUTATIONS = 1500
_INTERESTING = [0, 1, 0x7F, 0x80, 0xFE, 0xFF]


def specimens():
    n = 12
    calls = CallBatch.from_columns(
        {"rank": np.arange(n) % 4, "seq": np.arange(n), "op": np.arange(n), "algorithm": ["ring", "tree"] * 6},
        job="job",
        attempt=0,
        host="h",
        communicator="c",
        source="c10d",
    )
    zeros = np.zeros((3, 2), np.int64)
    rounds = Rounds(
        job="job",
        attempt=0,
        communicator="c",
        source="c10d",
        sees=Sees.ALL,
        ranks=(0, 1),
        seq=np.arange(3),
        op=np.ones(3, np.int8),
        size_bytes=np.arange(3),
        arrival_ns=zeros,
        start_ns=zeros,
        end_ns=zeros,
    )
    process = ProcessState(rank=0, pid=1, state="running", since_ns=3)
    instant = Instant(step=1, time_ns=2)
    finding = Finding(
        id="f", job="j", attempt=0, kind="slow", verdict="culprit", cause="S1", culprits=(1,), onset=instant
    )
    steps = Markers(
        job="j", attempt=0, host="h", communicator="c", ranks=(0,), names=("optimizer_step",), steps=(0,), times_ns=(1,)
    )
    return {
        "calls": encode(calls),
        "rounds": encode(rounds),
        "host": encode(HostSample(job="j", attempt=0, time_ns=5, host="h", processes=(process,))),
        "markers": encode(steps),
        "finding": encode(finding),
        "two": encode(Tick(job="j", attempt=0, time_ns=5, stream="c")) + encode(calls),
    }


def is_handled(message):
    """True where the bytes still are events, False where they are rejected; anything else is a failure."""
    try:
        events = decode(message)
    except RejectedMessage:
        return False
    for event in events:  # what was accepted can be used and written again
        encode(event)
        event.identity() if not isinstance(event, CallBatch) else rows_of_batch(event)
    return True


def mutated(message, rng):
    data = bytearray(message)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.choice(_INTERESTING)
            case 2:
                del data[at : at + rng.randrange(1, 9)]
            case _:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
        if not data:
            break
    return bytes(data)


@pytest.mark.parametrize("name", specimens())
def test_mutated_messages_are_events_or_rejected(name):
    message, rng = specimens()[name], random.Random(name)
    outcomes = [is_handled(mutated(message, rng)) for _ in range(N_MUTATIONS)]
    assert not all(outcomes)


@pytest.mark.parametrize("name", ["calls", "rounds"])
def test_a_mutated_arrow_body_in_a_sound_envelope_is_an_event_or_rejected(name):
    """Straight into the Arrow reader: whole messages mostly die in the protobuf layer before."""
    data, rng = LogsData.FromString(specimens()[name]), random.Random(name)
    record = data.resource_logs[0].scope_logs[0].log_records[0]
    body = record.body.bytes_value
    outcomes = []
    for _ in range(N_MUTATIONS):
        record.body.bytes_value = mutated(body, rng)
        outcomes.append(is_handled(data.SerializeToString()))
    assert not all(outcomes)


@pytest.mark.parametrize("name", specimens())
def test_truncated_messages_are_rejected(name):
    message = specimens()[name]
    first = len(message) if name != "two" else 0
    step = max(1, len(message) // 700)
    for length in range(0, len(message), step):
        assert not is_handled(message[:length]) or length >= first or name == "two"


def test_noise_is_rejected():
    rng = random.Random(1)
    assert not any(is_handled(rng.randbytes(rng.randrange(200))) for _ in range(2000))
