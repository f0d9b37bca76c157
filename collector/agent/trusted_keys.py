"""Whose orders an agent obeys: the keys it was given, and that of the head beside its store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from collector.agent.obedience import Trusted
from pacehound.errors import InvalidSetting
from pacehound.model.events import Command


class TrustedKeys:
    """Public keys.

    Parameters
    ----------
    keys
        `actuators.keys`, one by one.
    store
        The folder of the store whose head this agent sends to; its pair may be made after this agent began.

    Raises
    ------
    InvalidSetting
        One of them is no key, or the package that checks signatures is not installed.

    """

    def __init__(self, keys: Sequence[str], store: Path | None) -> None:
        self._keys, self._store = tuple(keys), store
        if keys:
            self._known(keys)

    def have_signed(self, command: Command) -> bool:
        """Whether one of them has signed it; false, too, where nobody can tell."""
        try:
            return self._known(self._all()).have_signed(command)
        except InvalidSetting:
            return False

    def _all(self) -> tuple[str, ...]:
        if self._store is None:
            return self._keys
        from pacehound.bus.signing import public_key_of

        own = public_key_of(self._store)
        return (*self._keys, own) if own else self._keys

    @staticmethod
    def _known(keys: Sequence[str]) -> Trusted:
        try:
            from pacehound.bus.signing import Keys  # 10 MB that most runs never need
        except ImportError as error:
            raise InvalidSetting(
                f"actuators.keys needs a package that is not here: pip install 'pacehound[collector]' ({error})"
            ) from error
        return Keys(keys)
