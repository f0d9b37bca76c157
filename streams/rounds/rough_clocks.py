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
        hosts = np.array([host_of.get(rank, "") for rank in block.ranks])
        names = [name for name in dict.fromkeys(hosts.tolist()) if name]
        other = next((name for name in names if name in ahead_ns), names[0] if names and not ahead_ns else None)
        if len(names) < 2 or other is None:
            continue
        ahead_ns.setdefault(other, (0.0, 0.0))
        until_ns = [last.begins_ns.get(rank, last.previous_begins_ns.get(rank, 0)) for rank in block.ranks]
        chosen = np.isin(block.op, _ENDS_FOR_ALL) & (block.arrival_ns < np.array(until_ns, np.int64)).all(axis=1)
        entered_ns, left_ns = block.arrival_ns[chosen], block.end_ns[chosen]
        for name in names:
            if name in ahead_ns:
                continue
            least_ns, most_ns = _bounds(entered_ns, left_ns, hosts == name, hosts == other)
            if least_ns <= most_ns:
                of_other_ns, uncertain_ns = ahead_ns[other]
                least_apart_ns = min(max(0.0, least_ns), most_ns)
                ahead_ns[name] = of_other_ns + least_apart_ns, uncertain_ns + (most_ns - least_ns) / 2
    middle_ns = float(np.median([ahead for ahead, _ in ahead_ns.values()])) if ahead_ns else 0.0
    ranks = sorted(host_of)
    numbers = {host: number for number, host in enumerate(sorted(set(host_of.values())))}
    known = [ahead_ns.get(host_of[rank], (middle_ns, np.inf)) for rank in ranks]
    return ClockOffsets(
        ranks=np.array(ranks, np.int64),
        offset_ns=np.array([ahead - middle_ns for ahead, _ in known], np.float64),
        uncertainty_ns=np.array([uncertain for _, uncertain in known], np.float64),
        host=np.array([numbers[host_of[rank]] for rank in ranks], np.int64),
    )


def _bounds(
    entered_ns: Int64Array, left_ns: Int64Array, ours: npt.NDArray[np.bool_], theirs: npt.NDArray[np.bool_]
) -> tuple[float, float]:
    """Least and most that our clock is ahead of theirs, infinite where no round tells.

    Times have shape `(n_rounds, n_ranks)`.
    """
    far = np.iinfo(np.int64).max
    first_left = np.where(left_ns > 0, left_ns, far)
    we_entered, they_entered = (entered_ns[:, some].max(axis=1, initial=0) for some in (ours, theirs))
    we_left, they_left = (first_left[:, some].min(axis=1, initial=far) for some in (ours, theirs))
    tells_least, tells_most = (we_entered > 0) & (they_left < far), (they_entered > 0) & (we_left < far)
    least = (we_entered - they_left)[tells_least].max(initial=np.iinfo(np.int64).min)
    most = (we_left - they_entered)[tells_most].min(initial=far)
    return (float(least) if tells_least.any() else -np.inf), (float(most) if tells_most.any() else np.inf)
