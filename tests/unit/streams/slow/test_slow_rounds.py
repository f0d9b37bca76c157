"""CCL-D's slow detection per communicator, on rounds written down by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pacehound.errors import InvalidSetting
from pacehound.model.calls import Sees
from pacehound.model.events import Finding, HostProcessors, HostVitals, LearntRounds, UsualRounds
from pacehound.model.rounds import Rounds
from streams.rounds.round_table import RoundTable
from streams.slow.base_times import base_times
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
        made.on_rounds(RoundTable([block]))
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
        made.on_rounds(RoundTable([block]))
    (kind,) = made._kinds["c"].values()
    assert kind.base_ns is not None
    assert kind.base_ns < 15 * MS
    assert kind.hits == 0 or kind.theta > 1.0


USUAL = UsualRounds(
    op="all_reduce", size_bytes=1 << 20, source="made", n_ranks=3, n_hosts=2, host_kind="2 processors", longest_s=0.01
)
HOST_OF = {0: "a", 1: "a", 2: "b"}


def in_fleet(*blocks: Rounds, usual: UsualRounds | None = USUAL, processors: int = 2) -> list[object]:
    """What is said of a job whose store remembers something, on hosts that have said what they are."""
    made, said = SlowRounds("j", 0), []
    made.on_history([usual] if usual else [])
    for host in ("a", "b"):
        vitals = HostVitals(job="j", attempt=0, time_ns=1, host=host, processors=HostProcessors(count=processors))
        made.hear(vitals, None)
    for block in blocks:
        made.on_rounds(RoundTable([block]))
        said += made.on_tick(Moment(now_ns=block.time_ns, communicators=COMMUNICATORS, host_of=HOST_OF))
    return said


def minute_by_minute(n: int, spans: list[tuple[float, float]]) -> list[Rounds]:
    return [minutes(minute, minute + 1, spans) for minute in range(n)]


def test_what_is_slow_from_the_first_round_on_is_told_by_what_is_usual_in_the_fleet() -> None:
    (finding,) = (one for one in in_fleet(*minute_by_minute(8, LATE)) if isinstance(one, Finding))
    assert "usual in the fleet" in words_of(finding)[0]
    assert "a rank came late" in words_of(finding)[0]


@pytest.mark.parametrize(
    "other", [{"size_bytes": 8}, {"op": "broadcast"}, {"n_hosts": 1}, {"host_kind": "8 x GPU"}, {"source": "else"}]
)
def test_another_operation_size_shape_kind_of_host_or_source_is_no_base(other: dict[str, object]) -> None:
    usual = replace(USUAL, **other)  # type: ignore[arg-type]
    assert not any(isinstance(one, Finding) for one in in_fleet(*minute_by_minute(8, LATE), usual=usual))


def test_the_fleet_is_told_once_of_what_was_learnt_and_never_of_what_is_slow() -> None:
    said = in_fleet(*minute_by_minute(8, QUIET), usual=None)
    (learnt,) = said
    assert isinstance(learnt, LearntRounds)
    assert (learnt.op, learnt.n_ranks, learnt.n_hosts, learnt.host_kind) == ("all_reduce", 3, 2, "2 processors")
    assert learnt.longest_s == pytest.approx(0.01)
    assert not any(isinstance(one, LearntRounds) for one in in_fleet(*minute_by_minute(8, LATE)))


def test_a_base_that_is_set_counts_until_the_first_rounds_are_known_to_be_no_slower() -> None:
    made = SlowRounds("j", 0, base_times("all_reduce:1048576=0.01"))
    for block in [*minute_by_minute(4, LATE), *(minutes(m, m + 1, QUIET) for m in range(4, 8))]:
        made.on_rounds(RoundTable([block]))
    (kind,) = made._kinds["c"].values()
    assert (kind.given_by, kind.base_ns) == ("set", 10 * MS)
    assert "that was set" in made.of_communicator("c").words
    quick = SlowRounds("j", 0, base_times("all_reduce:1048576=0.01"))
    for block in minute_by_minute(4, [(0.0, 12.0), (1.0, 12.0), (2.0, 12.0)]):
        quick.on_rounds(RoundTable([block]))
    (kind,) = quick._kinds["c"].values()
    assert (kind.given_by, kind.base_ns) == ("", 12 * MS)


@pytest.mark.parametrize("text", ["all_reduce=1", "all_reduce:8", "nothing:8=1", "all_reduce:8=-1", "all_reduce:8=nan"])
def test_a_base_that_cannot_be_read_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"slow\.base_times has .*OPERATION:BYTES=SECONDS"):
        base_times(text)
