"""Calls, and who waits for whom, as evidence holds them."""

from __future__ import annotations

from pacehound.model.evidence.waiting import MOST_WAITS, Call
from streams.hang.rank_progress import ProgressTable
from streams.hang.wait_graph import StuckCall, WaitGraph

SHOWN = 8
"""Pieces of one kind."""


def call_of(call: StuckCall, table: ProgressTable) -> Call:
    """A call that does not end."""
    sequence = table.sequences[call.sequence]
    # Pairs are numbered apart, by some sources only from where the file begins.
    pair = (sequence.ranks[0], sequence.ranks[1]) if sequence.is_pair else None
    return Call(op=call.op, seq=call.seq, communicator=table.name_of(call.sequence), pair=pair)


def waits_of(graph: WaitGraph, table: ProgressTable) -> tuple[tuple[int, int, str], ...]:
    """Some edges of a wait-for graph, those of the lowest ranks."""
    edges: list[tuple[int, int, str]] = []
    for rank in graph.standing[:MOST_WAITS]:
        name = table.name_of(graph.call(graph.stands_in(rank)).sequence)
        edges += [(rank, other, name) for other in graph.waits_for(rank)]
        if len(edges) >= MOST_WAITS:
            break
    return tuple(edges[:MOST_WAITS])
