"""Calls that were launched and have not completed.

A call that has failed has not completed: nothing says that its peers have done their part. It stays open until its
rank launches another one (the script has caught the error) or leaves, so that ranks whose calls time out, one after
the other, do not seem to go on.

A dictionary from join key to PH_LAUNCH record, filled and emptied a column at a time: 0.3 us per record, and no
Python code per call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from collector.calls import rows as call_rows
from collector.calls.communicator_table import CommunicatorTable
from collector.calls.frames import Operation
from collector.calls.rings import CALL, RAW, BoolArray, Int64Array, Records
from collector.calls.transfer_rates import Transfers
from pacehound.clock import ClockPair
from pacehound.model.calls import DIRECTIONS, DTYPES, OPS, REDOPS
from pacehound.model.codes import ALGORITHMS, PROTOCOLS
from pacehound.model.events import ChannelTransfers, OpenCall

SHOWN = 4
"""How many open calls of a rank on a communicator are told, and as many sends, oldest first: of a pipeline that waits
for its sends at the end of a step dozens are open, and a rank may stand in none of them."""
MAX_OPEN = 1 << 17
"""How many are remembered; beyond it the oldest are over (a script that never waits for its sends)."""
LASTING_NS = 1_000_000_000
"""A call that runs for so long is slow or hangs: what its channels do is told, too."""


class OpenCalls:
    """All open calls of a host.

    Parameters
    ----------
    records
        PH_LAUNCH records, one after the other.
    uncertain
        Join keys of those that may have completed in a part of a ring that was lost.
    failed
        Join keys of those that have failed, with the rank of each.

    """

    def __init__(self, records: bytes, uncertain: Iterable[bytes], failed: Mapping[bytes, int]) -> None:
        self._records: dict[bytes, bytes] = {}
        self._uncertain = set(uncertain)
        self._failed = dict(failed)
        self._over: set[bytes] = set()  # failed, and their ranks have gone on
        raw = np.frombuffer(records, RAW)
        self._records.update(zip(call_rows.join_keys(raw.view(CALL)), raw.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self._records)

    @property
    def records(self) -> bytes:
        """As in the constructor."""
        return b"".join(self._records.values())

    @property
    def oldest_launch_ns(self) -> int | None:
        """When the one was launched that has been open for longest; `None` where none is."""
        return int(self._calls()["launch_ns"].min()) if self._records else None

    def oldest_collectives(self) -> dict[int, int]:
        """By rank, when the collective was launched that has been open for longest."""
        calls = self._calls()
        calls = calls[calls["direction"] == 0]
        ranks, at = np.unique(calls["rank"], return_inverse=True)
        oldest = np.full(len(ranks), np.iinfo(np.int64).max)
        np.minimum.at(oldest, at, calls["launch_ns"].astype(np.int64))
        return dict(zip(ranks.tolist(), oldest.tolist(), strict=True))

    @property
    def uncertain(self) -> list[bytes]:
        """As in the constructor."""
        return sorted(self._uncertain)

    @property
    def failed(self) -> dict[bytes, int]:
        """As in the constructor."""
        return self._failed

    def launch(self, raw: Records) -> None:
        """Calls begin; dtype `RAW`."""
        if self._failed and len(raw):
            went_on = set(np.unique(raw.view(CALL)["rank"]).tolist())
            self._over.update(key for key, rank in self._failed.items() if rank in went_on)
        self._records.update(zip(call_rows.join_keys(raw.view(CALL)), raw.tolist(), strict=True))

    def complete(self, completes: Records) -> tuple[Records, BoolArray]:
        """Calls end; the rows of those that were open, and which completions belong to none of them."""
        keys = call_rows.join_keys(completes)
        found = [self._records.pop(key, b"") for key in keys]
        self._uncertain.difference_update(keys)
        is_orphan = np.array([not record for record in found], np.bool_)
        launches = np.frombuffer(b"".join(found), RAW).view(CALL)
        return call_rows.completed_rows(launches, completes[~is_orphan]), is_orphan

    def fail(self, completes: Records) -> BoolArray:
        """Calls fail and stay open for now; which of these are of no open call."""
        keys = call_rows.join_keys(completes)
        is_orphan = np.array([key not in self._records for key in keys], np.bool_)
        ranks = completes["rank"].tolist()
        self._failed.update((keys[at], ranks[at]) for at in np.flatnonzero(~is_orphan).tolist())
        return is_orphan

    def doubt(self, ranks: Iterable[int], until_ns: int) -> None:
        """Completions of `ranks` were lost: what they launched up to `until_ns` may have ended."""
        calls = self._calls()
        is_doubtful = np.isin(calls["rank"], list(ranks)) & (calls["launch_ns"] <= until_ns)
        keys = list(self._records)
        self._uncertain.update(keys[at] for at in np.flatnonzero(is_doubtful).tolist())

    def give_up(
        self,
        table: CommunicatorTable,
        last_completed: dict[int, int],
        everything: bool,
        running: Mapping[Operation, Transfers],
    ) -> tuple[Records, Int64Array, Int64Array]:
        """Take out what can no longer complete.

        Parameters
        ----------
        table
            Says who has left which communicator.
        last_completed
            The last completed number of each sequence: an uncertain call before it has ended unseen.
        everything
            The job is over.
        running
            How far the calls are that were seen to run: their rows say so.

        Returns
        -------
        tuple
            Rows without an end, the number of each one's communicator, and the numbers of the communicators of
            calls that were lost (one entry per call).

        """
        if not self._records:
            nothing = np.empty(0, np.int64)
            return call_rows.no_rows(), nothing, nothing
        keys = list(self._records)
        calls = self._calls()
        numbers = table.numbers(calls)
        is_over = np.ones(len(calls), np.bool_) if everything else table.has_left(numbers, calls)
        excess = len(calls) - MAX_OPEN
        if excess > 0:
            is_over[np.argsort(calls["launch_ns"], kind="stable")[:excess]] = True
        is_uncertain = np.zeros(len(calls), np.bool_)
        if self._uncertain:
            is_uncertain = np.array([key in self._uncertain for key in keys], np.bool_)
            sequences = call_rows.sequence_keys(numbers, calls)
            for at in np.flatnonzero(is_uncertain).tolist():
                is_over[at] |= last_completed.get(int(sequences[at]), -1) > int(calls["seq"][at])
        if self._over:
            is_over |= np.array([key in self._over for key in keys], np.bool_)
            self._over.clear()
        for at in np.flatnonzero(is_over).tolist():
            del self._records[keys[at]]
            self._uncertain.discard(keys[at])
            self._failed.pop(keys[at], None)
        is_row = is_over & ~is_uncertain
        rows = calls[is_row]
        rows["start_ns"] = 0
        rows["end_ns"] = 0
        for at, transfers in _running(rows, numbers[is_row], table, running).items():
            rows["send_count"][at], rows["recv_count"][at] = transfers.totals
        return rows, numbers[is_row], numbers[is_over & is_uncertain]

    def shown(
        self, table: CommunicatorTable, clock: ClockPair, running: Mapping[Operation, Transfers], now_ns: int
    ) -> dict[tuple[int, int], list[OpenCall]]:
        """The oldest ones by (communicator, rank), without those that may have ended unseen.

        Parameters
        ----------
        table
            Names their communicators.
        clock
            Maps their times to Unix time.
        running
            How far those are that were seen to run.
        now_ns
            Monotonic time.

        """
        calls = self._calls()
        if self._uncertain:
            calls = calls[[key not in self._uncertain for key in self._records]]
        shown: dict[tuple[int, int], list[OpenCall]] = {}
        if len(calls) == 0:
            return shown
        numbers, is_send = table.numbers(calls), calls["direction"] == DIRECTIONS.index("send")
        in_order = calls["seq"], calls["launch_ns"], calls["rank"], numbers
        order = np.lexsort((*in_order, is_send))
        groups = np.stack((is_send, numbers, calls["rank"].astype(np.int64)))[:, order]
        is_first = np.concatenate(([True], (np.diff(groups) != 0).any(axis=0)))
        place = np.arange(len(calls))
        place[order] = place - np.maximum.accumulate(np.where(is_first, place, 0))
        order = np.lexsort(in_order)
        order = order[place[order] < SHOWN]
        calls, numbers = calls[order], numbers[order]
        counted = _running(calls, numbers, table, running)
        for at, call in enumerate(calls):
            transfers = counted.get(at)
            launched = (int(call["send_count"]), int(call["recv_count"]))
            sent, received = launched if transfers is None else transfers.totals
            is_lasting = transfers is not None and now_ns - transfers.seen_since_ns >= LASTING_NS
            shown.setdefault((int(numbers[at]), int(call["rank"])), []).append(
                OpenCall(
                    seq=int(call["seq"]),
                    op=_name(OPS, call["op"]),
                    count=int(call["count"]),
                    dtype=_name(DTYPES, call["dtype"]),
                    launch_ns=clock.to_unix_ns(int(call["launch_ns"])),
                    peer=table.known[int(numbers[at])].named(int(call["peer"])),
                    direction=_name(DIRECTIONS, call["direction"]),
                    redop=_name(REDOPS, call["redop"]),
                    algorithm=_name(ALGORITHMS, call["algorithm"]),
                    protocol=_name(PROTOCOLS, call["protocol"]),
                    send_count=sent,
                    recv_count=received,
                    channels=_channels(transfers, clock) if transfers is not None and is_lasting else (),
                )
            )
        return shown

    def _calls(self) -> Records:
        return np.frombuffer(self.records, RAW).view(CALL)


def _name(names: tuple[str, ...], code: int) -> str:
    return names[int(code)] if int(code) < len(names) else names[0]


def _running(
    calls: Records, numbers: Int64Array, table: CommunicatorTable, running: Mapping[Operation, Transfers]
) -> dict[int, Transfers]:
    """By position in `calls`, how far those of them are that run; `numbers` are of their communicators."""
    found = {}
    for operation, transfers in running.items():
        is_it = (calls["seq"] == operation.seq) & (calls["rank"] == operation.rank)
        is_it &= (calls["handle_high"] == operation.communicator) & (calls["direction"] == operation.direction)
        for at in np.flatnonzero(is_it).tolist():
            known = table.known[int(numbers[at])]
            has_place = 0 <= operation.peer < len(known.members)
            peer = operation.peer if known.counts_places or not has_place else known.members[operation.peer]
            if not operation.direction or (has_place and peer == calls["peer"][at]):
                found[at] = transfers
    return found


def _channels(transfers: Transfers, clock: ClockPair) -> tuple[ChannelTransfers, ...]:
    """Those that have a part in the network."""
    columns = zip(transfers.counts, transfers.announced, transfers.rates, transfers.still_since_ns, strict=True)
    return tuple(
        ChannelTransfers(
            channel=channel,
            send_count=counts[0],
            recv_count=counts[1],
            send_total=announced[0],
            recv_total=announced[1],
            send_rate=rates[0],
            recv_rate=rates[1],
            still_since_ns=clock.to_unix_ns(still_since_ns),
        )
        for channel, (counts, announced, rates, still_since_ns) in enumerate(columns)
        if max(counts) >= 0
    )
