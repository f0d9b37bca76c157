"""Digests: one row for all calls of a rank in an iteration, on a communicator or with a peer of it.

A quiet job's iterations, and who computes, waits and transfers how long in them, are a hundredth of its calls
(docs/adr/0030-digests.md). A digest is a row of `calls` whose source says so. Its `seq` is the optimizer step that ends
the iteration, `count` is the sum of bytes, operation and algorithm are those of the largest call, rates are means. From
`start_ns` to `end_ns` it is as long as the calls together, and it ends with the last of them; where a rank calls on
several communicators one ends before the next one begins, so that each moment counts once. From `launch_ns` to `end_ns`
is what the transfers alone took at most, as far as this rank can tell: each call as long as the shortest of its kind.

The calls behind digests stay on their host, and are told when somebody looks closer: rows like any other, whose source
says what they are. Verdicts come of the digests, and do not read them.
"""

from __future__ import annotations

_OF_CALLS = " digests"
_KEPT = " kept"


def digests_of(source: str) -> str:
    """The source of digests of the calls of this source.

    >>> digests_of("c10d")
    'c10d digests'
    """
    return source + _OF_CALLS


def is_of_digests(source: str) -> bool:
    """Whether rows of this source are digests.

    >>> is_of_digests("c10d digests"), is_of_digests("c10d")
    (True, False)
    """
    return source.endswith(_OF_CALLS)


def kept_of(source: str) -> str:
    """The source of calls of this source that were kept behind digests.

    >>> kept_of("c10d")
    'c10d kept'
    """
    return source + _KEPT


def is_kept(source: str) -> bool:
    """Whether rows of this source are calls that stand behind digests.

    >>> is_kept("c10d kept"), is_kept("c10d digests"), is_kept("c10d")
    (True, False, False)
    """
    return source.endswith(_KEPT)
