"""A head and several hosts that are one machine: each has a run and an agent of its own, and all meet on loopback."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.rig import realjob
from pacehound.bus.signing import signer_of


class Loopback:
    """Its head listens at one port for as long as it lives, so that agents find one that comes after it.

    Parameters
    ----------
    folder
        Where its store is, and what everybody prints.
    job
        By which name its runs go.

    """

    def __init__(self, folder: Path, job: str) -> None:
        self.folder, self.job = folder, job
        self.store = folder / "store"
        self.store.mkdir(parents=True, mode=0o700)
        self.runs: dict[str, realjob.Run] = {}
        self._key = signer_of(self.store).key
        self.token = secrets.token_hex(16)
        self._port = _free_port()
        self._head: subprocess.Popen[bytes] | None = None

    def start_head(self) -> None:
        """`pacehound up`; returns when it answers."""
        if self._head is not None:  # killed
            self._head.wait(30)
        up = [*realjob.PACEHOUND, "up", "--listen", f"127.0.0.1:{self._port}", "--page", "127.0.0.1:0"]
        with (self.folder / "head.log").open("ab") as log:
            self._head = subprocess.Popen(
                [*up, "--store", str(self.store)],
                stdout=log,
                stderr=log,
                env=realjob.environment({"PACEHOUND_TOKEN": self.token}),
                cwd="/",
            )
        realjob.until("the head", self._is_up, 60, 0.1, say=lambda: (self.folder / "head.log").read_text()[-2000:])

    @property
    def url(self) -> str:
        """Where its head listens."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def head_pid(self) -> int:
        """Its process."""
        return self._head.pid if self._head is not None else 0

    def start(
        self, host: str, command: Sequence[str], *, env: Mapping[str, str] = {}, settings: Sequence[str] = ()
    ) -> realjob.Run:
        """`pacehound run … -- command` on a host."""
        self.runs[host] = realjob.start(
            self.folder,
            command,
            *("--job", self.job, "--endpoint", self.url),
            settings=[f"host.name={host}", f"actuators.keys={self._key}", *settings],
            name=host,
            env={"PACEHOUND_TOKEN": self.token, **env},
        )
        return self.runs[host]

    def ask(self, *words: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """A command of ours on this store."""
        command = [*realjob.PACEHOUND, words[0], "--store", str(self.store), *words[1:]]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=realjob.environment())

    def answer(self, *words: str) -> dict[str, Any]:
        """The same with `--json`."""
        done = self.ask(words[0], "--json", *words[1:])
        assert done.stdout, done.stderr[-2000:]
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def agent(self, host: str) -> int:
        """The process of a host's agent; 0 while there is none."""
        return next(iter(realjob.agents(self.runs[host])), 0)

    def stop(self) -> None:
        """End everything."""
        for run in self.runs.values():
            run.stop()
        if self._head is not None and self._head.poll() is None:
            self._head.send_signal(signal.SIGTERM)
            try:
                self._head.wait(30)
            except subprocess.TimeoutExpired:
                self._head.kill()

    def _is_up(self) -> bool:
        try:
            owner = json.loads((self.store / "head.json").read_text())
        except (OSError, ValueError):
            return False
        if owner["pid"] != (self._head.pid if self._head is not None else 0):
            return False
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def kill(pid: int) -> None:
    """With -9."""
    os.kill(pid, signal.SIGKILL)
