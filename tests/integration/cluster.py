"""A head node and a job of two hosts, each in a network namespace of its own."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import netns

from bench.rig import realjob
from pacehound.bus.otlp_headers import with_pin

PORT = 4318
MASTER_PORT = 29_511


class Cluster:
    """A head node on the left host and a job over both."""

    def __init__(self, folder: Path, left: netns.Host, right: netns.Host) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.hosts = (left, right)
        self.token = secrets.token_hex(16)
        self.pin = ""
        self.head: subprocess.Popen[bytes] | None = None
        self.runs: list[realjob.Run] = []

    def start_head(self, *settings: str) -> None:
        """`pacehound up` on the left host; returns when it answers."""
        left = self.hosts[0]
        sets = [word for setting in settings for word in ("--set", setting)]
        listen = f"{left.address}:{PORT}"
        with (self.folder / "head.log").open("ab") as log:
            self.head = subprocess.Popen(
                [*left.prefix, *realjob.PACEHOUND, "up", "--listen", listen, "--store", str(self.store), *sets],
                stdout=log,
                stderr=log,
                env=realjob.environment({"PACEHOUND_TOKEN": self.token}),
                cwd="/",
            )
        realjob.until("the head node", lambda: (self.store / "head.json").exists(), 60)
        self.pin = json.loads((self.store / "head.json").read_text())["pin"]

    def stop_head(self, number: int = signal.SIGTERM) -> None:
        """End the head node with a signal."""
        if self.head is not None:
            self.head.send_signal(number)
            self.head.wait(30)
            self.head = None
            (self.store / "head.json").unlink(missing_ok=True)

    def start_job(
        self,
        *arguments: object,
        script: Path = realjob.SCRIPT,
        settings: Sequence[str] = (),
        job: str = "two-hosts",
        forks: bool = False,
    ) -> None:
        """`pacehound run --endpoint` on each host, as two people would type it; with torchrun, or with forked ranks."""
        meet = self.hosts[0].address
        for number, host in enumerate(self.hosts):
            master = ("--master-addr", meet, "--master-port", str(MASTER_PORT))
            options = ("--nnodes", "2", "--node-rank", str(number), *master)
            command = realjob.torchrun(*arguments, ranks=2, options=options, script=script)
            places = {"FORKED_FIRST": str(2 * number), "FORKED_WORLD": "4", "FORKED_MEET": f"{meet}:{MASTER_PORT}"}
            self.runs.append(
                realjob.start(
                    self.folder,
                    realjob.forked(*arguments, ranks=2, script=script) if forks else command,
                    "--job",
                    job,
                    "--endpoint",
                    f"https://{self.hosts[0].address}:{PORT}",
                    settings=[f"host.name={host.name}", *settings],
                    prefix=host.prefix,
                    name=host.name,
                    env={
                        "PACEHOUND_TOKEN": with_pin(self.token, self.pin),
                        "GLOO_SOCKET_IFNAME": host.interface,
                        **(places if forks else {}),
                    },
                )
            )

    def wait(self, timeout_s: float = 200) -> None:
        """Both halves of the job end well."""
        for run in self.runs:
            assert run.wait(timeout_s) == 0, run.text()

    def ask(self, statement: str) -> list[dict[str, Any]]:
        """SQL to the head, or to the store when there is none; nothing while neither answers."""
        try:
            return realjob.Run(None, self.store, self.folder).sql(statement)  # type: ignore[arg-type]
        except AssertionError:
            return []

    def incidents(self) -> list[dict[str, Any]]:
        """What is known of incidents now."""
        return realjob.Run(None, self.store, self.folder).incidents()  # type: ignore[arg-type]

    def has_ended(self) -> bool:
        """Nothing that was found is still open."""
        return all(incident["state"] == "closed" for incident in self.incidents())

    def state(self) -> str:
        """What the head knows and what it and the runs printed, for who reads a failure."""
        printed = [path.read_text() for path in (self.folder / "head.log", *(run.output for run in self.runs))]
        seen = self.ask("SELECT count() AS iterations, min(step) AS first, max(step) AS last FROM iterations")
        return "\n".join((str(self.incidents()), str(seen), *(text[-2_000:] for text in printed)))

    def iterations(self) -> int:
        """Iterations that the head has seen."""
        rows = self.ask("SELECT count() AS seen FROM iterations")
        return int(rows[0]["seen"]) if rows else 0


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster whose processes and namespaces end with the test."""
    with netns.two_hosts() as (left, right):
        made = Cluster(folder, left, right)
        try:
            yield made
        finally:
            for run in made.runs:
                run.stop()
            made.stop_head()
