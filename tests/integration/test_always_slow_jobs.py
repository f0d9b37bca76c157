"""Real gloo jobs with a rank that is slow from its first step: it is named, and nobody else.

`make test` runs one of each kind, `make prove` ten. Computing is waiting in all of them. Which rank is slow changes
from run to run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.rig import realjob
from tests.fakes.evidence_words import words_of

pytestmark = [pytest.mark.integration, pytest.mark.prove, pytest.mark.timeout(7200)]

RUNS = int(os.environ.get("PROOF_RUNS", "10"))
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Kind:
    """How ranks share the work; `command` is told the folder and who is slow.

    A pipeline of two stages and two replicas has two ranks of each kind: which of them is as it should be, nobody can
    know for sure.
    """

    command: Callable[[Path, int, float], list[str]]
    factor: float = 1.4
    """By which its computing takes longer. By 1.4 an iteration of DP x PP is only 1.11 times as long, of which
    `slow.min_change` asks for 1.10; one of FSDP2 1.22 times, of which half is seen: gloo tells the end of a
    reduce_scatter only when it is waited for."""
    verdicts: tuple[str, ...] = ("culprit", "suspected")


def of_script(name: str, steps: int) -> Callable[[Path, int, float], list[str]]:
    return lambda folder, slow, factor: realjob.forked(folder, 2, slow, steps, factor, script=HERE / name)


KINDS = {
    "DDP": Kind(
        lambda folder, slow, factor: realjob.forked(
            *("--iterations", 140, "--slow-rank", slow, "--slow-from", 0, "--slow-by", round(factor - 1, 3))
        )
    ),
    "FSDP2": Kind(of_script("sharded_job.py", 60), factor=1.6),
    "DP x PP": Kind(of_script("pipeline_job.py", 60), factor=1.6, verdicts=("suspected",)),
    "TP": Kind(of_script("tensor_job.py", 50)),
}


def named(folder: Path, kind: str, slow: int) -> str:
    """One run of it."""
    folder.mkdir()
    neighbours = realjob.Neighbours()
    run = realjob.start(folder, KINDS[kind].command(folder, slow, KINDS[kind].factor))
    assert run.wait(200) == 0, run.text()
    with realjob.unless_disturbed(neighbours.disturbance):
        findings = [finding for incident in run.incidents() for finding in incident["findings"]]
        assert findings, "nothing was said"
        for finding in findings:
            assert (finding["kind"], finding["cause"], finding["culprits"]) == ("slow", "S1", [slow]), finding
            assert finding["verdict"] in KINDS[kind].verdicts, finding
        first = min(findings, key=lambda finding: finding["onset"]["step"])
        assert first["onset"]["step"] == 0, first
        assert "since the first step seen" in words_of(first)[0], first
    return f"{kind}, rank {slow}: {first['verdict']} at step {first['detected']['step']}, {first['magnitude']:+.0%}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_that_is_slow_from_the_first_step_is_named_in_every_run(kind: str, tmp_path: Path) -> None:
    realjob.measure(RUNS, lambda number: named(tmp_path / str(number), kind, (number + 1) % 4))
