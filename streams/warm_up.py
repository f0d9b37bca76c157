"""Compiles what is compiled, or loads it (`python -m streams.warm_up`): a minute, once per version."""

from __future__ import annotations


def warm_up(*, prices: bool = True) -> None:
    """Make ready what would otherwise be compiled while a job waits for its answer.

    Parameters
    ----------
    prices
        The what-if analysis, too.
    """
    from streams.level import level_series

    level_series.warm_up()
    if prices:
        from streams.whatif import warm

        warm.warm_up()


if __name__ == "__main__":
    warm_up()
