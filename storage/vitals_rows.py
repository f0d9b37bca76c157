"""What hosts say of their hardware as columns, many hosts' words together.

A host with eight GPUs says some 27 things each five seconds, so that of 2,048 hosts these are most of what a writer
stores. A row of Python's for each of them took a third of the time in which it reads a large job's messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import chain, repeat
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pacehound.errors import InvalidEvent
from pacehound.model.columns import numbers, places_of, words, words_at
from pacehound.model.events import AgentCost, HostProcessors, HostVitals
from storage import schemas
from storage.rows import UNFIT

_KINDS = ("gpu", "nic", "socket", "rank", "host", "processors", "agent")
_GPU, _NIC, _SOCKET, _RANK, _HOST, _PROCESSORS, _AGENT = range(len(_KINDS))

_NUMBERS = {
    _GPU: ("sm_clock_mhz", "max_sm_clock_mhz", "temperature_c", "power_w", "ecc_uncorrected", "xid"),
    _SOCKET: (
        "acked_bytes", "received_bytes", "retransmitted_bytes", "busy_us", "unsent_bytes", "rtt_us", "min_rtt_us",
        "delivery_bytes_per_s",
    ),
    _RANK: ("ran_ns", "waited_ns", "throttled_ns"),
    _PROCESSORS: tuple(field.name for field in fields(HostProcessors)),
    _AGENT: tuple(field.name for field in fields(AgentCost)),
}  # fmt: skip
"""By kind, what each of its readings has; a `nic` has the errors that have grown, a `host` its `oom_kills`."""

_VALUES = {kind: attrgetter(*names) for kind, names in _NUMBERS.items()}


def n_readings(vitals: HostVitals) -> int:
    """How many rows it has.

    >>> n_readings(HostVitals(job="j", attempt=0, time_ns=1, host="h"))
    1
    """
    of_many = len(vitals.gpus) + len(vitals.nics) + len(vitals.sockets) + len(vitals.rank_processors)
    return of_many + 1 + (vitals.processors is not None) + (vitals.agent is not None)


def vitals_table(said: Sequence[HostVitals]) -> pa.Table:
    """A row for each thing that was read, in order.

    Raises
    ------
    InvalidEvent
        A value does not fit its column.

    Examples
    --------
    >>> table = vitals_table([HostVitals(job="j", attempt=0, time_ns=7, host="h", oom_kills=2)])
    >>> [(row["kind"], row["numbers"], row["time_ns"]) for row in table.to_pylist()]
    [('host', [('oom_kills', 2.0)], 7)]

    """
    readings = _Readings()
    for vitals in said:
        readings.add(vitals)
    try:
        return readings.table(said)
    except (*UNFIT, ValueError) as error:
        raise InvalidEvent(f"a value does not fit a column of {schemas.HOST_VITALS}: {error}") from error


class _Readings:
    """Columns of readings, one behind the other; of `ranks` and `numbers` how many each reading has."""

    def __init__(self) -> None:
        self._kinds: list[int] = []
        self._names: list[str] = []
        self._states: list[str] = []
        self._ranks: list[int] = []
        self._n_ranks: list[int] = []
        self._keys: list[int] = []
        self._values: list[float] = []
        self._n_values: list[int] = []
        self._key_codes: dict[str, int] = {}
        self._codes = {kind: [self._code(name) for name in names] for kind, names in _NUMBERS.items()}
        self._oom_kills = self._code("oom_kills")

    def _code(self, key: str) -> int:
        return self._key_codes.setdefault(key, len(self._key_codes))

    def add(self, vitals: HostVitals) -> None:
        if gpus := vitals.gpus:
            self._of_kind(_GPU, gpus)
            self._names += [gpu.uuid for gpu in gpus]
            self._states += [",".join(gpu.throttle_reasons) for gpu in gpus]
            self._ranks += chain.from_iterable([gpu.ranks for gpu in gpus])
            self._n_ranks += [len(gpu.ranks) for gpu in gpus]
        for nic in vitals.nics:
            self._kinds.append(_NIC)
            self._names.append(nic.name)
            self._states.append(nic.state)
            self._n_ranks.append(0)
            self._keys += map(self._code, nic.errors)
            self._values += nic.errors.values()
            self._n_values.append(len(nic.errors))
        if sockets := vitals.sockets:
            self._of_kind(_SOCKET, sockets)
            self._names += [f"{socket.local} > {socket.remote}" for socket in sockets]
            self._of_ranks([socket.rank for socket in sockets])
        if processes := vitals.rank_processors:
            self._of_kind(_RANK, processes)
            self._names += [str(reading.pid) for reading in processes]
            self._of_ranks([reading.rank for reading in processes])
        self._kinds.append(_HOST)
        self._keys.append(self._oom_kills)
        self._values.append(vitals.oom_kills)
        self._n_values.append(1)
        self._of_whole_host()
        for kind, reading in ((_PROCESSORS, vitals.processors), (_AGENT, vitals.agent)):
            if reading is not None:
                self._of_kind(kind, (reading,))
                self._of_whole_host()

    def _of_kind(self, kind: int, readings: Sequence[Any]) -> None:
        """Kind and numbers of readings that all have the same."""
        codes, n = self._codes[kind], len(readings)
        self._kinds += repeat(kind, n)
        self._keys += codes * n
        self._values += chain.from_iterable(map(_VALUES[kind], readings))
        self._n_values += repeat(len(codes), n)

    def _of_ranks(self, ranks: list[int]) -> None:
        self._states += repeat("", len(ranks))
        self._ranks += ranks
        self._n_ranks += repeat(1, len(ranks))

    def _of_whole_host(self) -> None:
        self._names.append("")
        self._states.append("")
        self._n_ranks.append(0)

    def table(self, said: Sequence[HostVitals]) -> pa.Table:
        schema = schemas.ROW_TABLES[schemas.HOST_VITALS]
        counts = [n_readings(vitals) for vitals in said]
        values = numbers(np.array(self._values, np.float64), pa.float64())
        columns = {
            "job": _repeated([vitals.job for vitals in said], counts),
            "attempt": numbers(np.repeat(np.array([vitals.attempt for vitals in said], np.int32), counts), pa.int32()),
            "host": _repeated([vitals.host for vitals in said], counts),
            "kind": _texts(_KINDS, self._kinds),
            "name": words(self._names),
            "ranks": pa.ListArray.from_arrays(
                _offsets(self._n_ranks), numbers(np.array(self._ranks, np.int32), pa.int32())
            ),
            "state": words(self._states),
            "numbers": pa.MapArray.from_arrays(_offsets(self._n_values), _texts(self._key_codes, self._keys), values),
            "time_ns": numbers(np.repeat(np.array([vitals.time_ns for vitals in said], np.int64), counts), pa.int64()),
        }
        return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def _offsets(counts: Sequence[int]) -> pa.Array:
    return numbers(np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(np.int32), pa.int32())


def _texts(known: Iterable[str], places: npt.ArrayLike) -> pa.Array:
    """Strings, by their places among those that there are."""
    return words_at(np.asarray(places, np.int32), known).dictionary_decode()


def _repeated(values: Sequence[str], counts: Sequence[int]) -> pa.Array:
    return _texts(values, np.repeat(places_of(values), counts))
