"""What runs could not deliver: a folder per run, on disk, which outlives the run until a successor has sent it.

A run's agent keeps its outbox there from the start. What is still in it at the end goes to the same receiver with the
next `pacehound run` that sends there, or by `pacehound flush`. The credentials of a receiver are not kept: whoever
comes later brings their own.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pacehound.model.json_documents import UNREADABLE_JSON
from pacehound.runtime.locked_folder import LockedFolder, abandoned, private_folder

OUTBOX_FILE, LEFT_FILE = "outbox.sqlite", "left.json"
KEPT_DAYS = 7
"""An outage of a weekend, and a day to come back to it."""
KEPT_BYTES = 256 * 1024 * 1024
"""Of all runs together: four outboxes as full as they may be."""
_PREFIX = "run-"
_STORE = "store:"
_DAY_NS = 86_400_000_000_000


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """Whose messages they are, and where they go.

    Attributes
    ----------
    goes_to
        The receiver's URL; the folder of a store on this machine after `store:`.
    machine
        Where the run was.
    since_ns
        Unix time: when the run began, then when its agent gave up.
    is_given_up
        Its agent has said all it had to say; the lock of a disk that several machines share need not be believed.

    """

    job: str
    goes_to: str
    machine: str
    since_ns: int
    is_given_up: bool = False


class UnsentFolder:
    """The folder of one run, held by this process.

    Parameters
    ----------
    folder
        With a `left.json` in it.
    left
        What stands there.

    """

    def __init__(self, folder: LockedFolder, left: Left) -> None:
        self._folder = folder
        self.left = left
        self.path, self.lock = folder.path, folder.lock
        self.outbox = folder.path / OUTBOX_FILE

    @classmethod
    def begin(cls, parents: tuple[Path, ...], job: str, goes_to: str, now_ns: int) -> UnsentFolder:
        """A fresh one in the first of `parents` that can be had.

        Raises
        ------
        OSError
            None can; says why of each.

        """
        left = Left(job=job, goes_to=goes_to, machine=socket.gethostname(), since_ns=now_ns)
        failures = []
        for parent in parents:
            try:
                parent.parent.mkdir(parents=True, exist_ok=True)
                private_folder(parent)
                return cls(LockedFolder.make(parent, _PREFIX, lambda folder: _write(folder, left)), left)
            except OSError as error:
                failures.append(str(error))
        raise OSError("; ".join(failures))

    def held_bytes(self) -> int:
        """What its files take."""
        return held_bytes(self.path)

    def release(self) -> None:
        """Leave it to a successor."""
        self._folder.release()

    def remove(self) -> None:
        """Nothing of it is needed any more."""
        self._folder.remove()


def give_up(folder: Path, now_ns: int) -> None:
    """The agent of this folder ends, and there is something left in it."""
    _write(folder, msgspec.structs.replace(_read(folder), since_ns=now_ns, is_given_up=True))


def held_bytes(folder: Path) -> int:
    """What the outbox in a folder takes of its disk."""
    return sum(path.stat().st_size for path in folder.glob(f"{OUTBOX_FILE}*"))


def left_behind(parent: Path) -> list[UnsentFolder]:
    """What runs that are over have left, oldest first: held by this process, which lets go of each or removes it."""
    found = []
    for folder in abandoned(parent, _PREFIX) if parent.is_dir() else ():
        try:
            left = _read(folder.path)
        except (OSError, *UNREADABLE_JSON):
            folder.remove()  # no file of ours could be that: it would never be sent
            continue
        if not left.is_given_up and left.machine != socket.gethostname():
            folder.release()
            continue
        found.append(UnsentFolder(folder, left))
    return sorted(found, key=lambda one: one.left.since_ns)


def forget_old(parent: Path, now_ns: int) -> list[str]:
    """Remove what is too old or too much; a sentence about each."""
    said = []
    folders = left_behind(parent)
    total_bytes = sum(folder.held_bytes() for folder in folders)
    for folder in folders:
        age_days = (now_ns - folder.left.since_ns) / _DAY_NS
        reason = ""
        if age_days > KEPT_DAYS:
            reason = f"it is older than {KEPT_DAYS} days"
        elif total_bytes > KEPT_BYTES:
            reason = f"all that waits takes {total_bytes:,} bytes, of {KEPT_BYTES:,} allowed"
        if not reason:
            folder.release()
            continue
        total_bytes -= folder.held_bytes()
        said.append(f"what job {folder.left.job} could not send to {folder.left.goes_to} is dropped: {reason}")
        folder.remove()
    return said


def store_name(store: Path) -> str:
    """A store on this machine, as a receiver.

    >>> store_name(Path("/data/p"))
    'store:/data/p'
    """
    return f"{_STORE}{store.absolute()}"


def flush_command(goes_to: str) -> str:
    """What to type to send it there at once.

    >>> flush_command("https://head:4318"), flush_command(store_name(Path("/data/pacehound")))
    ('pacehound flush --endpoint https://head:4318', 'pacehound flush --store /data/pacehound')
    """
    store = store_of(goes_to)
    return f"pacehound flush --endpoint {goes_to}" if store is None else f"pacehound flush --store {store}"


def store_of(goes_to: str) -> Path | None:
    """The store that a receiver's name means; `None` where it is another receiver.

    >>> store_of("store:/data/p"), store_of("http://head:4318")
    (PosixPath('/data/p'), None)
    """
    return Path(goes_to.removeprefix(_STORE)) if goes_to.startswith(_STORE) else None


def unsent_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Where such folders lie, the first one that can be had: the user's XDG state home, the folder for temporary files.

    >>> unsent_folders({"XDG_STATE_HOME": "/s"})[0].as_posix()
    '/s/pacehound/unsent'
    """
    state_home = environ.get("XDG_STATE_HOME", "")
    home = Path(state_home) if state_home.startswith("/") else Path.home() / ".local" / "state"
    return (home / "pacehound" / "unsent", Path(tempfile.gettempdir()) / f"pacehound-unsent-{os.getuid()}")


def _read(folder: Path) -> Left:
    return msgspec.json.decode((folder / LEFT_FILE).read_bytes(), type=Left)


def _write(folder: Path, left: Left) -> None:
    scratch = folder / f"{LEFT_FILE}.new"
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(left))
    scratch.replace(folder / LEFT_FILE)
