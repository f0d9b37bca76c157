"""Who owns a store: one process at a time, found by the others through `head.json` in the store's folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pacehound.errors import StoreOwned
from pacehound.model.json_documents import UNREADABLE_JSON

OWNER_FILE = "head.json"
LOCK_FILE = "head.lock"
OWNER_LEAVES_WITHIN_S = 10.0
"""An owner that is ending, or one that only reads, has let go by then."""
_LONGEST_SOCKET_PATH = 100  # the kernel takes 107 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """How to reach the process that owns a store.

    Attributes
    ----------
    socket
        Path of its unix socket for the commands.
    otlp_socket
        Path of that of its OTLP receiver, for this user's agents.
    url
        Base URL of its OTLP receiver for others; empty where it has none.
    page
        The address of its page, with the token that opens it; empty where it serves none.
    token
        What others must show there.
    pin
        The fingerprint of its certificate; empty where it has none.

    """

    pid: int
    host: str
    socket: str
    otlp_socket: str = ""
    url: str = ""
    page: str = ""
    token: str = ""
    pin: str = ""


class Ownership:
    """Holds a store for this process until it is released or the process ends, however it ends.

    Raises
    ------
    StoreOwned
        Another process holds it.

    """

    def __init__(self, store: Path, wait_s: float = 1.0) -> None:
        store.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._store = store
        self._lock = os.open(store / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline_s = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() >= deadline_s:
                    os.close(self._lock)
                    raise StoreOwned(f"the store {store} is open in another process") from error
                time.sleep(0.05)
        self._fallback: Path | None = None

    def listen(self, name: str) -> socket.socket:
        """A unix socket for this user alone: in the store, or in a private folder where that path is too long."""
        path = self._store.absolute() / name
        if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
            if self._fallback is None:
                self._fallback = Path(tempfile.mkdtemp(prefix="pacehound-"))
            path = self._fallback / name
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen()
        return listener

    def announce(self, owner: Owner) -> None:
        """Tell the others; only this user can read it."""
        path = self._store / OWNER_FILE
        scratch = path.with_suffix(f".{os.getpid()}")
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(owner))
        scratch.replace(path)

    def release(self) -> None:
        """Let others own the store."""
        (self._store / OWNER_FILE).unlink(missing_ok=True)
        if self._fallback is not None:
            shutil.rmtree(self._fallback, ignore_errors=True)
        os.close(self._lock)


def is_held(store: Path) -> bool:
    """Whether a process holds the store now, answering or not; nothing is made to find out."""
    try:
        lock = os.open(store / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(lock)


def announced(store: Path) -> Owner | None:
    """Whoever announced itself last on this machine; it may be dead by now, so ask it before you believe it."""
    try:
        owner = msgspec.json.decode((store / OWNER_FILE).read_bytes(), type=Owner)
    except (OSError, *UNREADABLE_JSON):
        return None
    return owner if owner.host == socket.gethostname() else None
