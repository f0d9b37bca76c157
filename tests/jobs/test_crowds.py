"""What a crowded machine holds back, and what it does not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pacehound.model.events import HostProcessors, HostVitals, RankProcessors
from pacehound.model.evidence import OnlyWords
from pacehound.model.evidence.computing import OwnTimeGrew
from pacehound.model.evidence.machines import Crowded
from streams.slow.attribution.crowds import weighed_by_crowd
from streams.slow.attribution.observations import Observations
from streams.slow.attribution.verdict import Attribution
from tests.jobs.test_slow_jobs import C10D_GLOO, JobSpec, Layout, S, SlowCompute, all_said

RANKS = (0, 1, 2, 3)
CROWDED = (Crowded(host="b", least_share=0.2, most_share=0.3),)
NAMED = Attribution("slow", "culprit", "S1", (2,), evidence=(OnlyWords(words="rank 2: own time grew"),))
GREW = OwnTimeGrew(ranks=(2,), own_s=0.008, peers_s=0.003, iteration_s=0.011)
SHARED = Attribution("slow", "culprit", "S1", (2,), evidence=(GREW,))
"""A rank whose peers compute for longer, too."""
LINKED = Attribution("slow", "suspected", "S2", links=((2, 3),))
NOBODY = Attribution("slow", "unknown", None)


def weighed(
    found: Attribution, said: tuple[Crowded, ...] | None, hosts: Sequence[str] = ("a", "a", "b", "b")
) -> Attribution:
    """By a machine of which that is said, of whichever of its ranks it is asked."""
    asked: list[tuple[int, ...]] = []

    def crowd(ranks: Sequence[int], since_ns: int, min_share: float, *, is_apart: bool) -> tuple[Crowded, ...] | None:
        assert is_apart == (found not in (NOBODY, SHARED))
        assert (since_ns, min_share) == (7, pytest.approx(0.25)), "half of what is lost of each second"
        asked.append(tuple(ranks))
        return said

    observed = Observations({}, list, hosts=dict(enumerate(hosts)), crowd=crowd)
    answer = weighed_by_crowd(found, RANKS, 7, 1.0, observed)
    assert asked in ([], [RANKS if found is NOBODY else (2, 3)]), "those who share its machine, or the whole job"
    return answer


@pytest.mark.parametrize(
    "found", [NAMED, SHARED, LINKED, NOBODY], ids=["a rank", "a rank among slower ones", "a link", "nobody"]
)
def test_nobody_is_named_on_a_crowded_machine_and_it_says_why(found: Attribution) -> None:
    told = weighed(found, CROWDED)
    assert (told.verdict, told.culprits, told.links, told.may_be_the_machine) == ("unknown", (), (), True)
    assert told.candidates == (() if found is NOBODY else (2, 3))
    assert told.evidence == (*found.evidence, *CROWDED)


@pytest.mark.parametrize("found", [NAMED, LINKED, NOBODY], ids=["a rank", "a link", "nobody"])
def test_where_it_is_not_crowded_the_answer_stands(found: Attribution) -> None:
    assert weighed(found, ()) is found


def test_until_the_processors_are_read_a_name_stands_and_slowness_without_one_waits() -> None:
    assert weighed(NAMED, None) is NAMED
    assert weighed(NOBODY, None).may_be_the_machine


def test_a_rank_that_has_its_machine_for_itself_is_named_for_it() -> None:
    assert weighed(NAMED, CROWDED, hosts=("a", "b", "c", "d")) is NAMED


def crowded_readings(n_ranks: int, for_s: int) -> tuple[HostVitals, ...]:
    """Of a host with two processors that are never free; a rank runs a quarter of the time and waits for the rest."""
    made = []
    for second in range(0, for_s, 5):
        readings = tuple(
            RankProcessors(rank=rank, pid=rank, ran_ns=second * S // 4, waited_ns=second * S * 3 // 4)
            for rank in range(n_ranks)
        )
        host = HostProcessors(count=2, busy_ns=2 * second * S, stolen_ns=0)
        time_ns = JobSpec().start_unix_ns + second * S
        made.append(
            HostVitals(
                job="simulated", attempt=0, time_ns=time_ns, host="host0", processors=host, rank_processors=readings
            )
        )
    return tuple(made)


def test_a_slow_rank_on_a_crowded_machine_is_named_once_it_has_been_slow_for_a_minute() -> None:
    slow = SlowCompute(ranks=(2,), factor=1.8, from_step=60)
    extra = crowded_readings(4, 10_000)
    said = all_said(slow, extra=extra, layout=Layout(dp=4), ranks_per_host=4, source=C10D_GLOO, seed=5, iterations=460)
    named = [finding for finding in said if finding.kind == "slow" and finding.culprits]
    held = [finding for finding in said if finding.kind == "slow" and not finding.culprits]
    assert held
    assert not any(finding.pages for finding in held)
    assert named
    assert named[-1].culprits == (2,)
