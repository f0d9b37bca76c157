"""Calls that were batched (`batch_isend_irecv`, a coalescing manager): their own entries never end.

Nothing watches the single calls of a batch: their entries stay `scheduled` for ever, also after the batch has ended.
After the last of them an entry named `coalesced` is recorded, with the same sequence number, and that one is watched.
So the calls of a batch are as far as their `coalesced` entry is.

A dump of open calls alone (`TORCH_INCLUDE_ONLY_ACTIVE`) has no `coalesced` entry of a batch that has ended, but still
the single calls of it. Calls that share a number and have no `coalesced` entry are therefore not open: either their
batch has ended, or the rank is still collecting it and has launched nothing. A batch of one call cannot be told from
a call of its own there, and counts as open.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from collector.importers.call_files.flight_recorder.dump import Entry

GLOO = "gloo"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The entries of one group with the state that their batch has.

    Attributes
    ----------
    entries
        Without those that stand for a batch, if its calls are there.
    unended
        Calls of batches that are not in the dump: they are not open.
    nameless
        Open batches of point-to-point calls that are not in the dump: who waits for whom is not known.

    """

    entries: tuple[Entry, ...]
    unended: int
    nameless: int


def settled(entries: Sequence[Entry]) -> Settled:
    """Give the calls of each batch its state.

    Parameters
    ----------
    entries
        Of one group, in the order in which they were recorded.

    """
    batches: dict[tuple[bool, int], list[Entry]] = {}
    for one in entries:
        batches.setdefault((one.is_p2p, one.p2p_seq if one.is_p2p else one.collective_seq), []).append(one)
    kept: list[Entry] = []
    unended = nameless = 0
    for members in batches.values():
        ends = [one for one in members if one.is_coalesced]
        calls = [one for one in members if not one.is_coalesced]
        if not ends and len(calls) == 1:
            kept += calls
        elif not ends:
            unended += len(calls)
        elif calls:
            kept += [_as_far_as(one, ends[-1]) for one in calls]
        elif ends[-1].is_p2p:
            nameless += is_open(ends[-1])
        else:
            kept.append(ends[-1])
    kept.sort(key=lambda one: one.record_id)
    return Settled(entries=tuple(kept), unended=unended, nameless=nameless)


def is_open(one: Entry) -> bool:
    """Whether a call has not ended.

    One that is retired and has not ended has timed out: the watchdog asks the device a last time before it retires an
    entry. Its rank waited in it all the same, so it is open here. Gloo's calls are never seen to end: they stay
    `scheduled`, and are retired when they have ended.
    """
    return one.state != "completed" and not (one.backend == GLOO and one.is_retired)


def _as_far_as(call: Entry, end: Entry) -> Entry:
    return dataclasses.replace(
        call, state=end.state, completed_ns=end.completed_ns, is_retired=end.is_retired, timeout_ms=end.timeout_ms
    )
