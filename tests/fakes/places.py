"""A job as hosts tell it whose source knows the places of its own ranks alone, as NCCL's shim and profiler do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from msgspec import structs

from pacehound.model.calls import CALL_SCHEMA, FIRST_PLACE, CallBatch
from pacehound.model.events import UNKNOWN_MEMBER, Progress, Topology
from pacehound.model.routing import Event

_PEER = CALL_SCHEMA.get_field_index("peer")


def by_places(events: Iterable[Event]) -> Iterator[Event]:
    """The same events, with members and peers on other hosts as a host knows them."""
    known: dict[tuple[str, str], dict[int, int]] = {}  # by host and communicator: how a rank is named

    def named(host: str, communicator: str, peer: int) -> int:
        return known[host, communicator].get(peer, peer)

    for event in events:
        match event:
            case Topology() if not event.is_world:
                names = {rank: FIRST_PLACE - place for place, rank in enumerate(event.members)}
                names |= {rank: rank for rank in event.host_ranks}
                known[event.host, event.communicator] = names
                yield replace(
                    event, members=tuple(rank if names[rank] == rank else UNKNOWN_MEMBER for rank in event.members)
                )
            case CallBatch() if (event.host, event.communicator) in known:
                peers = [named(event.host, event.communicator, peer) for peer in event.integers("peer").tolist()]
                column = pa.array(np.array(peers, np.int32))
                yield replace(event, rows=event.rows.set_column(_PEER, CALL_SCHEMA.field(_PEER), column))
            case Progress() if (event.host, event.communicator) in known:
                yield replace(
                    event,
                    ranks=tuple(
                        structs.replace(
                            theirs,
                            open=tuple(
                                structs.replace(c, peer=named(event.host, event.communicator, c.peer))
                                for c in theirs.open
                            ),
                            pairs=tuple(
                                structs.replace(p, peer=named(event.host, event.communicator, p.peer))
                                for p in theirs.pairs
                            ),
                        )
                        for theirs in event.ranks
                    ),
                )
            case _:
                yield event
