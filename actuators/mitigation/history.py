"""Which of the incidents of the past are of the kind of the present one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from actuators.mitigation.survival import Past
from actuators.mitigation.thresholds import LEAST_PAST, SAME_HOURS


@dataclass(frozen=True, slots=True, kw_only=True)
class PastIncident:
    """One of the same kind and cause, with where and when it was.

    Attributes
    ----------
    past
        How long it lasted.
    hosts
        Of its culprits and the ends of its links.
    hour
        Of the day, UTC, at its onset.

    """

    past: Past
    hosts: frozenset[str] = frozenset()
    hour: int = 0


def like(incidents: Iterable[PastIncident], hosts: frozenset[str], hour: int) -> tuple[list[Past], str]:
    """The durations of those that are most alike and many enough, and in what they are alike.

    Those of the same host at the same hours, of the same host, at the same hours, else all: the first of which
    `LEAST_PAST` have ended. The more alike they are the less their durations differ, and the more they tell.
    """
    known = list(incidents)
    of_host = [one for one in known if one.hosts & hosts]
    narrower = {
        "of the same host at this time of day": [one for one in of_host if _is_near(one.hour, hour)],
        "of the same host": of_host,
        "at this time of day": [one for one in known if _is_near(one.hour, hour)],
    }
    for words, some in narrower.items():
        if sum(one.past.has_ended for one in some) >= LEAST_PAST:
            return [one.past for one in some], words
    return [one.past for one in known], "of this kind"


def _is_near(one: int, other: int) -> bool:
    apart = abs(one - other) % 24
    return min(apart, 24 - apart) <= SAME_HOURS
