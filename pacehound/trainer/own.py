"""Orders for a script that knows nothing of them: how fast it goes, and when its garbage is collected.

The hooks of `pacehound run` call `at_step` after each optimizer step that ends an iteration. A script that connects by
itself is the only one that is asked from then on.
"""

from __future__ import annotations

from collections.abc import Callable

from pacehound.trainer.control import Control

_control: Control | None = None
_is_left = False


def at_step(step: int, connect: Callable[[], Control]) -> None:
    """Hear what there is; `connect` is called the first time, and what it raises switches this off."""
    global _control, _is_left
    if _is_left:
        return
    if _control is None:
        try:
            _control = connect()
        except Exception:
            _is_left = True
            return
    _control.at_step(step)


def leave() -> None:
    """The script takes orders by itself: its process is connected once."""
    global _control, _is_left
    _is_left = True
    if _control is not None:
        _control.close()
        _control = None
