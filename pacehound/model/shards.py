"""Which communicators of a job travel, and are joined, together: those of a shard have one key.

All calls of a communicator have to meet in one place, and so do the hosts' rules for finding it: it follows from what
every host knows of the communicator. A job of up to `RANKS_PER_SHARD` ranks is one shard. Of a larger one the
communicators whose lowest ranks are neighbours lie together, because those of the ranks of one host mostly do: so a
host's flush is a message or a few, however many shards there are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

RANKS_PER_SHARD = 1_024
"""At 125 calls a second and rank, a third to a half of what a core joins (docs/adr/0027-one-message-per-host.md)."""

NEIGHBOURS = 8
"""Ranks of a host, where nothing else is known: most hosts have as many GPUs."""

SHARD_KEY = "shard:"
"""Prefix of the key of a shard; any other key of `calls` is a communicator."""


def shard_of(communicator: str, members: Sequence[int], world_size: int) -> int:
    """The shard of a communicator.

    Parameters
    ----------
    communicator
        Its id.
    members
        World ranks, in any order; a negative one stands for a member that this host does not know.
    world_size
        Ranks of the job.

    Examples
    --------
    >>> shard_of("a", (0, 1), 1_024), shard_of("b", range(512), 1_024)
    (0, 0)
    >>> len({shard_of(str(first), (first, first + 4_096), 16_384) for first in range(64, 72)})
    1

    """
    n_shards = -(-max(world_size, 1) // RANKS_PER_SHARD)
    if n_shards == 1:
        return 0
    lowest = min(members, default=-1)
    # Of a communicator whose members each host knows in part, all of them know the id alone.
    name = communicator if lowest < 0 else f"ranks {lowest // NEIGHBOURS}"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") % n_shards


def shard_key(job: str, attempt: int, shard: int) -> str:
    """The key of a shard on `calls`.

    >>> shard_key("j", 0, 3)
    'shard:j/0/3'
    """
    return f"{SHARD_KEY}{job}/{attempt}/{shard}"
