"""Ends of calls that have no future: gloo's send and recv, and its reduce_scatter.

Their Work says nothing until somebody waits, so the end of `Work.wait` is an upper bound of theirs (END_BOUND). What a
rank does before it waits is its own work. So a receive starts, for its rank, with that wait; and a send that is over by
then has taken its rank no longer than the wait has.

The hook sees a Work before the script does, but the Python object it sees is another one than the script gets
unless it is kept alive, and keeping it would pin its tensors. So the methods that return it are wrapped as well,
and the Work is watched through a weak reference, from there to its wait.

A call issued from C++ shows no Work in Python. One of a functional collective ends with the wait for its result
(`tensor_waits`); the end of any other is put at the next launch of the same thread, as an upper bound too, because by
then a script has nearly always waited for it.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from pacehound.instrument import layout
from pacehound.instrument.groups import Call, WatchedGroup
from pacehound.instrument.recorder import Recorder

_METHODS = ("send", "recv", "reduce_scatter")
"""How the methods that return it begin: each is there in several forms, and torch adds others (2.15 two)."""

AT_ONCE_NS = 500_000
"""Whoever waits no longer has not waited (chosen: many times what the call takes, and little of any step)."""


class OpenCall:
    """A call whose end is to be seen by its wait; it is written once."""

    __slots__ = ("_call", "_group", "_is_over", "_recorder")

    def __init__(self, recorder: Recorder, group: WatchedGroup, call: Call) -> None:
        self._recorder = recorder
        self._group = group
        self._call = call
        self._is_over = False

    def end(self, flags: int = 0, waited_since_ns: int = 0, end_ns: int = 0) -> None:
        """Write its end: `end_ns`, or now."""
        end_ns = end_ns or time.monotonic_ns()
        if self._is_over or not self._recorder.is_on:
            return
        self._is_over = True
        call, start_ns, waited_ns = self._call, 0, end_ns - waited_since_ns
        if call.direction == layout.RECV:
            start_ns = waited_since_ns
        elif call.direction == layout.SEND and waited_ns < AT_ONCE_NS:
            end_ns = call.launch_ns + waited_ns
        try:
            self._group.complete(call, end_ns, flags | layout.END_BOUND, start_ns)
        except Exception as error:
            self._recorder.fail("the wait for a call", error)


_expected: dict[int, OpenCall] = {}  # by thread: issued, and its Work not yet handed to Python
_watched: dict[int, tuple[weakref.ref[Any], Any]] = {}  # by id of the Work


def install(process_group_class: Any, work_class: Any, take: Callable[[], Any]) -> None:
    """Wrap the methods that return such a Work, and `Work.wait`.

    `take` gives the call that the calling thread has issued and nobody watches yet, or None.
    """
    for name in dir(process_group_class):
        if name.removeprefix("_").startswith(_METHODS):
            setattr(process_group_class, name, _watching(getattr(process_group_class, name), take))
    work_class.wait = _ending(work_class.wait)


def expect(recorder: Recorder, group: WatchedGroup, call: Call) -> None:
    """The calling thread has issued `call`; its Work is about to be returned."""
    _expected[threading.get_ident()] = OpenCall(recorder, group, call)


def settle(thread: int, now_ns: int = 0) -> None:
    """The thread goes on to something else: what it issued from C++ before has ended by now."""
    if _expected:
        left = _expected.pop(thread, None)
        if left is not None:
            left.end(end_ns=now_ns)


def forget() -> None:
    """In a forked child: what is open is the parent's."""
    _expected.clear()
    _watched.clear()


def taken() -> OpenCall | None:
    """What the Python hooks have handed to `expect`."""
    return _expected.pop(threading.get_ident(), None)


def _watching(method: Any, take: Callable[[], Any]) -> Any:
    @functools.wraps(method)
    def issue(*args: Any, **kwargs: Any) -> Any:
        work = method(*args, **kwargs)
        opened = take()
        if opened is not None:
            _watch(work, opened)
        return work

    return issue


def _watch(work: Any, opened: Any) -> None:
    key = id(work)

    def dropped(_: Any) -> None:
        left = _watched.pop(key, None)
        if left is not None:  # nobody waited, and nobody will
            left[1].end()

    try:
        _watched[key] = (weakref.ref(work, dropped), opened)
    except TypeError:
        opened.end()


def _ending(wait: Any) -> Any:
    @functools.wraps(wait)
    def wait_and_see(self: Any, *args: Any, **kwargs: Any) -> Any:
        watched = _watched.pop(id(self), None) if _watched else None
        if watched is None:
            return wait(self, *args, **kwargs)
        since_ns = time.monotonic_ns()
        try:
            result = wait(self, *args, **kwargs)
        except BaseException:
            watched[1].end(layout.FAILED, since_ns)
            raise
        watched[1].end(0, since_ns)
        return result

    return wait_and_see
