"""The codes that a ring record and a CallBatch share, by position.

Standard library only: this is read inside training processes, where NumPy and Arrow are not ours to import.
"""

from __future__ import annotations

# The position in these tuples is the code in a ring record (collector/native/ring.h): append, never reorder.
OPS = (
    "unknown", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "gather", "scatter",
    "barrier", "send", "recv",
)  # fmt: skip
DTYPES = (
    "unknown", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
    "float64", "float8_e4m3", "float8_e5m2", "bool", "complex64", "complex128",
)  # fmt: skip
DTYPE_BYTES = (0, 1, 1, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1, 8, 16)
REDOPS = ("unknown", "sum", "prod", "min", "max", "avg", "premul_sum", "band", "bor", "bxor")
ALGORITHMS = ("", "ring", "tree", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("", "ll", "ll128", "simple")
DIRECTIONS = ("none", "send", "recv")
SOURCES = (
    "unknown", "c10d", "shim", "profiler", "flight_recorder", "ras", "inspector", "kineto", "otlp", "simulator",
    "profiler_launches",
)  # fmt: skip

JOINING = "init_process_group"
"""The name of a communicator that has one call: the wait in torch's function of that name, of those ranks for whom it
took long. Who came last has no part in it, and lacks nothing for that."""
