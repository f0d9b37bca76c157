"""What `ncclras` prints for people: totals, a table of communicators, and only then the ranks that stand out.

Ranks that agree are counted and not named, so what is not named gets a number only where the counts leave no choice.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collector.importers.call_files.content import whole_content
from collector.importers.call_files.functions import function_topology
from collector.importers.call_files.ras_json import CANNOT_KNOW as OF_RAS
from collector.importers.call_files.ras_json import SNAPSHOT
from collector.importers.call_files.reading import Joined, each_alone
from collector.importers.call_files.refusal import RefusedFile
from collector.importers.call_files.values import MAX_RANK, printable
from pacehound.model.call_file import CallFile, FileEvent
from pacehound.model.events import UNTOLD, HostSample, ProcessState, Progress, RankProgress

FORMAT = "nccl_ras_text"
ABOUT = ""
SPEAKS_FOR_ALL = True
ATTEMPT = 0
MAX_BYTES = 64 << 20

CANNOT_KNOW = (
    *OF_RAS,
    "how far ranks are that it only counts, when it was asked, and who is in the smaller communicators",
)

_NUMBER = r"([0-9]{1,15})"
_TABLE = re.compile(
    rf"\s*{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+[0-9-]+\s+{_NUMBER}\s+{_NUMBER}\s+([A-Z]+)\s+([A-Z,]+)\s*\Z"
)
_SECTION = re.compile(rf"\s*#{_NUMBER}-{_NUMBER} \(([0-9a-fA-F]{{1,16}})\) ([A-Z,]+)\s*\Z")
_FUNCTION = re.compile(r"\s*Communicator ranks have different (?:([A-Za-z]+) )?operation counts\s*\Z")
_MANY = re.compile(
    rf"\s*{_NUMBER} ranks have (?:launched up to operation {_NUMBER}|(not launched any operations))\s*\Z"
)
_MANY_ELSE = re.compile(rf"\s*{_NUMBER} ranks (?:have status|reported) (.{{1,60}})\s*\Z")
_RANK = re.compile(rf"\s*Rank {_NUMBER} (.{{0,300}})\Z")
_LAUNCHED = re.compile(rf"has (?:launched up to operation {_NUMBER}|(not launched any operations)) -- ")
_SAID = re.compile(r"(?:has status|reported) (.{1,60}) -- ")
_PROCESS = re.compile(rf"-- GPU {_NUMBER}.* managed by process {_NUMBER} on node (\S{{1,64}})\s*\Z")
_MISSING = re.compile(r"\s*The missing ranks?: ([0-9, ]{1,100000})\Z")
_UNKNOWN_PID = -1


@dataclass(slots=True, kw_only=True)
class Section:
    """What is said of one communicator."""

    function: str = ""
    counts: dict[str, dict[int, int]] = field(default_factory=dict)
    uncounted: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    details: dict[int, str] = field(default_factory=dict)
    processes: dict[int, tuple[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer.

    Attributes
    ----------
    gpus
        Of the whole job; 0 where it is not said.
    sizes
        How many communicators a group of the table has, and their ranks, by the group's number.
    sections
        By group and communicator.

    """

    path: Path
    gpus: int
    sizes: dict[int, tuple[int, int]]
    sections: dict[tuple[int, int], Section]
    hashes: dict[tuple[int, int], str]


def looks_like_one(head: bytes) -> bool:
    """Whether a file's first bytes are those of such an answer."""
    return b"\nJob summary\n" in head.replace(b"\r", b"") or (b"Group     Comms     Nodes" in head)


def read(path: Path) -> Answer:
    """Read a file of at most `MAX_BYTES`."""
    lines = [printable(line) for line in whole_content(path, MAX_BYTES).decode("utf-8", "replace").splitlines()]
    answer = Answer(path=path, gpus=_gpus(lines), sizes={}, sections={}, hashes={})
    section: Section | None = None
    kind = ""
    for line in lines:
        if row := _TABLE.match(line):
            answer.sizes[int(row[1])] = (int(row[2]), int(row[4]))
        elif head := _SECTION.match(line):
            place = (int(head[1]), int(head[2]))
            section, kind = answer.sections.setdefault(place, Section()), head[4]
            section.function = ""
            answer.hashes[place] = head[3]
            about = [""]
        elif not line.strip() and kind != "MISMATCH":
            section = None
        elif section is not None:
            _take(section, kind, line, about)
    if not answer.sizes:
        raise RefusedFile("the table of communicators is not in it (an answer of ncclras that was cut short?)")
    return answer


def _take(section: Section, kind: str, line: str, about: list[str]) -> None:
    """A line about one communicator; `about` is what the ranks named next have in common."""
    if function := _FUNCTION.match(line):
        section.function, about[0] = function[1] or "operations", ""
    elif many := _MANY.match(line):
        launched = int(many[2] or 0)
        about[0] = str(launched)
        section.uncounted.setdefault(section.function, []).append((int(many[1]), launched))
    elif many := _MANY_ELSE.match(line):
        about[0] = many[2]
    elif missing := _MISSING.match(line):
        section.missing |= {int(rank) for rank in missing[1].split(",") if rank.strip().isdigit() and len(rank) < 16}
    elif named := _RANK.match(line):
        _take_rank(section, kind, int(named[1]), named[2], about[0])


def _take_rank(section: Section, kind: str, rank: int, said: str, about: str) -> None:
    if process := _PROCESS.search(said):
        section.processes[rank] = (int(process[2]), process[3])
    if kind == "INCOMPLETE":
        section.missing.add(rank)
    elif launched := _LAUNCHED.match(said):
        section.counts.setdefault(section.function, {})[rank] = int(launched[1] or 0)
    elif section.function and about.isdigit():
        section.counts.setdefault(section.function, {})[rank] = int(about)
    else:
        own = _SAID.match(said)
        section.details[rank] = own[1] if own else about


def joined(answers: Sequence[Answer], job: str) -> Joined:
    """The call file of each answer; every one speaks for the whole job."""
    return each_alone(answers, lambda answer: _call_file(answer, job))


def _call_file(answer: Answer, job: str) -> CallFile:
    size = max(ranks for _, ranks in answer.sizes.values())
    world = [group for group, (comms, ranks) in answer.sizes.items() if ranks == size and comms == 1]
    if len(world) != 1 or not 0 < size <= MAX_RANK + 1 or (answer.gpus and size != answer.gpus):
        said = f"{answer.gpus or 'an unknown number of'} GPUs, and no single communicator of that size"
        raise RefusedFile(f"world ranks cannot be told: ranks stand for places in each communicator; there are {said}")
    place = (world[0], 0)
    section = answer.sections.get(place, Section())
    key = answer.hashes.get(place, "world")
    events: list[FileEvent] = []
    progress: list[FileEvent] = []
    for function in ["", *sorted(set(section.counts) | set(section.uncounted))]:
        topology = function_topology(
            job=job,
            attempt=ATTEMPT,
            time_ns=0,
            host=answer.path.name,
            name=key,
            key=key,
            function=function,
            members=range(size),
            host_ranks=range(size),
            world_size=size,
        )
        events.append(topology)
        told = _counts(section, function, size) if function else {}
        ranks = tuple(
            RankProgress(rank=rank, last_launched=told[rank] - 1 if rank in told else UNTOLD, last_completed=UNTOLD)
            for rank in topology.members
            if function
        )
        progress.append(
            Progress(
                job=job,
                attempt=ATTEMPT,
                time_ns=0,
                host=answer.path.name,
                communicator=topology.communicator,
                ranks=ranks,
                sees_completion=False,
            )
        )
    return CallFile(
        path=str(answer.path),
        format=FORMAT,
        ranks=tuple(range(size)),
        events=(*events, *_processes(section, size, answer.path.name, job), *progress),
        world_size=size,
        cannot_know=CANNOT_KNOW,
        notes=tuple(_notes(answer, place)),
    )


def _counts(section: Section, function: str, size: int) -> dict[int, int]:
    """Launches by rank: those that are named, and the others where all of them have the same."""
    named = {rank: count for rank, count in section.counts.get(function, {}).items() if rank < size}
    others = set(range(size)) - set(named) - section.missing
    unnamed = [
        (ranks, count)
        for ranks, count in section.uncounted.get(function, [])
        if ranks != sum(theirs == count for theirs in named.values())
    ]
    if len(unnamed) == 1 and unnamed[0][0] == len(others):
        return named | dict.fromkeys(others, unnamed[0][1])
    return named


def _processes(section: Section, size: int, name: str, job: str) -> list[HostSample]:
    by_host: dict[str, list[ProcessState]] = {}
    for rank in sorted(set(section.processes) | section.missing | set(section.details)):
        if rank >= size:
            continue
        pid, host = section.processes.get(rank, (_UNKNOWN_PID, name))
        detail = "RAS got no answer from it" if rank in section.missing else section.details.get(rank, "")
        state = ProcessState(
            rank=rank, pid=pid, state="unknown" if rank in section.missing else "running", since_ns=0, detail=detail
        )
        by_host.setdefault(host, []).append(state)
    return [
        HostSample(job=job, attempt=ATTEMPT, time_ns=0, host=host, processes=tuple(processes))
        for host, processes in by_host.items()
    ]


def _notes(answer: Answer, world: tuple[int, int]) -> Iterator[str]:
    yield SNAPSHOT
    yield "world ranks are the places in the one communicator of all GPUs"
    others = [f"#{group}-{number}" for group, number in sorted(answer.sections) if (group, number) != world]
    if others:
        yield f"who is in {', '.join(others[:10])} is not said, so what stands there of ranks is not used"


def _gpus(lines: Sequence[str]) -> int:
    """The last number of the totals: GPUs of the whole job."""
    gpus = 0
    for line, after in itertools.pairwise(lines):
        numbers = after.split()
        if "(total)" in line and numbers and all(one.isdigit() and len(one) < 16 for one in numbers):
            gpus = int(numbers[-1])
    return gpus
