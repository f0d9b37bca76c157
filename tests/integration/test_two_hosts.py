"""Two hosts, two ranks on each, one head node, no Kafka."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import netns
import pytest
import realjob

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(netns.why_not()) and os.environ.get("CI") != "true", reason=netns.why_not() or "possible"),
]

PORT = 4318
MASTER_PORT = 29_511


class Cluster:
    """A head node on the left host and a job over both."""

    def __init__(self, folder: Path, left: netns.Host, right: netns.Host) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.hosts = (left, right)
        self.token = secrets.token_hex(16)
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
        realjob.until("the head node", lambda: (self.store / "head.json").exists(), 30)

    def stop_head(self, number: int = signal.SIGTERM) -> None:
        """End the head node with a signal."""
        if self.head is not None:
            self.head.send_signal(number)
            self.head.wait(30)
            self.head = None
            (self.store / "head.json").unlink(missing_ok=True)

    def start_job(self, *arguments: object) -> None:
        """`pacehound run --endpoint` on each host, as two people would type it."""
        for number, host in enumerate(self.hosts):
            master = ("--master-addr", self.hosts[0].address, "--master-port", str(MASTER_PORT))
            options = ("--nnodes", "2", "--node-rank", str(number), *master)
            self.runs.append(
                realjob.start(
                    self.folder,
                    realjob.torchrun(*arguments, ranks=2, options=options),
                    "--job",
                    "two-hosts",
                    "--endpoint",
                    f"http://{self.hosts[0].address}:{PORT}",
                    settings=[f"host.name={host.name}"],
                    prefix=host.prefix,
                    name=host.name,
                    env={
                        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{self.token}",
                        "GLOO_SOCKET_IFNAME": host.interface,
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


def calls_are_complete(cluster: Cluster, iterations: int) -> Sequence[int]:
    """Every rank's calls are there once, without a gap, and none was dropped; the number of calls of each rank."""
    rows = cluster.ask(
        "SELECT rank, communicator, count() AS calls, uniqExact(seq) AS rounds, max(seq) - min(seq) + 1 AS span "
        "FROM calls GROUP BY rank, communicator ORDER BY rank"
    )
    assert [row["rank"] for row in rows] == [0, 1, 2, 3]
    for row in rows:
        assert int(row["calls"]) == int(row["rounds"]) == int(row["span"]) >= iterations, row
    return [int(row["calls"]) for row in rows]


def test_one_job_over_two_hosts_has_the_right_ranks_hosts_and_verdict(tmp_path: Path) -> None:
    with cluster(tmp_path) as made:
        made.start_head()
        made.start_job("--iterations", 320, "--slow-rank", 2, "--slow-from", 200, "--slow-by", 0.4)
        made.wait()
        realjob.until("the end of the job", lambda: [i for i in made.incidents() if i["state"] == "closed"], 20)
        (incident,) = made.incidents()
        (finding,) = incident["findings"]
        assert incident["job"] == "two-hosts"
        assert (finding["kind"], finding["verdict"], finding["cause"]) == ("slow", "culprit", "S1"), finding
        assert (finding["culprits"], finding["victims"]) == ([2], [0, 1, 3])
        assert finding["detected"]["step"] <= 230
        hosts = made.ask("SELECT DISTINCT host, rank FROM calls ORDER BY rank")
        assert [(row["rank"], row["host"]) for row in hosts] == [(0, "left"), (1, "left"), (2, "right"), (3, "right")]
        calls_are_complete(made, 320)


AWAY = [
    pytest.param(12, id="short"),
    pytest.param(60, id="long", marks=[pytest.mark.prove]),
]


@pytest.mark.parametrize("away_s", AWAY)
def test_a_head_node_that_is_away_costs_neither_training_nor_calls(tmp_path: Path, away_s: int) -> None:
    iterations = 400 + 18 * away_s
    with cluster(tmp_path) as made:
        made.start_head()
        steps = tmp_path / "steps.csv"
        made.start_job("--iterations", iterations, "--csv", steps)
        realjob.until("a hundred iterations", lambda: made.iterations() >= 100, 90)
        made.stop_head(signal.SIGKILL)
        with pytest.raises(AssertionError, match="did not happen"):
            realjob.until("an end of the job without its head", lambda: made.runs[0].process.poll() is not None, away_s)
        peaks = [_peak_mib(agent) for run in made.runs for agent in realjob.agents(run)]
        made.start_head()
        made.wait(300)
        realjob.until("all iterations", lambda: len(set(_calls_of(made))) == 1 and made.iterations() > 0, 30)
        calls = calls_are_complete(made, iterations)
        times = realjob.script_steps(steps)[20:]
        print(
            f"head away for {away_s} s: {calls} calls of each rank stored, all once; longest step {max(times):.3f} s; "
        )
        print(f"the agents' memory reached {max(peaks):.0f} MiB")
        assert len(peaks) == 2
        assert max(peaks) < 300
        assert sum(times) / len(times) < 0.075


def _peak_mib(pid: int) -> float:
    """The largest resident size that a process has had."""
    status = (Path("/proc") / str(pid) / "status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _calls_of(made: Cluster) -> list[int]:
    return [int(row["calls"]) for row in made.ask("SELECT rank, count() AS calls FROM calls GROUP BY rank")]
