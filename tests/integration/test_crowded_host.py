"""Other work takes the processor of one rank of a real job (Falcon 3.2): the rank is named, and the reason."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bench.rig import realjob
from tests.fakes.evidence_words import words_of

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch")
needs_processors = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="each of two ranks needs a processor")
pytestmark = [pytest.mark.integration, pytest.mark.timed, pytest.mark.timeout(300), needs_torch, needs_processors]

JOB = Path(__file__).with_name("computing_job.py")
RUNS = 10
QUIET_ITERATIONS = 400
"""At 30 ms each: long enough for two readings of the processors, one every five seconds."""


@pytest.mark.prove
@pytest.mark.timeout(1800)
def test_a_rank_whose_processor_is_taken_by_other_work_is_named_with_the_reason(tmp_path: Path) -> None:
    def once(number: int) -> str:
        folder = tmp_path / str(number)
        folder.mkdir()
        return crowded(folder)

    realjob.measure(RUNS, once)


def crowded(folder: Path) -> str:
    """One run in which three busy processes come to the processor of rank 1; a line of figures."""
    neighbours = realjob.Neighbours()
    run = realjob.start(folder, realjob.forked(folder, ranks=2, script=JOB))
    others: list[subprocess.Popen[bytes]] = []
    try:
        realjob.until("quiet iterations", lambda: run.iterations_seen() >= QUIET_ITERATIONS, 120)
        processor = sorted(os.sched_getaffinity(0))[1]
        others += [busy_on(processor) for _ in range(3)]
        reasoned = realjob.until("the reason", lambda: with_the_reason(run), 90)
    finally:
        for other in others:
            other.kill()
            other.wait()
        (folder / "stop").touch()
        try:
            assert run.wait(120) == 0, run.text()
        finally:
            run.stop()
    with realjob.unless_disturbed(neighbours.disturbance):
        assert len(reasoned) == 1, reasoned
        (finding,) = reasoned
        assert (finding["kind"], finding["verdict"], finding["cause"]) == ("slow", "culprit", "S1"), finding
        assert finding["culprits"] == [1], finding
    (sentence,) = [words for words in words_of(finding) if "has a processor for" in words]
    readings = run.sql(
        "SELECT ranks[1] AS rank, max(numbers['waited_ns']) AS ns FROM host_vitals WHERE kind = 'rank' GROUP BY rank"
    )
    waited_ns = {int(row["rank"]): float(row["ns"]) for row in readings}
    assert waited_ns[1] > waited_ns[0], waited_ns
    delay = finding["detected"]["step"] - finding["onset"]["step"]
    return f"{finding['magnitude']:+.0%}, said {delay} steps after it began; {sentence}"


def busy_on(processor: int) -> subprocess.Popen[bytes]:
    """Work that never ends, in a session of its own: kernels that share processors among sessions give it a share."""
    program = f"import os; os.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"
    return subprocess.Popen([sys.executable, "-c", program], start_new_session=True)


def with_the_reason(run: realjob.Run) -> list[dict[str, Any]]:
    """Slow findings that say that a processor was lacking."""
    findings = [finding for incident in run.incidents() for finding in incident["findings"]]
    return [one for one in findings if any("has a processor for" in words for words in words_of(one))]
