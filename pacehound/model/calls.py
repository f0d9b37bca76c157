"""CallBatch: one host's calls on one communicator, as columns.

A *call* is one rank's part in one collective or point-to-point operation. A row is sent once, when it is final
(completed, or given up at an abort or exit). Its identity is (job, attempt, source, communicator, rank, seq,
peer, direction). The columns stay Arrow from the agent to the store; operators read them as NumPy arrays.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pacehound.errors import InvalidEvent
from pacehound.model.codes import DIRECTIONS as DIRECTIONS
from pacehound.model.codes import DTYPE_BYTES as DTYPE_BYTES
from pacehound.model.codes import DTYPES as DTYPES
from pacehound.model.codes import OPS as OPS
from pacehound.model.codes import REDOPS as REDOPS
from pacehound.model.codes import SOURCES as SOURCES
from pacehound.model.columns import numbers, numpy_type, values_of, words
from pacehound.model.representative import RepresentedRank, check_represented, spread

OP_CODE = {name: code for code, name in enumerate(OPS)}
DTYPE_CODE = {name: code for code, name in enumerate(DTYPES)}

NO_PEER = -1
FIRST_PLACE = -2
"""A peer from here downwards is the place `FIRST_PLACE - peer` in the communicator: whose, its host does not know."""
UNKNOWN_COUNT = -1


class Sees(enum.Flag):
    """Which instants of a call a source can see; it decides what may be concluded from its rows."""

    NOTHING = 0
    LAUNCH = enum.auto()
    START = enum.auto()
    END = enum.auto()
    ALL = LAUNCH | START | END


_NAME = pa.dictionary(pa.int8(), pa.string())

CALL_SCHEMA = pa.schema(
    [
        pa.field("job", _NAME),
        pa.field("attempt", pa.int32()),
        pa.field("communicator", _NAME),
        pa.field("source", _NAME),
        pa.field("rank", pa.int32()),
        pa.field("seq", pa.int64()),
        pa.field("op", _NAME),
        pa.field("count", pa.int64()),
        pa.field("dtype", _NAME),
        pa.field("redop", _NAME),
        pa.field("peer", pa.int32()),
        pa.field("direction", _NAME),
        pa.field("algorithm", _NAME),
        pa.field("protocol", _NAME),
        pa.field("channels", pa.int16()),
        pa.field("launch_ns", pa.int64()),
        pa.field("start_ns", pa.int64()),
        pa.field("end_ns", pa.int64()),
        pa.field("send_count", pa.int64()),
        pa.field("recv_count", pa.int64()),
        pa.field("send_rate", pa.float64()),
        pa.field("recv_rate", pa.float64()),
        pa.field("stream", pa.int64()),
        pa.field("group", pa.int64()),
        pa.field("captured", pa.bool_()),
    ]
)

# What a column holds where its source cannot know it.
_DEFAULTS: dict[str, object] = {
    "op": 0, "count": UNKNOWN_COUNT, "dtype": 0, "redop": 0, "peer": NO_PEER, "direction": 0, "algorithm": "",
    "protocol": "", "channels": 0, "launch_ns": 0, "start_ns": 0, "end_ns": 0, "send_count": UNKNOWN_COUNT,
    "recv_count": UNKNOWN_COUNT, "send_rate": float("nan"), "recv_rate": float("nan"), "stream": 0, "group": 0,
    "captured": False,
}  # fmt: skip
_CODED = {"op": OPS, "dtype": DTYPES, "redop": REDOPS, "direction": DIRECTIONS}
_DICTIONARIES = {name: words(values) for name, values in _CODED.items()}

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBatch:
    """One host's ranks on one communicator, over a stretch of time.

    Attributes
    ----------
    job, attempt, host, communicator, source
        The same for every row.
    ordinal
        Which cut of (host, communicator, source) this is, counted from 0; with those it names the batch.
    sees
        Which of launch, start and end the source can see.
    dropped
        Calls of this host and communicator that were lost since the batch before (a ring that wrapped, a full
        buffer). Missing is not healthy: whoever concludes from the rows must weigh this.
    within_ns
        How far an instant may be off, because one rank stood for several (representative.py). 0: each for itself.
    represented
        On the way only: the ranks that each row stands for, its own among them. `whole` gives them rows of their own.
    rows
        The columns of `CALL_SCHEMA`.

    """

    job: str
    attempt: int
    host: str
    communicator: str
    source: str
    ordinal: int
    sees: Sees
    dropped: int = 0
    within_ns: int = 0
    represented: tuple[RepresentedRank, ...] = ()
    rows: pa.RecordBatch = field(repr=False)

    def __post_init__(self) -> None:
        if not self.rows.schema.equals(CALL_SCHEMA):
            raise InvalidEvent(
                f"call columns do not have the schema of this version: {_schema_difference(self.rows.schema)}"
            )
        if self.dropped < 0:
            raise InvalidEvent(f"dropped count is {self.dropped}; it cannot be negative")
        if self.within_ns < 0:
            raise InvalidEvent(f"times are right within {self.within_ns} ns; that cannot be negative")
        check_represented(len(self), self.represented)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def n_calls(self) -> int:
        """How many calls it holds: one per row, or one per row and rank that the row stands for."""
        return len(self) * max(len(self.represented), 1)

    def whole(self) -> CallBatch:
        """The same calls with a row for each.

        Raises
        ------
        InvalidEvent
            A row is of a rank that its batch does not stand for.

        """
        if not self.represented:
            return self
        return replace(self, rows=spread(self.rows, self.represented), represented=())

    @classmethod
    def from_columns(
        cls,
        columns: Mapping[str, npt.ArrayLike],
        *,
        job: str,
        attempt: int,
        host: str,
        communicator: str,
        source: str,
        ordinal: int = 0,
        sees: Sees = Sees.ALL,
        dropped: int = 0,
        within_ns: int = 0,
        represented: tuple[RepresentedRank, ...] = (),
    ) -> CallBatch:
        """Build a batch from NumPy columns.

        Parameters
        ----------
        columns
            At least `rank` and `seq`, each of shape `(n_calls,)`. `op`, `dtype`, `redop` and `direction` are codes
            (positions in `OPS`, `DTYPES`, `REDOPS`, `DIRECTIONS`). What is missing takes the value for "unknown".
        job, attempt, host, communicator, source, ordinal, sees, dropped, within_ns, represented
            As in the class.

        Raises
        ------
        ValueError
            A column is unknown, missing, or of another length.

        Examples
        --------
        >>> batch = CallBatch.from_columns({"rank": [0, 1], "seq": [7, 7], "op": [1, 1]}, job="j", attempt=0,
        ...                                host="h", communicator="c", source="simulator")
        >>> len(batch), batch.column("seq").tolist(), batch.codes("op").tolist()
        (2, [7, 7], [1, 1])

        """
        unknown = set(columns) - set(CALL_SCHEMA.names)
        if unknown:
            raise ValueError(f"unknown call columns {sorted(unknown)}")
        if "rank" not in columns or "seq" not in columns:
            raise ValueError("call columns need at least 'rank' and 'seq'")
        n_calls = len(np.asarray(columns["rank"]))
        constants = {"job": job, "communicator": communicator, "source": source}
        arrays = []
        for spec in CALL_SCHEMA:
            if spec.name in constants:
                arrays.append(_constant_names(constants[spec.name], n_calls))
            elif spec.name == "attempt":
                arrays.append(numbers(np.full(n_calls, attempt, np.int32), spec.type))
            elif spec.name in _CODED:
                codes = columns.get(spec.name, np.zeros(n_calls, np.int8))
                arrays.append(_coded(np.asarray(codes), _CODED[spec.name], spec.name, n_calls))
            elif spec.type == _NAME:
                values = columns.get(spec.name)
                arrays.append(_constant_names("", n_calls) if values is None else _names(values))
            else:
                default = np.full(n_calls, _DEFAULTS.get(spec.name, 0))
                values = np.asarray(columns.get(spec.name, default))
                arrays.append(numbers(values.astype(numpy_type(spec.type), copy=False), spec.type))
            if len(arrays[-1]) != n_calls:
                raise ValueError(f"call column {spec.name!r} has {len(arrays[-1])} values, not {n_calls}")
        return cls(
            job=job,
            attempt=attempt,
            host=host,
            communicator=communicator,
            source=source,
            ordinal=ordinal,
            sees=sees,
            dropped=dropped,
            within_ns=within_ns,
            represented=represented,
            rows=pa.RecordBatch.from_arrays(arrays, schema=CALL_SCHEMA),
        )

    def column(self, name: str) -> npt.NDArray[np.generic]:
        """A numeric column, shape `(n_calls,)`, without copying where Arrow allows it."""
        values: npt.NDArray[np.generic] = values_of(self.rows.column(name))
        return values

    def integers(self, name: str) -> Int64Array:
        """An integer column as int64, shape `(n_calls,)`."""
        return self.column(name).astype(np.int64, copy=False)

    def codes(self, name: str) -> npt.NDArray[np.int8]:
        """The codes of `op`, `dtype`, `redop` or `direction`, shape `(n_calls,)`.

        A producer elsewhere may order its dictionary differently; names that this build does not know become 0
        (unknown).
        """
        column = self.rows.column(name)
        if column.dictionary.equals(_DICTIONARIES[name]):
            own: npt.NDArray[np.int8] = values_of(column.indices)
            return own
        known = {value: code for code, value in enumerate(_CODED[name])}
        table = np.array([known.get(value, 0) for value in column.dictionary.to_pylist()], np.int8)
        if len(table) == 0:
            return np.zeros(len(self), np.int8)
        codes: npt.NDArray[np.int8] = table[values_of(column.indices)]
        codes.flags.writeable = False  # as the others: what compiles for one kind of array need not for another
        return codes


def _constant_names(value: str, n_calls: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(numbers(np.zeros(n_calls, np.int8), pa.int8()), words([value]))


def _names(values: npt.ArrayLike) -> pa.DictionaryArray:
    return words([str(v) for v in np.asarray(values)]).dictionary_encode().cast(_NAME)


def _coded(codes: npt.NDArray[np.generic], names: tuple[str, ...], column: str, n_calls: int) -> pa.DictionaryArray:
    codes = codes.astype(np.int64)
    if len(codes) == n_calls and n_calls and (codes.min() < 0 or codes.max() >= len(names)):
        raise ValueError(f"call column {column!r} has a code outside 0..{len(names) - 1}: {codes.min()}..{codes.max()}")
    return pa.DictionaryArray.from_arrays(numbers(codes.astype(np.int8), pa.int8()), words(names))


def _schema_difference(schema: pa.Schema) -> str:
    wrong = [f"{s.name} is missing" for s in CALL_SCHEMA if s.name not in schema.names]
    wrong += [
        f"{s.name} is {schema.field(s.name).type}, not {s.type}"
        for s in CALL_SCHEMA
        if s.name in schema.names and schema.field(s.name).type != s.type
    ]
    wrong += [f"{name} is unknown" for name in schema.names if name not in CALL_SCHEMA.names]
    return "; ".join(wrong) or "the order of the columns"
