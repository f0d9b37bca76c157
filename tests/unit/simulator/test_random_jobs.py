"""Jobs in which everything is drawn: any seed makes one, and what befalls it is what its truth says."""

from __future__ import annotations

from collections import Counter

import pytest

from simulator.job import simulate
from simulator.suites.random_jobs import KINDS, random_job


def test_any_seed_makes_a_job_of_some_kind_and_the_same_seed_the_same_one() -> None:
    kinds = Counter(random_job(seed).kind for seed in range(300))
    assert set(kinds) == set(KINDS)
    assert random_job(17) == random_job(17)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("logs", "rank beside logs")])
def test_what_befalls_it_is_what_the_simulator_says_happened(kind: str) -> None:
    """Rank 0 that logs is to blame for nothing, and is said to do so."""
    for seed in range(2):
        job = random_job(seed, (kind,))
        found = simulate(job.spec).truth.findings
        culprits = {rank for finding in found for rank in finding.culprits}
        links = {frozenset(link) for finding in found for link in finding.links}
        assert (culprits, links) == (set(job.truth.culprits), {frozenset(link) for link in job.truth.links})


def test_of_some_kinds_only_these_are_drawn() -> None:
    assert {random_job(seed, ("stuck", "exits")).kind for seed in range(20)} == {"stuck", "exits"}


def test_where_nothing_fits_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "impossible", lambda *_: None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="100 jobs of seed 3 have no place for any of impossible"):
        random_job(3, ("impossible",))
