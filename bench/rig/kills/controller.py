"""A controller that says at which step of its protocol it is: `hold`, `validation` or `order` of a job.

    python -m bench.rig.kills.controller STORE JOB hold

One line of JSON for each new state: what it waits for, and of an order at which step it is to be applied.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from actuators.control.applying import ApplyProcedure
from actuators.control.holding import HoldProcedure
from actuators.validation.procedure import ValidationProcedure
from pacehound.cli.controlled_job import controlled_job, driven
from pacehound.settings import Settings

HOLD_S = 3.0
ORDER_WITHIN_S = 30.0
LINGERS_S = 0.5
"""After its last word, to be killed when all is over."""


def main(store: str, job: str, protocol: str) -> None:
    controlled = controlled_job(Path(store), Settings.load({}, ()), job, "a kill run", makes_calls=False)
    name, now_ns = time.time_ns(), time.monotonic_ns()
    procedure: HoldProcedure | ValidationProcedure | ApplyProcedure
    match protocol:
        case "hold":
            procedure = HoldProcedure(name, round(HOLD_S * 1e9), now_ns)
        case "validation":
            procedure = ValidationProcedure(name, now_ns)
        case _:
            procedure = ApplyProcedure(name, "mark", "null", round(ORDER_WITHIN_S * 1e9), now_ns)
    said = ""

    def say() -> None:
        at_step = procedure.at_step if isinstance(procedure, ApplyProcedure) else -1
        print(json.dumps({"state": procedure.state, "reason": procedure.reason, "at_step": at_step}), flush=True)

    for _ in driven(controlled, procedure):
        if procedure.state != said:
            said = procedure.state
            say()
    say()
    time.sleep(LINGERS_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
