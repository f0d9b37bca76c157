"""Rounds say when they were over, whatever of their instants is known."""

from __future__ import annotations

import numpy as np
import pytest

from pacehound.errors import InvalidEvent
from pacehound.model.calls import Sees
from pacehound.model.rounds import Rounds


def rounds(arrival_ns: list[list[int]], end_ns: list[list[int]], **other: object) -> Rounds:
    n = len(arrival_ns)
    columns = {"seq": np.arange(n), "op": np.ones(n, np.int8), "size_bytes": np.zeros(n, np.int64)}
    times = {"arrival_ns": np.array(arrival_ns), "start_ns": np.array(arrival_ns), "end_ns": np.array(end_ns)}
    known = {"job": "j", "attempt": 0, "communicator": "c", "source": "c10d", "sees": Sees.ALL, "ranks": (0, 1)}
    return Rounds(**{**known, **columns, **times, **other})


@pytest.mark.parametrize(
    ("arrival_ns", "end_ns", "time_ns"),
    [
        ([[1, 2], [3, 4]], [[5, 6], [9, 7]], 9),
        ([[1, 2], [30, 4]], [[5, 6], [0, 0]], 30),
        ([[1, 2], [30, 4]], [[5, 0], [0, 7]], 7),
        ([[1, 2]], [[0, 0]], 2),
    ],
    ids=["all ended", "one has no end", "ends are missing", "nothing has ended"],
)
def test_the_last_round_counts_from_its_last_end_or_else_from_its_last_arrival(
    arrival_ns: list[list[int]], end_ns: list[list[int]], time_ns: int
) -> None:
    found = rounds(arrival_ns, end_ns)
    assert found.time_ns == time_ns == int(found.times_ns.max())


@pytest.mark.parametrize("name", ["op", "size_bytes", "start_ns", "send_rate", "algorithm"])
def test_columns_of_another_shape_are_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidEvent, match=f"rounds column {name!r} has shape"):
        rounds([[1, 2]], [[3, 4]], **{name: np.zeros((3, 3), np.int8)})
