"""An agent that says twice a second which rank is stopped: the one whose number stands in `<run dir>/stopped`."""

from __future__ import annotations

import json
import time

import httpx

from pacehound.model import codec
from pacehound.model.events import HostSample, ProcessState


def run(run_dir, endpoint, headers, settings):
    job = json.loads((run_dir / "job.json").read_text())
    (run_dir / "agent.pid").write_text(str(__import__("os").getpid()))

    def send(closed, why):
        stopped = run_dir / "stopped"
        now = time.time_ns()
        processes = ()
        if stopped.exists():
            processes = (ProcessState(rank=int(stopped.read_text()), pid=1, state="stopped", since_ns=now),)
        sample = HostSample(
            job=job["job"], attempt=0, time_ns=now, host=job["host"], processes=processes, closed=closed, closed_why=why
        )
        answer = httpx.post(
            f"{endpoint}/v1/logs",
            content=codec.encode(sample),
            headers={"Content-Type": "application/x-protobuf", **headers},
            timeout=5.0,
        )
        answer.raise_for_status()

    while True:
        ended = run_dir / "ended.json"
        over = ended.exists()
        try:
            send(over, json.loads(ended.read_text())["why"] if over else "")
        except httpx.HTTPError:
            time.sleep(0.1)
            continue
        if over:
            return 0
        time.sleep(0.1)
