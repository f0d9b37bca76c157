"""Calls of a torch whose process groups have no hooks (before 2.15), seen where torch dispatches them.

Each call of a process group, also one that C++ makes by itself (DDP's reducer, functional collectives), is an operator
of the library `c10d`, and the dispatcher chooses its kernel by the tensors' device. Kernels under the key BackendSelect
come before that choice, for any tensor and in every mode in which something is really sent. So one for each operator
tells `CallHooks` what a hook would be told, and passes on what it was given.

Nothing of a call is changed, and none waits here: while it is passed on the interpreter's lock is free, as it is
without us. Each call takes some microseconds more than with hooks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from pacehound.instrument.torch_calls import CallHooks

_NAMES = {
    "send": "SEND", "recv_": "RECV", "recv_any_source_": "RECV", "broadcast_": "BROADCAST", "allreduce_": "ALLREDUCE",
    "allreduce_coalesced_": "ALLREDUCE_COALESCED", "reduce_": "REDUCE", "allgather_": "ALLGATHER",
    "_allgather_base_": "ALLGATHER_BASE", "allgather_coalesced_": "ALLGATHER_COALESCED",
    "allgather_into_tensor_coalesced_": "ALLGATHER_INTO_TENSOR_COALESCED", "reduce_scatter_": "REDUCE_SCATTER",
    "_reduce_scatter_base_": "REDUCE_SCATTER_BASE",
    "reduce_scatter_tensor_coalesced_": "REDUCE_SCATTER_TENSOR_COALESCED", "alltoall_": "ALLTOALL",
    "alltoall_base_": "ALLTOALL_BASE", "barrier": "BARRIER", "scatter_": "SCATTER", "gather_": "GATHER",
}  # fmt: skip
"""What torch's hooks call each operator."""

HOOK_NAMES = SimpleNamespace(**{name: name for name in _NAMES.values()})
"""In the place of torch's `HookOpName`."""

_SENT = ("tensors", "input_tensors", "input_tensor", "inputs", "input", "input_list")
_RECEIVED = ("tensors", "output_tensors", "output_tensor", "outputs", "output", "output_lists")
"""The `tensor` of a barrier says on which device, and holds nothing."""
_ROOTS = ("root_rank", "dst", "src")


class Told:
    """What a hook is told of one call: torch's PreHookArgs and PostHookArgs, as far as anybody here reads them."""

    __slots__ = ("async_op", "input_tensors", "name", "op_id", "output_tensors", "root", "work")

    def __init__(self, name: str, op_id: int, sent: list[Any], received: list[Any], root: int, is_async: bool) -> None:
        self.name = name
        self.op_id = op_id
        self.input_tensors, self.output_tensors = sent, received
        self.root = root
        self.async_op = is_async
        self.work: Any = None


class DispatchedCalls:
    """The operators of this process, and by the name of each group its hooks.

    Parameters
    ----------
    torch
        The module.
    process_group, work
        The classes `ProcessGroup` and `Work` of torch's C++.
    fail
        Told of an error of ours, and where it was; the call is passed on.

    """

    def __init__(self, torch: Any, process_group: Any, work: Any, fail: Callable[[str, BaseException], object]) -> None:
        from torch import library

        self._group_of, self._work_of, self._fail = process_group.unbox, work.unbox, fail
        self._hooks: dict[str, CallHooks] = {}
        self._numbers = itertools.count()
        self._ops = torch.ops.c10d
        self._behind = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
        self._kernels = library.Library("c10d", "IMPL")  # they go when it goes
        for operator, name in _NAMES.items():
            if hasattr(self._ops, operator):
                self._kernels.impl(operator, self._kernel(operator, name), "BackendSelect", with_keyset=True)

    @staticmethod
    def are_possible(torch: Any, process_group: Any) -> bool:
        """Whether this torch has what that takes; 2.4 to 2.11 have, by trial."""
        return hasattr(torch._C, "_dispatch_keyset_full_after") and hasattr(process_group, "unbox")

    def attach(self, group: str, hooks: CallHooks) -> None:
        """Tell these hooks of the calls of a group."""
        self._hooks[group] = hooks

    def detach(self, group: str) -> None:
        """Nobody is told any more."""
        self._hooks.pop(group, None)

    def _kernel(self, operator: str, name: str) -> Callable[..., Any]:
        overload = getattr(self._ops, operator).default
        places = _Places([argument.name for argument in overload._schema.arguments])
        behind, numbers = self._behind, self._numbers

        def kernel(keyset: Any, *args: Any) -> Any:
            hooks = told = None
            try:
                hooks = self._hooks.get(self._group_of(args[places.group]).group_name)
                if hooks is not None:
                    told = places.told(name, next(numbers), args)
                    hooks.before(told)
            except Exception as error:
                hooks = None
                self._fail("the dispatcher before a call", error)
            result = overload.redispatch(keyset & behind, *args)
            if hooks is not None and told is not None:
                try:
                    told.work = self._work(result)
                    hooks.after(told)
                except Exception as error:
                    self._fail("the dispatcher after a call", error)
            return result

        return kernel

    def _work(self, result: Any) -> Any:
        boxed = result[-1] if isinstance(result, tuple) else result
        return None if boxed is None else self._work_of(boxed)


class _Places:
    """Where among the arguments of an operator stands what a hook is told."""

    def __init__(self, names: list[str]) -> None:
        places: Mapping[str, int] = {name: place for place, name in enumerate(names)}
        self.group = places["process_group"]
        self._sent = next((places[name] for name in _SENT if name in places), -1)
        self._received = next((places[name] for name in _RECEIVED if name in places), -1)
        self._root = next((places[name] for name in _ROOTS if name in places), -1)
        self._async = places.get("async_op", -1)

    def told(self, name: str, number: int, args: tuple[Any, ...]) -> Told:
        sent = _tensors(args[self._sent]) if self._sent >= 0 else []
        received = _tensors(args[self._received]) if self._received >= 0 else []
        root = int(args[self._root]) if self._root >= 0 else -1
        is_async = bool(args[self._async]) if 0 <= self._async < len(args) else True
        return Told(name, number, sent, received, root, is_async)


def _tensors(value: Any) -> list[Any]:
    """One tensor, several, or several of each rank, as one list."""
    if not isinstance(value, (list, tuple)):
        return [value]
    return [tensor for one in value for tensor in (one if isinstance(one, (list, tuple)) else (one,))]
