"""One dump as it stands: groups, counters and entries with their types checked, nothing concluded.

Formats 2.1 to 2.10. What they share: `entries` in the order in which they were recorded, `pg_config` with the groups
by name (`ranks` is a text in all of them, a list in dumps that other tools wrote again), `pg_status` with counters by
the process's own number of a group, `process_group` as (name, description). Pickles leave out a time that is not
known as `None`, JSON writes 0 for it and every counter in quotes; JSON leaves `entries` out where there is none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector.importers.call_files.content import whole_content
from collector.importers.call_files.operations import element_type, is_call, operation
from collector.importers.call_files.plain_json import document
from collector.importers.call_files.plain_pickle import plain_value
from collector.importers.call_files.refusal import RefusedFile
from collector.importers.call_files.values import entry, items, ranks, shown, table, text, truth, whole
from pacehound.model.calls import UNKNOWN_COUNT

MAX_BYTES = 128 << 20
MAX_ENTRIES = 200_000
MAX_GROUP_RANKS = 5_000_000
"""Over all groups of a dump."""
MAX_DIMENSIONS = 1_000_000
"""Over all tensors of all entries: a pickle can say one long list many times in two bytes each."""

STATES = ("scheduled", "started", "completed")
UNDESCRIBED = "undefined"

_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\Z")
_MAJOR, _OLDEST_MINOR, _NEWEST_MINOR = 2, 1, 10
_PEERS = re.compile(r"(send|recv) ([0-9]{1,7})(->|<-)([0-9]{1,7}|\?)\Z")
_COUNTERS = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpGroup:
    """A process group that this rank has a communicator in; `ranks` are world ranks by their places in it.

    Where torch has not described it (gloo's groups) `ranks` is empty.
    """

    name: str
    desc: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The last enqueued, started and completed number of one group; -1 for none. Collectives and p2p calls mixed."""

    enqueued: int
    started: int
    completed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One call.

    Attributes
    ----------
    record_id
        Its place in what the rank has recorded, over all groups.
    pg_id
        The process's own number of the group.
    collective_seq, p2p_seq
        The group's two counters when it was recorded.
    op
        In our words; `is_coalesced` is the entry that stands for a batch.
    count
        Elements of its tensors; -1 where unknown.
    completed_ns
        When the watchdog noticed its end; 0 for not yet.
    own_place, peer_place
        Places in the group of this rank and of its peer (point-to-point); -1 where there is none.

    """

    record_id: int
    pg_id: int
    group: str
    collective_seq: int
    p2p_seq: int
    op: str
    is_p2p: bool
    is_coalesced: bool
    direction: str
    own_place: int
    peer_place: int
    count: int
    dtype: str
    launch_ns: int
    state: str
    completed_ns: int
    is_retired: bool
    timeout_ms: int
    backend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """A file.

    Attributes
    ----------
    counters
        By the process's own number of a group; empty where the format has none.
    sees_starts
        Some call is known to have started, so that `scheduled` means that it has not.
    """

    path: Path
    version: str
    groups: Mapping[str, DumpGroup]
    counters: Mapping[int, Counters]
    entries: tuple[Entry, ...]
    sees_starts: bool
    notes: tuple[str, ...] = ()


def looks_like_one(head: bytes) -> bool:
    """Whether a file's first bytes are those of a dump, as a pickle or as JSON."""
    if head[:1] == b"\x80" or head[:3] in (b"(dp", b"}q\x00", b"}(U"):
        return True
    return head.lstrip()[:1] == b"{" and (
        b'"pg_config"' in head or (b'"entries"' in head and b'"collective_seq_id"' in head)
    )


def read(path: Path) -> Dump:
    """Read a file of at most `MAX_BYTES`.

    Raises
    ------
    RefusedFile
        With what is wrong, and where.

    """
    content = whole_content(path, MAX_BYTES)
    value = document(content) if content.lstrip()[:1] == b"{" else plain_value(content)
    return checked(value, path)


def checked(value: object, path: Path) -> Dump:
    """The dump that a value of unknown make stands for."""
    fields = table(value, "the dump")
    version, is_newer = _version(fields)
    groups = _groups(table(entry(fields, "pg_config", "the dump"), "pg_config"))
    status = fields.get("pg_status")
    listed = items(fields.get("entries") or (), "entries")
    if len(listed) > MAX_ENTRIES:
        raise RefusedFile(f"entries has {len(listed)} calls; at most {MAX_ENTRIES} are read")
    reader = _EntryReader(groups)
    entries = [found for place, one in enumerate(listed) if (found := reader.read(one, f"entries[{place}]"))]
    entries.sort(key=lambda one: one.record_id)
    groups = {**{name: group for name, group in groups.items() if name}, **reader.undescribed}
    counters = {} if status is None else _counters(table(status, "pg_status"))
    return Dump(
        path=path,
        version=version,
        groups=groups,
        counters=counters,
        entries=tuple(entries),
        sees_starts=reader.sees_starts or any(of_group.started >= 0 for of_group in counters.values()),
        notes=(f"format {version} is newer than {_MAJOR}.{_NEWEST_MINOR}: new fields are not read",)
        if is_newer
        else (),
    )


def _version(fields: Mapping[Any, Any]) -> tuple[str, bool]:
    version = entry(fields, "version", "the dump")
    found = _VERSION.match(version) if isinstance(version, str) else None
    if found is None:
        raise RefusedFile(f"version is {shown(version)}; Flight Recorder dumps say '2.1' to '2.10'")
    major, minor = int(found[1]), int(found[2])
    if major != _MAJOR or minor < _OLDEST_MINOR:
        raise RefusedFile(f"Flight Recorder format {version} is not read; 2.1 to 2.10 are")
    return f"{major}.{minor}", minor > _NEWEST_MINOR


def _groups(config: Mapping[Any, Any]) -> dict[str, DumpGroup]:
    groups = {}
    left = MAX_GROUP_RANKS
    for key, value in config.items():
        where = f"pg_config[{str(key)[:20]!r}]"
        fields = table(value, where)
        name = text(fields.get("name", str(key)), f"{where}.name")
        desc = text(fields.get("desc", UNDESCRIBED), f"{where}.desc")
        of_group = ranks(entry(fields, "ranks", where), f"{where}.ranks", left)
        left -= len(of_group)
        groups[name] = DumpGroup(name=name, desc=desc, ranks=of_group)
    return groups


def _counters(status: Mapping[Any, Any]) -> dict[int, Counters]:
    counters = {}
    for key, value in status.items():
        where = f"pg_status[{str(key)[:20]!r}]"
        fields = table(value, where)
        enqueued, started, completed = (whole(fields.get(name, -1), f"{where}.{name}") for name in _COUNTERS)
        counters[whole(key, where)] = Counters(enqueued=enqueued, started=started, completed=completed)
    return counters


class _EntryReader:
    """Reads entry after entry, and keeps count of what they need."""

    def __init__(self, groups: Mapping[str, DumpGroup]) -> None:
        self._groups = groups
        self._dimensions = 0
        self.undescribed: dict[str, DumpGroup] = {}
        self.sees_starts = False

    def read(self, value: object, where: str) -> Entry | None:
        """The next one; `None` for one that is no call."""
        fields = table(value, where)
        group, desc = _group_name(entry(fields, "process_group", where), f"{where}.process_group")
        title = text(entry(fields, "profiling_name", where), f"{where}.profiling_name")
        backend, _, name = title.rpartition(":")
        if not is_call(name):
            return None
        if group not in self._groups and group not in self.undescribed:
            self.undescribed[group] = DumpGroup(name=group, desc=desc, ranks=())
        op = operation(name)
        is_p2p = truth(fields.get("is_p2p", op in ("send", "recv")), f"{where}.is_p2p")
        direction, own_place, peer_place = _peers(name, op, where)
        count, dtype = self._size(fields, op, where)
        state = text(fields.get("state", "scheduled"), f"{where}.state")
        if state not in STATES:
            raise RefusedFile(f"{where}.state is {state[:20]!r}; it is one of {', '.join(STATES)}")
        started_ns = _time(fields, "time_discovered_started_ns", where)
        completed_ns = _time(fields, "time_discovered_completed_ns", where)
        # Who learns of an end alone writes the same time for both.
        self.sees_starts |= state == "started" or 0 < started_ns != completed_ns
        older = fields.get("seq_id", -1)
        return Entry(
            record_id=whole(fields.get("record_id", fields.get("id", -1)), f"{where}.record_id"),
            pg_id=whole(fields.get("pg_id", -1), f"{where}.pg_id"),
            group=group,
            collective_seq=whole(fields.get("collective_seq_id", older), f"{where}.collective_seq_id"),
            p2p_seq=whole(fields.get("p2p_seq_id", 0), f"{where}.p2p_seq_id"),
            op=op,
            is_p2p=is_p2p,
            is_coalesced=name == "coalesced",
            direction=direction,
            own_place=own_place,
            peer_place=peer_place,
            count=count,
            dtype=dtype,
            launch_ns=max(0, whole(fields.get("time_created_ns", 0), f"{where}.time_created_ns")),
            state=state,
            completed_ns=completed_ns,
            is_retired=truth(fields.get("retired", False), f"{where}.retired"),
            timeout_ms=max(0, whole(fields.get("timeout_ms") or 0, f"{where}.timeout_ms")),
            backend=backend[:20],
        )

    def _size(self, fields: Mapping[Any, Any], op: str, where: str) -> tuple[int, str]:
        """Elements, and their type: of what goes in, and of what comes out where nothing goes in."""
        for side in ("output", "input") if op == "recv" else ("input", "output"):
            sizes = items(fields.get(f"{side}_sizes") or (), f"{where}.{side}_sizes")
            if not sizes:
                continue
            count = sum(self._elements(size, f"{where}.{side}_sizes") for size in sizes)
            if count >= 1 << 62:
                raise RefusedFile(f"{where}.{side}_sizes is of more elements than fit into 62 bits")
            return count, self._type(fields.get(f"{side}_dtypes") or (), f"{where}.{side}_dtypes")
        return UNKNOWN_COUNT, "unknown"

    def _elements(self, size: object, where: str) -> int:
        shape = items(size, where)
        self._spend(1 + len(shape), where)
        dimensions = [whole(dimension, where) for dimension in shape]
        # Logarithms first: the product of a million dimensions is a number of a million digits.
        if any(dimension <= 0 for dimension in dimensions):
            return 0
        if sum(math.log2(dimension) for dimension in dimensions) > 62:
            raise RefusedFile(f"{where} is of more elements than fit into 62 bits")
        return math.prod(dimensions)

    def _type(self, value: object, where: str) -> str:
        names = items(value, where)
        self._spend(len(names), where)
        kinds = {text(name, where) for name in names}
        return element_type(next(iter(kinds))) if len(kinds) == 1 else "unknown"

    def _spend(self, count: int, where: str) -> None:
        self._dimensions += count
        if self._dimensions > MAX_DIMENSIONS:
            raise RefusedFile(f"{where}: the tensors of this dump have more than {MAX_DIMENSIONS} dimensions")


def _group_name(value: object, where: str) -> tuple[str, str]:
    """Name and description."""
    if isinstance(value, str):
        return text(value, where), UNDESCRIBED
    names = items(value, where)
    if not names:
        raise RefusedFile(f"{where} is empty")
    return text(names[0], where), text(names[1], where) if len(names) > 1 else UNDESCRIBED


def _time(fields: Mapping[Any, Any], name: str, where: str) -> int:
    value = fields.get(name)
    return 0 if value is None else max(0, whole(value, f"{where}.{name}"))


def _peers(name: str, op: str, where: str) -> tuple[str, int, int]:
    """Direction, own place and the peer's, of a name such as `send 0->3` and `recv 3<-0`."""
    if op not in ("send", "recv"):
        return "none", -1, -1
    found = _PEERS.match(name)
    if found is None or (found[3] == "->") != (found[1] == "send"):
        raise RefusedFile(f"{where}.profiling_name is {shown(name)}; who sends to whom it does not say")
    return found[1], int(found[2]), -1 if found[4] == "?" else int(found[4])
