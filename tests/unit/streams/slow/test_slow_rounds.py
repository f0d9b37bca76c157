"""CCL-D's slow detection per communicator, on rounds written down by hand."""

from __future__ import annotations

import pytest

from pacehound.model.calls import Sees
from pacehound.model.events import Finding
from pacehound.model.rounds import Rounds
from streams.slow.slow_rounds import SlowRounds
from streams.slow.thresholds import REPEATED
from streams.watching.moment import Moment
from tests.fakes.evidence_words import words_of
from tests.fakes.hand_made_rounds import MS, rounds

COMMUNICATORS = {"c": ("dp0", (0, 1, 2))}


def minutes(first: int, last: int, spans: list[tuple[float, float]], **changes: object) -> Rounds:
    """A round every two seconds; `spans` holds start and end of each rank within it."""
    at = [60_000.0 * first + 2_000.0 * i for i in range(30 * (last - first))]
    return rounds("c", range(3), [[(t + s, t + e) for s, e in spans] for t in at], **changes)  # type: ignore[arg-type]


QUIET = [(0.0, 10.0), (1.0, 10.0), (2.0, 10.0)]
LATE = [(0.0, 60.0), (1.0, 60.0), (52.0, 60.0)]
LONG = [(0.0, 60.0), (1.0, 60.0), (2.0, 60.0)]


def watch(*blocks: Rounds, has_iterations: bool = False) -> tuple[SlowRounds, list[Finding]]:
    made, said = SlowRounds("j", 0), []
    for block in blocks:
        made.on_rounds(block)
        said += made.on_tick(
            Moment(now_ns=block.time_ns, communicators=COMMUNICATORS, n_iterations=int(has_iterations))
        )
    return made, said


@pytest.mark.parametrize(("spans", "words"), [(LATE, "a rank came late"), (LONG, "the transfer itself")])
def test_repeated_slow_windows_are_told_with_their_p_and_name_nobody(
    spans: list[tuple[float, float]], words: str
) -> None:
    made, said = watch(minutes(0, 5, QUIET), minutes(5, 10, spans))
    (finding,) = said
    assert (finding.kind, finding.verdict, finding.culprits, finding.candidates) == ("slow", "unknown", (), (0, 1, 2))
    assert words in words_of(finding)[0]
    assert words in made.of_communicator("c").words


def test_it_ends_when_the_rounds_are_quick_again() -> None:
    _, said = watch(minutes(0, 5, QUIET), minutes(5, 10, LATE), minutes(10, 20, QUIET))
    assert [finding.relief is not None for finding in said] == [False, True]
    assert said[0].id == said[1].id


def test_one_slow_window_is_jitter() -> None:
    _, said = watch(minutes(0, 5, QUIET), minutes(5, 6, LATE), minutes(6, 12, QUIET))
    assert said == []
    assert REPEATED > 1


def test_where_iterations_are_known_it_is_evidence_and_no_finding() -> None:
    made, said = watch(minutes(0, 5, QUIET), minutes(5, 10, LATE), has_iterations=True)
    assert said == []
    assert made.of_communicator("c") is not None


def test_barriers_pairs_and_sources_without_times_do_not_count() -> None:
    for changes in ({"size_bytes": 4}, {"op": "barrier"}, {"sees": Sees.LAUNCH | Sees.END}):
        made, said = watch(minutes(0, 5, QUIET, **changes), minutes(5, 10, LATE, **changes))
        assert (said, made.of_communicator("c")) == ([], None)


def test_a_communicator_that_always_strays_learns_a_higher_bar() -> None:
    """Every window has a round five times as long as the others: that is how it is there."""
    blocks = []
    for minute in range(40):
        spread = 45.0 + minute % 5
        at = [60_000.0 * minute + 2_000.0 * i for i in range(30)]
        spans = [[(t, t + (spread if i == 7 else 9.0)), (t, t + 8.0), (t, t + 8.0)] for i, t in enumerate(at)]
        blocks.append(rounds("c", range(3), spans))
    made = SlowRounds("j", 0)
    for block in blocks:
        made.on_rounds(block)
    (kind,) = made._kinds["c"].values()
    assert kind.base_ns is not None
    assert kind.base_ns < 15 * MS
    assert kind.hits == 0 or kind.theta > 1.0
