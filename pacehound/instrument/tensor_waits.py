"""Ends of calls without a future that torch issues for itself: gloo's reduce_scatter of a functional collective.

Such a collective (sequence parallel, compiled graphs) returns the tensor that its call will fill, and whoever needs it
waits for that tensor (`wait_tensor`). So its call ends with the wait for its result, as one of the script's own ends
with the wait for its Work (`torch_waits`). Between the two a rank works for itself.

Both are operators of torch's library `_c10d_functional`. Kernels under the key BackendSelect see them, also where a
backward pass or a compiled graph calls them, and pass on what they were given.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pacehound.instrument import layout
from pacehound.instrument.torch_waits import OpenCall

_ISSUING = ("reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "reduce_scatter_tensor_out")
_WAITING = ("wait_tensor", "wait_tensors")


class TensorWaits:
    """The calls of this process that end with the wait for a tensor.

    Parameters
    ----------
    torch
        The module.
    take
        Gives the call that the calling thread has issued and nobody watches yet, or None.
    fail
        Told of an error of ours, and where it was; the call is passed on.

    """

    def __init__(
        self, torch: Any, take: Callable[[], OpenCall | None], fail: Callable[[str, BaseException], object]
    ) -> None:
        from torch import library

        self._torch, self._take, self._fail = torch, take, fail
        self._lock = threading.Lock()
        self._open: dict[int, tuple[OpenCall, int]] = {}  # by the memory of a result, and in which step it was issued
        self._steps_ended = 0
        self._behind = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
        self._kernels = library.Library("_c10d_functional", "IMPL")  # they go when it goes
        operators = torch.ops._c10d_functional
        for names, kernel in ((_ISSUING, self._issuing), (_WAITING, self._waiting)):
            for name in names:
                if hasattr(operators, name):
                    self._kernels.impl(
                        name, kernel(getattr(operators, name).default), "BackendSelect", with_keyset=True
                    )

    @staticmethod
    def are_possible(torch: Any) -> bool:
        """Whether this torch has what that takes."""
        return hasattr(torch._C, "_dispatch_keyset_full_after") and hasattr(torch.ops, "_c10d_functional")

    def forget(self) -> None:
        """In a forked child: they are the parent's."""
        self._lock = threading.Lock()
        self._open.clear()

    def end_what_is_dropped(self, *, is_the_last: bool) -> None:
        """At the end of a step, or of all: what was issued before the last one, and not waited for, nobody waits for.

        Torch keeps its Work, and that its result, so that it cannot be seen when the script has let go of it.
        """
        with self._lock:
            dropped = [memory for memory, (_, step) in self._open.items() if is_the_last or step < self._steps_ended]
            left = [self._open.pop(memory)[0] for memory in dropped]
            self._steps_ended += 1
        for call in left:
            call.end()

    def _issuing(self, overload: Any) -> Callable[..., Any]:
        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            result = overload.redispatch(keyset & self._behind, *args, **kwargs)
            try:
                call = self._take()
                if call is not None:
                    self._await(result, call)
            except Exception as error:
                self._fail("a result to be waited for", error)
            return result

        return kernel

    def _waiting(self, overload: Any) -> Callable[..., Any]:
        def kernel(keyset: Any, tensors: Any) -> Any:
            calls = self._waited(tensors) if self._open else []
            try:
                result = overload.redispatch(keyset & self._behind, tensors)
            except BaseException:
                for call in calls:
                    call.end(layout.FAILED)
                raise
            for call in calls:
                call.end()
            return result

        return kernel

    def _await(self, result: Any, call: OpenCall) -> None:
        memories = self._memories(result)
        with self._lock:
            before = self._popped(memories)
            self._open.update((memory, (call, self._steps_ended)) for memory in memories)
        for other in before:  # into the same memory, and not waited for
            other.end()

    def _waited(self, tensors: Any) -> list[OpenCall]:
        try:
            memories = self._memories(tensors)
            with self._lock:
                return self._popped(memories)
        except Exception as error:
            self._fail("the wait for a result", error)
            return []

    def _popped(self, memories: list[int]) -> list[OpenCall]:
        return [self._open.pop(memory)[0] for memory in memories if memory in self._open]

    def _memories(self, given: Any) -> list[int]:
        tensors = [given] if isinstance(given, self._torch.Tensor) else given
        return [tensor.untyped_storage()._cdata for tensor in tensors]
