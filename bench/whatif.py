"""What-if analysis of the published traces: seconds from parquet to all figures, memory, and growth with workers.

AR is also tiled to 64 and 1,024 DP ranks (`PACEHOUND_BENCH_DP` names others: `64,256`). Each case runs in a process of
its own, so that its memory is its own; what is compiled is loaded before the clock starts.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.recordings import SHARED
from streams.whatif import metrics
from streams.whatif.analysis import analyse, build
from streams.whatif.reader import read_trace
from streams.whatif.scenarios import Job

FOLDER = SHARED / "data" / "whatif"
DP_RANKS = "64,1024"
PUBLISHED_S = {"AR": 1.42}
"""The published code on a machine of two cores, from parquet to all figures."""
PUBLISHED_SIMULATING_S = {"AR x 64 DP ranks": 9.7}
"""The same, its 81 scenarios alone."""


def run() -> list[dict[str, Any]]:
    """One row per case and figure; none where the traces are missing."""
    if not FOLDER.is_dir():
        print(f"bench: no traces at {FOLDER}", file=sys.stderr)
        return []
    rows: list[dict[str, Any]] = []
    for name in ("ST", "AR"):
        rows += _case(name, FOLDER / f"trace-{name}.parquet", repeats=15)
    with tempfile.TemporaryDirectory() as folder:
        for n_dp in map(int, os.environ.get("PACEHOUND_BENCH_DP", DP_RANKS).split(",")):
            tiled = Path(folder) / f"trace-AR{n_dp}.parquet"
            tile(FOLDER / "trace-AR.parquet", n_dp, tiled)
            rows += _case(f"AR x {n_dp} DP ranks", tiled, repeats=5 if n_dp <= 64 else 1)
            tiled.unlink()
    return rows


def tile(path: Path, n_dp: int, into: Path) -> None:
    """The same job with its DP ranks over and over again."""
    table = pq.read_table(path)
    own = int(np.asarray(table["dp_rank"]).max()) + 1
    n_ranks = int(np.asarray(table["rank"]).max()) + 1
    writer: pq.ParquetWriter | None = None
    for copy in range(n_dp // own):
        part = table
        for name, offset in (("dp_rank", copy * own), ("rank", copy * n_ranks)):
            at = part.column_names.index(name)
            part = part.set_column(at, name, pa.array(np.asarray(part[name]).astype(np.int32) + offset))
        writer = writer or pq.ParquetWriter(into, part.schema)
        writer.write_table(part)
    if writer is None:
        raise ValueError(f"{n_dp} DP ranks are fewer than the {own} of {path}")
    writer.close()


def _case(case: str, path: Path, repeats: int) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "bench.whatif", str(path), str(repeats)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{path.name} failed with {done.returncode}: {done.stderr[-2000:]}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    operations = measured.pop("operations")
    rows = [{"case": case, "figure": "operations", "value": operations, "unit": "rows"}]
    for figure, value in measured.items():
        unit = "MiB" if figure.startswith("memory") else "s"
        rows.append({"case": case, "figure": figure, "value": value, "unit": unit})
    per_operation = measured["all figures"] / operations * 1e9
    rows.append({"case": case, "figure": "all figures, each operation", "value": per_operation, "unit": "ns"})
    for published, figure in ((PUBLISHED_S, "all figures"), (PUBLISHED_SIMULATING_S, "simulating")):
        if case in published:
            ratio = published[case] / measured[figure]
            rows.append({"case": case, "figure": f"{figure}, published over ours", "value": ratio, "unit": "x"})
    return rows


def measure(path: Path, repeats: int) -> dict[str, float]:
    """The fastest of the repeats, in seconds (what else runs on the machine only adds); memory in MiB."""
    small = FOLDER / "trace-ST.parquet"
    analyse(build(read_trace(small), small))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds: dict[str, list[float]] = {}

    def timed(figure: str, act: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = act()
        seconds.setdefault(figure, []).append(time.perf_counter() - began)
        return result

    n_operations = 0
    for _ in range(repeats):
        table = timed("reading", partial(read_trace, path))
        n_operations = len(table)
        built = timed("building", partial(build, table, path))
        del table
        timed("simulating", partial(_published_scenarios, built.job))
        timed("figures and causes", partial(analyse, built))
        del built
    fastest = {figure: min(values) for figure, values in seconds.items()}
    fastest["all figures"] = fastest["reading"] + fastest["building"] + fastest["figures and causes"]
    fastest["memory, beyond the libraries"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    return {"operations": n_operations, **fastest}


def _published_scenarios(job: Job) -> None:
    """As many as the published code simulates: original, ideal, each DP rank, stage and type."""
    job.keeping(np.ones(len(job.ops), dtype=bool))
    ideal = job.keeping(np.zeros(len(job.ops), dtype=bool))
    metrics.by_dp_rank(job, ideal)
    metrics.by_stage(job, ideal)
    metrics.by_optype(job, ideal)


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), int(sys.argv[2]))))
