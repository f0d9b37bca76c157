"""An agent holds ranks, and says why they go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.agent.holding import Holder
from pacehound.model.orders import Hold, Keep
from tests.fakes.held_ranks import SimulatedRank

SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(
    ("timeout_s", "held_s", "said"),
    [
        (20, 5, "as long as a hold may last, a quarter of the 20 s after which its process groups give up"),
        (600, 20, "as long as a hold may last"),
    ],
)
def test_how_long_a_rank_may_be_held_is_said_before_and_where_it_was_shorter_than_asked_for_why(
    tmp_path: Path, timeout_s: int, held_s: int, said: str
) -> None:
    rank, holder, now_ns = SimulatedRank(tmp_path, 3), Holder(tmp_path), SECOND_NS
    (located,) = holder.locate([rank.process], timeout_s * 1000, now_ns)
    assert located.hold_limit_ms == timeout_s * 250
    hold = Hold(trap=7, round=0, hold_ms=20_000, lease_ms=1_500)
    assert holder.hold(hold, [rank.process], timeout_s * 1000, now_ns) == ""
    while not (released := [one for one in holder.answers(now_ns) if one.state == "released"]):
        holder.keep(Keep(trap=7, lease_ms=1_500, all_held=True), now_ns)
        holder.step(frozenset({rank.process.pid}), now_ns)
        rank.step(now_ns, may_launch=True)
        now_ns += SECOND_NS // 4
    assert [one.why for one in released] == [said]
    assert held_s <= (now_ns - rank.held_since_ns) / SECOND_NS < held_s + 1
    holder.close()
    rank.close()


def test_a_rank_that_has_passed_the_round_is_not_waited_for(tmp_path: Path) -> None:
    """It waits itself, in the call after it, for those that stand still: an agent that was killed tells it too late."""
    rank, holder, now_ns = SimulatedRank(tmp_path, 3), Holder(tmp_path), SECOND_NS
    for _ in range(6):
        rank.step(now_ns, may_launch=True)
    assert holder.hold(Hold(trap=7, round=6, hold_ms=20_000, lease_ms=1_500), [rank.process], 600_000, now_ns) == ""
    (answer,) = holder.answers(now_ns)
    assert (answer.state, answer.launched) == ("running", 6)
    assert holder.hold(Hold(trap=7, round=5, hold_ms=20_000, lease_ms=1_500), [rank.process], 600_000, now_ns) == ""
    (answer,) = holder.step(frozenset({rank.process.pid}), now_ns)
    assert (answer.state, answer.why) == ("refused", "it had passed the round")
    assert not holder.is_holding
    holder.close()
    rank.close()
