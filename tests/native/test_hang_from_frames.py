"""A hang inside of a call, from what NCCL tells the plugin to an incident that names the link and the channel."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pacehound.model.events import Finding, Incident, Progress
from pacehound.settings import Settings
from streams.pipeline import Pipeline
from tests.fakes.evidence_words import words_of
from tests.fakes.late_agent import late_agent
from tests.native.plugin_jobs import JOB, Plugin, PluginJob

UNIX_AHEAD_NS = 10**18
SECOND_NS = 10**9
STARTED = 3
"""Calls that end before the one that does not."""
LIMIT_S = 60
SENT_RECEIVED = [(8, 9), (5, 8), (6, 5), (7, 6)]
"""By rank, chunks on channel 1, where the edge from 1 to 2 is dead: what was in the pipe has still been passed on."""


def script(rank: int) -> list[str]:
    lines = [f"init c abcdef12 4 {rank} world"]
    for n in range(STARTED + 1):
        lines += ["group g c", f"coll x c g AllReduce 4096 ncclFloat32 2 {n} 0 RING SIMPLE", "stop x", "stop g"]
        lines += ["kernel k0 c x 0 n", "kernel k1 c x 1 n"]
        for channel in (0, 1):
            for sends in (1, 0):
                is_dead = n == STARTED and channel == 1
                done = SENT_RECEIVED[rank][1 - sends] if is_dead else 12
                peer = (rank + 1) % 4 if sends else (rank - 1) % 4
                lines.append(f"op o{channel}{sends} c x {channel} {peer} 12 {sends}")
                lines += [f"step s c o{channel}{sends} {step}\nstop s" for step in range(done)]
                lines += [] if is_dead else [f"stop o{channel}{sends}"]
        lines += ["kstop k0 n", "kstop k1 n"] if n < STARTED else []
    return [*lines, "wait for ever"]


@pytest.fixture
def hung(plugin: Plugin, tmp_path: Path, api: int) -> Iterator[Path]:
    """The run folder of four ranks that stand in their last call."""
    jobs = [PluginJob(plugin, tmp_path, rank, world=4) for rank in range(4)]
    processes: list[subprocess.Popen[str]] = []
    try:
        processes += [job.start(script(job.rank), api=api) for job in jobs]
        deadline_s = time.monotonic() + LIMIT_S
        expected = dict(enumerate(SENT_RECEIVED))
        while {look.rank: one.done[1] for look in jobs[0].frames() for one in look.running.values()} != expected:
            assert all(process.poll() is None for process in processes)
            assert time.monotonic() < deadline_s, jobs[0].frames()
            time.sleep(0.02)
        yield jobs[0].run_dir
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("api", [4, 5, 6])
def test_the_dead_edge_of_a_ring_is_named_with_its_channel(hung: Path) -> None:
    _, receiver = late_agent(hung, JOB, unix_ahead_ns=UNIX_AHEAD_NS, looks=400, apart_ns=SECOND_NS)

    told = [edge for progress in receiver.of(Progress) for edge in progress.edges]
    ring = [(rank, (rank + 1) % 4) for rank in range(4)]
    assert sorted((edge.channel, edge.sender, edge.receiver) for edge in told) == [
        (channel, *edge) for channel in (0, 1) for edge in ring
    ], "each edge once, though each of its ends sees it in every call"
    assert {edge.algorithm for edge in told} == {"ring"}

    pipeline = Pipeline(Settings.load({}, []))
    found = [one for event in receiver.events for one in pipeline.on_event(event)]
    finding = [one for one in found if isinstance(one, Finding)][-1]
    assert (finding.kind, finding.verdict, finding.cause, finding.links) == ("hang", "suspected", "H3", ((1, 2),))
    words = " ".join(words_of(finding))
    assert (
        "on channel 1 (modulo 8) rank 1 has sent 5 of 12 chunks: more is left to it, and to rank 2 to receive" in words
    )
    assert "nothing has moved there since" in words
    assert [one.state for one in found if isinstance(one, Incident)][-1] == "open"
