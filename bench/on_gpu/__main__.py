"""`python -m bench.on_gpu`: exits with 0 where all is as it should be, 1 where not, 3 where there is no GPU."""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.on_gpu import machine
from bench.on_gpu.page import is_right, page, plan
from bench.on_gpu.rig import OutOfTime, Rig
from bench.on_gpu.stages import STAGES, Seen, Stage

MOST_S = 600
NO_GPU = 3
ON_THE_CPU = ("--size", "192", "--products", "1", "--gradient-mb", "1")


def main(arguments: Sequence[str]) -> int:
    """Measure, or say what would be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.on_gpu", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/measured-on-gpu.md"))
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--only", choices=[stage.name for stage in STAGES], help="this stage alone")
    help_ = "what can be done of it on the CPU, over gloo; prints the page"
    parser.add_argument("--rehearse", action="store_true", help=help_)
    options = parser.parse_args(arguments)
    if not options.rehearse and (why := machine.why_not()):
        sys.stdout.write(plan(why))
        return NO_GPU
    backend, env = ("gloo", {}) if options.rehearse else ("nccl", machine.job_environment())
    own = ON_THE_CPU if options.rehearse else ()
    seen = []
    with tempfile.TemporaryDirectory(prefix="pacehound-gpu-") as folder:
        rig = Rig(Path(folder), env, time.monotonic() + MOST_S, options.ranks, backend, own)
        for stage in STAGES:
            if options.only in (None, stage.name) and not (options.rehearse and stage.needs_nccl):
                seen.append((stage, *_acted(stage, rig)))
    text = page(machine.facts(), datetime.datetime.now(datetime.UTC).date().isoformat(), seen)
    if options.rehearse or options.only:
        sys.stdout.write(text)
    else:
        options.out.write_text(text)
        sys.stdout.write(f"written: {options.out}\n")
    return 0 if is_right(seen) else 1


def _acted(stage: Stage, rig: Rig) -> tuple[list[Seen], str]:
    """What a stage saw, and why it ended early: the others go on."""
    sys.stderr.write(f"{stage.name}: {stage.does} …\n")
    found: list[Seen] = []
    try:
        for one in stage.act(rig):
            sys.stderr.write(f"  {one.what}: {one.value}\n")
            found.append(one)
    except OutOfTime:
        return found, f"the {MOST_S} s were over"
    except Exception as error:  # a part that does not work here is what this is run to find
        return found, f"{type(error).__name__}: {str(error)[-600:]}"
    finally:
        rig.stop_all()
    return found, ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
