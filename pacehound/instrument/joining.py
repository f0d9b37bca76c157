"""Who waits in `init_process_group`: told where it takes long, and not at all where it does not.

A rank that never comes to it is the first hang that a job can have, and then there is no group yet on which anybody
could be seen to wait. So a long wait is written as a call of its own, on a communicator of all ranks that has no other
one: who is missing there has not come. It ends, and the communicator with it, when the group is made.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from pacehound.instrument import layout
from pacehound.instrument.groups import Call, WatchedGroup
from pacehound.instrument.recorder import Recorder, integer
from pacehound.model.codes import JOINING, OPS

LONG_S = 30.0
"""From when on a wait is told of where `PACEHOUND_JOIN_S` does not say it, which is `hang.suspect_after_s`: a job that
has made no iteration hangs after four times as long."""
LEAST_S = 10.0
"""Ranks that load a model before they join come seconds after each other."""

_MOST_S = 1.0
"""So long the script waits for our thread to end, which takes microseconds."""


class Joining:
    """Wraps `init_process_group`.

    Parameters
    ----------
    recorder
        What the wait is written with.
    prepare
        Makes the process ready to write, once; on any thread.
    n_worlds
        How many default groups this process has had.

    """

    def __init__(self, recorder: Recorder, prepare: Callable[[], None], n_worlds: Callable[[], int]) -> None:
        self._recorder = recorder
        self._prepare = prepare
        self._n_worlds = n_worlds

    def around(self, function: Any, environ: Mapping[str, str] = os.environ) -> Any:
        """The same function, whose callers are told of when they wait for long."""
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            wait = None
            try:
                wait = self._begun(signature.bind_partial(*args, **kwargs).arguments, environ)
            except Exception:  # c10d refuses what it cannot use, and says why
                pass
            if wait is None:
                return function(*args, **kwargs)
            try:
                result = function(*args, **kwargs)
            except BaseException:
                wait.end(layout.FAILED)
                raise
            wait.end(0)
            return result

        return call

    def _begun(self, given: Mapping[str, Any], environ: Mapping[str, str]) -> _Wait | None:
        """Of a rank that is known, in a job of which the number of ranks is."""
        if self._recorder.is_broken or given.get("_ranks"):
            return None
        rank, world_size = (
            integer(environ, variable, -1) if given.get(name, -1) < 0 else int(given[name])
            for name, variable in (("rank", "RANK"), ("world_size", "WORLD_SIZE"))
        )
        if not 0 <= rank < world_size or world_size < 2:
            return None
        long_s = max(float(environ.get("PACEHOUND_JOIN_S", LONG_S)), LEAST_S)
        return _Wait(self._recorder, self._prepare, rank, world_size, self._n_worlds() - 1, long_s)


class _Wait:
    """One call of `init_process_group`, from its beginning on."""

    def __init__(
        self,
        recorder: Recorder,
        prepare: Callable[[], None],
        rank: int,
        world_size: int,
        generation: int,
        long_s: float,
    ) -> None:
        self._recorder = recorder
        self._prepare = prepare
        self._rank, self._world_size = rank, world_size
        self._generation = generation
        self._since_ns = time.monotonic_ns()
        self._is_over = False
        self._told: tuple[WatchedGroup, Call] | None = None
        self._timer = threading.Timer(long_s, self._tell)
        self._timer.daemon = True
        self._timer.start()

    def _tell(self) -> None:
        """It takes long; on the thread of the timer."""
        if self._is_over:
            return
        try:
            self._recorder.rank, self._recorder.world_size = self._rank, self._world_size
            self._prepare()
            self._recorder.start()
            if not self._recorder.is_on:
                return
            group = WatchedGroup(
                self._recorder,
                JOINING,
                range(self._world_size),
                generation=self._generation,
                is_world=True,
                backend="gloo",  # of which c10d's calls are seen to end
                timeout_ms=0,
                ended_by_future=frozenset(),
            )
            group.announce(self._since_ns)
            seq = group.number(-1, layout.NONE)
            call = Call(OPS.index("barrier"), 0, layout.NONE, 0, -1, seq, 0, self._since_ns)
            group.launch(call)
            self._told = group, call
        except Exception as error:
            self._recorder.fail("a long init_process_group", error)

    def end(self, flags: int) -> None:
        """It has returned, or raised."""
        self._is_over = True
        self._timer.cancel()
        self._timer.join(_MOST_S)  # a script that forks next has no thread of ours
        if self._timer.is_alive() or self._told is None or not self._recorder.is_on:
            return
        group, call = self._told
        try:
            group.complete(call, time.monotonic_ns(), flags)
            if not flags:
                group.destroy()
        except Exception as error:
            self._recorder.fail("a long init_process_group", error)
