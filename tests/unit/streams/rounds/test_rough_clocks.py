"""What rounds of any operation prove about clocks: no more than is so, and all that puts exits in order."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.rounds import Rounds
from streams.rounds.divergence import LastIterations
from streams.rounds.rough_clocks import rough_clocks
from tests.fakes.hand_made_rounds import BASE_NS, MS, rounds

HOST_OF = {0: "a", 1: "a", 2: "b", 3: "b"}
S = 1_000.0  # in milliseconds
LASTS_MS = 40.0


def gathers(ahead_ms: Sequence[float], entered_ms: Sequence[Sequence[float]], op: str = "all_gather") -> Rounds:
    """Large ones, of which nobody leaves before the last one has entered and all do within 40 ms of that."""
    spans = [
        [(at + ahead, max(entered) + LASTS_MS + ahead) for at, ahead in zip(entered, ahead_ms, strict=True)]
        for entered in entered_ms
    ]
    return rounds("world", range(len(ahead_ms)), spans, op=op, size_bytes=1 << 24)


def ended(*blocks: Rounds, until_ms: float = 1e6) -> LastIterations:
    until_ns = {rank: BASE_NS + round(until_ms * MS) for rank in HOST_OF}
    return LastIterations(rounds=blocks, begins_ns=until_ns, previous_begins_ns={})


def apart_ms(last: LastIterations) -> float:
    """By how much host b is ahead of host a."""
    of_a, of_b = rough_clocks(last, HOST_OF).of([0, 2]).tolist()
    return (of_b - of_a) / MS


@given(
    ahead_ms=st.floats(-60 * S, 60 * S),
    late_ms=st.lists(st.lists(st.floats(0.0, 400.0), min_size=4, max_size=4), min_size=1, max_size=8),
)
def test_clocks_are_never_said_to_be_further_apart_than_they_are(ahead_ms: float, late_ms: list[list[float]]) -> None:
    entered_ms = [[100 * S + 1_000.0 * n + late for late in row] for n, row in enumerate(late_ms)]
    found_ms = apart_ms(ended(gathers((0.0, 0.0, ahead_ms, ahead_ms), entered_ms)))
    assert abs(found_ms) <= abs(ahead_ms) + 1e-3
    assert found_ms * ahead_ms >= 0.0
    waited_ms = max(max(row) - min(row) for row in late_ms) + LASTS_MS
    assert abs(found_ms) >= abs(ahead_ms) - waited_ms - 1e-3


def test_of_clocks_that_are_seconds_apart_nearly_all_is_known() -> None:
    entered_ms = [[100 * S + 1_000.0 * n] * 4 for n in range(3)]
    assert 2_950 <= apart_ms(ended(gathers((0.0, 0.0, 3_000.0, 3_000.0), entered_ms))) <= 3_000


def test_what_ranks_may_leave_early_and_what_has_not_ended_for_all_says_nothing() -> None:
    entered_ms = [[100 * S + 1_000.0 * n] * 4 for n in range(3)]
    ahead_ms = (0.0, 0.0, 3_000.0, 3_000.0)
    assert apart_ms(ended(gathers(ahead_ms, entered_ms, op="broadcast"))) == 0.0
    both = ended(gathers(ahead_ms, entered_ms, op="broadcast"), gathers(ahead_ms, entered_ms))
    assert apart_ms(both) > 2_900, "what tells nothing does not stand before what does"
    assert apart_ms(ended(gathers(ahead_ms, entered_ms), until_ms=50 * S)) == 0.0


def test_hosts_are_compared_through_one_that_both_have_met() -> None:
    host_of = {0: "a", 1: "b", 2: "c"}
    ahead_ms = {0: 0.0, 1: 5_000.0, 2: 9_000.0}
    blocks = [
        rounds(name, ranks, [[(100 * S + ahead_ms[rank], 100 * S + 1.0 + ahead_ms[rank]) for rank in ranks]])
        for name, ranks in (("ab", (0, 1)), ("bc", (1, 2)))
    ]
    last = LastIterations(rounds=blocks, begins_ns=dict.fromkeys(host_of, BASE_NS + 10**12), previous_begins_ns={})
    found = rough_clocks(last, host_of)
    assert found.are_known
    offsets_ms = [offset / MS for offset in (found.of([0, 1, 2]) - found.of([0])).tolist()]
    assert [round(offset_ms / 10) for offset_ms in offsets_ms] == [0, 500, 900]
