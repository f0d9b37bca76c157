"""The hooks of one process group: a launch before each call, a completion when it has ended.

A gloo call is ended when its future is done; the future calls back on one of gloo's threads, on failure too.
Operations without a future (send, recv and, on gloo, reduce_scatter) are handed to `torch_waits`. On NCCL the
future is done at launch and says nothing about the device, so only launches are written there, unless a controller
asks for times (`hold.Hold.time`): then an event stands before and behind a call whose turn it is.

What torch runs on the caller's stream (async_op=False) is over when that stream has come to an event recorded there.
Anything else runs on a stream of torch's own. A future of `ProcessGroupNCCL` calls back with streams current that wait
for the call, and an event on one of those tells; asking a Work of the other process groups of NCCL for its future makes
the script's stream wait (`nccl2/WorkNCCL.cpp`), which would change the job: its asynchronous calls are left out.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from pacehound.instrument import layout, torch_waits
from pacehound.instrument.groups import Call, WatchedGroup
from pacehound.instrument.recorder import Recorder
from pacehound.model.codes import DTYPES, OPS

_OP_OF_NAME = {
    "SEND": "send", "RECV": "recv", "BROADCAST": "broadcast", "ALLREDUCE": "all_reduce",
    "ALLREDUCE_COALESCED": "all_reduce", "REDUCE": "reduce", "ALLGATHER": "all_gather",
    "ALLGATHER_BASE": "all_gather", "ALLGATHER_COALESCED": "all_gather",
    "ALLGATHER_INTO_TENSOR_COALESCED": "all_gather", "REDUCE_SCATTER": "reduce_scatter",
    "REDUCE_SCATTER_BASE": "reduce_scatter", "REDUCE_SCATTER_TENSOR_COALESCED": "reduce_scatter",
    "ALLTOALL": "all_to_all", "ALLTOALL_BASE": "all_to_all", "BARRIER": "barrier", "SCATTER": "scatter",
    "GATHER": "gather",
}  # fmt: skip
# Making a group or a window is no call of a communicator: not all of its members need take part.
_NOT_CALLS = {"SPLIT", "NEW_WINDOW"}
_TORCH_DTYPE = {"float8_e4m3": "float8_e4m3fn"}
_DIRECTION = {"send": layout.SEND, "recv": layout.RECV}


class Pending:
    """The completions that futures have still to call.

    An interpreter that ends while one of gloo's threads waits for it, or while C++ still holds a Python function,
    takes the process down with it (SIGABRT, SIGSEGV). So whoever destroys a group or leaves drains these first.
    """

    def __init__(self) -> None:
        self._completions: dict[int, weakref.ref[_Completion]] = {}

    def add(self, completion: _Completion) -> None:
        """One bytecode under the interpreter's lock, as the next one: safe on any thread."""
        self._completions[id(completion)] = weakref.ref(completion)

    def discard(self, completion: int) -> None:
        """By its id: it has been called and let go of."""
        self._completions.pop(completion, None)

    def end_what_is_over(self, now_ns: int) -> None:
        """The ends of calls whose futures are done, and have not called back: they wait for the interpreter's lock."""
        for kept in list(self._completions.values()):
            completion = kept()
            if completion is not None and completion.future.done():
                completion.end(now_ns)

    def drain(self, timeout_s: float) -> bool:
        """Let other threads call what is due; False where some call has not ended in time."""
        deadline_s = time.monotonic() + timeout_s
        while self._completions and time.monotonic() < deadline_s:
            time.sleep(0.0002)
        return not self._completions

    def clear(self) -> None:
        """In a forked child: they are the parent's."""
        self._completions.clear()


class CallHooks:
    """The pre and post hook of one group, and what its futures call."""

    def __init__(self, recorder: Recorder, group: WatchedGroup, tables: Tables, pending: Pending) -> None:
        self._recorder = recorder
        self._group = group
        self._pending = pending
        self._ops = tables.ops
        self._dtypes = tables.dtypes
        self._stream_of = tables.stream_of
        self._without_future: set[int] = set()
        # The call that each thread has launched and not yet issued.
        self._issuing: dict[int, tuple[int, Call, bool]] = {}

    def before(self, args: Any) -> None:
        """Pre hook: `args` is torch's PreHookArgs."""
        if not self._recorder.is_on:
            return
        try:
            self._launch(args)
        except Exception as error:
            self._recorder.fail("the hook before a call", error)

    def after(self, args: Any) -> None:
        """Post hook: `args` is torch's PostHookArgs. The call has been issued, and has not ended yet."""
        if not self._recorder.is_on:
            return
        try:
            self._issued(args)
        except Exception as error:
            self._recorder.fail("the hook after a call", error)

    def _launch(self, args: Any) -> None:
        op_and_direction = self._ops.get(args.name, (0, layout.NONE))
        if op_and_direction is None:
            return
        op, direction = op_and_direction
        tensors = args.input_tensors or args.output_tensors
        count = dtype = 0
        device = "cpu"
        if tensors:
            first = tensors[0]
            dtype = self._dtypes.get(first.dtype, 0)
            for tensor in tensors:
                count += tensor.numel()
            if not first.is_cpu:
                device = first.device.type
        group = self._group
        root = args.root
        peer = group.members[root] if 0 <= root < len(group.members) else -1
        thread = threading.get_ident()
        torch_waits.settle(thread)
        unissued = self._issuing.pop(thread, None)
        if unissued is not None:
            # The call before this one raised between its two hooks: it never began, and nothing will end it.
            self._never_began(unissued[1])
        hold = self._recorder.hold
        if hold is not None and hold.asked():
            hold.look()
        call = Call(
            op,
            dtype,
            direction,
            layout.ASYNC if args.async_op else 0,
            peer,
            group.number(peer, direction),
            count,
            time.monotonic_ns(),
        )
        if hold is not None and group.device_times and device == "cuda" and hold.wants(call.seq):
            self._time(call, tensors[0].device)
        self._issuing[thread] = (args.op_id, call, device in group.ended_by_future)
        group.launch(call)
        if hold is not None and group.is_world and direction == layout.NONE:
            hold.launched()

    def _issued(self, args: Any) -> None:
        issuing = self._issuing.pop(threading.get_ident(), None)
        if issuing is None or issuing[0] != args.op_id:
            return
        _, call, is_ended_by_future = issuing
        if call.timed is not None:
            self._ends_on_device(call, args.work)
        if not is_ended_by_future:
            return
        if call.op not in self._without_future:
            work = args.work
            if work is None:
                return
            try:
                future = work.get_future()
            except RuntimeError:
                self._without_future.add(call.op)
            else:
                completion = _Completion(self._recorder, self._group, call, future, self._pending)
                future.add_done_callback(completion)
                return
        torch_waits.expect(self._recorder, self._group, call)

    # Times on a device.

    def _time(self, call: Call, device: Any) -> None:
        hold = self._recorder.hold
        if self._group.device_times == "stream" and call.flags & layout.ASYNC:
            hold.untimed()
            return
        call.timed = hold.time(self._group.launch_record(call), self._stream_of(device))
        if call.timed is not None:
            call.flags |= layout.TIMED
            call.device = device

    def _ends_on_device(self, call: Call, work: Any) -> None:
        """The event behind a call that has been issued."""
        timed, call.timed = call.timed, None
        hold, stream_of, device = self._recorder.hold, self._stream_of, call.device
        if not call.flags & layout.ASYNC:
            hold.timed(timed, stream_of(device))
            return
        left = [timed]

        def over(_: Any) -> None:
            hold.timed(left.pop(), stream_of(device))

        try:
            future = work.get_future()
            if future.done():  # it calls back at once, on this thread
                future.add_done_callback(over)
        finally:
            if left:
                hold.timed(left.pop(), None)

    def _never_began(self, call: Call) -> None:
        if call.timed is not None:
            self._recorder.hold.timed(call.timed, None)
        else:
            self._group.complete(call, call.launch_ns, layout.FAILED)


class Tables:
    """Codes by torch's own objects: a look-up by name per call would cost more."""

    def __init__(self, torch: Any, hook_op_name: Any) -> None:
        self.stream_of: Callable[[Any], int] = lambda device: int(torch.cuda.current_stream(device).cuda_stream)
        codes = {name: code for code, name in enumerate(OPS)}
        self.ops: dict[Any, tuple[int, int] | None] = {}
        for name, op in _OP_OF_NAME.items():
            if hasattr(hook_op_name, name):
                self.ops[getattr(hook_op_name, name)] = (codes[op], _DIRECTION.get(op, layout.NONE))
        for name in _NOT_CALLS:
            if hasattr(hook_op_name, name):
                self.ops[getattr(hook_op_name, name)] = None
        self.dtypes: dict[Any, int] = {}
        for code, name in enumerate(DTYPES):
            dtype = getattr(torch, _TORCH_DTYPE.get(name, name), None)
            if code and dtype is not None:
                self.dtypes[dtype] = code


class _Completion:
    """What a future calls when its call has ended."""

    __slots__ = ("__weakref__", "_group", "_left", "_pending", "_recorder", "future")

    def __init__(self, recorder: Recorder, group: WatchedGroup, call: Call, future: Any, pending: Pending) -> None:
        self.future = future  # which lets go of this object when it is done
        self._recorder = recorder
        self._group = group
        self._left = [call]  # taken out by whoever writes its end
        self._pending = pending
        pending.add(self)

    def __del__(self) -> None:
        # Not at the end of the call: the thread takes the interpreter's lock once more to let go of this object.
        self._pending.discard(id(self))

    def __call__(self, future: Any) -> None:
        self.end(time.monotonic_ns())

    def end(self, end_ns: int) -> None:
        """The call is over, if nobody has said so yet."""
        if not self._recorder.is_on:
            return
        try:
            call = self._left.pop()
        except IndexError:
            return
        try:
            flags = 0
            try:
                self.future.value()
            except Exception:  # whatever ended the call; its waiter gets it
                flags = layout.FAILED
            self._group.complete(call, end_ns, flags)
        except Exception as error:
            self._recorder.fail("the completion of a call", error)
