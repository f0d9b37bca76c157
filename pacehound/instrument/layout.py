"""The layout of collector/native/ring.h, for a writer in Python. A test compiles the header and compares the two."""

from __future__ import annotations

import struct

MAGIC = 0x31474E5248434150
VERSION = 2
HEADER_BYTES = 4096
RECORD_BYTES = 128
MEMBERS_PER_RECORD = 23
NAME_BYTES = 68
EXIT_TEXT_BYTES = 84

WRITTEN_OFFSET = 128
CLOSED_OFFSET = 136
CLOSED, OFF = 1, 2

GROUP, MEMBERS, LAUNCH, COMPLETE, MARKER, EXIT, DESTROY, PLACE, OPERATION = 1, 2, 3, 4, 5, 6, 7, 8, 9

CAPTURED, FAILED, ASYNC, END_BOUND, LOCAL_PEER, TIMED = 1, 2, 4, 8, 16, 32

OPTIMIZER_STEP, CHECKPOINT_BEGIN, CHECKPOINT_END, EVALUATION_BEGIN, EVALUATION_END = 0, 1, 2, 3, 4

NONE, SEND, RECV = 0, 1, 2

BACKENDS = {"gloo": 1, "nccl": 2, "mpi": 3, "ucc": 4}

HEADER = struct.Struct("<QIIIIIIQiiiiQ")
"""magic, version, header_bytes, record_bytes, capacity, pid, tid, process_start_ticks, rank, local_rank,
world_size, attempt, created_ns"""

# What follows the stamp of a record: kind, rank, handle and one of the bodies.
_HEAD = "<B3xI16s"
CALL_RECORD = struct.Struct(_HEAD + "6BHiIqqQQQQQqq")
"""op, dtype, redop, direction, flags, source, channels, peer, 0, seq, count, launch_ns, start_ns, end_ns, stream,
group, send_count, recv_count"""
GROUP_RECORD = struct.Struct(_HEAD + f"QiiiBBHI{NAME_BYTES}s")
"""created_ns, generation, world_size, n_members, is_world, backend, 0, timeout_ms, name"""
MEMBERS_RECORD = struct.Struct(_HEAD + f"i{MEMBERS_PER_RECORD}i")
MARKER_RECORD = struct.Struct(_HEAD + "QqII")
"""time_ns, step, marker, ordinal"""
PLACE_RECORD = struct.Struct(_HEAD + "ii")
"""n_members, index"""
EXIT_RECORD = struct.Struct(_HEAD + f"QI{EXIT_TEXT_BYTES}s")
"""time_ns, failed, text"""
OPERATION_RECORD = struct.Struct(_HEAD + "QQq6i")
"""start_ns, end_ns, step, optype, stage, chunk, micro_batch, pipeline, seq"""
EMPTY_RECORD = struct.Struct(_HEAD)
"""PH_DESTROY has no body."""
