"""Every process group of `torch.distributed`, from its making to its end.

One module global of distributed_c10d sees every group (the default one, new_group, split_group, DeviceMesh,
re-initialisation): `_register_process_group`. Members stand in c10d's own tables only a moment later, so the two
functions that call it are wrapped as well, for what they are given.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

from pacehound.instrument import exits, hold, native_hooks, torch_waits
from pacehound.instrument.dispatched_calls import HOOK_NAMES, DispatchedCalls
from pacehound.instrument.groups import DeviceTimes, WatchedGroup
from pacehound.instrument.joining import Joining
from pacehound.instrument.recorder import Recorder
from pacehound.instrument.tensor_waits import TensorWaits
from pacehound.instrument.torch_calls import CallHooks, Pending, Tables
from pacehound.instrument.torch_markers import Markers

HOOK_ID = 0x5041434548  # "PACEH": two consumers with one id would silently replace each other
_DRAIN_S = 0.5

# A gloo thread drops the last call it ran after whoever waited for it goes on, and takes the GIL for that. If the
# interpreter is ending by then, the process aborts (torch 2.15 alone does so in some runs); if its group is, that waits
# for the thread with the GIL held, for ever (torch 2.4.1 alone does so in some runs). Our callbacks stand in that
# thread's way for a moment, so we give it the time, with the GIL free, to let go.
_LET_GO_S = 0.1
"""For callbacks that wait for the interpreter's lock, which takes microseconds; a call without its peer never ends."""


class Instrument:
    """The groups of this process.

    Parameters
    ----------
    c10d
        The module `torch.distributed.distributed_c10d`, just imported.
    markers
        Told of optimizer steps from the first group on.

    """

    def __init__(self, c10d: Any, recorder: Recorder, markers: Markers) -> None:
        self._c10d = c10d
        self._recorder = recorder
        self._markers = markers
        markers.settle = self._settle
        self._groups: dict[str, tuple[WatchedGroup, weakref.ref[Any]]] = {}
        self._pending = Pending()
        self._worlds = 0
        self._is_prepared = False
        self._preparing = threading.Lock()  # who joins for long is told of by another thread
        self._tables: Tables | None = None
        self._has_hooks = hasattr(c10d.ProcessGroup, "register_pre_hook")
        self._dispatched: DispatchedCalls | None = None  # where there are none
        self._tensor_waits: TensorWaits | None = None
        self._members = threading.local()

    def install(self) -> None:
        """Put our functions in place of c10d's own."""
        c10d = self._c10d
        if not hasattr(c10d, "_register_process_group") or not (self._has_hooks or self._can_be_dispatched()):
            self._recorder.note(
                "the calls of this torch cannot be seen: use torch 2.4 or later, or watch NCCL itself "
                "(`pacehound run --nccl shim`)"
            )
            return
        c10d._register_process_group = self._after(c10d._register_process_group, self._joined)
        joining = Joining(self._recorder, self._prepare, lambda: self._worlds)
        c10d.init_process_group = joining.around(c10d.init_process_group)
        for name, left in (
            ("_unregister_process_group", self._left),
            ("_unregister_all_process_groups", self._left_all),
        ):
            if hasattr(c10d, name):
                setattr(c10d, name, self._after(getattr(c10d, name), left))
        for name, argument in (
            ("_new_process_group_helper", "global_ranks_in_group"),
            ("_register_pg_in_world", "rank_mapping"),
        ):
            if hasattr(c10d, name):
                setattr(c10d, name, self._telling_members(getattr(c10d, name), argument))

    def _can_be_dispatched(self) -> bool:
        import torch

        return DispatchedCalls.are_possible(torch, self._c10d.ProcessGroup)

    def after_fork(self) -> None:
        """In a forked child: the groups are the parent's."""
        self._preparing = threading.Lock()
        self._groups.clear()
        self._pending.clear()
        torch_waits.forget()
        if self._tensor_waits is not None:
            self._tensor_waits.forget()

    def release(self) -> None:
        """The interpreter is about to end: take back every Python function that C++ holds."""
        self._settle(time.monotonic_ns(), is_the_last=True)
        for name, (_, process_group) in self._groups.items():
            self._unhook(name, process_group())
        self._pending.drain(_DRAIN_S)
        if self._worlds:
            time.sleep(_LET_GO_S)

    def _after(self, function: Any, ours: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            try:
                if not self._recorder.is_broken:
                    ours(*args, **kwargs)
            except Exception as error:
                self._recorder.fail(f"{function.__name__}", error)
            return result

        return call

    def _telling_members(self, function: Any, argument: str) -> Any:
        position = list(inspect.signature(function).parameters).index(argument)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            # The NCCL shim, where it is loaded, leaves the world to us: told before NCCL makes its communicator.
            self._recorder.say_that_hooks_write()
            given = args[position] if len(args) > position else kwargs.get(argument)
            if given is None:
                return function(*args, **kwargs)
            self._members.ranks = given
            try:
                return function(*args, **kwargs)
            finally:
                self._members.ranks = None

        return call

    def _joined(self, name: Any, process_group: Any) -> None:
        now_ns = time.monotonic_ns()
        world = self._c10d._world
        # A shrunk default group is the default one before it is registered, a new one only afterwards.
        is_world = world.default_pg is None or world.default_pg is process_group
        size = process_group.size()
        members = _world_ranks(getattr(self._members, "ranks", None) or world.pg_group_ranks.get(process_group), size)
        if members is None:
            self._recorder.note(f"group {str(name)!r} is not watched: c10d did not say who its {size} members are")
            return
        if is_world:
            self._worlds += 1
            self._recorder.rank = process_group.rank()
            self._recorder.world_size = size
        self._prepare()
        self._recorder.start()
        if self._recorder.hold is not None:
            self._recorder.hold.start(self._recorder.rank)
            if is_world:
                self._recorder.hold.world(is_there=True)
        backends = {device.type: process_group._get_backend(device) for device in process_group._device_types}
        group = WatchedGroup(
            self._recorder,
            str(name),
            members,
            generation=max(self._worlds - 1, 0),
            is_world=is_world,
            backend=_backend_name(backends),
            timeout_ms=_timeout_ms(backends),
            ended_by_future=frozenset(device for device, backend in backends.items() if backend.name() == "gloo"),
            device_times=_device_times(backends),
        )
        group.announce(now_ns)
        native = self._recorder.native
        if native is not None:
            ends = "cpu" in group.ended_by_future
            native.attach(process_group, group.handle, list(members), ends, group.device_times, is_world)
        else:
            assert self._tables is not None
            if self._tensor_waits is None and "cpu" in group.ended_by_future:
                self._tensor_waits = self._told_of_tensor_waits()
            hooks = CallHooks(self._recorder, group, self._tables, self._pending)
            if self._dispatched is not None:
                self._dispatched.attach(process_group.group_name, hooks)
            else:
                process_group.register_pre_hook(HOOK_ID, hooks.before)
                process_group.register_post_hook(HOOK_ID, hooks.after)
        self._groups[group.name] = group, weakref.ref(process_group)

    def _left(self, name: Any) -> None:
        self._leave([str(name)])

    def _left_all(self) -> None:
        self._leave(list(self._groups))
        self._recorder.retire()

    def _leave(self, names: Sequence[str]) -> None:
        let_go_s = 0.0
        for name in names:
            left = self._groups.pop(name, None)
            if left is None:
                continue
            group, process_group = left
            if group.is_world and self._recorder.hold is not None:
                self._recorder.hold.world(is_there=False)
            # Somebody (a DDP module) may hold it until the interpreter has gone.
            self._unhook(name, process_group())
            self._settle(time.monotonic_ns())
            self._pending.drain(_DRAIN_S)
            if self._recorder.is_on:
                group.destroy()
            if group.ended_by_future and self._recorder.native is None:
                let_go_s = _LET_GO_S
        if let_go_s:
            time.sleep(let_go_s)

    def _settle(self, now_ns: int, *, is_the_last: bool = False) -> None:
        """Write the ends of what is over by now, and, as the last, of what nobody can wait for any more."""
        if self._recorder.native is not None:
            self._recorder.native.settle(now_ns, is_the_last)
        else:
            torch_waits.settle(threading.get_ident(), now_ns)
            if self._tensor_waits is not None:
                self._tensor_waits.end_what_is_dropped(is_the_last=is_the_last)
            self._pending.end_what_is_over(now_ns)

    def _told_of_tensor_waits(self) -> TensorWaits | None:
        import torch

        if not TensorWaits.are_possible(torch):
            return None
        return TensorWaits(torch, torch_waits.taken, self._recorder.fail)

    def _unhook(self, name: str, process_group: Any) -> None:
        if self._dispatched is not None:
            self._dispatched.detach(name)
        elif process_group is None:
            return
        elif self._recorder.native is not None:
            self._recorder.native.detach(process_group)
        else:
            process_group.unregister_pre_hook(HOOK_ID)
            process_group.unregister_post_hook(HOOK_ID)

    def _prepare(self) -> None:
        """What a process needs once, at its first group: most processes never come here."""
        with self._preparing:
            if not self._is_prepared:
                self._is_prepared = True
                self._prepare_once()

    def _prepare_once(self) -> None:
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook

        if self._has_hooks:
            from torch._C._distributed_c10d import HookOpName

            self._tables = Tables(torch, HookOpName)
        self._recorder.native = native_hooks.load(os.environ)
        if not self._has_hooks and self._recorder.native is None:
            self._tables = Tables(torch, HOOK_NAMES)
            c10d = self._c10d
            self._dispatched = DispatchedCalls(torch, c10d.ProcessGroup, c10d.Work, self._recorder.fail)
        native = self._recorder.native
        self._recorder.hold = hold.load(os.environ)
        if native is not None and self._recorder.hold is not None:
            native.hold(*self._recorder.hold.addresses())
        torch_waits.install(
            self._c10d.ProcessGroup, self._c10d.Work, torch_waits.taken if native is None else native.take_expected
        )
        register_optimizer_step_post_hook(self._markers.optimizer_step)
        exits.install(self._recorder, self.release)


def _world_ranks(given: Any, size: int) -> list[int] | None:
    """World ranks in the order of ranks within the group; nothing given, or an empty list, is the whole world."""
    if isinstance(given, dict):  # world rank -> rank in the group
        return [int(rank) for rank in sorted(given, key=given.__getitem__)]
    if isinstance(given, Sequence) and given:
        return [int(rank) for rank in given] if len(given) == size else None
    return list(range(size))


def _backend_name(backends: dict[str, Any]) -> str:
    """The backend whose calls tell least: a group with NCCL in it is one of NCCL."""
    names = {backend.name() for backend in backends.values()}
    if "nccl" in names:
        return "nccl"
    return str(sorted(names)[0]) if names else ""


_BY_FUTURE, _BY_STREAM = "ProcessGroupNCCL", ("ProcessGroupNCCL2", "ProcessGroupNCCLLazy")


def _device_times(backends: dict[str, Any]) -> DeviceTimes:
    """By what calls on a CUDA device can be timed; other backends' streams are not known."""
    kind = type(backends.get("cuda")).__name__
    return "future" if kind == _BY_FUTURE else "stream" if kind in _BY_STREAM else ""


def _timeout_ms(backends: dict[str, Any]) -> int:
    """The smallest timeout of its backends; 0 where none says."""
    timeouts = []
    for backend in backends.values():
        try:
            timeouts.append(int(backend.options._timeout.total_seconds() * 1000))
        except (AttributeError, TypeError, ValueError, RuntimeError):
            continue
    return min(max(min(timeouts, default=0), 0), 0xFFFFFFFF)
