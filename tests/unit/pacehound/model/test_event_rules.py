"""Events refuse to contradict themselves, and ids name identity fields alone."""

import dataclasses

import numpy as np
import pytest

from pacehound.errors import InvalidEvent
from pacehound.model.calls import Sees
from pacehound.model.events import Changepoint, Finding, Instant, Markers, Progress, Topology
from pacehound.model.rounds import Rounds

TOPOLOGY = Topology(
    job="j",
    attempt=0,
    time_ns=1,
    host="h",
    communicator="c",
    name="tp0",
    is_world=False,
    members=(0, 1),
    host_ranks=(1,),
    world_size=4,
)
FINDING = Finding(id="f", job="j", attempt=0, kind="slow", verdict="culprit", cause="S1", culprits=(2,))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"members": (0, 4)}, r"members \[4\] are outside the world of 4"),
        ({"members": (-2, 1)}, r"\[-2\] are outside"),
        ({"members": (-1, 1), "host_ranks": (-1,)}, r"announces ranks \[-1\] that are no members"),
        ({"members": (0, 1, -1, -1, -1)}, "5 members in a world of 4 ranks"),
        ({"members": (1, 1)}, "a rank twice"),
        ({"host_ranks": (2,)}, r"announces ranks \[2\] that are no members of 'tp0'"),
    ],
)
def test_a_topology_keeps_within_its_world(change, complaint):
    with pytest.raises(InvalidEvent, match=complaint):
        dataclasses.replace(TOPOLOGY, **change)


def test_a_name_needs_a_verdict_and_a_verdict_a_name():
    with pytest.raises(InvalidEvent, match="names nobody"):
        dataclasses.replace(FINDING, culprits=())
    with pytest.raises(InvalidEvent, match=r"culprits \[2\] with the verdict 'unknown'"):
        dataclasses.replace(FINDING, verdict="unknown")
    assert dataclasses.replace(FINDING, culprits=(), links=((0, 1),)).links == ((0, 1),)


def test_markers_have_columns_of_one_length_and_known_names():
    good = {"ranks": (0,), "names": ("optimizer_step",), "steps": (0,), "times_ns": (5,)}
    envelope = {"job": "j", "attempt": 0, "host": "h", "communicator": "c"}
    assert Markers(**envelope, **good).time_ns == 5
    with pytest.raises(InvalidEvent, match="different lengths"):
        Markers(**envelope, **{**good, "steps": (0, 1)})
    with pytest.raises(InvalidEvent, match="unknown markers"):
        Markers(**envelope, **{**good, "names": ("coffee",)})


def test_rounds_have_one_shape_and_known_operations():
    good = {
        "seq": np.arange(2),
        "op": np.ones(2, np.int8),
        "size_bytes": np.zeros(2, np.int64),
        **{name: np.zeros((2, 3), np.int64) for name in ("arrival_ns", "start_ns", "end_ns")},
    }
    envelope = {"job": "j", "attempt": 0, "communicator": "c", "source": "c10d", "sees": Sees.ALL, "ranks": (0, 1, 2)}
    assert len(Rounds(**envelope, **good)) == 2
    for name, wrong in (("op", np.ones(3, np.int8)), ("end_ns", np.zeros((2, 2), np.int64))):
        with pytest.raises(InvalidEvent, match=f"'{name}' has shape"):
            Rounds(**envelope, **{**good, name: wrong})
    with pytest.raises(InvalidEvent, match="operation code outside"):
        Rounds(**envelope, **{**good, "op": np.full(2, 99, np.int8)})


def test_an_id_does_not_follow_what_was_measured():
    at = Instant(step=4, time_ns=10)
    change = Changepoint(
        job="j", attempt=0, series="s", at=at, detected=at, before_s=1.0, after_s=1.4, probability=0.95
    )
    assert change.magnitude == pytest.approx(0.4)
    assert dataclasses.replace(change, after_s=1.4000001, probability=0.9).identity() == change.identity()
    later = dataclasses.replace(change, detected=Instant(step=5, time_ns=10))
    assert later.identity() != change.identity()


def test_every_version_of_a_finding_has_an_id_of_its_own():
    assert dataclasses.replace(FINDING, version=1).identity() != FINDING.identity()
    assert dataclasses.replace(FINDING, magnitude=0.5).identity() == FINDING.identity()


def test_progress_of_two_hosts_or_times_has_two_ids():
    progress = Progress(job="j", attempt=0, time_ns=1, host="h", communicator="c", ranks=())
    others = [dataclasses.replace(progress, **change) for change in ({"time_ns": 2}, {"host": "g"}, {"attempt": 1})]
    assert len({event.identity() for event in [progress, *others]}) == 4
