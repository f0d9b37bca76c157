"""A rank of a real job is stopped and goes on: named, told of, and closed; once, and ten times in the proofs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from bench.rig import realjob
from tests.fakes.evidence_words import words_of
from tests.fakes.webhook import FakeWebhook

pytestmark = [pytest.mark.integration, pytest.mark.prove, pytest.mark.timeout(3600)]

RUNS = 10


def stopped_rank(folder: Path, rank: int) -> str:
    """SIGSTOP on one rank, SIGCONT after the verdict; a webhook is told of each state once."""
    neighbours = realjob.Neighbours()
    with FakeWebhook() as hook:
        settings = ["hang.suspect_after_s=3", f"alerts.webhook_url={hook.url}"]
        run = realjob.start(folder, realjob.torchrun(0.05, folder, script=realjob.STEADY), settings=settings)
        try:
            realjob.until("sixty iterations", lambda: run.iterations_seen() >= 60, 90)
            pid = realjob.rank_pids(run.process.pid, realjob.STEADY)[rank]
            os.kill(pid, signal.SIGSTOP)
            assert hook.wait_for(1, 60)
            (incident,) = realjob.until("the verdict", run.incidents, 60)
            os.kill(pid, signal.SIGCONT)
            assert hook.wait_for(3, 120)  # opened, relieved, and closed although the job goes on
            (folder / "stop").touch()
            assert run.wait(120) == 0, run.text()
        finally:
            run.stop()
    (finding,) = incident["findings"]
    assert (finding["kind"], finding["verdict"], finding["culprits"]) == ("hang", "culprit", [rank]), finding
    assert any("is stopped" in sentence for sentence in words_of(finding)), finding
    (incident,) = run.incidents()
    assert (incident["state"], incident["closed_why"]) == ("closed", "relieved"), incident
    assert sorted(state for _, state in hook.delivered) == ["closed", "open", "relieved"]
    assert {told for told, _ in hook.delivered} == {incident["id"]}
    delay_s = (finding["detected"]["time_ns"] - finding["onset"]["time_ns"]) / 1e9
    assert delay_s >= 3.0
    with realjob.unless_disturbed(neighbours.disturbance):
        assert delay_s <= 6.0
    return f"rank {rank}: named {delay_s:.1f} s after its peers began to wait, closed after SIGCONT"


def test_a_stopped_rank_is_named_and_told_of_and_its_incident_closes_when_it_goes_on(tmp_path: Path) -> None:
    def measured(number: int) -> str:
        folder = tmp_path / str(number)
        folder.mkdir()
        return stopped_rank(folder, number % 4)

    realjob.measure(RUNS, measured)
