"""What is said of a small job whose steps are long now and then."""

from __future__ import annotations

from collections.abc import Sequence

from pacehound.model.events import Finding
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.faults import Spike
from simulator.job import JobSpec, simulate
from simulator.source import C10D_GLOO
from streams.pipeline import Pipeline

RANKS = 4


def findings_of(
    spikes: Sequence[Spike], iterations: int, seed: int, restarts: int = 0, n_hosts: int = 1
) -> list[Finding]:
    """By pipelines of which each goes on from a snapshot of the one before."""
    spec = JobSpec(
        layout=Layout(dp=RANKS * n_hosts), ranks_per_host=RANKS, iterations=iterations, source=C10D_GLOO, seed=seed,
        faults=tuple(spikes),
    )  # fmt: skip
    pipeline, said, events = Pipeline(Settings()), list[Finding](), list(simulate(spec).events())
    for number, event in enumerate(events):
        if restarts and number % (len(events) // restarts) == 0:
            pipeline = Pipeline.restore(pipeline.snapshot(), Settings())
        said += [out for out in pipeline.on_event(event) if isinstance(out, Finding)]
    return said
