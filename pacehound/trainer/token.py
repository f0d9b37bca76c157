"""The token of one order on one host: a file whose name says what stands, and that can only be renamed.

    open ──► go ──► done          `go`: all ranks of the job are armed, says the agent
      │       │                   `done`: the first rank that came to the step has found `go`; all others here follow it
      └───────┴───► no            `no`: withdrawn, or a rank came to the step before `go`

A rename succeeds for one and fails for all others, whoever is killed in between. So the ranks of one host never differ,
without waiting for each other or for the agent.
"""

from __future__ import annotations

import os

OPEN, GO, DONE, NO = "open", "go", "done", "no"
_MOVES = 4
"""More than a token can make while somebody looks at it."""


class Token:
    """Of one order.

    Parameters
    ----------
    folder
        `<run folder>/trainer`.
    ticket
        Names the order.

    """

    def __init__(self, folder: str, ticket: int) -> None:
        self._stem = os.path.join(folder, str(ticket))

    def make(self) -> bool:
        """Open it, unless there was one before; whether it is open."""
        if any(self._is(state) for state in (GO, DONE, NO)):
            return False
        os.close(os.open(f"{self._stem}.{OPEN}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        return True

    def confirm(self) -> bool:
        """All are armed; whether it stands."""
        return self._move(OPEN, GO) or self._is(GO) or self._is(DONE)

    def withdraw(self) -> bool:
        """Take it back; whether nobody here applies it, or will."""
        return self._move(OPEN, NO) or self._move(GO, NO) or not self._is(DONE)

    def seal(self) -> bool:
        """A rank has come to the step: whether it applies the order; the same for all ranks here, for ever."""
        for _ in range(_MOVES):
            if self._is(DONE) or self._move(GO, DONE):
                return True
            if self._is(NO) or self._move(OPEN, NO):
                return False
        return False

    @property
    def is_withdrawn(self) -> bool:
        """Whether nobody here applies it any more."""
        return self._is(NO)

    @property
    def is_decided(self) -> bool:
        """Whether it stands, or is taken back: nobody need wait any more."""
        return self._is(GO) or self._is(DONE) or self._is(NO)

    def remove(self) -> None:
        """Nobody will ask for it again."""
        for state in (OPEN, GO, DONE, NO):
            try:
                os.unlink(f"{self._stem}.{state}")
            except FileNotFoundError:
                pass

    def _is(self, state: str) -> bool:
        return os.path.exists(f"{self._stem}.{state}")

    def _move(self, before: str, after: str) -> bool:
        try:
            os.rename(f"{self._stem}.{before}", f"{self._stem}.{after}")
        except FileNotFoundError:
            return False
        return True
