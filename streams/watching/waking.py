"""Whether a finding wakes somebody: the one place that says so.

A rank that leaves in disorder always does, and so does a hang that somebody has brought files of. What cannot be seen,
what was planned and what comes and goes never do. Slowness and hangs have the rules below.
"""

from __future__ import annotations


def slowness_wakes(magnitude: float | None, *, is_lasting: bool, is_named: bool, min_change: float) -> bool:
    """Slowness of `min_change` at least that lasts, or that has a name, with which something can be done at once.

    `magnitude` is by what share iterations are longer; `None` where no iteration can be recognised, and communicators
    are slow again and again.

    >>> slowness_wakes(0.3, is_lasting=False, is_named=True, min_change=0.1)
    True
    >>> slowness_wakes(0.05, is_lasting=True, is_named=True, min_change=0.1)
    False
    """
    if magnitude is None:
        return is_lasting
    return magnitude >= min_change and (is_lasting or is_named)


def hang_wakes(waited_s: float, *, page_after_s: float, timeout_s: float | None) -> bool:
    """A hang that has lasted `page_after_s`, or half of the process groups' timeout, which would end the job.

    >>> hang_wakes(200.0, page_after_s=300.0, timeout_s=None), hang_wakes(200.0, page_after_s=300.0, timeout_s=360.0)
    (False, True)
    """
    return waited_s >= (page_after_s if timeout_s is None else min(page_after_s, timeout_s / 2))
