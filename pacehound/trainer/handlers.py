"""Orders for a framework's loop: who carries out which, and a control that begins and ends with the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pacehound.trainer.connecting import AGREE_EVERY, connect
from pacehound.trainer.control import Control
from pacehound.trainer.order import Agree, Can


class Handlers:
    """What the callbacks of Lightning and Hugging Face have in common.

    Parameters
    ----------
    handlers
        By kind: called with the order, and with what the framework gives. What it raises is the script's own error.
    can, agree, agree_every
        As of `connect`.

    """

    def __init__(
        self,
        handlers: Mapping[str, Callable[..., object]],
        *,
        can: Can | None = None,
        agree: Agree | None = None,
        agree_every: int = AGREE_EVERY,
    ) -> None:
        self._handlers = dict(handlers)
        self._how: dict[str, Any] = {"can": can, "agree": agree, "agree_every": agree_every}
        self._control: Control | None = None
        connect(
            *self._handlers, agree_every=agree_every
        ).close()  # what is wrong is said here, not when training begins

    def begin(self, rank: int, world_size: int) -> None:
        """The training begins, in the process of this rank."""
        self.end()
        self._control = connect(*self._handlers, rank=rank, world_size=world_size, **self._how)

    def at_step(self, step: int, *given: object) -> None:
        """Before a step: carry out what is due."""
        if self._control is None:
            return
        order = self._control.at_step(step)
        if order is not None:
            self._handlers[order.kind](order, *given)

    def end(self) -> None:
        """It is over."""
        if self._control is not None:
            self._control.close()
            self._control = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the connection: frameworks copy callbacks, and send them to processes that they start."""
        return {**self.__dict__, "_control": None}
