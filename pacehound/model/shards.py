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

RANKS_PER_DIGESTED_SHARD = 16_384
"""Of a job that is told of in iterations: a fifth of what a core joins, and one message of each host
(docs/adr/0032-large-jobs-in-few-messages.md)."""

NEIGHBOURS = 8
"""Ranks of a host, where nothing else is known: most hosts have as many GPUs."""

SHARD_KEY = "shard:"
"""Prefix of the key of a shard; any other key of `calls` is a communicator."""


def ranks_per_shard(world_size: int, digests_from_ranks: int) -> int:
    """How many ranks of a job a shard stands for, where jobs are told of in iterations from a size on (0: none is).

    >>> ranks_per_shard(16_384, 0), ranks_per_shard(16_384, 512), ranks_per_shard(256, 512)
    (1024, 16384, 1024)
    """
    return RANKS_PER_DIGESTED_SHARD if 0 < digests_from_ranks <= world_size else RANKS_PER_SHARD


def shard_of(communicator: str, members: Sequence[int], world_size: int, digests_from_ranks: int = 0) -> int:
    """The shard of a communicator.

    Parameters
    ----------
    communicator
        Its id.
    members
        World ranks, in any order; a negative one stands for a member that this host does not know.
    world_size
        Ranks of the job.
    digests_from_ranks
        As in `ranks_per_shard`.

    Examples
    --------
    >>> shard_of("a", (0, 1), 1_024), shard_of("b", range(512), 1_024)
    (0, 0)
    >>> len({shard_of(str(first), (first, first + 4_096), 16_384) for first in range(64, 72)})
    1
    >>> len({shard_of(str(first), (first,), 16_384) for first in range(16_384)})
    16
    >>> {shard_of(str(first), (first,), 16_384, 512) for first in range(16_384)}
    {0}

    """
    n_shards = -(-max(world_size, 1) // ranks_per_shard(world_size, digests_from_ranks))
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
