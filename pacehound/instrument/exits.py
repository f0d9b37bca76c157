"""A last record when a process leaves: in good order, or with the exception that ended it."""

from __future__ import annotations

import atexit
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any

from pacehound.instrument import layout
from pacehound.instrument.groups import cut_utf8
from pacehound.instrument.recorder import Recorder

_NO_HANDLE = bytes(16)
_SOURCE = re.compile(r"[\w.+\-/]*/([\w.+\-]+\.(?:cc|cpp|cu|h|hpp):\d+)")
"""A line of a source in C++, as gloo, torch and NCCL name it."""
_CAUGHT = re.compile(r"Caught (\w+) in (.+)\.\nOriginal Traceback")
"""How torch begins the message of what a loader's worker, or another helper of a rank, failed with."""


def install(recorder: Recorder, release: Callable[[], None]) -> None:
    """Chain before `sys.excepthook` and register with `atexit`.

    The exception is written by the hook, at once: what follows it (threads that are joined, groups that time out)
    may take long, and evidence freezes at the first exit. Where a script has replaced the hook later without
    chaining to ours, the interpreter's own note of the exception is read at exit.
    """
    leaving = Leaving(recorder, release)
    theirs = sys.excepthook

    def excepthook(kind: Any, value: Any, traceback: Any) -> None:
        leaving.failed(kind, value)
        theirs(kind, value, traceback)

    sys.excepthook = excepthook
    atexit.register(leaving.left)


class Leaving:
    """Writes the EXIT record once."""

    def __init__(self, recorder: Recorder, release: Callable[[], None]) -> None:
        self._recorder = recorder
        self._release = release
        self._said_by = -1

    def failed(self, kind: Any, value: Any) -> None:
        """An exception that nobody caught."""
        self._say(1, _said(kind, value))

    def left(self) -> None:
        """The interpreter is about to end."""
        try:
            self._release()
        except Exception as error:
            self._recorder.fail("the exit", error)
        kind = getattr(sys, "last_type", None)
        if kind is not None:
            self.failed(kind, getattr(sys, "last_value", None))
        else:
            self._say(0, "")
        if self._recorder.is_on:
            self._recorder.is_on = False
            try:
                self._recorder.close()
            except Exception:  # it leaves anyway
                pass

    def _say(self, failed: int, text: str) -> None:
        if not self._recorder.is_on or self._said_by == os.getpid():
            return
        self._said_by = os.getpid()
        try:
            self._recorder.write(
                layout.EXIT_RECORD,
                layout.EXIT,
                _NO_HANDLE,
                time.monotonic_ns(),
                failed,
                cut_utf8(text, layout.EXIT_TEXT_BYTES),
            )
        except Exception as error:
            self._recorder.fail("the exit", error)


def _said(kind: Any, value: Any) -> str:
    """An exception with its words; what it was raised from first, which is what has happened.

    >>> broken = RuntimeError("[Stage 1] failed to run forward:")
    >>> broken.__cause__ = ValueError("bad batch")
    >>> _said(RuntimeError, broken)
    'ValueError: bad batch (RuntimeError: [Stage 1] failed to run forward:)'
    """
    said = f"{getattr(kind, '__name__', kind)}: {_words(value)}"
    first, seen = value, set[int]()
    while (cause := getattr(first, "__cause__", None)) is not None and id(first) not in seen:
        if "RemoteTraceback" in type(cause).__name__:  # a pool's: where that was in its worker, and nothing else
            break
        seen.add(id(first))
        first = cause
    return said if first is value else f"{type(first).__name__}: {_words(first)} ({said})"


def _words(value: Any) -> str:
    r"""The first line that says something: torch begins some messages with an empty one, and many with a source's path.

    Of such a path the name is kept, for there is little room. What a loader's worker failed with stands at the end.

    >>> _words("[/a/b/gloo/transport/tcp/pair.cc:545] Read error [10.0.0.2]:5342: Connection reset by peer")
    '[pair.cc:545] Read error [10.0.0.2]:5342: Connection reset by peer'
    >>> _words("Caught ValueError in worker 0.\nOriginal Traceback (most recent call last):\nValueError: bad sample")
    'bad sample (in worker 0)'
    """
    try:
        text = str(value)
        line = next(filter(None, map(str.strip, text.splitlines())), "")
        if caught := _CAUGHT.match(text):
            kind, where = caught.groups()
            for own in re.findall(rf"^(?:\w+\.)*{kind}: (.+)$", text, re.MULTILINE)[-1:]:
                line = f"{own} (in {where})"
        return _SOURCE.sub(r"\1", line)
    except Exception:  # an exception whose own __str__ fails
        return ""
