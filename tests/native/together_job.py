"""Shim (preloaded) and plugin in one process, before a stub NCCL; what its rings hold is printed as JSON.

Arguments: the stub NCCL, the plugin, the NCCL that the plugin is told it runs in (the stub itself, or a real one of
which only the version is asked), the run folder. The stub tells the plugin of calls as NCCL does: on the thread that
launches them, within the call; where the plugin has asked for kernels, of their beginning and end, too.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

KERNEL, PROXY_OP, COLL = 1 << 6, 1 << 3, 1 << 1
SUM, FLOAT, KERNEL_STOP = 0, 7, 22


class Profiler(ctypes.Structure):
    """`ncclProfiler_v5_t` and 6."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        *((function, ctypes.c_void_p) for function in ("init", "start", "stop", "record", "finalize")),
    ]


class Coll(ctypes.Structure):
    """What is told of a collective, with what stands before it."""

    _fields_ = [
        ("type", ctypes.c_uint64),
        ("parent", ctypes.c_void_p),
        ("rank", ctypes.c_int),
        ("seq", ctypes.c_uint64),
        ("func", ctypes.c_char_p),
        ("send", ctypes.c_void_p),
        ("recv", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("root", ctypes.c_int),
        ("datatype", ctypes.c_char_p),
        ("n_channels", ctypes.c_uint8),
        ("n_warps", ctypes.c_uint8),
        ("algorithm", ctypes.c_char_p),
        ("protocol", ctypes.c_char_p),
        ("group", ctypes.c_void_p),
    ]


class Kernel(ctypes.Structure):
    _fields_ = [
        *Coll._fields_[:3],
        ("padding", ctypes.c_int),
        ("channel", ctypes.c_uint8),
        ("gpu_ns", ctypes.c_uint64),
        ("rest", ctypes.c_uint64 * 16),
    ]


class ProxyOp(ctypes.Structure):
    _fields_ = [
        *Coll._fields_[:3],
        ("padding", ctypes.c_int),
        ("pid", ctypes.c_int),
        ("channel", ctypes.c_uint8),
        *((name, ctypes.c_int) for name in ("peer", "n_steps", "chunk_bytes", "is_send")),
        ("rest", ctypes.c_uint64 * 16),
    ]


def main(stub_path: str, plugin_path: str, nccl_path: str, run_dir: Path) -> None:
    stub = ctypes.CDLL(stub_path, mode=ctypes.RTLD_GLOBAL)
    nccl = ctypes.CDLL(None)  # the shim is first in it
    plugin = Profiler.in_dll(ctypes.CDLL(plugin_path), "ncclProfiler_v6")
    handle_t, pointer = ctypes.c_void_p, ctypes.POINTER
    init = ctypes.CFUNCTYPE(
        ctypes.c_int, pointer(handle_t), ctypes.c_uint64, pointer(ctypes.c_int), ctypes.c_char_p, ctypes.c_int,
        ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
    )(plugin.init)  # fmt: skip
    start = ctypes.CFUNCTYPE(ctypes.c_int, handle_t, pointer(handle_t), ctypes.c_void_p)(plugin.start)
    stop = ctypes.CFUNCTYPE(ctypes.c_int, handle_t)(plugin.stop)
    record = ctypes.CFUNCTYPE(ctypes.c_int, handle_t, ctypes.c_int, ctypes.c_void_p)(plugin.record)
    log = ctypes.cast(ctypes.CDLL(nccl_path).ncclGetVersion, ctypes.c_void_p)
    context, mask, n_told = handle_t(), ctypes.c_int(), 0

    def begun(event: Any) -> Any:
        handle = handle_t()
        start(context, ctypes.byref(handle), ctypes.addressof(event))
        return handle

    def tells(size: int, rank: int, peer: int, is_send: int) -> None:
        nonlocal n_told
        call = begun(
            Coll(type=COLL, seq=n_told, func=b"AllReduce", count=64, datatype=b"ncclFloat32", n_channels=1,
                 algorithm=b"RING", protocol=b"LL")
        )  # fmt: skip
        n_told += 1
        if mask.value & PROXY_OP:
            stop(begun(ProxyOp(type=PROXY_OP, parent=call, pid=os.getpid(), peer=1 - rank, n_steps=1, is_send=1)))
        if mask.value & KERNEL:
            kernel = begun(Kernel(type=KERNEL, parent=call, gpu_ns=1_000_000 * n_told))
            record(kernel, KERNEL_STOP, ctypes.byref(ctypes.c_uint64(1_000_000 * n_told + 500_000)))
            stop(kernel)
        stop(call)

    # As within ncclCommInitRank: before there is a communicator.
    init(ctypes.byref(context), 7, ctypes.byref(mask), b"", 1, 2, int(os.environ["RANK"]), log)
    telling = ctypes.CFUNCTYPE(None, *[ctypes.c_int] * 4)(tells)
    ctypes.c_void_p.in_dll(stub, "stub_tells_plugin").value = ctypes.cast(telling, ctypes.c_void_p).value
    comm = handle_t()
    unique = (ctypes.c_char * 128)(*b"together")

    class Unique(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_char * 128)]

    nccl.ncclCommInitRank.argtypes = pointer(handle_t), ctypes.c_int, Unique, ctypes.c_int
    assert nccl.ncclCommInitRank(ctypes.byref(comm), 2, Unique(unique.raw), int(os.environ["RANK"])) == 0
    nccl.ncclAllReduce.argtypes = (handle_t, handle_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, handle_t, handle_t)
    for n in range(12):
        if n % 4 == 3:
            nccl.ncclGroupStart()
        assert nccl.ncclAllReduce(None, None, 64, FLOAT, SUM, comm, handle_t(3)) == 0
        if n % 4 == 3:
            nccl.ncclGroupEnd()
    nccl.stub_synchronize(handle_t(3))
    nccl.ncclCommDestroy(comm)

    from collector.agent.control_block import ControlBlock
    from collector.calls import rings
    from collector.calls.rings import RingReader

    answer: dict[str, Any] = {"mask": mask.value, "told": n_told, "records": []}
    answer["world"] = ControlBlock(run_dir / "control" / f"{os.getpid()}.control").world_launched
    for path in sorted((run_dir / "rings").glob("*.ring")):
        records = RingReader(path).read().records
        for at in range(len(records)):
            prefix = records[at : at + 1].view(rings.CALL)[0]
            writer, kind = path.stem.rpartition("-")[2][0], int(prefix["kind"])
            answer["records"].append([writer, kind, bytes(prefix["handle"]).hex(), int(prefix["seq"])])
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]))
