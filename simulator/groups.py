"""The communicators of a simulated job, and the calls of one host on each of them as columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pacehound.calls import DTYPE_BYTES, DTYPE_CODE, OP_CODE, REDOPS
from pacehound.identity import communicator_id
from simulator.observed import Observed
from simulator.program import CommunicatorKind, Slot, StageProgram
from simulator.spec import JobSpec

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

NO_DIRECTION, SEND, RECV = 0, 1, 2
_SUM = REDOPS.index("sum")


@dataclass(frozen=True, slots=True, kw_only=True)
class Communicator:
    """One communicator of the job."""

    id: str
    name: str
    kind: CommunicatorKind
    members: tuple[int, ...]


def communicators(spec: JobSpec) -> list[Communicator]:
    """The world first, then tensor, data and pipeline groups of more than one rank."""
    layout = spec.layout
    named: list[tuple[str, CommunicatorKind, tuple[int, ...]]] = [("world", "world", tuple(range(layout.world_size)))]
    kinds: tuple[CommunicatorKind, ...] = ("tp", "dp", "pp")
    for kind in kinds:
        groups = [group for group in layout.groups(kind) if len(group) > 1]
        named += [(f"{kind}{index}", kind, group) for index, group in enumerate(groups)]
    return [
        Communicator(
            id=communicator_id(spec.job, spec.attempt, name, members, 0), name=name, kind=kind, members=members
        )
        for name, kind, members in named
    ]


@dataclass(slots=True, kw_only=True)
class HostCalls:
    """The calls of one host's ranks on one communicator; times in true seconds, infinite where it never happened.

    `columns` are the integer columns of a CallBatch; `is_collective` tells the rows that `last_launched` counts.
    """

    columns: dict[str, Int64Array] = field(default_factory=dict)
    launch_s: FloatArray
    start_s: FloatArray
    end_s: FloatArray
    given_up_s: FloatArray
    is_collective: npt.NDArray[np.bool_]

    def take(self, chosen: npt.NDArray[np.generic]) -> HostCalls:
        """The rows that an index or a mask chooses."""
        return HostCalls(
            columns={name: values[chosen] for name, values in self.columns.items()},
            launch_s=self.launch_s[chosen],
            start_s=self.start_s[chosen],
            end_s=self.end_s[chosen],
            given_up_s=self.given_up_s[chosen],
            is_collective=self.is_collective[chosen],
        )


def host_calls(
    spec: JobSpec,
    programs: list[StageProgram],
    observed: Observed,
    communicator: Communicator,
    host_ranks: tuple[int, ...],
) -> HostCalls:
    """Every call that was launched by `host_ranks` on a communicator, rank by rank, in order of launch."""
    parts: dict[str, list[npt.NDArray[np.generic]]] = {}
    for rank in host_ranks:
        tp_index, dp_index, stage = spec.layout.position(rank)
        slots = [i for i, slot in enumerate(programs[stage].slots) if slot.kind == communicator.kind]
        n_steps = len(observed.launch_s[stage])
        for name, values in _slot_columns(spec, [programs[stage].slots[i] for i in slots], rank, n_steps).items():
            parts.setdefault(name, []).append(values)
        for name, times in (("launch", observed.launch_s), ("start", observed.start_s), ("end", observed.end_s)):
            parts.setdefault(name, []).append(times[stage][:, slots, dp_index, tp_index].ravel())
        parts.setdefault("given_up", []).append(np.full(n_steps * len(slots), observed.given_up_s[rank]))
    joined = {name: np.concatenate(values) for name, values in parts.items()}
    calls = HostCalls(
        launch_s=joined.pop("launch"),
        start_s=joined.pop("start"),
        end_s=joined.pop("end"),
        given_up_s=joined.pop("given_up"),
        is_collective=joined["direction"] == NO_DIRECTION,
        columns={name: values.astype(np.int64) for name, values in joined.items()},
    )
    return calls.take(calls.launch_s < calls.given_up_s)


def _slot_columns(spec: JobSpec, slots: list[Slot], rank: int, n_steps: int) -> dict[str, npt.NDArray[np.generic]]:
    tp_index, dp_index, stage = spec.layout.position(rank)
    per_channel: dict[tuple[int, str], int] = {}
    position, channel_length, rows = [], [], []
    for slot in slots:
        is_p2p = slot.peer_offset != 0
        channel = (slot.peer_offset, slot.op if is_p2p else "")
        position.append(per_channel.get(channel, 0))
        per_channel[channel] = position[-1] + 1
        channel_length.append(channel)
        rows.append(
            {
                "op": OP_CODE[slot.op],
                "count": slot.size_bytes // DTYPE_BYTES[DTYPE_CODE[slot.dtype]],
                "dtype": DTYPE_CODE[slot.dtype],
                "redop": _SUM if slot.op in ("all_reduce", "reduce_scatter") else 0,
                "peer": spec.layout.rank(tp_index, dp_index, stage + slot.peer_offset) if is_p2p else -1,
                "direction": {"send": SEND, "recv": RECV}.get(slot.op, NO_DIRECTION),
            }
        )
    # The k-th call of a channel in an iteration has the number iteration * (calls of the channel) + k.
    lengths = np.array([per_channel[channel] for channel in channel_length], np.int64)
    seq = np.arange(n_steps)[:, None] * lengths + np.array(position, np.int64)
    columns: dict[str, npt.NDArray[np.generic]] = {
        name: np.tile(np.array([row[name] for row in rows], np.int64), n_steps)
        for name in ("op", "count", "dtype", "redop", "peer", "direction")
    }
    columns["seq"] = seq.ravel()
    columns["rank"] = np.full(seq.size, rank)
    return columns
