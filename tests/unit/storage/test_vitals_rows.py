"""What hosts say of their hardware as columns: a row for each thing; what cannot be stored takes nothing with it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.bus import Message
from pacehound.clock import ManualClock
from pacehound.errors import InvalidEvent
from pacehound.model.codec import encode
from pacehound.model.events import AgentCost, GpuReading, HostVitals, NicReading, RankProcessors, SocketReading
from storage import schemas
from storage.gather import gather
from storage.vitals_rows import n_readings, vitals_table
from tests.fakes.events import one_of_each

(SAID,) = (event for event in one_of_each() if isinstance(event, HostVitals))


def test_each_thing_that_was_read_is_a_row_with_its_numbers_by_name() -> None:
    table = vitals_table([SAID])
    assert table.schema == schemas.ROW_TABLES[schemas.HOST_VITALS]
    rows = table.to_pylist()
    assert {(row["job"], row["attempt"], row["host"], row["time_ns"]) for row in rows} == {
        (SAID.job, SAID.attempt, "node0", SAID.time_ns)
    }
    found = [(row["kind"], row["name"], row["ranks"], row["state"]) for row in rows]
    assert found == [
        ("gpu", "GPU-1", [2], "sw_power_cap"),
        ("nic", "mlx5_0/1", [], "active"),
        ("socket", "10.0.0.1:4 > 10.0.0.2:5", [2], ""),
        ("rank", "11", [2], ""),
        ("host", "", [], ""),
        ("processors", "", [], ""),
        ("agent", "", [], ""),
    ]
    numbers = {row["kind"]: dict(row["numbers"]) for row in rows}
    assert len(numbers["gpu"]) == 6
    assert numbers["gpu"]["xid"] == 79
    assert len(numbers["socket"]) == 8
    assert numbers["socket"]["acked_bytes"] == 9
    assert numbers["nic"] == {"symbol_error": 3}
    assert numbers["rank"] == {"ran_ns": 900, "waited_ns": 30, "throttled_ns": 4}
    assert numbers["host"] == {"oom_kills": 1}
    assert numbers["processors"] == {"count": 64, "busy_ns": 7_000_000, "stolen_ns": 20_000}
    assert SAID.agent is not None
    assert numbers["agent"] == asdict(SAID.agent)


NUMBERS, RANKS, TEXTS = st.integers(0, 1 << 53), st.integers(0, 9), st.text(max_size=3)


def some(kind: type, **drawn: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(st.builds(kind, **drawn), max_size=3).map(tuple)


VITALS = st.builds(
    HostVitals,
    job=TEXTS,
    attempt=RANKS,
    time_ns=NUMBERS,
    host=TEXTS,
    gpus=some(GpuReading, uuid=TEXTS, index=RANKS, ranks=st.lists(RANKS, max_size=2).map(tuple), xid=NUMBERS),
    nics=some(NicReading, name=TEXTS, state=TEXTS, errors=st.dictionaries(TEXTS, NUMBERS, max_size=3)),
    sockets=some(SocketReading, rank=RANKS, pid=RANKS, local=TEXTS, remote=TEXTS, rtt_us=NUMBERS),
    rank_processors=some(RankProcessors, rank=RANKS, pid=RANKS, ran_ns=NUMBERS),
    agent=st.none() | st.builds(AgentCost, cpu_cores=st.floats(0, 1)),
    oom_kills=NUMBERS,
)


@given(said=st.lists(VITALS, min_size=1, max_size=5))
def test_what_hosts_say_together_is_what_each_says_alone(said: list[HostVitals]) -> None:
    together = vitals_table(said)
    assert together.to_pylist() == [row for one in said for row in vitals_table([one]).to_pylist()]
    assert together.num_rows == sum(map(n_readings, said))


@pytest.mark.parametrize(
    "wrong",
    [
        replace(SAID, time_ns=1 << 63),
        replace(SAID, host="\ud800"),
        replace(SAID, nics=(NicReading(name="eth0", state="up", errors={"drops": 1 << 2_000}),)),
        replace(SAID, rank_processors=(RankProcessors(rank=1 << 31, pid=1),)),
    ],
    ids=["time", "host", "counter", "rank"],
)
def test_what_does_not_fit_is_refused(wrong: HostVitals) -> None:
    with pytest.raises(InvalidEvent, match="does not fit a column of stored_host_vitals"):
        vitals_table([SAID, wrong])


def test_one_that_does_not_fit_takes_no_other_with_it() -> None:
    wrong = replace(SAID, rank_processors=(RankProcessors(rank=1 << 31, pid=1),))
    values = [encode(SAID), encode(wrong), encode(replace(SAID, host="node1"))]
    messages = [Message(topic="hosts", key="k", partition=0, offset=at, value=value) for at, value in enumerate(values)]
    found = gather(messages, ManualClock(7))
    assert [letter.offset for letter in found.dead_letters] == [1]
    (insert,) = found.inserts
    assert sorted(set(insert.rows.column("host").to_pylist())) == ["node0", "node1"]
    assert found.rows == {schemas.HOST_VITALS: insert.rows.num_rows}
