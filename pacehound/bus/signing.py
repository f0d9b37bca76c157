"""Signs orders and checks who has signed one: Ed25519. Needs the package `cryptography`."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
from collections.abc import Iterable
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pacehound.errors import InvalidInput, InvalidSetting
from pacehound.model.events.control import Command
from pacehound.model.orders import Order, write_order

KEY_FILE, PUBLIC_FILE = "control.key", "control.pub"
"""A head's own pair, in its store's folder; hexadecimal digits."""

_KEY_DIGITS = 64


class Signer:
    """One issuer of orders."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.key = private.public_key().public_bytes_raw().hex()

    @classmethod
    def drawn(cls) -> Signer:
        """A new pair.

        >>> len(Signer.drawn().key)
        64
        """
        return cls(Ed25519PrivateKey.generate())

    def signed(self, order: Order) -> Command:
        """The order as it travels."""
        body = write_order(order)
        return Command(
            job=order.job,
            attempt=max(order.attempt, 0),  # what is for any is stored with the first
            time_ns=order.issued_ns,
            order=body,
            key=self.key,
            signature=self._private.sign(body),
        )

    def derived(self, purpose: str) -> str:
        """A secret for something else, that is the same as long as the pair is, and tells nobody the key."""
        return hmac.new(self._private.private_bytes_raw(), purpose.encode(), hashlib.sha256).hexdigest()

    def write(self, folder: Path) -> None:
        """Keep it for the next process: the private part is this user's alone."""
        scratch = folder / f"{KEY_FILE}.new"
        with contextlib.suppress(FileNotFoundError):
            scratch.unlink()
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(f"{self._private.private_bytes_raw().hex()}\n")
        (folder / PUBLIC_FILE).write_text(f"{self.key}\n")
        scratch.replace(folder / KEY_FILE)


def signer_of(folder: Path) -> Signer:
    """The pair that lies in a folder, made at first.

    Raises
    ------
    InvalidInput
        Others may read the private key, or it is none.

    """
    path = folder / KEY_FILE
    if not path.exists():
        Signer.drawn().write(folder)
    if path.stat().st_mode & 0o077:
        raise InvalidInput(f"others may read {path}; chmod 600 it, or remove it and control.pub for a new pair")
    try:
        return Signer(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text())))
    except ValueError as error:
        raise InvalidInput(f"{path} is no key ({error}); remove it and control.pub for a new pair") from error


def public_key_of(folder: Path) -> str:
    """The public key of whoever owns a store; empty where there is none yet."""
    try:
        return (folder / PUBLIC_FILE).read_text().strip()
    except OSError:
        return ""


class Keys:
    """The public keys that are trusted.

    Raises
    ------
    InvalidSetting
        One of them is no key.

    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys: dict[str, Ed25519PublicKey] = {}
        for key in keys:
            try:
                if len(key) != _KEY_DIGITS:
                    raise ValueError(f"{len(key)} characters")
                self._keys[key.lower()] = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
            except ValueError as error:
                raise InvalidSetting(
                    f"actuators.keys: {key[:80]!r} is no public key; write its 64 hexadecimal digits (control.pub)"
                ) from error

    def __len__(self) -> int:
        return len(self._keys)

    def have_signed(self, command: Command) -> bool:
        """Whether one of them has signed just these bytes.

        >>> signer = Signer.drawn()
        >>> from pacehound.model.orders import Locate, new_order
        >>> command = signer.signed(
        ...     new_order(Locate(), job="j", attempt=0, issuer="a", number=1, now_ns=5, lives_ns=9, why="to see")
        ... )
        >>> Keys([signer.key]).have_signed(command), Keys([Signer.drawn().key]).have_signed(command)
        (True, False)
        """
        known = self._keys.get(command.key)
        if known is None:
            return False
        try:
            known.verify(command.signature, command.order)
        except InvalidSignature:
            return False
        return True
