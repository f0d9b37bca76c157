"""Memory that a worker frees is kept for what it makes next.

The columns of a message are some hundred kilobytes to some megabytes, made and freed again with it. The C library gives
pieces of that size back to the kernel, which clears each page when it is next touched: a tenth of what a small job's
batches take (docs/adr/0053-pairs-as-one.md).
"""

from __future__ import annotations

import ctypes

KEPT_BYTES = 256 * 1024 * 1024
"""So much that is free at the end of its heap a worker keeps (chosen: what homes of a job of 16,384 ranks make of all
that its hosts say in a second, and free again; a tenth of what a worker with such a backlog has resident)."""

LARGEST_BYTES = 32 * 1024 * 1024
"""Larger pieces are asked of the kernel by themselves and given back at once, as the C library allows at most."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""`M_TRIM_THRESHOLD` and `M_MMAP_THRESHOLD` of malloc.h."""


def keep_freed_memory() -> bool:
    """Let the C library of this process do so; whether it can (glibc's can)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(_MMAP_THRESHOLD, LARGEST_BYTES))
