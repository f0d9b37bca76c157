"""`python -m bench [NAME…] [--out FILE]`: runs the benchmarks and prints what they measured."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import ordinary
from bench.rig import noise

BENCHMARKS = (
    "startup",
    "wire",
    "pipeline",
    "head",
    "hooks",
    "sampled_steps",
    "trainer",
    "native",
    "period",
    "detector",
    "locate",
    "volume",
    "store",
    "planning",
    "whatif",
)
LONG = (
    "detection",
    "root_cause",
    "random_jobs",
    "digests",
    "small",
    "overhead",
    "profiled",
    "always",
    "stages",
    "engine",
    "all_calls",
    "large_job",
    "ordinary",
    "page",
    "mitigation",
    "ski_rental",
    "recovery",
    "recovery_job",
)
"""Minutes: run only when they are named."""


def main() -> int:
    """Run the benchmarks named on the command line, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    help_ = f"{', '.join(BENCHMARKS)} (all of these by default), {', '.join(LONG)} (minutes)"
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, *LONG, []], metavar="NAME", help=help_)
    parser.add_argument("--out", type=Path, default=Path("bench/results.json"), help="where the JSON goes")
    of_ordinary = parser.add_argument_group("ordinary")
    of_ordinary.add_argument("--runs", type=int, default=ordinary.RUNS, help="in all")
    of_ordinary.add_argument(
        "--noise", choices=["none", *noise.KINDS], help="beside all of them  [default: half, in turn]"
    )
    of_ordinary.add_argument("--keep", type=Path, metavar="DIR", help="leave recordings of runs with an incident there")
    options = parser.parse_args()
    asked = {"ordinary": {"runs": options.runs, "noise": options.noise, "keep": options.keep}}
    rows = []
    for name in options.names or BENCHMARKS:
        print(f"bench: {name} …", file=sys.stderr)
        rows += [{"benchmark": name, **row} for row in import_module(f"bench.{name}").run(**asked.get(name, {}))]
    machine = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.release()}
    options.out.write_text(json.dumps({"schema": 1, "machine": machine, "rows": rows}, indent=1) + "\n")
    table = Table("benchmark", "case", "figure", "value", "unit")
    for row in rows:
        table.add_row(row["benchmark"], row["case"], row["figure"], f"{row['value']:,.4g}", row["unit"])
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
