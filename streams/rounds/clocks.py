"""How far the clocks of hosts are apart, from the ends of operations that all ranks leave together.

Nobody leaves a small all_reduce, or a barrier, before everybody has entered it, and after that it takes microseconds:
its ranks end together. A host's end minus the median end of the round is how far its clock is ahead, plus how late its
rank noticed. Rooted operations, sends, all_to_all and reduce_scatter are not like this: a rank may leave them early.

There is one offset per *host*. A rank that always ends late beside its neighbours on the same host is a slow rank,
and an offset of its own would hide it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import OP_CODE, Sees
from pacehound.model.events import Topology
from pacehound.model.rounds import Rounds
from streams.rounds.round_table import RoundTable
from streams.rounds.thresholds import CLOCK_ROUNDS, CLOCK_WINDOW_NS, CLOCKS_APART_NS, MIN_CLOCK_ROUNDS, SMALL_BYTES
from streams.spread import MAD_TO_SIGMA

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

_ENDS_TOGETHER = np.array([OP_CODE["all_reduce"], OP_CODE["barrier"]])
_FAR = np.int64(1) << 40  # more than any two ends of a round are apart: 18 minutes


@dataclass(frozen=True, slots=True)
class ClockOffsets:
    """How far each rank's clock is ahead of the common one."""

    ranks: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))  # ascending, shape `(n_ranks,)`
    # the same shape; a host that cannot be compared has offset 0 and an infinite uncertainty
    offset_ns: Float64Array = field(default_factory=lambda: np.zeros(0))
    uncertainty_ns: Float64Array = field(default_factory=lambda: np.zeros(0))
    # number of each rank's host, the same shape: ranks of one host have one clock, whatever it shows
    host: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of_hosts(cls, known: Mapping[str, tuple[float, float]], host_of: Mapping[int, str]) -> ClockOffsets:
        """Those of all ranks, from how far each host is ahead and how uncertain that is, and the host of each rank.

        >>> ClockOffsets.of_hosts({"a": (5.0, 1.0)}, {0: "a", 1: "b"}).uncertainty_ns.tolist()
        [1.0, inf]
        """
        ranks = sorted(host_of)
        of_rank = [host_of[rank] for rank in ranks]
        numbers = {host: number for number, host in enumerate(sorted(set(of_rank)))}
        return cls(
            ranks=np.array(ranks, np.int64),
            offset_ns=np.array([known.get(host, (0.0, np.inf))[0] for host in of_rank], np.float64),
            uncertainty_ns=np.array([known.get(host, (0.0, np.inf))[1] for host in of_rank], np.float64),
            host=np.array([numbers[host] for host in of_rank], np.int64),
        )

    @property
    def are_known(self) -> bool:
        """All hosts can be compared."""
        return len(self.ranks) > 0 and bool(np.isfinite(self.uncertainty_ns).all())

    def of(self, ranks: npt.ArrayLike) -> Int64Array:
        """Offsets of some ranks in nanoseconds, the shape of `ranks`; 0 for those whose host is unknown."""
        wanted = np.asarray(ranks, np.int64)
        if not len(self.ranks):
            return np.zeros(wanted.shape, np.int64)
        place = np.minimum(np.searchsorted(self.ranks, wanted), len(self.ranks) - 1)
        offsets = np.where(self.ranks[place] == wanted, self.offset_ns[place], 0.0)
        return np.rint(offsets).astype(np.int64)

    def uncertainty_between_ns(self, a: int, b: int) -> float:
        """How uncertain a difference of times of two ranks is; 0 on one host, infinite where nothing is known."""
        if a == b:
            return 0.0
        place = np.minimum(np.searchsorted(self.ranks, [a, b]), max(len(self.ranks) - 1, 0))
        if not len(self.ranks) or (self.ranks[place] != [a, b]).any():
            return float("inf")
        if self.host[place[0]] == self.host[place[1]]:
            return 0.0
        return float(self.uncertainty_ns[place].sum())


def clocks_apart(offsets: ClockOffsets, host_of: Mapping[int, str]) -> tuple[str, ...]:
    """A sentence where clocks are so far apart that somebody should set them.

    >>> clocks = ClockOffsets(np.array([0, 1]), np.array([-1.5e9, 1.5e9]), np.array([1.0, 1.0]), np.array([0, 1]))
    >>> clocks_apart(clocks, {0: "h7", 1: "h9"})
    ('the clocks of hosts h7 and h9 are 3.0 s apart: what happened on several hosts is put in order by calls',)

    """
    if not len(offsets.ranks):
        return ()
    behind, ahead = int(offsets.offset_ns.argmin()), int(offsets.offset_ns.argmax())
    apart_ns = offsets.offset_ns[ahead] - offsets.offset_ns[behind]
    if apart_ns < CLOCKS_APART_NS:
        return ()
    hosts = " and ".join(host_of.get(int(offsets.ranks[at]), "?") for at in (behind, ahead))
    how = "what happened on several hosts is put in order by calls"
    return (f"the clocks of hosts {hosts} are {apart_ns / 1e9:.1f} s apart: {how}",)


@dataclass(slots=True)
class _Compared:
    """The last rounds of one communicator: by how much each of its hosts ended behind the median of them."""

    columns: Int64Array  # members in order of their hosts
    first: Int64Array  # where each host's members begin in `columns`
    hosts: tuple[str, ...]
    times_ns: deque[int]
    deviations_ns: deque[Float64Array]  # one entry per round, shape (n_hosts,), NaN where nothing was seen


class HostClocks:
    """Follows the offsets of the hosts of one job.

    The communicator with the most hosts is the reference; hosts that are not in it are tied to it through
    communicators that they share with hosts whose offset is known. Only the last minute counts, so that drift over
    hours does no harm; what drifts within it is in the uncertainty. A source that sees no ends gives no offsets.

    Uncertainty: 1.48 x the median absolute deviation over the square root of the number of rounds, plus the
    difference between the older and the newer half (drift), plus how late an end is noticed at most (`poll_ns`).

    Parameters
    ----------
    poll_ns
        Sources that find out by polling that a call has ended are so late at most.
    """

    def __init__(self, poll_ns: int = 0) -> None:
        self._poll_ns = poll_ns
        self._host_of: dict[int, str] = {}
        self._compared: dict[str, _Compared] = {}
        self._offsets: ClockOffsets | None = None

    def on_topology(self, topology: Topology) -> None:
        """A host says which ranks it has."""
        fresh = [rank for rank in topology.host_ranks if self._host_of.get(rank) != topology.host]
        if fresh:
            self._host_of.update(dict.fromkeys(fresh, topology.host))
            # Hosts that are seen first late change the columns of the communicators that they are in.
            self._compared = {}
            self._offsets = None

    def add(self, arrived: RoundTable) -> None:
        """Take in closed rounds of any kind; those that say nothing about clocks are passed over."""
        is_small = np.isin(arrived.op, _ENDS_TOGETHER) & (arrived.size_bytes <= SMALL_BYTES)
        small = np.flatnonzero(is_small)
        blocks = np.searchsorted(arrived.first, small, side="right") - 1
        for number in np.unique(blocks).tolist():
            rounds = arrived.blocks[number]
            if rounds.is_pair or Sees.END not in rounds.sees:
                continue
            compared = self._compared.get(rounds.communicator) or self._prepare(rounds)
            if compared is None:
                continue
            chosen = small[blocks == number][-CLOCK_ROUNDS:] - arrived.first[number]
            ends_ns = rounds.end_ns[chosen][:, compared.columns]
            compared.times_ns.extend(arrived.times_of(number)[chosen].tolist())
            compared.deviations_ns.extend(_deviations(ends_ns, compared.first))
            self._offsets = None

    def offsets(self) -> ClockOffsets:
        """The offsets as they are now."""
        if self._offsets is None:
            self._offsets = self._solve()
        return self._offsets

    def _prepare(self, rounds: Rounds) -> _Compared | None:
        names = [self._host_of.get(rank, "") for rank in rounds.ranks]
        hosts = tuple(sorted(set(names) - {""}))
        if len(hosts) < 2:
            return None
        number = {host: index for index, host in enumerate(hosts)}
        of_member = np.array([number.get(name, len(hosts)) for name in names])
        columns = np.argsort(of_member, kind="stable")
        columns = columns[of_member[columns] < len(hosts)]
        first = np.searchsorted(of_member[columns], np.arange(len(hosts) + 1))
        compared = _Compared(columns, first, hosts, deque(maxlen=CLOCK_ROUNDS), deque(maxlen=CLOCK_ROUNDS))
        self._compared[rounds.communicator] = compared
        return compared

    def _solve(self) -> ClockOffsets:
        known: dict[str, tuple[float, float]] = {}
        latest_ns = max((c.times_ns[-1] for c in self._compared.values() if c.times_ns), default=0)
        widest_first = sorted(self._compared.items(), key=lambda item: (-len(item[1].hosts), item[0]))
        for _, compared in widest_first:
            new = [host for host in compared.hosts if host not in known]
            shared = [index for index, host in enumerate(compared.hosts) if host in known]
            if not new or (known and not shared):
                continue
            recent = [
                deviation
                for time_ns, deviation in zip(compared.times_ns, compared.deviations_ns, strict=True)
                if time_ns >= latest_ns - CLOCK_WINDOW_NS
            ]
            if len(recent) < MIN_CLOCK_ROUNDS:
                continue
            deviations_ns = np.concatenate(recent).reshape(len(recent), len(compared.hosts))
            offset_ns, uncertainty_ns = self._levels(deviations_ns)
            shift_ns, shift_uncertainty_ns = 0.0, 0.0
            if shared:
                differences = [offset_ns[index] - known[compared.hosts[index]][0] for index in shared]
                shift_ns = float(np.median(differences))
                shift_uncertainty_ns = max(known[compared.hosts[index]][1] for index in shared)
            for index, host in enumerate(compared.hosts):
                if host not in known and np.isfinite(offset_ns[index]):
                    known[host] = (
                        float(offset_ns[index]) - shift_ns,
                        float(uncertainty_ns[index]) + shift_uncertainty_ns,
                    )
        return ClockOffsets.of_hosts(known, self._host_of)

    def _levels(self, deviations_ns: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Median and uncertainty per host; `deviations_ns` has shape `(n_rounds, n_hosts)`."""
        seen = np.isfinite(deviations_ns).sum(axis=0)
        level = _nanmedian(deviations_ns, axis=0)
        spread = MAD_TO_SIGMA * _nanmedian(np.abs(deviations_ns - level), axis=0)
        half = len(deviations_ns) // 2
        drift = np.abs(_nanmedian(deviations_ns[half:], axis=0) - _nanmedian(deviations_ns[:half], axis=0))
        uncertainty = spread / np.sqrt(np.maximum(seen, 1)) + np.nan_to_num(drift) + self._poll_ns
        enough = seen >= MIN_CLOCK_ROUNDS
        return np.where(enough, level, np.nan), np.where(enough, uncertainty, np.inf)


def _deviations(ends_ns: Int64Array, first: Int64Array) -> Float64Array:
    """Per round and host, the median end of its ranks minus the median over the hosts; NaN where none was seen.

    `ends_ns` has shape `(n_rounds, n_members)`, 0 where unseen; host `i` has the columns from `first[i]` on.
    """
    host = np.repeat(np.arange(len(first) - 1), np.diff(first))
    # Relative to one of the ends that are there: only small numbers are sorted.
    base = ends_ns.max(axis=1, keepdims=True, initial=0)
    relative = np.where(ends_ns > 0, np.clip(base - ends_ns, 0, _FAR - 2), _FAR - 1)
    ordered = np.sort(host[None, :] * _FAR + relative, axis=1) - host[None, :] * _FAR
    n_seen = np.add.reduceat(ends_ns > 0, first[:-1], axis=1)
    # The latest end comes first; of two middle ones the earlier counts, for ends are noticed late and never early.
    middle = first[:-1][None, :] + np.minimum(n_seen // 2, np.diff(first)[None, :] - 1)
    median = np.where(n_seen > 0, -np.take_along_axis(ordered, middle, axis=1).astype(np.float64), np.nan)
    deviations: Float64Array = median - _nanmedian(median, axis=1)[:, None]
    return deviations


def _nanmedian(values: Float64Array, axis: int) -> Float64Array:
    """As `np.nanmedian`, and NaN without a warning where there is nothing."""
    n = values.shape[axis]
    ordered = np.sort(values, axis=axis)  # NaN goes last
    n_seen = np.isfinite(values).sum(axis=axis, keepdims=True)
    if not n:
        return np.full(n_seen.squeeze(axis).shape, np.nan)
    if n_seen.size and n_seen.min() == n:  # nearly always: the middle is at the same place for all
        medians: Float64Array = 0.5 * (ordered.take((n - 1) // 2, axis=axis) + ordered.take(n // 2, axis=axis))
    else:
        low = np.take_along_axis(ordered, np.maximum(n_seen - 1, 0) // 2, axis=axis)
        high = np.take_along_axis(ordered, np.minimum(n_seen // 2, n - 1), axis=axis)
        medians = np.where(n_seen > 0, 0.5 * (low + high), np.nan).squeeze(axis)
    return medians
