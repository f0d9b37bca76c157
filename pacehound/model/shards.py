"""Which communicators of a job travel, and are joined, together: those of a shard have one key.

All calls of a communicator have to meet in one place, and so do the hosts' rules for finding it: it follows from what
every host knows of the communicator. A job of up to `RANKS_PER_SHARD` ranks is one shard. Of a larger one the
communicators whose lowest ranks are neighbours lie together, because those of the ranks of one host mostly do: so a
host's flush is a message or a few, however many shards there are.

Of such a job that is told call by call a host says all of it to one shard, its home. There the communicators are joined
whose members all have this home; what is said of any other is gathered, of all hosts, and relayed to the shard that it
belongs to (docs/adr/0067-relayed-by-homes.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

RANKS_PER_SHARD = 1_024
"""At 125 calls a second and rank, a third to a half of what a core joins (docs/adr/0027-one-message-per-host.md)."""

RANKS_PER_DIGESTED_SHARD = 16_384
"""Of a job that is told of in iterations: a fifth of what a core joins, and one message of each host
(docs/adr/0032-large-jobs-in-few-messages.md)."""

NEIGHBOURS = 8
"""Ranks of a host, where nothing else is known: most hosts have as many GPUs."""

SHARD_KEY, HOME_KEY = "shard:", "home:"
"""Prefixes of the key of a shard, and of one that is its hosts' home; any other key of `calls` is a communicator."""

RELAYED_KEY = "relayed:"
"""Prefix of the key of a shard on `rounds`; any other key there is a job."""


class Place(NamedTuple):
    """Where the word of a host on a communicator goes: the number of a shard, and whether it is the host's home."""

    shard: int
    is_home: bool = False


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
    n_shards = _n_shards(world_size, digests_from_ranks)
    if n_shards == 1:
        return 0
    lowest = min(members, default=-1)
    # Of a communicator whose members each host knows in part, all of them know the id alone.
    name = communicator if lowest < 0 else f"ranks {lowest // NEIGHBOURS}"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") % n_shards


def home_of(rank: int, world_size: int) -> int:
    """The home of the host of a rank: neighbours have one, and so have mostly the stages of one pipeline.

    >>> home_of(8, 16_384), home_of(15, 16_384), home_of(16, 16_384), home_of(8 + 2_048, 16_384)
    (1, 1, 2, 1)
    """
    return rank // NEIGHBOURS % _n_shards(world_size)


def has_one_home(members: Sequence[int], world_size: int) -> bool:
    """Whether all members of a communicator are known, and have the same home: it is joined there.

    >>> has_one_home(range(8, 16), 16_384), has_one_home((8, 2_056), 16_384), has_one_home((7, 8), 16_384)
    (True, True, False)
    >>> has_one_home((-1, 8), 16_384), has_one_home((), 16_384)
    (False, False)

    """
    if not members:
        return False
    home = home_of(members[0], world_size)
    return all(rank >= 0 and home_of(rank, world_size) == home for rank in members)


def place_of(
    communicator: str,
    members: Sequence[int],
    rank: int,
    world_size: int,
    digests_from_ranks: int = 0,
    *,
    has_homes: bool = True,
) -> Place:
    """Where a host says what it has to say of a communicator.

    Parameters
    ----------
    communicator, members, world_size, digests_from_ranks
        As in `shard_of`.
    rank
        Of this host: the first that has joined the communicator.
    has_homes
        Hosts of large jobs that are told call by call have a home.

    Examples
    --------
    >>> place_of("dp", range(0, 16_384, 64), 64, 16_384) == place_of("tp", range(64, 72), 64, 16_384)
    True
    >>> place_of("dp", range(0, 16_384, 64), 64, 16_384).is_home
    True
    >>> place_of("dp", range(0, 1_024, 64), 64, 1_024), place_of("dp", range(0, 16_384, 64), 64, 16_384, 512)
    (Place(shard=0, is_home=False), Place(shard=0, is_home=False))

    """
    if not has_homes or _n_shards(world_size) == 1 or 0 < digests_from_ranks <= world_size:
        return Place(shard_of(communicator, members, world_size, digests_from_ranks))
    return Place(home_of(members[0] if has_one_home(members, world_size) else rank, world_size), is_home=True)


def _n_shards(world_size: int, digests_from_ranks: int = 0) -> int:
    return -(-max(world_size, 1) // ranks_per_shard(world_size, digests_from_ranks))


def shard_key(job: str, attempt: int, place: Place) -> str:
    """The key of a shard on `calls`.

    >>> shard_key("j", 0, Place(3)), shard_key("j", 0, Place(3, is_home=True))
    ('shard:j/0/3', 'home:j/0/3')
    """
    return f"{HOME_KEY if place.is_home else SHARD_KEY}{job}/{attempt}/{place.shard}"


def relayed_key(job: str, attempt: int, shard: int) -> str:
    """The key of a shard on `rounds`.

    >>> relayed_key("j", 0, 3)
    'relayed:j/0/3'
    """
    return f"{RELAYED_KEY}{job}/{attempt}/{shard}"


def is_of_shard(key: str) -> bool:
    """Whether a key of `calls` is that of a shard.

    >>> is_of_shard("shard:j/0/3"), is_of_shard("home:j/0/3"), is_of_shard("3e8a")
    (True, True, False)
    """
    return key.startswith((SHARD_KEY, HOME_KEY))
