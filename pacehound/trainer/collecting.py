"""Collects garbage at steps that all ranks have in common, instead of when the interpreter comes to it."""

from __future__ import annotations

import gc


class Collecting:
    """Of one process.

    Attributes
    ----------
    due
        The next step at which it collects; a number that no step reaches, where the interpreter does it.

    """

    NEVER = 1 << 63

    def __init__(self) -> None:
        self.due = self.NEVER
        self._every = 0
        self._was_enabled = True

    def set(self, every: int, step: int) -> None:
        """From this step on at each multiple of so many steps, the same for all ranks; 0: as before."""
        if every and not self._every:
            self._was_enabled = gc.isenabled()
            gc.disable()
        if not every and self._every and self._was_enabled:
            gc.enable()
        self._every = every
        self.due = (step // every + 1) * every if every else self.NEVER

    def at_step(self, step: int) -> None:
        """Collect, where it is due."""
        if step >= self.due:
            gc.collect()
            self.due = (step // self._every + 1) * self._every
