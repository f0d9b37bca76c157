"""Events of an agent as messages on their way: what it says of calls at once, or each communicator by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from collector.agent.outbox import Kind, Outgoing
from collector.calls.communicators import Communicator
from pacehound.model import codec
from pacehound.model.calls import CallBatch
from pacehound.model.events import CommandResult, HostEvidence, HostSample, HostVitals, Markers, Progress
from pacehound.model.flushes import MAX_FLUSH_SAID, Flush, Heartbeat, HostCall, flushes_of
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


def shards_of(known: Iterable[Communicator], digests_from_ranks: int) -> dict[str, int]:
    """By communicator. Where a source counts places, this host learns of the members one by one: the id alone tells."""
    return {
        one.id: shard_of(one.id, () if one.counts_places else one.members, one.world_size, digests_from_ranks)
        for one in known
    }


def outgoing_at_once(
    events: Iterable[HostCall], shards: Mapping[str, int], *, is_detail: bool = False
) -> list[Outgoing]:
    """What is said of calls, in as few messages as may be: each holds what the outbox may treat alike.

    On Kafka those of one key travel as one message (`pacehound.bus.kafka_sender.joined`). Calls that are detail are the
    first to be dropped, and nobody misses them.
    """
    messages = []
    for flush in flushes_of(events, shards):
        calls = 0 if is_detail else sum(part.n_rows * max(len(part.represented), 1) for part in flush.parts)
        reported = sum(part.dropped for part in flush.parts)
        kind: Kind = "diagnostics" if is_detail else "calls" if flush.parts else _kind(flush.said[0])
        messages.append(
            Outgoing(kind=kind, stream=flush.key, calls=calls, reported=reported, payload=codec.encode(flush))
        )
    return messages


def heartbeats(
    promised: Iterable[Progress], shards: Mapping[str, int], *, quiet_ns: int, of_processes: Collection[int] = ()
) -> list[Outgoing]:
    """Of promises no more than up to when: a later promise takes their place where room has to be made, as of those.

    `quiet_ns` is as in `Heartbeat`, and `of_processes` the attempts of which it speaks for their processes.
    """
    by_shard: dict[tuple[int, int], list[Progress]] = {}
    for one in promised:
        by_shard.setdefault((one.attempt, shards[one.communicator]), []).append(one)
    messages = []
    for (attempt, shard), of_shard in sorted(by_shard.items()):
        for first in range(0, len(of_shard), MAX_FLUSH_SAID):
            some = of_shard[first : first + MAX_FLUSH_SAID]
            beat = Heartbeat(
                time_ns=some[0].time_ns,
                communicators=tuple(one.communicator for one in some),
                quiet_ns=quiet_ns,
                is_of_processes=attempt in of_processes,
            )
            flush = Flush(job=some[0].job, attempt=attempt, host=some[0].host, shard=shard, heartbeat=beat)
            payload = codec.encode(flush)
            messages.append(Outgoing(kind="progress", stream=flush.key, calls=0, reported=0, payload=payload))
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
