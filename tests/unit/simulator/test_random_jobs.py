"""Jobs in which everything is drawn: any seed makes one, and what befalls it is what its truth says."""

from __future__ import annotations

from collections import Counter

from simulator.job import simulate
from simulator.suites.random_jobs import KINDS, random_job


def test_any_seed_makes_a_job_of_some_kind_and_the_same_seed_the_same_one() -> None:
    kinds = Counter(random_job(seed).kind for seed in range(100))
    assert set(kinds) == set(KINDS)
    assert random_job(17) == random_job(17)


def test_what_befalls_it_is_what_the_simulator_says_happened() -> None:
    for seed in range(12):
        job = random_job(seed)
        found = simulate(job.spec).truth.findings
        culprits = {rank for finding in found for rank in finding.culprits}
        links = {frozenset(link) for finding in found for link in finding.links}
        if job.kind in ("rank", "link"):
            assert (culprits, links) == (set(job.truth.culprits), {frozenset(link) for link in job.truth.links})
