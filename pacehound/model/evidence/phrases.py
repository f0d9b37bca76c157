"""Ranks, levels and signals in the words of a sentence."""

from __future__ import annotations

import signal
from collections.abc import Sequence

SHOWN = 8
"""Ranks that a sentence names."""

_MOST_RUNS = 12


def shown_ranks(ranks: Sequence[int], n_ranks: int = 0) -> str:
    """Some ranks, the first ones by number; of `n_ranks` in all where more are meant than listed.

    >>> shown_ranks((3,)), shown_ranks(range(10))
    ('rank 3', 'ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more')
    """
    n = max(len(ranks), n_ranks)
    return f"rank{'s' if n != 1 else ''} {numbers(ranks, n)}"


def n_ranks_words(n: int) -> str:
    """How many.

    >>> n_ranks_words(1), n_ranks_words(2)
    ('1 rank', '2 ranks')
    """
    return f"{n} rank{'s' if n != 1 else ''}"


def numbers(ranks: Sequence[int], n_ranks: int = 0) -> str:
    """The same without the word."""
    n = max(len(ranks), n_ranks)
    return ", ".join(map(str, ranks[:SHOWN])) + (f" and {n - SHOWN} more" if n > SHOWN else "")


def have(n: int) -> str:
    """The verb for so many."""
    return "have" if n > 1 else "has"


def does(n: int, verb: str) -> str:
    """What so many do.

    >>> does(1, "wait"), does(2, "wait")
    ('waits', 'wait')
    """
    return verb if n > 1 else f"{verb}s"


def level_in_words(seconds: float) -> str:
    """A step time as it is told."""
    return f"{seconds * 1e3:.1f} ms" if seconds < 10 else f"{seconds:.2f} s"


def signal_name(number: int) -> str:
    """A signal as people call it."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def first_frames(frames: Sequence[str], n: int) -> str:
    """The innermost frames of a stack, with who called them, and the outermost one: where the script stands.

    Ours are left out: a call that is watched goes through them.

    >>> first_frames(["poll", "call (/pacehound/instrument/a.py:9)", "wait (b.py:2)", "f (c.py:3)", "g (d.py:4)"], 2)
    'poll < wait (b.py:2) < … < g (d.py:4)'
    >>> first_frames(["poll", "main (d.py:4)"], 2)
    'poll < main (d.py:4)'
    """
    theirs = [frame for frame in frames if "/pacehound/instrument/" not in frame]
    gap = ["…"] if len(theirs) > n + 1 else []
    return " < ".join([*theirs[:n], *gap, *theirs[n:][-1:]])


def ranks_words(ranks: Sequence[int]) -> str:
    """Ranks in words, runs drawn together.

    >>> ranks_words((0, 1, 2, 3, 7)), ranks_words((5,))
    ('ranks 0-3, 7', 'rank 5')
    """
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    words = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    if len(words) > _MOST_RUNS:
        words = [*words[:_MOST_RUNS], f"… ({len(ranks)} in all)"]
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(words)
