"""Other work on a job's machine, as processes of our own: `beside(kind)`.

The kinds are what shared machines are busy with. `compile`: a compiler, again and again. `quota`: a neighbour that
computes for its share of each tenth of a second and is held for the rest, as a control group's quota does it.
`bursts`: a process for each processor that computes for some seconds and rests for some. `steal`: every processor is
taken whole for some tens of milliseconds, as by a hypervisor (a real-time priority where that is allowed).
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

QUOTA_SHARE, QUOTA_PERIOD_S = 0.5, 0.1
BURST_S, REST_S = (1.0, 6.0), (2.0, 10.0)
STOLEN_S, LEFT_S = (0.01, 0.08), (0.1, 0.6)
FUNCTIONS = 400
"""In what is compiled: the compiler takes some tenths of a second for them."""


@contextmanager
def beside(kind: str) -> Iterator[None]:
    """A kind of noise while the block runs; `none` is none."""
    number = 0 if kind == "none" else 1 if kind == "quota" else os.cpu_count() or 1
    running = [subprocess.Popen([sys.executable, __file__, kind, str(place)]) for place in range(number)]
    try:
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


def _compute(for_s: float) -> None:
    until_s = time.perf_counter() + for_s
    while time.perf_counter() < until_s:
        pass


def _compile(rng: random.Random) -> None:
    structs = (
        f"struct S{n} {{ int a[{n + 1}]; }}; int f{n}(struct S{n} *s) {{ return s->a[{n}]; }}" for n in range(FUNCTIONS)
    )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source.c"
        source.write_text("\n".join(structs))
        command = ["cc", "-O2", "-c", str(source), "-o", str(Path(folder) / "object.o")]
        if shutil.which("cc") is None:
            command = [sys.executable, "-m", "compileall", "-qf", str(Path(subprocess.__file__).parent)]
        while True:
            subprocess.run(command, check=True)


def _quota(rng: random.Random) -> None:
    while True:
        _compute(QUOTA_SHARE * QUOTA_PERIOD_S)
        time.sleep((1 - QUOTA_SHARE) * QUOTA_PERIOD_S)


def _bursts(rng: random.Random) -> None:
    while True:
        time.sleep(rng.uniform(*REST_S))
        _compute(rng.uniform(*BURST_S))


def _steal(rng: random.Random) -> None:
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[int(sys.argv[2])]})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        pass  # not allowed to everybody: then it is one more neighbour
    while True:
        time.sleep(rng.uniform(*LEFT_S))
        _compute(rng.uniform(*STOLEN_S))


_KINDS: dict[str, Callable[[random.Random], None]] = {
    "compile": _compile,
    "quota": _quota,
    "bursts": _bursts,
    "steal": _steal,
}
KINDS = tuple(_KINDS)

if __name__ == "__main__":
    _KINDS[sys.argv[1]](random.Random(sys.argv[2]))
