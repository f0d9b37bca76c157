"""How far the clocks of hosts are apart at least, from operations of any size.

Nobody leaves an all_gather before everybody has entered it. Where by its own clock a host leaves before another one has
entered, the clocks are apart by so much, whatever the operation took; where no round shows that, nothing is said. Each
host is asked against one other: by how much it is ahead lies between the largest `enter - leave'` and the smallest
`leave - enter'` over their rounds, and the least of these is taken. It is exact to what an operation takes with the
waiting in it: too rough to time a transfer, and enough to put in order what happens on several hosts.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import OP_CODE, Sees
from streams.rounds.clocks import ClockOffsets
from streams.rounds.divergence import LastIterations
from streams.rounds.round_loops import ENDS_FOR_ALL

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

_NEVER_NS = np.iinfo(np.int64).max
_ENDS_FOR_ALL = np.array(sorted(OP_CODE[op] for op in ENDS_FOR_ALL))


def rough_clocks(last: LastIterations, host_of: Mapping[int, str]) -> ClockOffsets:
    """The least offsets by which the rounds of iterations that all ranks have ended are possible.

    A call that fails ends without those who have not come: the iteration that is going on is not asked.

    Parameters
    ----------
    last
        Rounds that say nothing about clocks are passed over.
    host_of
        By rank.

    """
    ahead_ns: dict[str, tuple[float, float]] = {}  # by host, and how uncertain that is
    told = [block for block in last.rounds if not block.is_pair and not block.is_digest and Sees.END in block.sees]
    for block in sorted(told, key=lambda block: -len({host_of.get(rank) for rank in block.ranks})):
        hosts = [host_of.get(rank, "") for rank in block.ranks]
        names = sorted(set(hosts))
        if len(names) < 2 or names[0] == "" or (ahead_ns and not ahead_ns.keys() & set(names)):
            continue
        other = next((number for number, name in enumerate(names) if name in ahead_ns), 0)
        of_other_ns, uncertain_ns = ahead_ns.setdefault(names[other], (0.0, 0.0))
        until_ns = [last.begins_ns.get(rank, last.previous_begins_ns.get(rank, 0)) for rank in block.ranks]
        chosen = np.isin(block.op, _ENDS_FOR_ALL) & (block.arrival_ns < np.array(until_ns, np.int64)).all(axis=1)
        number_of = {name: number for number, name in enumerate(names)}
        of_member = np.array([number_of[host] for host in hosts])
        least_ns, most_ns = _bounds(block.arrival_ns[chosen], block.end_ns[chosen], of_member, other)
        for name, least, most in zip(names, least_ns.tolist(), most_ns.tolist(), strict=True):
            if name not in ahead_ns and least <= most and (least > -np.inf or most < np.inf):
                ahead_ns[name] = of_other_ns + min(max(0.0, least), most), uncertain_ns + (most - least) / 2
    middle_ns = float(np.median([ahead for ahead, _ in ahead_ns.values()])) if ahead_ns else 0.0
    known = {host: (ahead - middle_ns, uncertain) for host, (ahead, uncertain) in ahead_ns.items()}
    return ClockOffsets.of_hosts(known, host_of)


def _bounds(
    entered_ns: Int64Array, left_ns: Int64Array, of_member: Int64Array, other: int
) -> tuple[Float64Array, Float64Array]:
    """Least and most that the clock of each host is ahead of that of another one, infinite where no round tells.

    Times have shape `(n_rounds, n_members)`, `of_member` holds the number of each one's host.
    """
    order = np.argsort(of_member, kind="stable")
    first = np.searchsorted(of_member[order], np.arange(int(of_member.max()) + 1))
    entered = np.maximum.reduceat(entered_ns[:, order], first, axis=1)
    left = np.minimum.reduceat(np.where(left_ns > 0, left_ns, _NEVER_NS)[:, order], first, axis=1)
    tells_least = (entered > 0) & (left[:, [other]] < _NEVER_NS)
    tells_most = (entered[:, [other]] > 0) & (left < _NEVER_NS)
    least = np.where(tells_least, (entered - left[:, [other]]).astype(np.float64), -np.inf)
    most = np.where(tells_most, (left - entered[:, [other]]).astype(np.float64), np.inf)
    return least.max(axis=0, initial=-np.inf), most.min(axis=0, initial=np.inf)
