"""Ranks and calls in the words of a finding."""

from __future__ import annotations

from collections.abc import Sequence

from streams.hang.rank_progress import ProgressTable
from streams.hang.wait_graph import StuckCall

SHOWN = 8


def describe(call: StuckCall, table: ProgressTable) -> str:
    """A call in words."""
    name = table.name_of(call.sequence)
    sequence = table.sequences[call.sequence]
    if sequence.is_pair:  # pairs are numbered apart, by some sources only from where the file begins
        return f"the {call.op} from rank {sequence.ranks[0]} to rank {sequence.ranks[1]} on {name!r}"
    return f"{call.op} {call.seq} of {name!r}"


def have(ranks: Sequence[int]) -> str:
    return "have" if len(ranks) > 1 else "has"


def shown_ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:SHOWN])
    more = f" and {len(ranks) - SHOWN} more" if len(ranks) > SHOWN else ""
    return f"rank{'s' if len(ranks) != 1 else ''} {shown}{more}"
