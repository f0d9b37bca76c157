"""A rank that asks which plan to go on with: it waits until its deadline, and for nobody where nobody listens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pacehound.trainer import Control, Recovery
from pacehound.trainer.order import RECOVERY
from pacehound.trainer.recovering import MOST_QUESTION_BYTES, Question
from pacehound.trainer.token import Token
from tests.fakes.ordered_job import MS
from tests.unit.pacehound.trainer.test_trainer_control import Told

SURVIVORS, ABOUT = [0, 1, 3], {"lost": [2]}
PLAN = {"kind": "reroute"}


class Passing:
    """A clock that goes on by itself, by as much as a look takes."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000 * MS
        self.later: Callable[[], None] | None = None

    def monotonic_ns(self) -> int:
        self.now_ns += 5 * MS
        if self.later is not None and self.now_ns >= 1_000_100 * MS:
            self.later()
            self.later = None
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Passing:
    clock = Passing()
    monkeypatch.setattr("pacehound.trainer.control.time", clock)
    return clock


@pytest.fixture
def told(tmp_path: Path, clock: Passing) -> Told:
    (tmp_path / "run").mkdir()
    return Told(tmp_path / "run", clock)  # type: ignore[arg-type]


def tell(told: Told, *, ordered: bool = True, digest: str = "", ticket: int = 7, kind: str = RECOVERY) -> Token:
    body = {"digest": digest or Question(SURVIVORS, ABOUT).digest, "ordered": ordered, "plan": PLAN}
    told.tell(say="offer", ticket=ticket, kind=kind, payload=json.dumps(body), why="it gives most")
    token = Token(str(told.listener.folder), ticket)
    token.make()
    return token


def test_where_nobody_listens_nobody_is_waited_for(clock: Passing) -> None:
    before_ns = clock.now_ns
    assert Control("", hello={}).recovery(SURVIVORS, ABOUT) is None
    assert clock.now_ns == before_ns


def test_what_is_confirmed_is_used(told: Told) -> None:
    tell(told).confirm()
    found = told.control.recovery(SURVIVORS, ABOUT)
    assert found == Recovery(plan=PLAN, why="it gives most", is_ordered=True, ticket=7)
    lost, armed, applied = told.said()
    assert (lost["say"], lost["survivors"], lost["within_ms"]) == ("lost", SURVIVORS, 2_000)
    assert json.loads(lost["payload"]) == ABOUT
    assert (armed["say"], applied["say"], applied["ticket"]) == ("armed", "applied", 7)


def test_what_is_not_confirmed_by_the_deadline_nobody_here_uses(told: Told, clock: Passing) -> None:
    token, began_ns = tell(told), clock.now_ns
    assert told.control.recovery(SURVIVORS, ABOUT, within_s=1.0) is None
    assert 1_000 * MS <= clock.now_ns - began_ns < 1_100 * MS
    assert token.is_withdrawn
    assert not token.confirm()
    assert [one["say"] for one in told.said()] == ["lost", "armed", "kept"]


def test_what_is_taken_back_is_not_waited_for(told: Told, clock: Passing) -> None:
    tell(told).withdraw()
    began_ns = clock.now_ns
    assert told.control.recovery(SURVIVORS, ABOUT) is None
    assert clock.now_ns - began_ns < 100 * MS


def test_what_is_only_recommended_says_so(told: Told) -> None:
    tell(told, ordered=False)
    found = told.control.recovery(SURVIVORS, ABOUT)
    assert found is not None
    assert (found.is_ordered, found.plan) == (False, PLAN)


def test_an_answer_to_another_question_is_none(told: Told) -> None:
    tell(told, digest="b" * 32).confirm()
    assert told.control.recovery(SURVIVORS, ABOUT, within_s=0.1) is None
    assert [one["say"] for one in told.said()] == ["lost", "unable"]


def test_an_agent_that_hangs_up_before_it_has_answered_is_not_waited_for(told: Told, clock: Passing) -> None:
    told.lines.close()
    began_ns = clock.now_ns
    assert told.control.recovery(SURVIVORS, ABOUT) is None
    assert clock.now_ns - began_ns < 100 * MS


@pytest.mark.parametrize("confirms", [True, False])
def test_an_agent_that_dies_when_the_answer_is_here_leaves_it_to_the_token(
    told: Told, clock: Passing, confirms: bool
) -> None:
    token = tell(told)

    def die() -> None:
        if confirms:
            token.confirm()
        told.lines.close()

    clock.later = die
    assert (told.control.recovery(SURVIVORS, ABOUT, within_s=1.0) is not None) == confirms


def test_an_order_that_waits_for_its_step_is_taken_back(told: Told) -> None:
    told.offer()
    order = told.arm(1_000)
    order.confirm()
    assert told.control.recovery(SURVIVORS, ABOUT, within_s=0.1) is None
    assert order.is_withdrawn
    kept = [one for one in told.said() if one["say"] == "kept"]
    assert [(one["ticket"], one["why"]) for one in kept] == [(7, "a rank was lost")]


def test_the_next_order_for_a_step_is_taken_as_before(told: Told) -> None:
    tell(told, ticket=6).confirm()
    assert told.control.recovery(SURVIVORS, ABOUT) is not None
    told.said()
    assert [one["say"] for one in told.offer()] == ["able"]


def test_survivors_that_agree_use_what_all_of_them_have(told: Told) -> None:
    tell(told).confirm()
    asked: list[list[int]] = []

    def smallest(values: list[int]) -> list[int]:
        asked.append(values)
        return [0, -7]  # somebody has none

    assert told.control.recovery(SURVIVORS, ABOUT, agree=smallest) is None
    assert asked == [[7, -7]]


def test_they_agree_where_nobody_listens_too_for_the_others_count_on_it() -> None:
    asked: list[list[int]] = []
    assert Control("", hello={}).recovery(SURVIVORS, ABOUT, agree=lambda values: asked.append(values) or values) is None
    assert asked == [[0, 0]]


@pytest.mark.parametrize("about", [{"x": "y" * MOST_QUESTION_BYTES}, {"x": object()}])
def test_a_question_that_cannot_be_asked_raises_nothing_and_is_noted(told: Told, about: object, tmp_path: Path) -> None:
    assert told.control.recovery(SURVIVORS, about) is None
    assert list((tmp_path / "run" / "notes").iterdir())
