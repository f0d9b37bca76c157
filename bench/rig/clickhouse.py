"""Starts, kills and starts again the HTTP front of tests/fakes/clickhouse_http.py, on the same folder and port."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]


class ClickHouseProcess:
    """A context manager; `url` is where it listens, from the first start to the last."""

    def __init__(self, folder: Path, *users: str, die: str = "") -> None:
        self.folder = folder
        self._users = users
        self._port = 0
        self.process = self._started(die)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    def start(self, die: str = "") -> None:
        """Start it again; returns when it answers."""
        self.process = self._started(die)

    def _started(self, die: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.fakes.clickhouse_http", str(self.folder), "--port", str(self._port)]
        command += [part for user in self._users for part in ("--user", user)] + (["--die", die] if die else [])
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the front did not start"
        self._port = int(line)
        return process

    def kill(self) -> None:
        """As `kill -9`."""
        self.process.send_signal(signal.SIGKILL)
        self.wait()

    def wait(self, timeout_s: float = 60) -> None:
        """Until it has ended."""
        self.process.wait(timeout_s)
        if self.process.stdout is not None:
            self.process.stdout.close()

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def __enter__(self) -> ClickHouseProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_alive:
            self.kill()
