"""Why nothing is seen of processes that have loaded torch: what `pacehound run` has set did not reach them.

Ranks are found by what they write, and they write what they are told to by their environment. A wrapper that clears it,
or a script that sets PYTHONPATH, leaves a job that runs as ever and that nobody watches: its owner is to know why.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collector.host.kernel_files import text_of
from collector.host.processes import PROC, variables_of
from pacehound.instrument.launch import PTH

FIRST_LOOK_NS = 4_000_000_000
LOOK_AT_LEAST_EVERY_NS = 60_000_000_000
"""Imports of torch take seconds, and what is wrong is wrong from the beginning: each look comes twice as late as the
one before, up to this."""

_TORCH = re.compile(r"\s(/.*)/torch/lib/libtorch_(?:cpu|python)\.so")
_MOST_CHARS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchProcess:
    """A process that has loaded torch, or that somebody else's Python is.

    Attributes
    ----------
    words
        As it was begun.
    owner, reader
        Whose it is, and who reads what ranks write.
    environ
        With which it was begun.
    has_pth
        `PTH` lies beside its torch, or in the environment of its interpreter.
    out_of_reach
        A folder that `pacehound run` has told it to open, and that is not there for it, or another one; else empty.

    """

    pid: int
    words: tuple[str, ...]
    owner: str
    reader: str
    environ: Mapping[str, str]
    has_pth: bool = False
    out_of_reach: str = ""


def why_unseen(process: TorchProcess, run_dir: str) -> str:
    """What keeps its calls from being seen; empty where nothing does that is known of.

    >>> why_unseen(TorchProcess(pid=7, words=("python", "a.py"), owner="a", reader="a", environ={}), "/dev/shm/r")[:62]
    'process 7 (python a.py) was begun without the variables that `'
    """
    who = f"process {process.pid} ({_shortened(process.words)})"
    if process.owner != process.reader:
        return (
            f"{who} is {process.owner}'s, who may not write where {process.reader}'s `pacehound run` reads: "
            f"start `pacehound run` as {process.owner}"
        )
    begun_for = process.environ.get("PACEHOUND_RUN_DIR")
    if begun_for is None:
        return (
            f"{who} was begun without the variables that `pacehound run` sets (`env -i`, `sudo` and containers drop "
            "them): hand on PYTHONPATH and those that begin with PACEHOUND_"
        )
    if begun_for != run_dir:
        return ""  # another run's, which watches it
    if process.out_of_reach:
        return (
            f"{who} does not see this host's {process.out_of_reach}, as in a container with files of its own: let it "
            "have that folder (of /dev/shm: `docker run --ipc=host`)"
        )
    flags = _flags(process.words)
    if "S" in flags:
        return f"{who} runs Python with -S, which leaves out what would watch it"
    if process.has_pth:
        return ""
    if ignored := flags & {"E", "I"}:
        what = f"runs Python with -{min(ignored)}, which ignores PYTHONPATH"
    elif _autoload(process.environ) not in process.environ.get("PYTHONPATH", "").split(os.pathsep):
        what = "has another PYTHONPATH than `pacehound run` has set (keep that: PYTHONPATH=src:$PYTHONPATH)"
    else:
        return ""
    return f"{who} {what}; with Pacehound installed in the environment of its torch it is seen all the same"


class WhyUnseen:
    """Looks at what a command has begun, as long as nothing is seen of it; the time is an argument.

    Parameters
    ----------
    run_dir
        The run folder.
    proc
        Where /proc is.

    """

    def __init__(self, run_dir: Path, proc: Path = PROC) -> None:
        self._run_dir = str(run_dir.absolute())
        self._proc = proc
        self._next_look_ns: int | None = None
        self._gap_ns = FIRST_LOOK_NS
        self.reason = ""

    def look(self, command_of: Callable[[], int | None], now_ns: int) -> bool:
        """Whether the reason is another one now.

        `command_of` is asked when it is time to look: for the process that everything of the run descends from.
        """
        if self._next_look_ns is None:
            self._next_look_ns = now_ns + self._gap_ns
        command = command_of() if now_ns >= self._next_look_ns else None
        if command is None:
            return False
        self._gap_ns = min(2 * self._gap_ns, LOOK_AT_LEAST_EVERY_NS)
        self._next_look_ns = now_ns + self._gap_ns
        before, self.reason = self.reason, self._found(command)
        return self.reason != before

    def _found(self, command: int) -> str:
        """What is said of the first of whom there is something to say; as before where no process is there any more."""
        found = [process for pid in self._descendants(command) if (process := self._read(pid)) is not None]
        reasons = (why_unseen(process, self._run_dir) for process in found)
        return next(filter(None, reasons), "") if found else self.reason

    def _descendants(self, pid: int) -> Iterator[int]:
        """Itself and all that it has begun; no more of them where this kernel does not list children."""
        waiting, known = [pid], {pid}
        while waiting:
            parent = waiting.pop(0)
            yield parent
            for task in sorted((self._proc / str(parent) / "task").glob("*/children")):
                children = [int(child) for child in text_of(task).split()]
                waiting += [child for child in children if child not in known]
                known |= set(children)

    def _read(self, pid: int) -> TorchProcess | None:
        folder = self._proc / str(pid)
        words = tuple(text_of(folder / "cmdline").rstrip("\0").split("\0"))
        try:
            owner = folder.stat().st_uid
        except OSError:
            return None
        environ = variables_of(pid, self._proc)
        torch = _TORCH.search(text_of(folder / "maps"))
        is_hidden = owner != os.geteuid() and "python" in os.path.basename(words[0])
        if torch is None and not is_hidden:
            return None
        return TorchProcess(
            pid=pid,
            words=words,
            owner=_name(owner),
            reader=_name(os.geteuid()),
            environ=environ,
            has_pth=torch is not None and _has_pth(folder / "root", torch[1], words[0]),
            out_of_reach=_out_of_reach(folder / "root", environ),
        )


def _has_pth(root: Path, beside_torch: str, interpreter: str) -> bool:
    places = [root / beside_torch.lstrip("/")]
    if interpreter.startswith("/"):  # of a virtual environment, whose torch may be the system's
        environment = root / os.path.dirname(os.path.dirname(interpreter)).lstrip("/")
        places += environment.glob("lib/python3*/site-packages")
    return any((place / PTH).is_file() for place in places)


def _out_of_reach(root: Path, environ: Mapping[str, str]) -> str:
    """Which of two folders a process does not see as we do; none where its files cannot be looked at."""
    folders = [one for one in (environ.get("PACEHOUND_RUN_DIR", ""), _autoload(environ)) if one]
    return next((one for one in folders if os.access(root, os.X_OK) and not _is_same(one, root)), "")


def _is_same(folder: str, root: Path) -> bool:
    """A process that does not find its run folder makes one."""
    try:
        return os.path.samefile(folder, root / folder.lstrip("/"))
    except OSError:
        return not os.path.exists(folder)


def _autoload(environ: Mapping[str, str]) -> str:
    """The folder that is to be on PYTHONPATH (`pacehound.instrument.launch`)."""
    return os.path.dirname(environ.get("PACEHOUND_AUTOLOAD", ""))


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _shortened(words: Sequence[str]) -> str:
    said = " ".join([os.path.basename(word) if word.startswith("/") else word for word in words])
    return said if len(said) <= _MOST_CHARS else f"{said[: _MOST_CHARS - 1]}…"


def _flags(words: Sequence[str]) -> set[str]:
    """The single letters that an interpreter was begun with, up to its script.

    >>> sorted(_flags(("python", "-uI", "-X", "dev", "a.py", "-S")))
    ['I', 'u']
    """
    flags: set[str] = set()
    left = iter(words[1:])
    for word in left:
        if len(word) < 2 or not word.startswith("-") or word.startswith("--"):
            break
        for at, letter in enumerate(word[1:], 1):
            if letter in "cm":
                return flags
            if letter in "WX":  # the rest of the word, or the next one, is its value
                if at == len(word) - 1:
                    next(left, None)
                break
            flags.add(letter)
    return flags
