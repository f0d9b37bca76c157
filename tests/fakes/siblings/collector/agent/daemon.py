"""An agent that says twice a second which rank is stopped: the one whose number stands in `<run dir>/stopped`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from pacehound.bus.otlp import OtlpProducer
from pacehound.bus.tls import Trust
from pacehound.errors import Unavailable
from pacehound.model import codec
from pacehound.model.events import HostSample, ProcessState
from pacehound.runtime.head.owner import announced
from pacehound.runtime.unsent import store_of
from pacehound.runtime.watched import Watched, write_watched


@dataclass(frozen=True, kw_only=True)
class Assignment:
    run_dir: Path
    endpoint: str
    headers: Mapping[str, str]
    trust: Trust
    unsent: Path | None
    goes_to: str
    launcher_is_gone: Callable[[], bool]
    when_launcher_calls: Callable[[Callable[[], object]], object]


def run(assignment, settings):
    run_dir = assignment.run_dir
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
        producer = producer_to(assignment)
        try:
            producer.send([codec.encode(sample)])
        finally:
            producer.close()

    while True:
        ended = run_dir / "ended.json"
        over = ended.exists()
        alone = assignment.launcher_is_gone() and not commands_there(run_dir)
        try:
            send(over or alone, json.loads(ended.read_text())["why"] if over else "job ended" if alone else "")
        except Unavailable:
            time.sleep(0.1)
            continue
        if over or alone:
            calls = 100 if (run_dir / "calls").exists() else 0
            write_watched(run_dir, Watched(ranks=4 * bool(calls), calls=calls, iterations=5, sent=1))
            return 0
        time.sleep(0.1)


def producer_to(assignment):
    store = store_of(assignment.endpoint)
    if store is None:
        return OtlpProducer(assignment.endpoint, assignment.headers, trust=assignment.trust, timeout_s=5.0)
    owner = announced(store)
    if owner is None:
        raise Unavailable("no head")
    transport = httpx.HTTPTransport(uds=owner.otlp_socket, verify=False)
    return OtlpProducer("http://head", transport=transport, timeout_s=5.0)


def commands_there(run_dir):
    command = json.loads((run_dir / "command.json").read_text())
    return Path(f"/proc/{command['pid']}").exists()
