"""A trace file of torch.profiler (Kineto): whose it is, its groups, and its events as they stand there, unchecked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from collector.importers.call_files.content import whole_content
from collector.importers.call_files.file_names import rank_in_name
from collector.importers.call_files.plain_json import document
from collector.importers.call_files.refusal import RefusedFile
from collector.importers.call_files.values import MAX_RANK, items, number, ranks, table, text, whole

MAX_BYTES = 1 << 30
MAX_EVENTS = 20_000_000

STEP = re.compile(r"ProfilerStep#([0-9]{1,12})\Z")
RUNTIME = ("cuda_runtime", "cuda_driver", "hip_runtime")
"""Categories of the events that launch kernels."""

_MAX_GROUP_RANKS = 1 << 20


class Event(msgspec.Struct):
    """As much of an event as is looked at; everything may be of any type until it is checked."""

    name: Any = ""
    cat: Any = ""
    ph: Any = ""
    ts: Any = 0
    dur: Any = 0
    tid: Any = None
    args: msgspec.Raw = msgspec.Raw(b"")


class _Trace(msgspec.Struct):
    traceEvents: list[Event]  # noqa: N815
    distributedInfo: Any = None  # noqa: N815
    baseTimeNanoseconds: Any = 0  # noqa: N815


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceGroup:
    """A process group; `ranks` are empty where the trace shortens the list."""

    name: str
    desc: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What a file holds.

    Attributes
    ----------
    described
        The groups that the file itself lists, by name.
    base_ns
        To be added to all times.

    """

    rank: int
    world_size: int
    described: Mapping[str, TraceGroup]
    base_ns: int
    events: Sequence[Event]


def recording_of(path: Path) -> Recording:
    """Read a file of at most `MAX_BYTES`.

    Raises
    ------
    RefusedFile
        It is no trace, or does not say of which rank.

    """
    content = whole_content(path, MAX_BYTES)
    try:
        raw = msgspec.json.decode(content, type=_Trace)
    except msgspec.ValidationError as error:
        raise RefusedFile(f"no trace: {str(error)[:200]}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise RefusedFile(f"no whole JSON document: {str(error)[:200]}") from error
    except RecursionError as error:
        raise RefusedFile("the JSON is nested too deeply") from error
    if len(raw.traceEvents) > MAX_EVENTS:
        raise RefusedFile(f"it has more than {MAX_EVENTS} events")
    info = table(raw.distributedInfo or {}, "distributedInfo")
    return Recording(
        rank=_rank(info, path),
        world_size=_world_size(info),
        described=_described(info),
        base_ns=whole(raw.baseTimeNanoseconds or 0, "baseTimeNanoseconds"),
        events=raw.traceEvents,
    )


def _rank(info: Mapping[Any, Any], path: Path) -> int:
    if "rank" in info:
        rank = whole(info["rank"], "distributedInfo.rank")
    else:
        named = rank_in_name(path)
        if named is None:
            raise RefusedFile("whose trace it is cannot be told: it has no distributedInfo; put the rank into its name")
        rank = named
    if not 0 <= rank <= MAX_RANK:
        raise RefusedFile(f"distributedInfo.rank is {rank}; a rank is 0 to {MAX_RANK}")
    return rank


def _world_size(info: Mapping[Any, Any]) -> int:
    size = whole(info.get("world_size", 0), "distributedInfo.world_size")
    if not 0 <= size <= MAX_RANK + 1:
        raise RefusedFile(f"distributedInfo.world_size is {size}")
    return size


def _described(info: Mapping[Any, Any]) -> dict[str, TraceGroup]:
    """The groups that the trace describes, by name."""
    groups = {}
    left = _MAX_GROUP_RANKS
    for place, one in enumerate(items(info.get("pg_config") or (), "distributedInfo.pg_config")):
        where = f"distributedInfo.pg_config[{place}]"
        fields = table(one, where)
        name = text(fields.get("pg_name", ""), f"{where}.pg_name")
        desc = text(fields.get("pg_desc", ""), f"{where}.pg_desc")
        listed = fields.get("ranks") or ()
        found = () if _is_shortened(listed) else ranks(listed, f"{where}.ranks", left)
        left -= len(found)
        groups[name] = TraceGroup(name=name, desc=desc, ranks=found)
    return groups


class GroupTable:
    """Reads the arguments of events, and makes groups of them."""

    def __init__(self, described: Mapping[str, TraceGroup]) -> None:
        self._described = described
        self._groups: dict[tuple[Any, ...], TraceGroup] = {}

    def group(self, args: Mapping[Any, Any], where: str) -> TraceGroup:
        name = text(args.get("Process Group Name", ""), f"{where}: Process Group Name")
        desc = text(args.get("Process Group Description", ""), f"{where}: Process Group Description")
        listed = args.get("Process Group Ranks", "")
        numbers = tuple(
            whole(args.get(key, -1), f"{where}: {key}")
            for key in ("Global rank start", "Global rank stride", "Group size")
        )
        key = (name, desc, listed if isinstance(listed, str) else repr(listed)[:10_000], numbers)
        if key not in self._groups:
            self._groups[key] = TraceGroup(name=name, desc=desc, ranks=self._ranks(name, listed, numbers, where))
        return self._groups[key]

    def _ranks(self, name: str, listed: object, numbers: tuple[int, ...], where: str) -> tuple[int, ...]:
        """As they are listed; a long list is shortened, and then the description of the job or an even stride helps."""
        start, stride, size = numbers
        if not _is_shortened(listed):
            found = ranks(listed, f"{where}: Process Group Ranks", _MAX_GROUP_RANKS)
            if found:
                return found
        if name in self._described and self._described[name].ranks:
            return self._described[name].ranks
        if start >= 0 and stride > 0 and 0 < size <= _MAX_GROUP_RANKS and start + stride * (size - 1) <= MAX_RANK:
            return tuple(range(start, start + stride * size, stride))
        return ()


def _is_shortened(listed: object) -> bool:
    return isinstance(listed, str) and "..." in listed


def span(one: Event, where: str, base_ns: int) -> tuple[int, int]:
    """Start and end of an event in Unix nanoseconds."""
    start_us, us = number(one.ts, f"{where}.ts"), number(one.dur, f"{where}.dur")
    start_ns = round(start_us * 1000) + base_ns
    if start_ns < 0 or us < 0 or start_ns + us * 1000 >= 1 << 62:
        raise RefusedFile(f"{where} has a time that cannot be")
    return start_ns, start_ns + round(us * 1000)


def thread_of(one: Event) -> object:
    """The thread of an event, as something that can be compared."""
    return one.tid if isinstance(one.tid, (int, str)) else None


def args_of(one: Event, where: str) -> Mapping[Any, Any]:
    """The arguments of an event; they are parsed only now."""
    content = bytes(one.args)
    return table(document(content), f"{where}.args") if content else {}
