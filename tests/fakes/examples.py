"""How many examples a property is tried with: n in the suite, at least fifty times as many in the proofs.

The profile `deep` (HYPOTHESIS_PROFILE=deep, which `make prove` sets) draws them anew; in the suite they are the same in
every run.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

SEEDED, DEEP = "seeded", "deep"
USUAL, USUALLY_DEEP = 10, 1_000
"""Of a property that says nothing else."""
_TIMES_AS_MANY = 50
_TIMES_AS_MANY_TRIES = 10


def load_profile() -> None:
    """The one that the environment names."""
    settings.register_profile(SEEDED, derandomize=True, deadline=None, max_examples=USUAL)
    settings.register_profile(DEEP, deadline=None, max_examples=USUALLY_DEEP)
    settings.load_profile(_named())


def examples(n: int, **more: Any) -> settings:
    """So many in the suite.

    >>> examples(3).max_examples in (3, 150)
    True
    """
    return settings(max_examples=n * (_TIMES_AS_MANY if _named() == DEEP else 1), deadline=None, **more)


def tries(n: int) -> range:
    """Seeds, or turns of a loop that draws: so many in the suite, ten times as many in the proofs.

    >>> len(tries(3)) in (3, 30)
    True
    """
    return range(n * (_TIMES_AS_MANY_TRIES if _named() == DEEP else 1))


def steps(n: int, deep: int) -> int:
    """Of a simulated job: so many in the suite, where they show it, and at least as many in the proofs.

    >>> steps(80, 150) in (80, 150)
    True
    """
    assert n <= deep
    return deep if _named() == DEEP else n


def _named() -> str:
    return os.environ.get("HYPOTHESIS_PROFILE", SEEDED)
