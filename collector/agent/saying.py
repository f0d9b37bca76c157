"""Events of an agent as messages on their way: what it says of calls at once, or each communicator by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collector.agent.outbox import Kind, Outgoing
from collector.calls.communicators import Communicator
from pacehound.model import codec
from pacehound.model.calls import CallBatch
from pacehound.model.events import CommandResult, HostEvidence, HostSample, HostVitals, Markers, Progress
from pacehound.model.flushes import HostCall, flushes_of
from pacehound.model.operations import Operations
from pacehound.model.routing import host_stream
from pacehound.model.shards import shard_of

AgentEvent = HostCall | HostSample | HostVitals | HostEvidence | Operations | CommandResult


def outgoing(event: AgentEvent) -> Outgoing:
    """An event by itself."""
    calls, reported = (event.n_calls, event.dropped) if isinstance(event, CallBatch) else (0, 0)
    if isinstance(event, (HostSample, HostVitals, HostEvidence, Operations, CommandResult)):
        stream = host_stream(event.job, event.host)
    else:
        stream = event.communicator
    return Outgoing(kind=_kind(event), stream=stream, calls=calls, reported=reported, payload=codec.encode(event))


def outgoing_at_once(
    events: Iterable[HostCall], known: Sequence[Communicator], *, is_detail: bool = False
) -> list[Outgoing]:
    """What is said of calls, in as few messages as may be: each holds what the outbox may treat alike.

    On Kafka those of one key travel as one message (`pacehound.bus.kafka_sender.joined`). Calls that are detail are the
    first to be dropped, and nobody misses them.
    """
    # Where a source counts places, this host learns of the members one by one: then the id alone tells the shard.
    shards = {one.id: shard_of(one.id, () if one.counts_places else one.members, one.world_size) for one in known}
    messages = []
    for flush in flushes_of(events, shards):
        calls = 0 if is_detail else sum(part.n_rows * max(len(part.represented), 1) for part in flush.parts)
        reported = sum(part.dropped for part in flush.parts)
        kind: Kind = "diagnostics" if is_detail else "calls" if flush.parts else _kind(flush.said[0])
        messages.append(
            Outgoing(kind=kind, stream=flush.key, calls=calls, reported=reported, payload=codec.encode(flush))
        )
    return messages


def _kind(event: AgentEvent) -> Kind:
    if isinstance(event, CallBatch):
        return "calls"
    if isinstance(event, Progress) and not event.closed:
        return "progress"
    if isinstance(event, HostSample) and not event.closed:
        return "host"
    if isinstance(event, (HostVitals, HostEvidence, Operations)):
        return "diagnostics"
    return "markers" if isinstance(event, Markers) else "keep"
