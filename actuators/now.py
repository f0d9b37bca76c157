"""The moment, on both clocks: what is pure is told it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """The moment, on both clocks.

    Attributes
    ----------
    monotonic_ns
        For what lasts.
    unix_ns
        For what is told.

    """

    monotonic_ns: int
    unix_ns: int
