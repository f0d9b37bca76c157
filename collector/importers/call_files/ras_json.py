"""What `ncclras -f json` prints (NCCL 2.28.7 and later): how many operations of each kind every rank has launched.

The known malformed variant begins with the lines that the text form begins with, versions and all, before the
document (servers that print them before they know which form was asked for); some that were put together by hand have
a comma too many or too few. The document is looked for, commas are mended, and that is noted.
"""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector.importers.call_files.content import whole_content
from collector.importers.call_files.functions import function_topology
from collector.importers.call_files.plain_json import document
from collector.importers.call_files.reading import Joined, each_alone
from collector.importers.call_files.refusal import RefusedFile
from collector.importers.call_files.values import MAX_RANK, entry, items, table, text, truth, whole
from collector.importers.call_files.world_ranks import Places, world_by_process
from pacehound.model.call_file import CallFile, FileEvent
from pacehound.model.events import UNTOLD, HostSample, ProcessState, Progress, RankProgress, Topology

FORMAT = "nccl_ras_json"
ABOUT = "NCCL RAS answers (JSON or text)"
SPEAKS_FOR_ALL = True
ATTEMPT = 0
MAX_BYTES = 128 << 20

CANNOT_KNOW = (
    "whether an operation has ended: RAS counts launches, so a hang in which everybody has launched looks healthy",
    "which operation of two kinds was launched first, their sizes, when, and point-to-point calls",
    "calls that are replayed from a CUDA graph",
)
SNAPSHOT = "the counts are of one moment: ranks may differ and go on; if a second answer is the same, they do not"
ZONE = "its time does not say its zone and is taken for UTC"

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_MAX_TOKENS = 20_000_000
_UNMENDABLE = "no JSON that can be mended: it ends early or a quotation mark is missing"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Gpu:
    """What names a rank everywhere."""

    host: str
    pid: int
    device: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A rank of a communicator; `counts` is `None` for one that did not tell them, `answers` says whether it could."""

    place: int
    gpu: Gpu
    counts: Mapping[str, int] | None
    answers: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Communicator:
    """What RAS knows of one."""

    key: str
    size: int
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of RAS."""

    path: Path
    time_ns: int
    communicators: tuple[Communicator, ...]
    notes: tuple[str, ...] = ()


def looks_like_one(head: bytes) -> bool:
    """Whether a file's first bytes are those of such an answer."""
    return b'"communicators_count"' in head or (b'"communicators"' in head and b'"nccl_version"' in head)


def read(path: Path) -> Answer:
    """Read a file of at most `MAX_BYTES`.

    Raises
    ------
    RefusedFile
        With what is wrong, and where.

    """
    content = whole_content(path, MAX_BYTES).decode("utf-8", "replace")
    value, notes = _document(content)
    fields = table(value, "the answer")
    listed = items(entry(fields, "communicators", "the answer"), "communicators")
    communicators = tuple(_communicator(one, f"communicators[{place}]") for place, one in enumerate(listed))
    timeouts = table(fields.get("ras") or {}, "ras").get("timeouts_count", 0)
    if whole(timeouts, "ras.timeouts_count"):
        notes.append(f"{timeouts} requests of RAS were not answered in time")
    return Answer(
        path=path,
        time_ns=stamp_ns(text(fields.get("timestamp", ""), "timestamp")),
        communicators=communicators,
        notes=(*notes, ZONE, SNAPSHOT),
    )


def stamp_ns(stamp: str) -> int:
    """Nanoseconds since the epoch of `2025-12-19 13:06:53`; 0 for anything else.

    >>> stamp_ns("2025-12-19 13:06:53"), stamp_ns("yesterday")
    (1766149613000000000, 0)
    """
    try:
        return calendar.timegm(time.strptime(stamp, "%Y-%m-%d %H:%M:%S")) * 10**9
    except ValueError:
        return 0


def joined(answers: Sequence[Answer], job: str) -> Joined:
    """The call file of each answer; every one speaks for the whole job."""
    return each_alone(answers, lambda answer: _call_file(answer, job))


def _call_file(answer: Answer, job: str) -> CallFile:
    places = {
        one.key: Places(size=one.size, processes={m.place: m.gpu for m in one.members if m.gpu.pid >= 0})
        for one in answer.communicators
    }
    world_key, world_ranks = world_by_process(places)
    world_size = places[world_key].size
    host = answer.path.name
    topologies: list[FileEvent] = []
    progress: list[FileEvent] = []
    notes = list(answer.notes)
    for one in sorted(answer.communicators, key=lambda one: one.key != world_key):
        is_world = one.key == world_key
        ranks = {
            member.place if is_world else world_ranks[member.gpu]: member
            for member in one.members
            if is_world or member.gpu in world_ranks
        }
        if len(ranks) < one.size:
            notes.append(f"communicator {one.key}: {one.size - len(ranks)} of {one.size} ranks are not named in it")
        functions = sorted({name for member in one.members if member.counts for name in member.counts})
        for function in ["", *functions] if is_world else functions:
            topology = function_topology(
                job=job,
                attempt=ATTEMPT,
                time_ns=answer.time_ns,
                host=host,
                name=one.key,
                key=one.key,
                function=function,
                members=range(one.size) if is_world else sorted(ranks),
                host_ranks=sorted(ranks),
                world_size=world_size,
            )
            topologies.append(topology)
            progress.append(_progress(topology, ranks, function))
    return CallFile(
        path=str(answer.path),
        format=FORMAT,
        ranks=tuple(sorted(world_ranks.values())),
        events=(*topologies, *_processes(answer, world_ranks, job), *progress),
        world_size=world_size,
        cannot_know=CANNOT_KNOW,
        notes=(*notes, f"world ranks are the places in communicator {world_key}, the only one with every process"),
    )


def _progress(topology: Topology, ranks: Mapping[int, Member], function: str) -> Progress:
    """Operations are counted from 1, and our numbers from 0."""
    told = [
        RankProgress(rank=rank, last_launched=_last(ranks.get(rank), function), last_completed=UNTOLD)
        for rank in topology.members
        if function
    ]
    return Progress(
        job=topology.job,
        attempt=topology.attempt,
        time_ns=topology.time_ns,
        host=topology.host,
        communicator=topology.communicator,
        ranks=tuple(told),
        sees_completion=False,
    )


def _last(member: Member | None, function: str) -> int:
    return UNTOLD if member is None or member.counts is None else member.counts.get(function, 0) - 1


def _processes(answer: Answer, world_ranks: Mapping[Gpu, int], job: str) -> list[HostSample]:
    """One that answers runs; of one that does not, nothing more is known than that."""
    details: dict[Gpu, str] = dict.fromkeys(world_ranks, "")
    answered = set()
    for one in answer.communicators:
        for member in one.members:
            if member.answers:
                answered.add(member.gpu)
            if member.gpu in details and member.detail:
                details[member.gpu] = member.detail
    by_host: dict[str, list[Gpu]] = {}
    for gpu in sorted(world_ranks):
        by_host.setdefault(gpu.host, []).append(gpu)
    return [
        HostSample(
            job=job,
            attempt=ATTEMPT,
            time_ns=answer.time_ns,
            host=host,
            processes=tuple(
                ProcessState(
                    rank=world_ranks[gpu],
                    pid=gpu.pid,
                    state="running" if gpu in answered else "unknown",
                    since_ns=answer.time_ns,
                    detail=details[gpu],
                )
                for gpu in gpus
            ),
        )
        for host, gpus in by_host.items()
    ]


def _communicator(value: object, where: str) -> Communicator:
    fields = table(value, where)
    size = whole(entry(fields, "size", where), f"{where}.size")
    if not 0 < size <= MAX_RANK + 1:
        raise RefusedFile(f"{where}.size is {size}; a communicator has 1 to {MAX_RANK + 1} ranks")
    members = [
        _member(one, f"{where}.{name}[{place}]", answers=name == "ranks")
        for name in ("ranks", "missing_ranks")
        for place, one in enumerate(items(fields.get(name) or (), f"{where}.{name}"))
    ]
    if any(not 0 <= member.place < size for member in members):
        raise RefusedFile(f"{where} has a rank outside its {size}")
    if len({member.place for member in members}) < len(members):
        raise RefusedFile(f"{where} has a rank twice")
    own, second = (text(fields.get(name, ""), f"{where}.{name}") for name in ("hash", "secondary_hash"))
    return Communicator(key=f"{own[:40]} {second[:80]}".strip(), size=size, members=tuple(members))


def _member(value: object, where: str, *, answers: bool) -> Member:
    fields = table(value, where)
    gpu = Gpu(
        host=text(fields.get("host", ""), f"{where}.host"),
        pid=whole(fields.get("pid", -1), f"{where}.pid"),
        device=whole(fields.get("nvml_dev", fields.get("cuda_dev", -1)), f"{where}.nvml_dev"),
    )
    status = table(fields.get("status") or {}, f"{where}.status")
    counts = None
    if answers:
        counted = table(fields.get("collective_counts") or {}, f"{where}.collective_counts")
        counts = {
            text(name, f"{where}.collective_counts"): whole(count, f"{where}.collective_counts")
            for name, count in counted.items()
        }
    place = whole(entry(fields, "rank", where), f"{where}.rank")
    is_reached = answers or not truth(status.get("unresponsive", True), f"{where}.status.unresponsive")
    detail = _detail(status, f"{where}.status", answers=answers)
    return Member(place=place, gpu=gpu, counts=counts, answers=is_reached, detail=detail)


def _detail(status: Mapping[Any, Any], where: str, *, answers: bool) -> str:
    if not answers:
        if truth(status.get("considered_dead", False), f"{where}.considered_dead"):
            return "RAS considers it dead: it could not be reached for a minute"
        if truth(status.get("unresponsive", True), f"{where}.unresponsive"):
            return "RAS could not reach it"
        return ""  # it answers, and has left the communicator or is about to join it
    said = []
    for name, words in (("init_state", "its initialisation"), ("async_error", "a call")):
        code = whole(status.get(name, 0), f"{where}.{name}")
        if code not in (0, 7):  # success, in progress
            said.append(f"{words} failed with NCCL's error {code}")
    if truth(status.get("abort_flag", False), f"{where}.abort_flag"):
        said.append("its communicator was aborted")
    return "; ".join(said)


def _document(content: str) -> tuple[object, list[str]]:
    """The document in an answer, and what had to be mended."""
    notes = []
    first = content.find("{")
    if first < 0:
        raise RefusedFile("there is no JSON document in it")
    if content[:first].strip():
        notes.append("text before the document was passed over")
    body = content[first:]
    try:
        return document(body), notes
    except RefusedFile as error:
        mended = _mended(body)
        try:
            value = document(mended)
        except RefusedFile:
            raise error from None
        return value, [*notes, "commas or what follows the document were wrong and were mended"]


def _mended(body: str) -> str:
    """The first whole document of a text, with a comma between any two values and none before a bracket closes."""
    parts: list[str] = []
    depth = 0
    for count, found in enumerate(_TOKEN.finditer(body)):
        token = found[0]
        if count > _MAX_TOKENS:
            break
        last = parts[-1] if parts else ""
        closes = token in ("}", "]")
        if last == "," and (closes or token == ","):
            parts.pop()
            last = parts[-1]
        begins = not closes and token not in (",", ":")
        if begins and parts and last not in ("{", "[", ",", ":"):
            parts.append(",")
        parts.append(token)
        depth += (token in ("{", "[")) - closes
        if depth == 0:
            return "".join(parts)
    raise RefusedFile(_UNMENDABLE)
