"""One log of NCCL's Inspector plugin: one JSON object per line, one file per process.

Two forms. Up to v4.2 every line carries its communicator (`header`) and its process (`metadata`). In v4.3 a line with
`dump_stats` carries both for the lines after it, as many as it counts, which hold nothing but the call.

`rank` is the place in the communicator, and `coll_sn` counts each function of a communicator apart. Only calls that
have ended are written. Times are there in verbose mode alone (`event_trace_ts`); a line's `dump_timestamp_us` is when
it was written, not when anything happened, and is not used. Calls on the network of v4.3 (`proxy_trace`) are passed
over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from collector.importers.call_files.content import whole_content
from collector.importers.call_files.operations import operation
from collector.importers.call_files.refusal import RefusedFile
from collector.importers.call_files.rows import CallRow
from collector.importers.call_files.values import MAX_RANK, entry, items, number, table, text, whole

MAX_BYTES = 512 << 20
MAX_CALLS = 2_000_000

_KINDS = ("coll_perf", "p2p_perf", "proxy_trace")
_US = 1000


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Process:
    """What names a rank everywhere."""

    host: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCalls:
    """Names the calls of one process on one function of a communicator."""

    communicator: str
    function: str


@dataclass(slots=True, kw_only=True)
class Log:
    """A file.

    Attributes
    ----------
    names, sizes, places
        Of the communicators, by id; the place is this process's.
    calls
        By function; their rank is not told yet and is 0.
    dropped
        Calls that the plugin has overwritten, by communicator.

    """

    path: Path
    process: Process | None = None
    names: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    calls: dict[FunctionCalls, list[CallRow]] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    has_times: bool = False
    pairs: int = 0
    notes: list[str] = field(default_factory=list)


def looks_like_one(head: bytes) -> bool:
    """Whether a file's first bytes are those of such a log."""
    return head.lstrip()[:1] == b"{" and b'"inspector_output_format_version"' in head


def read(path: Path) -> Log:
    """Read a file of at most `MAX_BYTES`; a last line that is cut is left out and noted.

    Raises
    ------
    RefusedFile
        With the line that is wrong.

    """
    content = whole_content(path, MAX_BYTES)
    log = Log(path=path)
    reader = _Reader(log)
    lines = content.split(b"\n")
    last = max((number for number, line in enumerate(lines) if line.strip()), default=-1)
    decoder = msgspec.json.Decoder()
    for number_, line in enumerate(lines):
        if not line.strip():
            continue
        where = f"line {number_ + 1}"
        try:
            record = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
            if number_ == last and not content.endswith(b"\n") and log.calls:
                log.notes.append(f"{where}, the last, is cut and was left out")
                break
            raise RefusedFile(f"{where} is no whole JSON object: {str(error)[:120]}") from error
        reader.take(record, where)
    reader.end()
    if log.process is None:
        raise RefusedFile("there is no call in it")
    return log


class _Reader:
    """Takes line after line; keeps what a `dump_stats` line says for those after it."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._context: tuple[Mapping[Any, Any], Mapping[Any, Any]] | None = None
        self._due = dict.fromkeys(_KINDS, 0)
        self._calls = 0

    def take(self, record: object, where: str) -> None:
        fields = table(record, where)
        if "dump_stats" in fields:
            self._begin(fields, where)
            return
        header, metadata = self._context_of(fields, where)
        key = self._communicator(header, metadata, where)
        if "coll_perf" in fields:
            self._collective(key, table(fields["coll_perf"], f"{where}: coll_perf"), f"{where}: coll_perf")
        elif "p2p_perf" in fields:
            table(fields["p2p_perf"], f"{where}: p2p_perf")
            self._log.pairs += 1
        elif "proxy_trace" not in fields:
            raise RefusedFile(f"{where} has none of {', '.join(_KINDS)}")

    def end(self) -> None:
        if missing := sum(self._due.values()):
            self._log.notes.append(f"it ends {missing} calls before its last part does")

    def _begin(self, fields: Mapping[Any, Any], where: str) -> None:
        if any(self._due.values()):
            raise RefusedFile(f"{where} begins a part {sum(self._due.values())} calls before the last one has ended")
        header = table(entry(fields, "header", where), f"{where}: header")
        metadata = table(entry(fields, "metadata", where), f"{where}: metadata")
        stats = table(fields["dump_stats"], f"{where}: dump_stats")
        key = self._communicator(header, metadata, where)
        dropped = whole(stats.get("coll_dropped_since_last_dump", 0), f"{where}: coll_dropped_since_last_dump")
        self._log.dropped[key] = self._log.dropped.get(key, 0) + max(0, dropped)
        self._context, self._due = None, dict.fromkeys(_KINDS, 0)
        if _carries(text(metadata.get("inspector_output_format_version", ""), f"{where}: version")):
            self._context = (header, metadata)
            names = ("coll_records", "p2p_records", "proxy_records")
            for kind, name in zip(_KINDS, names, strict=True):
                self._due[kind] = whole(stats.get(name, 0), f"{where}: {name}")

    def _context_of(self, fields: Mapping[Any, Any], where: str) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
        if "header" in fields:
            header = table(fields["header"], f"{where}: header")
            return header, table(entry(fields, "metadata", where), f"{where}: metadata")
        if self._context is None:
            raise RefusedFile(f"{where} does not say whose call it is, and no line before does")
        kind = next((kind for kind in _KINDS if kind in fields), "")
        if self._due.get(kind, 0) <= 0:
            raise RefusedFile(f"{where} is one call more than its part has")
        self._due[kind] -= 1
        return self._context

    def _communicator(self, header: Mapping[Any, Any], metadata: Mapping[Any, Any], where: str) -> str:
        log = self._log
        process = Process(
            host=text(metadata.get("hostname", ""), f"{where}: hostname"),
            pid=whole(metadata.get("pid", -1), f"{where}: pid"),
        )
        if log.process is None:
            log.process = process
        if process != log.process:
            raise RefusedFile(f"{where} is of process {process.pid} on {process.host[:40]}, others of another one")
        key = text(entry(header, "id", where), f"{where}: id")[:80]
        place = whole(entry(header, "rank", where), f"{where}: rank")
        size = whole(entry(header, "n_ranks", where), f"{where}: n_ranks")
        if not 0 <= place < size <= MAX_RANK + 1:
            raise RefusedFile(f"{where}: rank {place} of {size} cannot be")
        if (log.places.setdefault(key, place), log.sizes.setdefault(key, size)) != (place, size):
            raise RefusedFile(f"{where}: communicator {key} had another rank or size before")
        name = text(header.get("comm_name") or "", f"{where}: comm_name")[:80]
        log.names[key] = name if name and name != "unknown" else key
        return key

    def _collective(self, key: str, call: Mapping[Any, Any], where: str) -> None:
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise RefusedFile(f"{where}: more than {MAX_CALLS} calls are not read")
        function = text(entry(call, "coll", where), f"{where}.coll")[:40]
        launch_ns, start_ns, end_ns = _times(call, where)
        self._log.has_times |= end_ns > 0
        size_bytes = whole(call.get("coll_msg_size_bytes", -1), f"{where}.coll_msg_size_bytes")
        number(call.get("coll_exec_time_us", 0), f"{where}.coll_exec_time_us")
        row = CallRow(
            rank=0,
            seq=whole(entry(call, "coll_sn", where), f"{where}.coll_sn"),
            op=operation(function),
            # Bytes are all that it says of the elements.
            count=size_bytes,
            dtype="uint8" if size_bytes >= 0 else "unknown",
            algorithm=text(call.get("coll_algo", ""), f"{where}.coll_algo")[:20].lower(),
            protocol=text(call.get("coll_proto", ""), f"{where}.coll_proto")[:20].lower(),
            launch_ns=launch_ns,
            start_ns=start_ns,
            end_ns=end_ns,
        )
        self._log.calls.setdefault(FunctionCalls(communicator=key, function=function), []).append(row)


def _carries(version: str) -> bool:
    """Whether lines after a `dump_stats` line of this version lean on it.

    >>> _carries("v4.2"), _carries("v4.3")
    (False, True)
    """
    parts = version.removeprefix("v").split(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts):
        return False
    return [int(part) for part in parts] >= [4, 3]


def _times(call: Mapping[Any, Any], where: str) -> tuple[int, int, int]:
    """Launch, and start and end over all channels; 0 where they are not told."""
    trace = table(call.get("event_trace_ts") or {}, f"{where}.event_trace_ts")
    if not trace:
        return 0, 0, 0
    launch = whole(trace.get("coll_start_ts", 0), f"{where}.coll_start_ts")
    channels = [table(one, f"{where}.kernel_events") for one in items(trace.get("kernel_events") or (), where)]
    starts, ends = (
        [at for one in channels if (at := whole(one.get(name, 0), f"{where}.{name}")) > 0]
        for name in ("kernel_start_ts", "kernel_stop_ts")
    )
    return max(0, launch) * _US, min(starts, default=0) * _US, max(ends, default=0) * _US
