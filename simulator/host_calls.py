"""The calls of one host on one communicator, as columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import DTYPE_BYTES, DTYPE_CODE, OP_CODE, REDOPS, UNKNOWN_COUNT
from pacehound.model.events import ChannelTransfers, TransferEdge
from simulator.faults import SlowLink, WrongCall
from simulator.groups import Communicator
from simulator.links import slow_factors
from simulator.network_view import OpenCounts, chunks, edges_of, is_network, is_tree_call, open_counts, pair_rate, rates
from simulator.observed import Observed
from simulator.program import Slot
from simulator.spec import JobSpec
from simulator.stuck_step import slot_of
from simulator.timing import Timeline, is_active

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

NO_DIRECTION, SEND, RECV = 0, 1, 2
_SUM = REDOPS.index("sum")
_RATE_NOISE = 0.03
_SMALL_BYTES = 64 << 10
_OTHER_OP = {"all_reduce": "all_gather", "all_gather": "all_reduce", "reduce_scatter": "all_reduce"}


@dataclass(slots=True, kw_only=True)
class HostCalls:
    """The calls of one host's ranks on one communicator; times in true seconds, infinite where it never happened.

    `columns` are the integer columns of a CallBatch, `rates` its columns of rates; `is_collective` tells the rows that
    `last_launched` counts, and `captured` those of calls that went into a graph. `open_sent` and `open_received` are
    the counts of calls that never end, -1 for all others; of those that `is_stuck` tells, they are known by channel.
    """

    columns: dict[str, Int64Array] = field(default_factory=dict)
    rates: dict[str, FloatArray] = field(default_factory=dict)
    launch_s: FloatArray
    start_s: FloatArray
    end_s: FloatArray
    given_up_s: FloatArray
    is_collective: npt.NDArray[np.bool_]
    captured: npt.NDArray[np.bool_]
    open_sent: Int64Array
    open_received: Int64Array
    is_stuck: npt.NDArray[np.bool_]

    def take(self, chosen: npt.NDArray[np.generic]) -> HostCalls:
        """The rows that an index or a mask chooses."""
        return HostCalls(
            columns={name: values[chosen] for name, values in self.columns.items()},
            rates={name: values[chosen] for name, values in self.rates.items()},
            launch_s=self.launch_s[chosen],
            start_s=self.start_s[chosen],
            end_s=self.end_s[chosen],
            given_up_s=self.given_up_s[chosen],
            is_collective=self.is_collective[chosen],
            captured=self.captured[chosen],
            open_sent=self.open_sent[chosen],
            open_received=self.open_received[chosen],
            is_stuck=self.is_stuck[chosen],
        )


class CommunicatorCalls:
    """The calls on one communicator, host by host.

    What can be said of all its members at once (rates, the counts of calls that never end) is worked out once.
    """

    def __init__(self, spec: JobSpec, timeline: Timeline, observed: Observed, communicator: Communicator) -> None:
        self._spec = spec
        self._timeline = timeline
        self._observed = observed
        self._communicator = communicator
        self._rng = np.random.default_rng([spec.seed, 11, communicator.members[0], len(communicator.members)])
        self._n_steps = len(timeline.begin_s)
        self._slow: list[tuple[npt.NDArray[np.bool_], dict[frozenset[int], float]]] = []
        self._rates: list[dict[bool, dict[int, tuple[float, float]]]] = []
        self._open: dict[int, OpenCounts] = {}
        if spec.source.has_rates:
            self._slow = self._slow_stretches()
            self._rates = [
                {
                    is_tree: rates(spec, communicator, factors, is_tree=is_tree)
                    for is_tree in {False, spec.algorithm == "tree" and communicator.kind == "dp"}
                }
                for _, factors in self._slow
            ]
            dead = frozenset(
                frozenset(fault.link)
                for fault in spec.faults
                if isinstance(fault, SlowLink) and fault.bandwidth_factor == 0.0
            )
            if observed.was_killed and communicator.kind != "pp":
                self._open = open_counts(spec, timeline, communicator, dead)

    def channels(self, rank: int) -> tuple[ChannelTransfers, ...]:
        """How far each channel is of the call in which a rank is stuck."""
        return self._open[rank].channels if rank in self._open else ()

    def edges(self, host_ranks: tuple[int, ...], algorithm: str) -> tuple[TransferEdge, ...]:
        """Over which the plugins of a host's ranks see them send and receive."""
        if not algorithm or len(self._communicator.members) < 2:
            return ()
        place = {rank: at for at, rank in enumerate(self._communicator.members)}
        return tuple(
            TransferEdge(algorithm=algorithm, channel=channel, sender=place[a], receiver=place[b])
            for channel, edges in enumerate(edges_of(self._spec, self._communicator, is_tree=algorithm == "tree"))
            for a, b in edges
            if is_network(self._spec, a, b) and (a in host_ranks or b in host_ranks)
        )

    def of_host(self, host_ranks: tuple[int, ...]) -> HostCalls:
        """Every call that was launched by `host_ranks`, rank by rank, in order of launch."""
        spec, observed = self._spec, self._observed
        parts: dict[str, list[npt.NDArray[np.generic]]] = {}
        for rank in host_ranks:
            tp_index, dp_index, stage = spec.layout.position(rank)
            program = self._timeline.programs[stage]
            slots = [i for i, slot in enumerate(program.slots) if slot.kind == self._communicator.kind]
            columns: dict[str, npt.NDArray[np.generic]] = dict(self._columns(slots, rank))
            for name, times in (("launch", observed.launch_s), ("start", observed.start_s), ("end", observed.end_s)):
                columns[name] = times[stage][:, slots, dp_index, tp_index].ravel()
            columns["given_up"] = np.full(self._n_steps * len(slots), observed.given_up_s[rank])
            if spec.source.has_rates:
                chosen = [program.slots[i] for i in slots]
                columns |= self._rate_columns(chosen, rank)
                columns |= self._open_columns(chosen, rank, columns)
            for name, values in columns.items():
                parts.setdefault(name, []).append(values)
        joined = {name: np.concatenate(values) for name, values in parts.items()}
        n_rows = len(joined["launch"])
        is_replayed = self._communicator.kind in spec.source.replayed
        step = joined.pop("step")
        unknown = np.full(n_rows, UNKNOWN_COUNT)
        calls = HostCalls(
            launch_s=joined.pop("launch"),
            start_s=joined.pop("start"),
            end_s=joined.pop("end"),
            given_up_s=joined.pop("given_up"),
            is_collective=joined["direction"] == NO_DIRECTION,
            captured=np.full(n_rows, is_replayed),
            open_sent=joined.pop("open_sent", unknown).astype(np.int64),
            open_received=joined.pop("open_received", unknown).astype(np.int64),
            is_stuck=joined.pop("is_stuck", np.zeros(n_rows)).astype(np.bool_),
            rates={name: joined.pop(name).astype(np.float64) for name in ("send_rate", "recv_rate") if name in joined},
            columns={name: values.astype(np.int64) for name, values in joined.items()},
        )
        is_seen = calls.launch_s < calls.given_up_s
        # What replays a graph launches no call: the step in which it was captured is all that is ever seen.
        return calls.take(is_seen & (step == 0) if is_replayed else is_seen)

    def _columns(self, slots: list[int], rank: int) -> dict[str, npt.NDArray[np.generic]]:
        tp_index, dp_index, stage = self._spec.layout.position(rank)
        program = self._timeline.programs[stage]
        n_steps = self._n_steps
        calls_in: dict[tuple[int, str], int] = {}
        position, sequences, rows = [], [], []
        for index in slots:
            slot = program.slots[index]
            is_p2p = slot.peer_offset != 0
            sequence = (slot.peer_offset, slot.op if is_p2p else "")
            position.append(calls_in.get(sequence, 0))
            calls_in[sequence] = position[-1] + 1
            sequences.append(sequence)
            rows.append(
                {
                    "op": OP_CODE[slot.op],
                    "count": slot.size_bytes // DTYPE_BYTES[DTYPE_CODE[slot.dtype]],
                    "dtype": DTYPE_CODE[slot.dtype],
                    "redop": _SUM if slot.op in ("all_reduce", "reduce_scatter") else 0,
                    "peer": self._spec.layout.rank(tp_index, dp_index, stage + slot.peer_offset) if is_p2p else -1,
                    "direction": {"send": SEND, "recv": RECV}.get(slot.op, NO_DIRECTION),
                }
            )
        # The k-th call of a sequence in an iteration has the number iteration * (calls of the sequence) + k.
        lengths = np.array([calls_in[sequence] for sequence in sequences], np.int64)
        seq = np.arange(n_steps)[:, None] * lengths + np.array(position, np.int64)
        columns: dict[str, npt.NDArray[np.generic]] = {
            name: np.tile(np.array([row[name] for row in rows], np.int64), n_steps)
            for name in ("op", "count", "dtype", "redop", "peer", "direction")
        }
        grid = (n_steps, len(slots))
        if self._communicator.kind == "ep":
            load = self._timeline.load[:, rank][:, None]
            even = columns["count"].astype(np.int64).reshape(grid)
            columns["count"] = np.rint(even * load).astype(np.int64).ravel()
        kind = self._communicator.kind
        for fault in self._spec.faults:
            if not isinstance(fault, WrongCall) or (fault.rank, fault.kind) != (rank, kind) or fault.step >= n_steps:
                continue
            at = slots.index(slot_of(program, fault.kind, fault.nth))
            self._make_wrong(fault, fault.step * len(slots) + at, columns)
            if fault.what == "skip":
                behind = [place for place in range(at + 1, len(slots)) if sequences[place] == sequences[at]]
                seq[fault.step, behind] -= 1
        columns["seq"] = seq.ravel()
        columns["rank"] = np.full(seq.size, rank)
        columns["step"] = np.repeat(np.arange(n_steps), len(slots))
        return columns

    def _make_wrong(self, fault: WrongCall, row: int, columns: dict[str, npt.NDArray[np.generic]]) -> None:
        count, op = columns["count"], columns["op"]
        if fault.what == "op":
            wrong = _OTHER_OP.get(next(name for name, code in OP_CODE.items() if code == op[row]), "broadcast")
            op[row] = OP_CODE[wrong]
            columns["redop"][row] = _SUM if wrong in ("all_reduce", "reduce_scatter") else 0
        elif fault.what == "larger":
            count[row] = 2 * count[row]
        elif fault.what == "smaller":
            count[row] = max(1, count[row] // 2)

    def _slow_stretches(self) -> list[tuple[npt.NDArray[np.bool_], dict[frozenset[int], float]]]:
        """Steps during which the same links were slow, and how slow."""
        links = [fault for fault in self._spec.faults if isinstance(fault, SlowLink) and fault.bandwidth_factor > 0]
        by_set: dict[tuple[SlowLink, ...], npt.NDArray[np.bool_]] = {}
        for step in range(self._n_steps):
            active = tuple(fault for fault in links if is_active(fault, step))
            by_set.setdefault(active, np.zeros(self._n_steps, bool))[step] = True
        return [
            (steps, slow_factors((fault.link, fault.bandwidth_factor) for fault in active))
            for active, steps in by_set.items()
        ]

    def _rate_columns(self, slots: list[Slot], rank: int) -> dict[str, FloatArray]:
        send, receive = (np.full((self._n_steps, len(slots)), np.nan) for _ in range(2))
        for (steps, factors), known in zip(self._slow, self._rates, strict=True):
            for index, slot in enumerate(slots):
                if slot.op in ("send", "recv"):
                    peer = self._peer(rank, slot)
                    ends = (rank, peer) if slot.op == "send" else (peer, rank)
                    column = send if slot.op == "send" else receive
                    column[steps, index] = pair_rate(self._spec, *ends, factors)
                elif slot.size_bytes < _SMALL_BYTES:
                    # Nothing but latency, whatever the links can carry.
                    rate = slot.size_bytes / self._spec.latency_s
                    send[steps, index], receive[steps, index] = np.where(np.isnan(known[False][rank]), np.nan, rate)
                else:
                    is_tree = is_tree_call(self._spec, slot)
                    send[steps, index], receive[steps, index] = known[is_tree][rank]
        noise = np.exp(_RATE_NOISE * self._rng.standard_normal((2, *send.shape)))
        return {"send_rate": (send * noise[0]).ravel(), "recv_rate": (receive * noise[1]).ravel()}

    def _open_columns(
        self, slots: list[Slot], rank: int, columns: dict[str, npt.NDArray[np.generic]]
    ) -> dict[str, Int64Array]:
        """Counts: all chunks of a call that has ended, none of one that waits behind another, else what was sent."""
        grid = (self._n_steps, len(slots))
        sent, received = (np.full(grid, UNKNOWN_COUNT, np.int64) for _ in range(2))
        n_members = len(self._communicator.members)
        tree_known = self._rates[0]
        start, end = (columns[name].reshape(grid) for name in ("start", "end"))
        for index, slot in enumerate(slots):
            total = chunks(slot, n_members)
            if slot.op in ("send", "recv"):
                if is_network(self._spec, rank, self._peer(rank, slot)):
                    (sent if slot.op == "send" else received)[:, index] = total
                continue
            send_rate, recv_rate = tree_known[is_tree_call(self._spec, slot)][rank]
            if not np.isnan(send_rate):
                sent[:, index] = total
            if not np.isnan(recv_rate):
                received[:, index] = total
        is_stuck = np.zeros(grid, np.int64)
        never = np.isinf(end)
        for counts in (sent, received):
            counts[never & (counts > 0)] = 0
        known = self._open.get(rank)
        waiting = np.flatnonzero(never[-1] & np.isfinite(start[-1]))
        if known is not None and len(waiting):
            first = waiting[np.argmin(start[-1][waiting])]
            sent[-1, first], received[-1, first] = known.sent, known.received
            is_stuck[-1, first] = 1
        return {"open_sent": sent.ravel(), "open_received": received.ravel(), "is_stuck": is_stuck.ravel()}

    def _peer(self, rank: int, slot: Slot) -> int:
        tp_index, dp_index, stage = self._spec.layout.position(rank)
        return self._spec.layout.rank(tp_index, dp_index, stage + slot.peer_offset)
