"""`python -m bench.soak`: the long form of the fault run; prints what was done, and at the end what was counted.

It exits with a stack trace at the first thing that is lost, doubled or wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from pathlib import Path

from bench.rig.fault_run import FaultRun, Outcome


def soak(folder: Path, *, faults: int, seed: int, outage_s: float, rebalances: bool) -> Outcome:
    """Strike, take the broker and the store away, let workers come and go; then check everything.

    Raises
    ------
    AssertionError
        Something is missing, is there twice, or is not what follows from the log.

    """
    run = FaultRun(folder, seed, say=lambda line: print(line, flush=True))
    try:
        run.start()
        for _ in run.inject_faults(faults):
            pass
        if outage_s:
            run.broker_away(outage_s)
            run.pass_time(20)
            run.store_away(outage_s)
            run.pass_time(20)
        if rebalances:
            for n in (1, 3, 1):
                run.workers_become(n)
                run.pass_time(30)
        return run.end()
    finally:
        run.stop()


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--faults", type=int, default=100, help="kills and stops")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--outage", type=float, default=120.0, metavar="S", help="how long broker and store are away")
    parser.add_argument("--no-rebalance", action="store_true", help="without one worker, three, and one again")
    parser.add_argument("--folder", type=Path, help="keep what was written; must not exist")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pacehound-soak-") as scratch:
        folder = options.folder or Path(scratch) / "run"
        folder.mkdir(parents=True)
        outcome = soak(
            folder,
            faults=options.faults,
            seed=options.seed,
            outage_s=options.outage,
            rebalances=not options.no_rebalance,
        )
    for name, value in dataclasses.asdict(outcome).items():
        print(
            f"{name.replace('_', ' ')}: {value:,.2f}"
            if isinstance(value, float)
            else f"{name.replace('_', ' ')}: {value:,}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
