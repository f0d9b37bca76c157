"""Links of trees and rings that the simulator lays as NCCL does, named by a judge who knows no more than was seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pacehound.model.events import Finding, Progress
from pacehound.model.routing import Event
from pacehound.model.topology import Layout
from pacehound.settings import HangSettings, Settings
from simulator.faults import SlowLink
from simulator.job import JobSpec, simulate
from simulator.nccl_graph import ring_edges, tree_edges
from simulator.source import DEVICE_TIMES
from streams.scoring.whole_job import findings_of_job
from tests.fakes.evidence_words import words_of

STEP = 30
SETTINGS = Settings(hang=replace(HangSettings(), suspect_after_s=3.0))
SIZES = [pytest.param(size, marks=[pytest.mark.prove] * (size > 64)) for size in (16, 64, 512, 4096)]


def job(n_ranks: int, algorithm: str, factor: float) -> tuple[tuple[int, int], Iterator[Event]]:
    """A link between hosts of a data-parallel group, and what is seen of a job over whose link so much still passes."""
    layout = Layout(dp=16) if n_ranks == 16 else Layout(tp=8, dp=n_ranks // 8)
    ranks_per_host = 2 if n_ranks == 16 else 8
    group = next(layout.groups("dp"))
    channels = (tree_edges if algorithm == "tree" else ring_edges)(group, ranks_per_host)
    between = [(a, b) for edges in channels for a, b in edges if a // ranks_per_host != b // ranks_per_host]
    link = between[len(between) // 3]
    spec = JobSpec(
        layout=layout,
        ranks_per_host=ranks_per_host,
        iterations=STEP + (36 if factor else 1),
        micro_batches=2,
        tp_calls=1,
        source=DEVICE_TIMES,
        faults=(SlowLink(link=link, bandwidth_factor=factor, from_step=STEP),),
        algorithm="tree" if algorithm == "tree" else "ring",
        hang_s=12.0 if n_ranks < 4096 else 20.0,
        seed=3,
    )
    return link, simulate(spec).events()


def without_edges(events: Iterator[Event]) -> Iterator[Event]:
    for event in events:
        yield replace(event, edges=()) if isinstance(event, Progress) else event


def named(findings: list[Finding]) -> tuple[str, str | None, set[frozenset[int]]]:
    (finding,) = findings
    return finding.verdict, finding.cause, {frozenset(link) for link in finding.links}


@pytest.mark.parametrize("algorithm", ["tree", "ring"])
@pytest.mark.parametrize("n_ranks", SIZES)
def test_a_dead_link_is_named(n_ranks: int, algorithm: str) -> None:
    link, events = job(n_ranks, algorithm, 0.0)
    assert named(findings_of_job(events, SETTINGS)) == ("suspected", "H3", {frozenset(link)})


@pytest.mark.parametrize("algorithm", ["tree", "ring"])
@pytest.mark.parametrize("n_ranks", SIZES)
def test_a_slow_link_is_named_for_sure_where_edges_are_seen(n_ranks: int, algorithm: str) -> None:
    link, events = job(n_ranks, algorithm, 0.1)
    assert named(findings_of_job(events, SETTINGS)) == ("culprit", "S2", {frozenset(link)})


def test_a_slow_link_of_a_tree_that_nobody_saw_is_suspected_and_the_finding_says_what_was_assumed() -> None:
    link, events = job(16, "tree", 0.1)
    (finding,) = findings_of_job(without_edges(events), SETTINGS)
    assert named([finding]) == ("suspected", "S2", {frozenset(link)})
    assert "the tree is assumed: NCCL's own over 8 hosts" in words_of(finding)
