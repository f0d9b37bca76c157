"""What operators leave out of a snapshot follows from the rest: read again they know and say the same as before."""

from __future__ import annotations

from typing import Any

import pytest

from pacehound.settings import Settings
from streams.rounds.assembly import RoundGrid
from streams.snapshots.codec import MalformedState
from streams.snapshots.schema import state_codec

CODEC = state_codec(Settings())


def written_and_read(state: Any) -> Any:
    content = CODEC.encode(state)
    again = CODEC.decode(content)
    assert CODEC.encode(again) == content
    return again


def test_a_grid_without_rows_takes_no_room() -> None:
    """A job whose agents tell of iterations has two for each communicator and one for each pair that sends."""
    few, many = (len(CODEC.encode([RoundGrid(2) for _ in range(n)])) for n in (1, 101))
    assert (many - few) / 100 < 16
    grid = written_and_read(RoundGrid(2))
    assert not grid.has_open


def test_a_grid_of_no_ranks_is_refused() -> None:
    with pytest.raises(MalformedState):
        CODEC.decode(CODEC.encode(RoundGrid(0)))
