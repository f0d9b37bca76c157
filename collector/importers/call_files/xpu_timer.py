"""Scrapes of xpu_timer's Prometheus endpoint: gauges of up to one host's ranks, among them whether each hangs.

The gauges are averages over buckets of operations, since no moment that they name. They are no calls, so nothing but
the ranks, their hosts and the hang gauge is taken as an event; the rest is summed up in the notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collector.importers.call_files.content import whole_content
from collector.importers.call_files.reading import Joined, Refusal
from collector.importers.call_files.refusal import RefusedFile
from collector.importers.call_files.values import MAX_RANK, printable
from pacehound.model.call_file import CallFile
from pacehound.model.events import HostSample, ProcessState

FORMAT = "xpu_timer"
ABOUT = "xpu_timer scrapes"
SPEAKS_FOR_ALL = False
ATTEMPT = 0
MAX_BYTES = 64 << 20

CANNOT_KNOW = (
    "single calls: which call hangs, who entered it, and who did not",
    "when the scrape was taken, and since when its averages are taken",
    "the members of communicators, so that no two ranks' collectives can be compared",
)
HANGS = "xpu_timer says that it hangs"

_PREFIX = "XPU_TIMER_"
_SAMPLE = re.compile(r"(XPU_TIMER_[A-Z0-9_]{1,80})\{(.{0,2000})\} (\S{1,40})(?: [0-9]{1,19})?\s*\Z")
_LABEL = re.compile(r'([a-z_]{1,40})="((?:[^"\\]|\\.)*)"(?:,|\Z)')
_HANG = "XPU_TIMER_COMMON_HANG"
_AVERAGE = "XPU_TIMER_COLL_KERNEL_AVG_LATENCY"


@dataclass(slots=True, kw_only=True)
class Scrape:
    """A file.

    Attributes
    ----------
    hosts
        By rank.
    hang
        The hang gauge by rank, where there is one.
    collective_us
        The largest average of a collective by rank.

    """

    path: Path
    jobs: set[str] = field(default_factory=set)
    hosts: dict[int, str] = field(default_factory=dict)
    hang: dict[int, bool] = field(default_factory=dict)
    collective_us: dict[int, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def looks_like_one(head: bytes) -> bool:
    """Whether a file's first bytes are those of a scrape."""
    return b"\nXPU_TIMER_" in head or head.startswith(b"XPU_TIMER_") or b"# TYPE XPU_TIMER_" in head


def read(path: Path) -> Scrape:
    """Read a file of at most `MAX_BYTES`.

    Raises
    ------
    RefusedFile
        With the line that is wrong.

    """
    content = whole_content(path, MAX_BYTES).decode("utf-8", "replace")
    scrape = Scrape(path=path)
    lines = content.split("\n")
    last = max((place for place, line in enumerate(lines) if line.strip()), default=-1)
    for place, line in enumerate(lines):
        if not line.startswith(_PREFIX):
            continue
        try:
            _take(scrape, printable(line.rstrip()), f"line {place + 1}")
        except RefusedFile:
            if place != last or content.endswith("\n") or not scrape.hosts:
                raise
            scrape.notes.append(f"line {place + 1}, the last, is cut and was left out")
    if not scrape.hosts:
        raise RefusedFile("no gauge in it says of which rank it is")
    return scrape


def _take(scrape: Scrape, line: str, where: str) -> None:
    found = _SAMPLE.match(line)
    if found is None:
        raise RefusedFile(f"{where} is no gauge: {line[:60]!r}")
    labels = dict(_LABEL.findall(found[2]))
    try:
        value = float(found[3])
    except ValueError:
        raise RefusedFile(f"{where}: {found[3][:40]!r} is no number") from None
    told = labels.get("rank", "")
    if not (told.isascii() and told.isdigit() and len(told) < 8 and int(told) <= MAX_RANK):
        raise RefusedFile(f"{where}: rank {told[:20]!r} is none")
    rank = int(told)
    host = next((labels[name] for name in ("pod_name", "ip") if labels.get(name) not in (None, "", "NOT_SET")), "")
    if scrape.hosts.setdefault(rank, host) != host:
        raise RefusedFile(f"{where}: rank {rank} is on {host[:40]!r}, and on {scrape.hosts[rank][:40]!r} before")
    scrape.jobs.add(labels.get("job_name", ""))
    if found[1] == _HANG:
        scrape.hang[rank] = value > 0
    elif found[1] == _AVERAGE and 0 <= value < 1e15:
        scrape.collective_us[rank] = max(value, scrape.collective_us.get(rank, 0.0))


def joined(scrapes: Sequence[Scrape], job: str) -> Joined:
    """The scrapes of a job: of several hosts, or of one host at several times."""
    jobs = {name for scrape in scrapes for name in scrape.jobs}
    if len(jobs) > 1:
        said = f"the scrapes are of {len(jobs)} jobs: {', '.join(sorted(jobs))[:200]}"
        return Joined(refused=tuple(Refusal(path=scrape.path, reason=said) for scrape in scrapes))
    return Joined(files=tuple(_call_file(scrape, job) for scrape in scrapes))


def _call_file(scrape: Scrape, job: str) -> CallFile:
    by_host: dict[str, list[int]] = {}
    for rank in sorted(scrape.hosts):
        by_host.setdefault(scrape.hosts[rank], []).append(rank)
    samples = [
        HostSample(
            job=job,
            attempt=ATTEMPT,
            time_ns=0,
            host=host or scrape.path.name,
            processes=tuple(
                ProcessState(
                    rank=rank, pid=-1, state="unknown", since_ns=0, detail=HANGS if scrape.hang.get(rank) else ""
                )
                for rank in of_host
            ),
        )
        for host, of_host in by_host.items()
    ]
    return CallFile(
        path=str(scrape.path),
        format=FORMAT,
        ranks=tuple(sorted(scrape.hosts)),
        events=tuple(samples),
        says_hang=tuple(sorted(rank for rank, hangs in scrape.hang.items() if hangs)),
        cannot_know=CANNOT_KNOW,
        notes=tuple(_notes(scrape)),
    )


def _notes(scrape: Scrape) -> Iterator[str]:
    yield from scrape.notes
    hanging = sum(scrape.hang.values())
    if hanging:
        yield f"xpu_timer's hang gauge is set for {hanging} of {len(scrape.hang)} ranks; it does not say who began"
    elif scrape.hang:
        yield f"xpu_timer's hang gauge is set for none of {len(scrape.hang)} ranks"
    if scrape.collective_us:
        fewest = min(scrape.collective_us, key=lambda rank: (scrape.collective_us[rank], rank))
        most = max(scrape.collective_us, key=lambda rank: (scrape.collective_us[rank], -rank))
        yield (
            f"the slowest bucket of collectives takes {scrape.collective_us[fewest]:.0f} us on rank {fewest} "
            f"and {scrape.collective_us[most]:.0f} us on rank {most}, on average"
        )
