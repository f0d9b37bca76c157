"""Seeds of a test that draws what happens."""

from __future__ import annotations

import pytest


def seeds(n: int, *, in_suite: int) -> list[object]:
    """From 0 on; those that `make test` leaves out are proofs.

    >>> [seed.values for seed in seeds(3, in_suite=1)]
    [(0,), (1,), (2,)]
    """
    return [pytest.param(seed, marks=[pytest.mark.prove] * (seed >= in_suite)) for seed in range(n)]
