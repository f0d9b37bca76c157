"""Compiles everything that is compiled, or loads it (`python -m streams.warm_up`): half a minute, once per version."""

from __future__ import annotations

from streams import level_series, path_walk
from streams.whatif import warm


def warm_up() -> None:
    """Make ready what would otherwise be compiled while a job waits for its answer."""
    level_series.warm_up()
    path_walk.warm_up()
    warm.warm_up()


if __name__ == "__main__":
    warm_up()
