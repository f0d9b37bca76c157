"""Real gloo jobs with one fault each: is the verdict right, every time?

`faulty_job.py`, or `standing_job.py` with loops of other shapes, is run as a user would run it, by
`pacehound run -- torchrun …`, with an agent and an embedded head, and does one thing wrong. Right is a verdict of the
right kind and class that names who did it and nobody else; where there is nobody to name, nobody is named. The ranks
that a fault strikes change from run to run.

`make prove` runs each fault ten times, and a slow link; every run is made, also after one that was wrong, and a table
of all of them is printed at the end. `make test` runs a killed rank once, on two hosts (test_two_hosts.py), a slow rank
(test_real_job.py) and slow data (test_evidence_job.py).
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import netns
import pytest
from cluster import cluster

from bench.rig import realjob

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).with_name("faulty_job.py")
STANDING = Path(__file__).with_name("standing_job.py")
RUNS = int(os.environ.get("PROOF_RUNS", "10"))

Findings = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """One fault: how the job is run with it, and what must be said.

    Attributes
    ----------
    arguments
        Those of `faulty_job.py`, without `--who`.
    is_right
        Whether the findings are, given who was struck.
    n_ranks, n_struck
        How many there are, and how many of them the fault strikes.
    suspect_after_s
        `hang.suspect_after_s` of the run.
    survives
        Whether the job ends well all the same.
    script
        What takes the arguments.

    """

    name: str
    arguments: tuple[object, ...]
    is_right: Callable[[Findings, tuple[int, ...]], bool]
    n_ranks: int = 4
    n_struck: int = 1
    suspect_after_s: float = 2.0
    survives: bool = False
    script: Path = SCRIPT


def names(kinds: str, causes: str, *, surely: bool = True) -> Callable[[Findings, tuple[int, ...]], bool]:
    """Findings of one of these kinds and causes name exactly those who were struck, and nothing else is said."""

    def is_right(findings: Findings, struck: tuple[int, ...]) -> bool:
        verdicts = ("culprit",) if surely else ("culprit", "suspected")
        return bool(findings) and all(
            finding["kind"] in kinds.split()
            and str(finding["cause"]) in causes.split()
            and finding["verdict"] in verdicts
            and finding["culprits"] == list(struck)
            and not finding["links"]
            for finding in findings
        )

    return is_right


def relieved(right: Callable[[Findings, tuple[int, ...]], bool]) -> Callable[[Findings, tuple[int, ...]], bool]:
    """The same of a fault that goes by itself."""
    return lambda findings, struck: right(findings, struck) and all(finding["relief"] for finding in findings)


def nobody(findings: Findings, struck: tuple[int, ...]) -> bool:
    """No rank and no link is named, whatever is said."""
    return not any(finding["culprits"] or finding["links"] for finding in findings)


# Slow for 14 s: a rank is suspected only until its host's processors, read each five seconds, have been read twice.
SLOW = ("--since", 100, "--until", 310, "--iterations", 350)
HUNG = ("--since", 50, "--iterations", 90, "--timeout-s", 8)
MISMATCH = names("hang exit", "H2")
STANDS = names("hang", "H1", surely=False)

CASES = (
    Case("slow computation", ("slow", *SLOW), names("slow", "S1"), survives=True),
    Case(
        "slow computation, two of eight",
        ("slow", *SLOW, "--extra-ms", 60),
        names("slow", "S1"),
        n_ranks=8,
        n_struck=2,
        survives=True,
    ),
    Case("slow data loading", ("loads-slowly", *SLOW), names("slow", "S1"), survives=True),
    Case(
        "long data loading",
        ("loads-long", "--since", 50, "--iterations", 80, "--extra-ms", 8_000),
        relieved(names("hang", "H1")),
        survives=True,
    ),
    Case(
        "SIGSTOP, later SIGCONT",
        ("stops", "--since", 50, "--iterations", 80),
        relieved(names("hang", "H1 H3")),
        survives=True,
    ),
    Case("sys.exit(1)", ("leaves", *HUNG), names("exit", "None H1", surely=False), suspect_after_s=30.0),
    Case("exit code 0 in the middle", ("finishes", *HUNG), names("exit", "H2"), suspect_after_s=30.0),
    Case("an exception", ("raises", *HUNG), names("exit", "None H1", surely=False), suspect_after_s=30.0),
    Case("kill -9", ("dies", *HUNG), names("exit", "None H1")),
    Case("skips a call of the world", ("skips", *HUNG, "--place", 1), MISMATCH),
    Case("skips a call of a pair", ("skips", *HUNG, "--place", 0), MISMATCH),
    Case(
        "skips a call, and all time out before it is a hang",
        ("skips", "--since", 50, "--iterations", 90, "--timeout-s", 5, "--place", 1),
        names("exit", "H2"),
        suspect_after_s=30.0,
    ),
    Case("all_gather for all_reduce", ("gathers", *HUNG, "--place", 1), MISMATCH),
    Case("all_gather for all_reduce, in a pair", ("gathers", *HUNG, "--place", 2), MISMATCH),
    Case("broadcast for all_reduce", ("broadcasts", *HUNG, "--place", 1), MISMATCH),
    Case("larger all_reduce", ("larger", *HUNG, "--place", 1), MISMATCH),
    Case("smaller all_reduce", ("smaller", *HUNG, "--place", 1), MISMATCH),
    Case("larger all_reduce, in a pair", ("larger", *HUNG, "--place", 0), MISMATCH),
    Case("smaller all_reduce, in a pair", ("smaller", *HUNG, "--place", 0), MISMATCH),
    Case("larger all_gather", ("larger", *HUNG, "--place", 5, "--gathers-in", "world"), MISMATCH),
    Case("smaller all_gather", ("smaller", *HUNG, "--place", 5, "--gathers-in", "world"), MISMATCH),
    Case("larger all_gather, in a pair", ("larger", *HUNG, "--place", 5, "--gathers-in", "tp"), MISMATCH),
    Case("two groups in opposite order", ("swaps", *HUNG, "--place", 0), MISMATCH),
    Case("two groups of the same ranks in opposite order", ("swaps", *HUNG, "--place", 3), MISMATCH),
    Case(
        "random pauses from the start",
        ("pauses", "--iterations", 180, "--extra-ms", 100),
        nobody,
        n_struck=0,
        survives=True,
    ),
    Case(
        "random pauses from an iteration on",
        ("pauses", "--iterations", 180, "--since", 100, "--extra-ms", 100),
        nobody,
        n_struck=0,
        survives=True,
    ),
    Case("a stage stands between its calls", ("stage", *HUNG), STANDS, script=STANDING),
    Case("a rank of a ring stands", ("ring", *HUNG), STANDS, script=STANDING),
    Case("a pair stands, the other one is done", ("pairs", *HUNG), STANDS, script=STANDING),
    Case(
        "evaluates a batch too many",
        ("evaluation", *HUNG),
        names("hang exit", "H2", surely=False),
        script=STANDING,
    ),
    Case(
        "does not come to a monitored barrier",
        ("monitored", *HUNG, "--timeout-s", 30),
        names("hang exit", "H1", surely=False),  # where rank 0 does not come, which collects the others, nobody fails
        suspect_after_s=8.0,
        script=STANDING,
    ),
    Case("does not make a group", ("new_group", *HUNG, "--timeout-s", 20), STANDS, script=STANDING),
    Case("all crash", ("crash", *HUNG), nobody, n_struck=0, script=STANDING),
    Case(
        "is slow, and then stands",
        ("slow_then_still", "--since", 100, "--iterations", 120),
        names("slow hang", "S1 H1", surely=False),
        script=STANDING,
    ),
)


def run_once(folder: Path, case: Case, number: int) -> tuple[Findings, tuple[int, ...]]:
    """Run the job with its fault; the findings of all incidents, and who was struck."""
    folder.mkdir()
    struck = tuple(sorted((number + 3 * index) % case.n_ranks for index in range(case.n_struck)))
    command = realjob.torchrun(
        *case.arguments, "--seed", number, "--who", *struck, ranks=case.n_ranks, script=case.script
    )
    run = realjob.start(folder, command, settings=[f"hang.suspect_after_s={case.suspect_after_s}"])
    try:
        if case.arguments[0] == "stops":
            (pid,) = realjob.until("a stopped rank", lambda: stopped(run.process.pid), 90)
            realjob.until("the verdict", lambda: findings_of(run), 60)
            os.kill(pid, signal.SIGCONT)
        status = run.wait(120)
    finally:
        run.stop()
    assert (status == 0) == case.survives, run.text()
    (seen,) = run.sql("SELECT count() AS iterations FROM iterations")
    assert int(seen["iterations"]) >= 40, f"{seen}: {run.text()}"
    return findings_of(run), struck


def stopped(runner: int) -> list[int]:
    """Processes below one that are stopped."""
    found = []
    for pid in realjob.descendants(runner):
        try:
            stat = (Path("/proc") / str(pid) / "stat").read_text()
        except OSError:
            continue
        if stat.rpartition(")")[2].split()[0] == "T":
            found.append(pid)
    return found


def findings_of(run: realjob.Run) -> Findings:
    """The findings of all incidents; none while the head is not up."""
    try:
        return [finding for incident in run.incidents() for finding in incident["findings"]]
    except AssertionError:
        return []


def said(findings: Findings) -> str:
    """A verdict in a few words."""
    words = []
    for finding in findings:
        named = finding["culprits"] or finding["links"] or "nobody"
        words.append(f"{finding['kind']} {finding['cause'] or '-'} {finding['verdict']} {named}")
    return "; ".join(words) or "nothing"


@pytest.fixture(scope="module")
def table() -> Iterator[list[tuple[str, int, int, Counter[str]]]]:
    """What the long form has found, printed at the end as the rows of a table."""
    rows: list[tuple[str, int, int, Counter[str]]] = []
    yield rows
    if rows:
        print("\n\n| fault | runs | right | verdicts |\n|---|---|---|---|")
    for name, runs, right, verdicts in rows:
        print(f"| {name} | {runs} | {right} | {', '.join(f'{count} x {kind}' for kind, count in verdicts.items())} |")


def kind_of(findings: Findings, struck: tuple[int, ...]) -> str:
    """A verdict without the numbers of ranks, to be counted."""
    parts = []
    for finding in findings:
        whom = "nobody"
        if finding["culprits"]:
            whom = "who did it" if finding["culprits"] == list(struck) else "AN INNOCENT"
        elif finding["links"]:
            whom = "the link"
        parts.append(f"{finding['kind']} {finding['cause'] or ''} {finding['verdict']}: {whom}".replace("  ", " "))
    return " + ".join(parts) or "nothing said"


def prove(
    name: str,
    once: Callable[[int], tuple[Findings, tuple[int, ...]]],
    is_right: Callable[[Findings, tuple[int, ...]], bool],
    table: list[tuple[str, int, int, Counter[str]]],
) -> None:
    """The long form: every run, and a row of the table."""
    wrong, verdicts = [], Counter[str]()
    for number in range(RUNS):
        findings, struck = once(number)
        verdicts[kind_of(findings, struck)] += 1
        print(f"{name}, run {number + 1}, struck {list(struck)}: {said(findings)}", flush=True)
        if not is_right(findings, struck):
            wrong.append((struck, findings))
    table.append((name, RUNS, RUNS - len(wrong), verdicts))
    assert not wrong


def ids(cases: Sequence[Case]) -> list[str]:
    return [case.name.replace(" ", "-") for case in cases]


@pytest.mark.prove
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_the_verdict_on_a_fault_is_right_in_every_run(
    case: Case, tmp_path: Path, table: list[tuple[str, int, int, Counter[str]]]
) -> None:
    prove(case.name, lambda number: run_once(tmp_path / str(number), case, number), case.is_right, table)


# A slow link: two hosts with two ranks each; the network of the first one becomes narrow in the middle of the job, or
# in its first step.

# The second one is longer: agents read the connections every five seconds, and two readings are wanted of before.
LINKS = {
    "slow link under a pipeline": ("--piped-bytes", 400_000, "--since", 100, "--iterations", 160),
    "slow link under an all_reduce": ("--reduced-bytes", 400_000, "--since", 240, "--iterations", 360),
    "slow link under an all_reduce, from the first step on": (
        "--reduced-bytes", 400_000, "--since", 0, "--iterations", 120,
    ),
}  # fmt: skip
needs_namespaces = pytest.mark.skipif(
    bool(netns.why_not()) and os.environ.get("CI") != "true", reason=netns.why_not() or "possible"
)


def slow_link(folder: Path, what: str, number: int) -> tuple[Findings, tuple[int, ...]]:
    """One run of it."""
    folder.mkdir()
    with cluster(folder) as made:
        made.start_head()
        interface = made.hosts[0].interface
        sized = (*LINKS[what], "--interface", interface, "--compute-ms", 40)
        made.start_job("narrows", *sized, "--who", 0, script=SCRIPT)
        made.wait()
        realjob.until("the end of the job", lambda: made.has_ended(), 60)
        return [finding for incident in made.incidents() for finding in incident["findings"]], ()


def communication(what: str) -> Callable[[Findings, tuple[int, ...]], bool]:
    """It is the network, never a rank: the pair of a pipeline is named, of an all_reduce an edge between the hosts."""

    def is_right(findings: Findings, struck: tuple[int, ...]) -> bool:
        links = [tuple(sorted(link)) for finding in findings for link in finding["links"]]
        across = [(a, b) for a in (0, 1) for b in (2, 3)]
        is_named = links == [(1, 2)] if "pipeline" in what else bool(links) and set(links) <= set(across)
        return is_named and bool(findings) and all(f["cause"] == "S2" and not f["culprits"] for f in findings)

    return is_right


@needs_namespaces
@pytest.mark.prove
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("what", LINKS)
def test_a_slow_link_is_communication_in_every_run(
    what: str, tmp_path: Path, table: list[tuple[str, int, int, Counter[str]]]
) -> None:
    prove(what, lambda number: slow_link(tmp_path / str(number), what, number), communication(what), table)
