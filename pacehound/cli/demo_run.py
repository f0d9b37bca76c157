"""`pacehound demo`: what was found in a simulated job, held against what was put into it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import msgspec
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from pacehound.clock import ManualClock
from pacehound.errors import BusFull
from pacehound.model.events import Decision, Incident
from pacehound.model.routing import Event
from pacehound.pages.incidents import incidents_answer, print_incidents
from pacehound.pages.terminal import terminal
from pacehound.runtime.head.node import Head
from pacehound.runtime.head.parts import Parts
from pacehound.settings import Settings

if TYPE_CHECKING:
    from simulator.faults import ExpectedFinding
    from simulator.job import Simulation

# A change is noticed some iterations after it; the onset is dated back to within this.
ONSET_WITHIN_STEPS = 10
_CHUNK = 256
_SETTLE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One fault and whether it was found: by the right name, and how many steps beside its onset."""

    expected: str
    found: str
    is_right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """What was found, and how that compares with the truth."""

    incidents: list[Incident]
    decisions: list[Decision]
    comparisons: list[Comparison]
    events: int
    took_s: float

    @property
    def agrees(self) -> bool:
        """Everything that was put in was found by its right name, and nothing else."""
        return bool(self.comparisons) and all(row.is_right for row in self.comparisons)


def run_demo(
    simulate: Callable[[], Simulation],
    parts: Callable[[], Parts],
    settings: Settings,
    progress_to: TextIO = sys.stderr,
) -> DemoResult:
    """Simulate, send every event through an embedded head, and compare; progress is shown live.

    Raises
    ------
    TimeoutError
        The pipeline did not get through in a minute.

    """
    started_s = time.monotonic()
    console = Console(file=progress_to)
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        task = progress.add_task("simulating a training job", total=None)
        simulation = simulate()
        progress.update(task, description="opening the store")
        # The job's time is not ours: a clock that stands still puts no ticks into it.
        head = Head(settings=settings, parts=parts(), clock=ManualClock(time.time_ns()))
        head.start()
        try:
            count = 0
            for chunk in _chunks(simulation.events()):
                _publish(head, chunk)
                count += len(chunk)
                progress.update(task, description=f"watching: {count} events")
            progress.update(task, description=f"watching: {count} events, finishing")
            if not head.settle(_SETTLE_S):
                raise TimeoutError(f"{count} events were not processed within {_SETTLE_S:.0f} s")
            incidents, decisions = head.incidents(), head.decisions()
        finally:
            head.stop()
    return DemoResult(
        incidents=incidents,
        decisions=decisions,
        comparisons=compare(simulation.truth.findings, incidents, ONSET_WITHIN_STEPS),
        events=count,
        took_s=time.monotonic() - started_s,
    )


def write_demo(result: DemoResult, file: TextIO, *, as_json: bool) -> None:
    """The incidents and the comparison, for people or for scripts."""
    if as_json:
        answer: dict[str, Any] = incidents_answer(result.incidents, result.decisions)
        answer |= {"agrees": result.agrees, "comparisons": msgspec.to_builtins(result.comparisons)}
        file.write(msgspec.json.encode(answer).decode() + "\n")
        return
    console = terminal(file)
    print_incidents(console, result.incidents, result.decisions)
    console.print(f"\n{result.events} events in {result.took_s:.1f} s. What the simulator did, and what was found:")
    for row in result.comparisons:
        console.print(f"  {'agrees' if row.is_right else 'DIFFERS'}\n    did    {row.expected}\n    found  {row.found}")


def _chunks(events: Iterator[Event]) -> Iterator[list[Event]]:
    chunk: list[Event] = []
    for event in events:
        chunk.append(event)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _publish(head: Head, chunk: list[Event]) -> None:
    while True:
        try:
            head.publish(chunk)
            return
        except BusFull:
            time.sleep(0.05)


def compare(expected: Iterable[ExpectedFinding], incidents: Sequence[Incident], within_steps: int) -> list[Comparison]:
    """Each fault with the finding that fits it best, then every finding that fits none."""
    findings = [finding for incident in incidents for finding in incident.findings]
    rows = []
    for fault in expected:
        fits = [
            finding
            for finding in findings
            if finding.kind == fault.kind
            and finding.culprits == fault.culprits
            and finding.onset is not None
            and finding.onset.step is not None
            and fault.onset.step is not None
            and abs(finding.onset.step - fault.onset.step) <= within_steps
        ]
        words = _words(fault.kind, fault.culprits, fault.cause, fault.onset.step)
        if not fits:
            rows.append(Comparison(expected=words, found="not found", is_right=False))
            continue
        found = fits[0]
        findings.remove(found)
        step = None if found.onset is None else found.onset.step
        rows.append(
            Comparison(
                expected=words,
                found=_words(found.kind, found.culprits, found.cause, step),
                is_right=found.cause == fault.cause,
            )
        )
    for finding in findings:
        if finding.pages:
            step = None if finding.onset is None else finding.onset.step
            words = _words(finding.kind, finding.culprits, finding.cause, step)
            rows.append(Comparison(expected="nothing", found=words, is_right=False))
    return rows


def _words(kind: str, culprits: tuple[int, ...], cause: str | None, step: int | None) -> str:
    who = ", ".join(map(str, culprits)) or "nobody"
    return f"{kind}: rank {who}, {cause or 'no class'}, from step {step}"
