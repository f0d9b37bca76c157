"""Communication libraries loaded in a process whose calls are not seen; a job may hang in one of them."""

from __future__ import annotations

import re
from pathlib import Path

from collector.host.kernel_files import read_text, text_of
from collector.host.processes import PROC

# torch links NVSHMEM and loads it in every process; only a process that uses it loads a bootstrap or transport.
_BY_FILE = (
    ("nvshmem", re.compile(r"nvshmem_(bootstrap|transport)_\w+\.so")),
    ("deep_ep", re.compile(r"deep_ep_cpp.*\.so")),
    ("ucx", re.compile(r"libuc[pt]\.so")),
    ("mpi", re.compile(r"libmpi(_cxx)?\.so")),
    ("mscclpp", re.compile(r"libmscclpp\.so|_mscclpp.*\.so")),
    ("oneccl", re.compile(r"libccl\.so")),
    ("gloo (not torch's)", re.compile(r"libgloo\.so")),
    ("horovod", re.compile(r"horovod.*mpi_lib.*\.so")),
)
_NCCL = re.compile(r"lib[nr]ccl\.so")
# NCCL's own shared memory, and plugins that it loads with its first communicator: it is at work there, linked
# statically or not. torch loads libnccl.so itself in every process, which says nothing; its kernels are not in the map.
_NCCL_AT_WORK = re.compile(r"/dev/shm/nccl-\w+|.*/lib[nr]ccl-(net|tuner|profiler)[^/]*\.so")


def unseen_libraries(pid: int, proc: Path = PROC) -> tuple[str, ...]:
    """Their names, sorted; nothing where the process does not let its map be read."""
    return named(text_of(proc / str(pid) / "maps"))


def at_work(pid: int, proc: Path = PROC) -> tuple[str, ...] | None:
    """Libraries that communicate in a process, NCCL among them, sorted; `None` where its map cannot be read."""
    try:
        return at_work_in(read_text(proc / str(pid) / "maps"))
    except OSError:
        return None


def at_work_in(maps: str) -> tuple[str, ...]:
    r"""The same from the text of /proc/PID/maps.

    >>> at_work_in("7f00 rw-s 0 00:19 7 /dev/shm/nccl-x7QpLw (deleted)\n7f01 r-xp 0 08:01 9 /opt/lib/libmpi.so.40\n")
    ('mpi', 'nccl')
    >>> at_work_in("7f00 r-xp 0 08:01 9 /torch/lib/libnccl.so.2\n")
    ()
    """
    found = {name for name in named(maps) if not name.startswith("nccl (")}
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and _NCCL_AT_WORK.match(fields[5]):
            found.add("nccl")
            break
    return tuple(sorted(found))


def named(maps: str) -> tuple[str, ...]:
    r"""The same from the text of /proc/PID/maps.

    >>> named("7f00 r-xp 0 08:01 7 /opt/ompi/lib/libmpi.so.40\n7f01 r-xp 0 08:01 9 /torch/lib/libnccl.so.2\n")
    ('mpi',)
    >>> named("7f00 r-xp 0 08:01 9 /torch/lib/libnccl.so.2\n7f01 r-xp 0 08:01 11 /opt/nccl/libnccl.so.2\n")
    ('nccl (2 copies)',)
    """
    files: dict[tuple[str, str], str] = {}
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6:
            files[fields[3], fields[4]] = fields[5].rsplit("/", 1)[-1]
    found = {name for file in files.values() for name, pattern in _BY_FILE if pattern.match(file)}
    copies = sum(1 for file in files.values() if _NCCL.match(file))
    if copies > 1:
        found.add(f"nccl ({copies} copies)")
    return tuple(sorted(found))
