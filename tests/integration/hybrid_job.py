"""`examples/train_hybrid.py` under a head: it loses a node in mid-step, and its decisions are asked for."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.rig import realjob
from pacehound.runtime.head.client import live_owner
from tests.integration.asked_job import AskedJob

SCRIPT = Path(__file__).parents[2] / "examples/train_hybrid.py"
WITHIN_S = 600


class HybridJob(AskedJob):
    """One job and its head; `settings` are those of the head."""

    process: subprocess.Popen[bytes]

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder, self.store = folder, folder / "store"
        self.log = (folder / "log").open("ab")
        head = [
            *realjob.PACEHOUND,
            "up",
            "--store",
            str(self.store),
            *(word for one in settings for word in ("--set", one)),
        ]
        self.head = subprocess.Popen(head, env=realjob.environment({}), stdout=self.log, stderr=self.log, cwd="/")
        realjob.until("the head", lambda: live_owner(self.store) is not None, WITHIN_S)

    def watched(self, *words: str) -> list[str]:
        """The command that watches what comes behind `--`."""
        return [*realjob.PACEHOUND, "run", "--store", str(self.store), "--job", "hybrid", *words]

    def start(self, words: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            words, env=realjob.environment({"OMP_NUM_THREADS": "1"}), stdout=subprocess.PIPE, stderr=self.log, cwd="/"
        )

    def said(self) -> str:
        return (self.folder / "log").read_text()[-3000:]

    def decisions(self) -> list[dict[str, Any]]:
        found = self.rows("SELECT event FROM decisions ORDER BY time_ns")
        return [json.loads(one["event"]) for one in found]

    def until(self, done: Callable[[], bool], what: str) -> None:
        realjob.until(what, done, WITHIN_S, 0.5, lambda: f"{self.decisions()}; {self.said()}", self.process)

    def end(self) -> dict[str, Any]:
        """What the job says of itself, told to stop; it checks itself that all replicas are equal."""
        (self.folder / "stop").touch()
        out, _ = self.process.communicate(timeout=WITHIN_S)
        assert self.process.returncode == 0, self.said()
        found: dict[str, Any] = json.loads(out[out.index(b"{") :])
        return found

    def close(self) -> None:
        (self.folder / "stop").touch()
        for process in (self.process, self.head):
            if process.poll() is None:
                process.terminate()
                process.wait(WITHIN_S)
