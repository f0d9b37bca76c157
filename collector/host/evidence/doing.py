"""From a stack and the kernel's view to what a rank is doing. Every rule stands here.

A wrong word accuses: `data_loading`, `storage` and `lock` say that a rank is busy with something of its own while
others wait for it. Where two readings are possible the word is `unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from collector.host.evidence.kernel_view import KernelView
from pacehound.model.events import StackState

# Frames are searched from the innermost outward and the first one that belongs somewhere decides. Only the functions
# that make calls count as torch.distributed: wrappers such as FSDP or a pipeline's schedule stand in every stack.
_BY_FRAME: tuple[tuple[StackState, re.Pattern[str]], ...] = (
    (
        "in_call",
        re.compile(
            r"torch/distributed/(distributed_c10d|c10d_logger|_functional_collectives|nn/functional|rendezvous)\b"
            r"|torch/distributed/_functional_collectives_impl"
            r"|\bc10d::|\bProcessGroup(Gloo|NCCL|MPI|UCC)\b|\bgloo::|\bnccl[A-Z]\w+"
            r"|torch/distributed/_symmetric_memory|mpi4py|horovod|deep_ep"
            r"|\b_(wait_)?batch_p2p \("  # a pipeline's transfers, and the wait for them
            # The instrument wraps calls, and the wait for them; what else it wraps may stand in every stack.
            r"|pacehound/instrument/(torch_calls|torch_c10d|torch_waits|tensor_waits|dispatched_calls)\b"
        ),
    ),
    (
        "storage",
        re.compile(
            r"torch/serialization\.py|torch/distributed/checkpoint/|safetensors|fsspec|s3fs|gcsfs|boto|zarr/storage"
        ),
    ),
    ("data_loading", re.compile(r"torch/utils/data/|torchdata|webdataset|litdata|streaming/base/dataset|nvidia/dali")),
)
# A lock inside of one of those is theirs: a data loader waits for its workers on a queue.
_LOCK = re.compile(
    r"\b(wait|acquire|__enter__|join|_wait_for_tstate_lock) \(.*threading\.py"
    r"|\b(get|put|join) \(.*queue\.py"
    r"|multiprocessing/(synchronize|queues|connection|popen_fork)\.py"
    r"|filelock|concurrent/futures"
)
_BACKWARD = re.compile(r"_engine_run_backward|\bbackward \(.*torch/")

_STORAGE_CALLS = frozenset((
    "fsync", "fdatasync", "syncfs", "open", "openat", "openat2", "stat", "lstat", "fstat", "newfstatat", "statx",
    "rename", "renameat", "renameat2", "mkdir", "mkdirat", "unlink", "unlinkat", "getdents64", "truncate",
    "ftruncate", "fallocate", "copy_file_range", "io_getevents",
))  # fmt: skip
_FILE_CALLS = frozenset((
    "read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev",
))  # fmt: skip
_STORAGE_CHANNEL = re.compile(
    r"nfs|rpc_wait|ceph|lustre|ptlrpc|cl_sync_io|fuse|io_schedule|folio_wait|jbd2|blkdev|wait_on_page"
)

BUSY_SHARE = 0.1
"""Of a core: a main thread that only waits and looks up now and then uses far less, one that computes far more."""
ALL_BUSY_SHARE = 0.5
"""Of a core, over all threads: somebody computes for the main thread that waits."""


def doing(frames: Sequence[str], view: KernelView, *, has_open_call: bool, uses_gpu: bool) -> StackState:
    """What a rank is doing.

    Parameters
    ----------
    frames
        Python frames of its main thread, innermost first; empty where only the kernel was asked.
    view
        The kernel's view.
    has_open_call
        It has launched a call that has not ended, as far as the source can see.
    uses_gpu
        A thread that waits for its GPU spins: then using the CPU does not tell computing from waiting.

    Examples
    --------
    >>> blocked = KernelView(state="S", syscall="futex")
    >>> doing(["wait (threading.py:327)", "get (queue.py:171)"], blocked, has_open_call=False, uses_gpu=False)
    'lock'
    >>> doing([], KernelView(state="D", syscall="fsync"), has_open_call=False, uses_gpu=False)
    'storage'

    """
    if view.state in ("T", "t"):
        return "stopped"
    if _is_in_storage(view):
        return "storage"
    by_frames = _by_frames(frames)
    if by_frames == "lock" and has_open_call:
        return "unknown"  # a thread of its own may make the calls, and be what it waits for
    if by_frames is not None:
        return by_frames
    if view.thread_share >= BUSY_SHARE:
        return "unknown" if uses_gpu else "computing"
    if view.process_share >= ALL_BUSY_SHARE and (view.syscall == "futex" or _is_backward(frames)):
        return "unknown" if uses_gpu else "computing"
    if view.syscall in ("futex", "futex_waitv") or (not view.syscall and _is_backward(frames)):
        # Waiting for a call that the host runs is waiting on a futex too.
        if has_open_call:
            return "in_call"
        return "unknown" if uses_gpu or _is_backward(frames) else "lock"
    if view.syscall == "flock":
        return "lock"
    return "unknown"


def _is_in_storage(view: KernelView) -> bool:
    """Whether the kernel itself waits for a file system; a running thread waits for nothing."""
    if view.syscall in _STORAGE_CALLS:
        return True
    is_file = view.target.startswith("/") and not view.target.startswith("/dev/")
    if view.syscall in _FILE_CALLS and is_file:
        return True
    return bool(view.wait_channel and _STORAGE_CHANNEL.search(view.wait_channel))


def _by_frames(frames: Sequence[str]) -> StackState | None:
    has_lock = False
    for frame in frames:
        for state, pattern in _BY_FRAME:
            if pattern.search(frame):
                return state
        has_lock = has_lock or _LOCK.search(frame) is not None
    return "lock" if has_lock else None


def _is_backward(frames: Sequence[str]) -> bool:
    return bool(frames) and _BACKWARD.search(frames[0]) is not None
