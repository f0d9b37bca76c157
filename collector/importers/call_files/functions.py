"""The calls of an NCCL communicator, function by function.

NCCL counts the calls of each function of a communicator apart: its fifth AllReduce and its fifth AllGather have the
same number, and which was first is not told. Each function of a communicator is therefore a communicator of its own
here, whose numbers mean the same on all ranks; the order between functions stays open.
"""

from __future__ import annotations

from collections.abc import Sequence

from pacehound.model.events import Topology
from pacehound.model.identity import communicator_id

WORLD = "world"


def function_topology(
    *,
    job: str,
    attempt: int,
    time_ns: int,
    host: str,
    name: str,
    key: str,
    function: str,
    members: Sequence[int],
    host_ranks: Sequence[int],
    world_size: int,
) -> Topology:
    """Who is in one function's line of calls.

    Parameters
    ----------
    job, attempt, time_ns, host, host_ranks, world_size
        As in `Topology`.
    name
        For people.
    key
        The communicator's own id.
    function
        NCCL's name of the operation; empty for the world itself, which carries no calls.
    members
        World ranks.

    """
    return Topology(
        job=job,
        attempt=attempt,
        time_ns=time_ns,
        host=host,
        communicator=communicator_id(job, attempt, f"{key} {function}".rstrip(), members, 0),
        name=f"{name} {function}".rstrip(),
        is_world=not function,
        members=tuple(members),
        host_ranks=tuple(host_ranks),
        world_size=world_size,
        backend="nccl",
    )
