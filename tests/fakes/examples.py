"""How many examples a property is tried with: n in the suite, fifty times as many in the proofs, or what is said.

The profile `deep` (HYPOTHESIS_PROFILE=deep, which `make prove` sets) draws them anew; in the suite they are the same in
every run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import settings

SEEDED, DEEP = "seeded", "deep"
USUAL, USUALLY_DEEP = 10, 1_000
"""Of a property that says nothing else."""
_TIMES_AS_MANY = 50
_TIMES_AS_MANY_TRIES = 10

T = TypeVar("T")


def load_profile() -> None:
    """The one that the environment names."""
    settings.register_profile(SEEDED, derandomize=True, deadline=None, max_examples=USUAL)
    settings.register_profile(DEEP, deadline=None, max_examples=USUALLY_DEEP)
    settings.load_profile(_named())


def examples(n: int, *, deep: int | None = None, **more: Any) -> settings:
    """So many in the suite.

    >>> examples(3).max_examples in (3, 150)
    True
    >>> examples(3, deep=1_000).max_examples in (3, 1_000)
    True
    """
    return settings(max_examples=_of(n, deep or n * _TIMES_AS_MANY), deadline=None, **more)


def tries(n: int, *, deep: int | None = None) -> range:
    """Seeds, or turns of a loop that draws: so many in the suite, ten times as many in the proofs.

    >>> len(tries(3)) in (3, 30)
    True
    >>> len(tries(3, deep=200)) in (3, 200)
    True
    """
    return range(_of(n, deep or n * _TIMES_AS_MANY_TRIES))


def some(of: Sequence[T], one_in: int) -> Sequence[T]:
    """Cases that lie close together: every so many-th in the suite, all of them in the proofs.

    >>> list(some(range(7), 3)) in ([0, 3, 6], [0, 1, 2, 3, 4, 5, 6])
    True
    """
    return of if _named() == DEEP else of[::one_in]


def steps(n: int, deep: int) -> int:
    """Of a simulated job: so many in the suite, where they show it, and at least as many in the proofs.

    >>> steps(80, 150) in (80, 150)
    True
    """
    assert n <= deep
    return _of(n, deep)


def _of(usual: int, deep: int) -> int:
    return deep if _named() == DEEP else usual


def _named() -> str:
    return os.environ.get("HYPOTHESIS_PROFILE", SEEDED)
